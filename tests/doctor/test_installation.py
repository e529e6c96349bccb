"""The check-up of what everything else needs: connection, schema, clocks, versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from duly import Duly, __version__
from duly.doctor.finding import Severity
from duly.domain.clock import SystemClock
from tests.doctor.look import bad, only
from tests.helpers import opened
from tests.store.raw import Raw

pytestmark = pytest.mark.requirement("C15")


class FastClock(SystemClock):
    """A host whose clock is five seconds ahead."""

    def now_us(self) -> int:
        return super().now_us() + 5_000_000


def test_a_sound_installation_has_neither_warning_nor_error(jobs: Duly) -> None:
    found = jobs.doctor()
    assert bad(found) == []
    assert {each.area for each in found} == {"installation", "database", "workers", "jobs", "recurring", "retention"}
    assert __version__ in only(jobs, "installation", "versions").what


def test_a_check_up_leaves_a_database_without_tables_as_it_is(empty_database_url: str) -> None:
    if empty_database_url.startswith("sqlite"):
        Path(empty_database_url.removeprefix("sqlite:///")).touch()
    with opened(empty_database_url) as jobs:
        found = jobs.doctor(fix=True)
        assert [each.check for each in found if each.severity is Severity.ERROR] == ["schema"]
        assert str(found[-1].next).startswith("run duly migrate --url ")
        assert jobs.store.database.schema_version() is None


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path / 'none.db'}") as jobs:
        assert "there is no database" in only(jobs, "installation", "connection").what
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_answer_is_an_error() -> None:
    with opened("postgresql://nobody:secret@127.0.0.1:1/none") as jobs:
        finding = only(jobs, "installation", "connection")
    assert finding.severity is Severity.ERROR
    assert "secret" not in finding.what
    assert "server is running" in str(finding.next)


@pytest.mark.parametrize("version, step", [(1, "run duly migrate --url "), (99, "upgrade duly on this machine")])
def test_tables_of_another_version_are_named_with_the_command(jobs: Duly, raw: Raw, version: int, step: str) -> None:
    raw.rows("DELETE FROM duly.schema_version WHERE version > 1")
    raw.rows(f"UPDATE duly.schema_version SET version = {version}")
    finding = only(jobs, "installation", "schema")
    assert (finding.severity, finding.evidence["found"]) == (Severity.ERROR, version)
    assert str(finding.next).startswith(step)


def test_a_host_whose_clock_differs_from_the_servers_is_told(pg_url: str) -> None:
    with opened(pg_url) as jobs:
        assert only(jobs, "installation", "clock").severity is Severity.OK
    with opened(pg_url, clock=FastClock()) as jobs:
        finding = only(jobs, "installation", "clock")
    assert finding.severity is Severity.WARNING
    assert -5.5 < float(str(finding.evidence["skew_seconds"])) < -4.5
    assert "behind this host's" in finding.what
