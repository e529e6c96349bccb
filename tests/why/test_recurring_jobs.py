"""Why a recurring job does not run: its next tick, disabled, failing, or still at the run before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from duly import Backoff, Duly, State
from duly.why.answer import Reason
from tests.helpers import eventually
from tests.store.raw import Raw
from tests.why.look import Gate, do, held, reasons

pytestmark = pytest.mark.requirement("C15")


def test_a_recurring_job_says_when_it_runs_next_and_can_be_run_now(jobs: Duly) -> None:
    @jobs.task
    def refresh() -> None: ...

    job = refresh.recur("feed 1", every="1h", start_at=datetime.now(UTC) + timedelta(minutes=30))
    with jobs.worker():
        why = job.why()
        assert (why.reason, why.until) == (Reason.RECURS, job.next_run_at)
        assert "every 1h" in why.text
        assert why.next == f"duly schedules run {job.id}"
        do(jobs, why)
        eventually(lambda: job.refresh().last_outcome == "succeeded")


def test_a_disabled_recurring_job_says_by_whom_since_when_and_why(jobs: Duly) -> None:
    @jobs.task
    def refresh() -> None: ...

    job = refresh.recur("feed 1", every="1h")
    job.disable("the feed is gone", by="ann")
    why = job.why()
    assert (why.reason, why.state) == (Reason.DISABLED, "disabled")
    assert (why.answer.by, why.answer.because) == ("ann", "the feed is gone")
    assert why.since is not None
    assert why.next == f"duly schedules enable {job.id}"
    do(jobs, why)
    assert job.why().reason is not Reason.DISABLED


def test_a_recurring_job_that_fails_says_so(jobs: Duly) -> None:
    @jobs.task(retry=Backoff.fixed("30m"))
    def refresh() -> None:
        raise ConnectionError("feed is away")

    job = refresh.recur("feed 1", every="1h")
    with jobs.worker():
        eventually(lambda: job.refresh().consecutive_failures == 1)
        why = job.why()
    assert (why.reason, why.answer.details["failures"]) == (Reason.RETRY, 1)
    assert "feed is away" in why.text
    assert why.until == job.next_run_at


def test_a_recurring_job_whose_run_takes_longer_than_its_period_says_so(jobs: Duly, gate: Gate) -> None:
    @jobs.task
    def refresh() -> None:
        gate.wait()

    job = refresh.recur("feed 1", every="1s", overlap="queue")
    with held(jobs, gate):
        gate.has_started()
        eventually(lambda: job.why().reason is Reason.PREVIOUS_RUN)
        why = job.why()
        assert why.state == "running"
        assert "follows when it has ended (overlap=queue)" in why.text


def test_a_recurring_job_that_is_due_is_held_by_what_holds_any_job(jobs: Duly) -> None:
    @jobs.task
    def refresh() -> None: ...

    jobs.pause(task="refresh", by="ann")
    job = refresh.recur("feed 1", every="1h")
    assert reasons(job.why()) == ["paused", "no_worker"]


def test_a_recurring_job_that_is_enabled_and_in_no_place_is_damage(jobs: Duly, raw: Raw) -> None:
    @jobs.task
    def refresh() -> None: ...

    job = refresh.recur("feed 1", every="1h")
    raw.rows("DELETE FROM duly.scheduled")
    raw.rows("DELETE FROM duly.waiting")
    assert job.why().reason is Reason.NOWHERE
    jobs.doctor(fix=True)
    assert jobs.get(job.id).state in (State.SCHEDULED, State.QUEUED)
