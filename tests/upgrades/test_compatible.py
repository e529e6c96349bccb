"""Code that meets newer tables works on if they say that it may; else it says so and stops, also when under way."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from duly import DatabaseError, Duly, SchemaInUse, SchemaTooNew
from duly.doctor.finding import Severity
from duly.domain.records import Lane
from duly.metrics.health import Readiness
from duly.store.call import Dialect
from duly.store.migrate import REPEAT, SchemaVersion, fits, newest
from duly.store.store import Store
from tests.doctor.look import only
from tests.helpers import ROOT, Ledger, eventually, never, opened
from tests.store.factory import WORKER
from tests.store.raw import Raw
from tests.store.test_migrate import works
from tests.upgrades.conftest import Add
from tests.upgrades.steps import COLUMN, FILL, TABLE
from tests.worker.tasks import declare

NOW = newest(Dialect.SQLITE)


def migrated_later(raw: Raw, compatible_from: int | None, version: int = NOW + 1) -> None:
    """Have the tables say that a later release has migrated them."""
    least = "NULL" if compatible_from is None else compatible_from
    applied = ("", "") if raw.is_postgres else (", applied_at", ", 0")
    raw.rows(
        f"INSERT INTO duly.schema_version (version, name, compatible_from{applied[0]}) "
        f"VALUES ({version}, 'later', {least}{applied[1]})"
    )


@pytest.mark.parametrize(
    "found, expected",
    [
        (None, False),
        (SchemaVersion(NOW), True),
        (SchemaVersion(NOW, NOW), True),
        (SchemaVersion(NOW - 1), False),
        (SchemaVersion(NOW - 1, 1), False),
        (SchemaVersion(NOW + 1, None), False),
        (SchemaVersion(NOW + 1, NOW + 1), False),
        (SchemaVersion(NOW + 1, NOW), True),
        (SchemaVersion(NOW + 9, 1), True),
    ],
)
@pytest.mark.parametrize("dialect", Dialect)
def test_which_tables_this_code_may_work_on(found: SchemaVersion | None, expected: bool, dialect: Dialect) -> None:
    assert fits(found, dialect) is expected


@pytest.mark.everywhere
def test_newer_tables_that_say_so_are_worked_on(raw: Raw, database_url: str) -> None:
    migrated_later(raw, NOW)
    with opened(database_url) as jobs:
        assert works(jobs.store)
        assert jobs.migrate() == []
        finding = only(jobs, "installation", "schema")
        assert finding.severity is Severity.OK
        assert f"version {NOW + 1}; this duly knows {NOW} and may work on them" in finding.what


@pytest.mark.everywhere
@pytest.mark.parametrize("least", [None, NOW + 1])
def test_newer_tables_that_do_not_are_refused_by_everything(raw: Raw, database_url: str, least: int | None) -> None:
    migrated_later(raw, least)
    migrated_later(raw, NOW, NOW + 2)  # what is compatible with something that is not, is not
    words = rf"schema version {NOW + 2} and takes code that knows {NOW + 1} or newer, this duly knows {NOW}\."
    with opened(database_url) as jobs:
        for use in (jobs.counts, lambda: works(jobs.store), jobs.migrate, jobs.worker().start):
            with pytest.raises(SchemaTooNew, match=f"{words} Upgrade duly on this machine: pip install"):
                use()
        assert only(jobs, "installation", "schema").severity is Severity.ERROR


def test_readiness_goes_by_what_the_tables_say(raw: Raw, jobs: Duly) -> None:
    class Running:
        state = "running"

        def stuck(self) -> list[str]:
            return []

    migrated_later(raw, NOW)
    assert Readiness(jobs.store, Running()).look().ok
    migrated_later(raw, NOW + 2, NOW + 2)
    answer = Readiness(jobs.store, Running()).look()
    assert not answer.ok
    assert "pip install --upgrade duly" in answer.checks["database"]


def test_a_worker_under_way_goes_on_when_the_tables_say_that_it_may(raw: Raw, jobs: Duly, ledger: Ledger) -> None:
    tasks = declare(jobs, ledger)
    with jobs.worker(lease=0.6) as worker:
        migrated_later(raw, NOW)
        seen = "SELECT seen_at FROM duly.workers"
        before = raw.one(seen)
        eventually(lambda: raw.one(seen) > before)
        tasks.note.enqueue("after")
        eventually(lambda: ledger.count(name="after"))
        assert worker.left_behind is None


def test_a_worker_under_way_that_has_become_too_old_ends_what_runs_and_takes_no_more(
    raw: Raw, jobs: Duly, ledger: Ledger, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    tasks = declare(jobs, ledger)
    with caplog.at_level(logging.ERROR), jobs.worker(lease=0.6) as worker:
        held = tasks.hold.enqueue("held", 3.0)
        eventually(lambda: ledger.count("start", "held"))
        migrated_later(raw, NOW + 1)
        eventually(lambda: worker.left_behind)
        tasks.note.enqueue("too late")
        eventually(lambda: held.refresh().state == "succeeded", 10)
        never(lambda: ledger.count(name="too late"), 1.0)
        assert worker.idle
    assert f"this worker has become too old: the database has schema version {NOW + 1}" in caplog.text
    assert jobs.store.claim("default", [Lane("", "note")], 1, worker_id=WORKER, lease_us=1_000_000), "it is still there"


def test_the_process_of_a_worker_that_has_become_too_old_ends_with_an_error(
    raw: Raw, database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "old_app.py").write_text(
        f"from duly import Duly\njobs = Duly({database_url!r})\n\n@jobs.task\ndef nothing() -> None: ...\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "duly", "worker", "old_app:jobs", "--lease", "500ms"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{tmp_path}"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        eventually(lambda: raw.count("workers") or process.poll(), 20)
        migrated_later(raw, NOW + 1)
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 1, said
    assert "too old" in said
    assert "pip install --upgrade duly" in said
    assert raw.count("workers") == 0


def test_code_that_stumbles_over_what_is_gone_looks_at_the_version_again(raw: Raw, jobs: Duly, ledger: Ledger) -> None:
    note = declare(jobs, ledger).note
    note.enqueue("before")
    raw.rows("ALTER TABLE duly.jobs RENAME COLUMN headers TO captions")
    migrated_later(raw, NOW + 1)
    with pytest.raises(DatabaseError) as first:
        note.using(tags=["x"]).enqueue("after")
    assert not isinstance(first.value, SchemaTooNew)
    with pytest.raises(SchemaTooNew):
        note.using(tags=["x"]).enqueue("after")


def test_a_run_that_cannot_be_recorded_because_of_the_tables_is_recorded_later_as_it_was(
    lite: Duly, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    tasks, raw = declare(lite, ledger), Raw(lite.settings.url)
    with lite.worker():
        held = tasks.hold.enqueue("held", 0.3)
        eventually(lambda: ledger.count("start", "held"))
        migrated_later(raw, None)
        lite.store.database._checked = False  # type: ignore[attr-defined]  # as after an error about the tables
        eventually(lambda: ledger.count("end", "held"))
        never(lambda: raw.count("ended"), 0.5)
        raw.rows(f"DELETE FROM duly.schema_version WHERE version > {NOW}")
        eventually(lambda: held.refresh().state == "succeeded", 20)
    assert [run.outcome for run in held.refresh().runs] == ["succeeded"]
    assert "could not be recorded as it was" not in caplog.text, "somebody tried to record it otherwise"
    raw.close()


# -- before it comes to that ------------------------------------------------------------------------------------------


def test_a_migration_does_not_leave_live_workers_behind(
    raw: Raw, jobs: Duly, database_url: str, ledger: Ledger, add: Add
) -> None:
    declare(jobs, ledger)
    other = Store.open(database_url)
    with jobs.worker(lease=0.6):
        assert raw.one("SELECT knows FROM duly.workers") == NOW
        add(COLUMN, "ALTER TABLE duly.jobs DROP COLUMN headers;")
        with pytest.raises(
            SchemaInUse, match=rf"know schema version {NOW} .*take {NOW + 2} or newer: \S+ pid {os.getpid()} "
        ):
            other.migrate()
        assert raw.one("SELECT max(version) FROM duly.schema_version") == NOW
        assert add(COLUMN, TABLE) == other.migrate()  # these leave nobody behind
    add(COLUMN, TABLE, "ALTER TABLE duly.jobs DROP COLUMN headers;")
    assert other.migrate() == [NOW + 3]
    other.close()


def test_a_worker_that_was_not_seen_for_long_is_not_waited_for(raw: Raw, jobs: Duly, ledger: Ledger, add: Add) -> None:
    declare(jobs, ledger)
    with jobs.worker():
        (row,) = raw.rows("SELECT id, host, boot_id, pid_namespace, process_started_at FROM duly.workers")
    assert raw.count("workers") == 0
    seen = jobs.store.now_us() - 61_000_000
    values = ", ".join(f"'{value}'" for value in row)
    raw.rows(
        "INSERT INTO duly.workers (id, host, boot_id, pid_namespace, process_started_at, pid, started_at, seen_at, "
        f"lease_us, queues, tasks, slots, idle, state, version, knows) "
        f"VALUES ({values}, 1, 0, {seen}, 1, '[]', '[]', 1, false, 'running', '0.0.9', {NOW - 1})"
    )
    added = add("CREATE TABLE duly.more (id integer PRIMARY KEY);")
    assert jobs.migrate() == added


# -- what is said beforehand ------------------------------------------------------------------------------------------


def plan(url: str, *, as_json: bool = False) -> str:
    from click.testing import CliRunner

    from duly.cli import main

    words = ["migrate", "--plan", "--url", url, *(["--json"] if as_json else [])]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_plan_says_what_would_be_done_and_who_may_go_on(raw: Raw, database_url: str, add: Add) -> None:
    assert f"version {NOW}, up to date" in plan(database_url)
    add(COLUMN, FILL.format(rows=10))
    said = plan(database_url)
    assert f"version {NOW}, to {NOW + 2}:" in said
    assert f"  {NOW + 2:04d} later_1: batches" in said
    assert "may go on meanwhile and afterwards" in said
    found = json.loads(plan(database_url, as_json=True))
    assert (found["version"], found["wanted"], found["compatible_from"]) == (NOW, NOW + 2, NOW)
    assert [step["way"] for step in found["migrations"]] == ["a transaction", "batches"]
    add("ALTER TABLE duly.jobs DROP COLUMN headers;")
    assert f"Stop workers and producers first that know no version from {NOW + 1} on" in plan(database_url)
    assert raw.one("SELECT max(version) FROM duly.schema_version") == NOW


def test_a_plan_for_a_file_that_is_not_there_makes_none(tmp_path: Path) -> None:
    assert "has no tables of duly" in plan(f"sqlite:///{tmp_path}/none.db")
    assert list(tmp_path.iterdir()) == []


def test_statements_to_run_by_hand_say_which_are_repeated(add: Add, tmp_path: Path) -> None:
    from duly.store.script import script

    add(COLUMN, FILL.format(rows=10))
    for dialect in Dialect:
        told = list(script(dialect, present=NOW))
        assert [text for text in told if text.startswith(REPEAT + "\nUPDATE")]
        assert told[-1].startswith("INSERT INTO")
        assert f"compatible_from) VALUES ({NOW + 2}, 'later_1'" in told[-1]
        assert told[-1].endswith(f", {NOW})")
