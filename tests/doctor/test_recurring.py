"""Recurring jobs that would not recur: found, and mended."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from duly import Duly, RecurringJob
from duly.doctor.finding import Severity
from duly.domain.errors import RecurringJobNotFound
from duly.domain.records import HOLD
from duly.store.ops_repair import FENCE_GAP
from duly.testing import TestClock
from tests.doctor.look import bad, findings, only
from tests.store import invariants
from tests.store.factory import Factory
from tests.store.raw import Raw

pytestmark = pytest.mark.requirement("C15")


@pytest.fixture
def feed(timed: Duly) -> Callable[..., RecurringJob]:
    """A recurring job of a task that fetches."""

    @timed.task
    def fetch(n: int) -> None: ...

    def make(key: str = "a", overlap: str | None = None) -> RecurringJob:
        return fetch.recur(key, every="1h", args={"n": 1}, overlap=overlap)

    return make


def mend(jobs: Duly, raw: Raw, check: str) -> tuple[str, ...]:
    finding = only(jobs, "recurring", check, fix=True)
    assert finding.severity is Severity.ERROR
    assert finding.fixed, finding.refused
    assert bad(findings(jobs, "recurring", check)) == []
    invariants.check(raw)
    return finding.fixed


def test_one_that_is_enabled_and_in_no_place_waits_again(
    timed: Duly, raw: Raw, make: Factory, feed: Callable[..., RecurringJob]
) -> None:
    job = feed()
    timed.store.promote()
    lost = make.take(task="fetch")
    raw.rows("DELETE FROM duly.running")
    assert mend(timed, raw, "nowhere") == ("fetch 'a' waits for its next run again",)
    timed.store.promote()
    again = make.take(task="fetch")
    assert (again.id, again.hold) == (job.id, HOLD["recurs"])
    assert again.token >= lost.token + FENCE_GAP - 1
    assert not make.finish(lost)
    assert make.finish(again)
    invariants.check(raw)


def test_one_that_makes_a_job_per_tick_goes_back_to_that(
    timed: Duly, raw: Raw, feed: Callable[..., RecurringJob]
) -> None:
    feed(overlap="allow")
    raw.rows("DELETE FROM duly.scheduled")
    mend(timed, raw, "nowhere")
    assert raw.rows("SELECT hold FROM duly.scheduled") == [(HOLD["spawns"],)]
    assert len(timed.store.spawn()) == 1


def test_one_that_is_disabled_and_in_its_place_leaves_it(
    timed: Duly, raw: Raw, feed: Callable[..., RecurringJob]
) -> None:
    job = feed()
    raw.rows("UPDATE duly.recurring SET enabled = false")
    mend(timed, raw, "disabled")
    assert raw.count("scheduled") == 0
    assert timed.recurring_by_id(job.id).enabled is False


@pytest.mark.parametrize("enabled", [True, False])
def test_one_that_seems_to_have_ended_has_not(
    timed: Duly, raw: Raw, make: Factory, feed: Callable[..., RecurringJob], enabled: bool
) -> None:
    job = feed()
    if not enabled:
        job.disable()
    raw.rows(
        "INSERT INTO duly.ended (id, state, finished_at, token, attempt, crashes)"
        f" VALUES ('{job.id}', 'failed', 1, 9, 1, 0)"
    )
    timed.doctor(fix=True)
    invariants.check(raw)
    assert make.state(job.id) == ("scheduled" if enabled else "disabled")
    assert [each for each in bad(timed.doctor()) if each[0] in ("jobs", "recurring")] == []


def test_a_schedule_without_its_job_is_forgotten_so_that_it_can_be_made_again(
    timed: Duly, raw: Raw, feed: Callable[..., RecurringJob]
) -> None:
    feed()
    raw.rows("DELETE FROM duly.jobs")
    with pytest.raises(RecurringJobNotFound):
        feed()
    mend(timed, raw, "rows")
    assert feed().created


@pytest.mark.parametrize("placed", [True, False])
def test_how_one_stands_is_read_off_its_place(
    timed: Duly, raw: Raw, feed: Callable[..., RecurringJob], placed: bool
) -> None:
    job = feed()
    at = raw.one("SELECT run_at FROM duly.scheduled")
    raw.rows("DELETE FROM duly.recurring")
    if not placed:
        raw.rows("DELETE FROM duly.scheduled")
    mend(timed, raw, "rows")
    assert timed.recurring_by_id(job.id).enabled is placed
    assert raw.one("SELECT next_run_at FROM duly.recurring") == (at if placed else None)
    timed.recurring_by_id(job.id).enable()
    invariants.check(raw)


@pytest.mark.parametrize("where", ["scheduled", "running", "disabled"])
def test_one_without_its_schedule_runs_once_more_at_most(
    timed: Duly, raw: Raw, make: Factory, feed: Callable[..., RecurringJob], where: str
) -> None:
    job = feed()
    lost = None
    if where == "running":
        timed.store.promote()
        lost = make.take(task="fetch")
    if where == "disabled":
        job.disable()
    raw.rows("DELETE FROM duly.schedules")
    mend(timed, raw, "rows")
    if where == "disabled":
        assert make.state(job.id) == "cancelled"
        return
    timed.store.promote()
    run = make.take(task="fetch")
    assert lost is None or not make.finish(lost)
    assert make.finish(run)
    assert make.state(job.id) == "succeeded"
    invariants.check(raw)


def test_one_that_ended_is_told_apart_from_one_that_failed_too_often(
    timed: Duly, raw: Raw, feed: Callable[..., RecurringJob]
) -> None:
    for key, by, reason in (
        ("a", "duly", "its schedule has ended"),
        ("b", "duly", "it failed 3 times in a row"),
        ("c", "operator", "on holiday"),
        ("d", "duly: no longer declared", "feeds no longer declares it"),
    ):
        feed(key).disable()
        raw.rows(
            f"UPDATE duly.recurring SET disabled_by = '{by}', disabled_reason = '{reason}'"
            f" WHERE id = (SELECT id FROM duly.schedules WHERE key = '{key}')"
        )
    told = {each.evidence["example"]: each.severity for each in findings(timed, "recurring", "paused")}
    assert told == {"fetch 'a'": Severity.INFO, "fetch 'b'": Severity.WARNING, "fetch 'd'": Severity.INFO}


def test_one_that_is_long_due_and_still_waits_for_a_worker_is_told(
    timed: Duly, clock: TestClock, feed: Callable[..., RecurringJob]
) -> None:
    feed()
    clock.advance(timedelta(hours=3))
    finding = only(timed, "jobs", "due")
    assert (finding.severity, finding.evidence["recurring"]) == (Severity.WARNING, 1)


def test_a_mirror_that_refuses_leaves_everything_as_it_was(
    timed: Duly, raw: Raw, feed: Callable[..., RecurringJob]
) -> None:
    feed()
    raw.rows("DELETE FROM duly.scheduled")
    raw.rows("INSERT INTO duly.mirrors (task, sql) VALUES ('fetch', 'INSERT INTO nothing_there VALUES (1)')")
    finding = only(timed, "recurring", "nowhere", fix=True)
    assert finding.fixed is None
    assert "mirror" in str(finding.refused)
    assert finding.left is Severity.ERROR
    assert raw.count("scheduled") == 0
