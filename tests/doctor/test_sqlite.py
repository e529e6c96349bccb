"""The check-up of an SQLite file."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from duly import Duly
from duly.doctor import sqlite
from duly.doctor.finding import Severity
from duly.domain.limits import Says
from duly.store import filesystem
from tests.doctor.look import findings, only
from tests.helpers import opened
from tests.store.raw import Raw

pytestmark = pytest.mark.requirement("C15")


@pytest.fixture
def path(sqlite_url: str) -> Path:
    return Path(sqlite_url.removeprefix("sqlite:///"))


def test_a_file_that_is_not_in_wal_is_told(lite: Duly, path: Path) -> None:
    assert only(lite, "database", "journal").evidence["journal_mode"] == "wal"
    lite.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()
    finding = only(lite, "database", "journal")
    assert (finding.severity, finding.evidence["journal_mode"]) == (Severity.WARNING, "delete")


def test_commits_that_a_power_cut_may_take_are_worth_knowing(sqlite_url: str) -> None:
    with opened(sqlite_url, synchronous="normal") as jobs:
        assert only(jobs, "database", "journal").severity is Severity.INFO


def test_a_log_that_grows_without_end_is_told(lite: Duly, path: Path) -> None:
    lite.store.now_us()
    assert only(lite, "database", "wal").severity is Severity.OK
    assert sqlite.log_size(100 << 20).severity is Severity.WARNING
    assert "100 MiB" in sqlite.log_size(100 << 20).what


def test_a_network_disk_is_told(tmp_path: Path) -> None:
    kind = filesystem.kind_of(tmp_path, f"server:/export {tmp_path} nfs4 rw 0 0")
    assert sqlite.disk(kind).severity is Severity.ERROR
    assert sqlite.disk("ext4").severity is Severity.OK


def test_a_disk_that_is_nearly_full_is_told(lite: Duly) -> None:
    finding = only(lite, "database", "space")
    assert int(str(finding.evidence["free_bytes"])) > 0
    assert sqlite.space(50 << 20, 1 << 20).severity is Severity.ERROR
    assert sqlite.space(500 << 20, 1 << 20).severity is Severity.WARNING
    assert sqlite.space(2 << 30, 3 << 30).severity is Severity.WARNING
    assert sqlite.space(20 << 30, 3 << 30).severity is Severity.OK


def test_a_lock_that_somebody_never_lets_go_is_told(lite: Duly, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr(sqlite, "LOCK_SECONDS", 0.05)
    assert only(lite, "database", "lock").severity is Severity.OK
    file = os.open(path.with_name(f"{path.name}-duly.lock"), os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        finding = only(lite, "database", "lock")
    finally:
        os.close(file)
    assert finding.severity is Severity.ERROR
    assert "held by another process" in finding.what


def test_a_missing_index_is_told_with_the_statement(lite: Duly, raw: Raw) -> None:
    assert only(lite, "database", "indexes").severity is Severity.OK
    raw.rows("DROP INDEX duly_ended_by_state")
    finding = only(lite, "database", "indexes")
    assert finding.severity is Severity.ERROR
    assert str(finding.next).startswith("run CREATE INDEX duly_ended_by_state ON duly_ended")


def test_a_damaged_file_is_told(lite: Duly, path: Path, raw: Raw) -> None:
    lite.store.gates.set_limit("task", "send", Says(slots=3))
    lite.close()
    root = raw.one("SELECT rootpage FROM sqlite_master WHERE name = 'duly_ended_by_state'")
    size = raw.one("PRAGMA page_size")
    raw.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * 100)
    [finding] = findings(lite, "database", "quick_check")
    assert finding.severity is Severity.ERROR
    assert "damaged" in finding.what


def test_a_large_file_is_only_read_through_when_asked_for(lite: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "SMALL_FILE", 1)
    assert only(lite, "database", "quick_check").severity is Severity.INFO
    [finding] = [each for each in lite.doctor(deep=True) if each.check == "quick_check"]
    assert finding.severity is Severity.OK
