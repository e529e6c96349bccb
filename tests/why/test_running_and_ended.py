"""How a job stands that runs, or that has ended."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta

import pytest

from duly import Backoff, Cancel, Duly, State, current_job
from duly.domain.ids import uuid7
from duly.domain.records import Lane
from duly.why.answer import Reason
from tests.helpers import Ledger, eventually, worker_process
from tests.store.raw import Raw
from tests.why.look import Gate, do, held
from tests.worker.tasks import declare

pytestmark = pytest.mark.requirement("C15")


def test_a_running_job_says_where_since_when_and_how_far_it_is(jobs: Duly, gate: Gate) -> None:
    @jobs.task
    def nap() -> None:
        current_job().progress(0.4, "halfway, nearly")
        gate.wait()

    with held(jobs, gate):
        job = nap.enqueue()
        gate.has_started()
        eventually(lambda: job.why().answer.details["progress"] is not None)
        why = job.why()
        (worker,) = jobs.workers()
        details = why.answer.details
        assert (why.reason, why.state, why.blockers) == (Reason.RUNNING, "running", ())
        assert (details["worker_id"], details["pid"]) == (worker.id, worker.process.pid)
        assert why.since is not None
        assert datetime.now(UTC) - why.since < timedelta(minutes=1)
        assert details["progress"] == pytest.approx(0.4)
        assert details["leased_for"] > 0
        assert details["worker_alive"]
        assert "40% halfway, nearly" in why.text


def test_a_run_that_was_asked_to_stop_says_since_when_and_why(jobs: Duly, gate: Gate) -> None:
    @jobs.task
    def nap() -> None:
        gate.wait()

    with held(jobs, gate):
        job = nap.enqueue()
        gate.has_started()
        job.cancel("no longer wanted")
        why = job.why()
        assert (why.reason, why.answer.because) == (Reason.CANCEL_REQUESTED, "no longer wanted")
        assert why.since is not None


def test_a_run_of_a_killed_worker_says_who_takes_it_over(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger) as doomed:
        job = tasks.limited.enqueue("stuck", 60)
        eventually(lambda: ledger.count("start", "stuck"))
        doomed.kill()
        why = job.why()
        assert (why.reason, why.next) == (Reason.LEASE_LAPSED, "duly worker app:jobs")
        assert (why.answer.details["pid"], why.answer.details["worker_alive"]) == (doomed.pid, False)
        assert why.answer.details["rescuers"] == 0
        assert "No other worker" in why.text


def test_a_run_whose_lease_has_lapsed_is_told_with_the_workers_that_will_rescue_it(
    jobs: Duly, database_url: str, ledger: Ledger
) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger, worker={"lease": 1.0}) as frozen:
        job = tasks.limited.enqueue("stuck", 60)
        eventually(lambda: ledger.count("start", "stuck"))
        frozen.send(signal.SIGSTOP)
        eventually(lambda: job.why().reason is Reason.LEASE_LAPSED)
        with jobs.worker(lease=60.0):
            why = job.why()
            assert (why.reason, why.next) == (Reason.LEASE_LAPSED, None)
            assert why.answer.details["rescuers"] == 1
            assert why.answer.details["leased_for"] <= 0


def test_a_run_of_somebody_who_runs_their_own_loop_has_no_worker_on_record(jobs: Duly) -> None:
    @jobs.task
    def send() -> None: ...

    job = send.enqueue()
    assert jobs.store.claim("default", [Lane("", "send")], 1, worker_id=uuid7(), lease_us=15_000_000)
    why = job.why()
    assert (why.reason, why.answer.details["host"]) == (Reason.RUNNING, None)


def test_a_job_that_succeeded_says_when(jobs: Duly) -> None:
    @jobs.task
    def send() -> None: ...

    with jobs.worker():
        job = send.enqueue()
        job.wait(10)
    why = job.why()
    assert (why.reason, why.state, why.blockers, why.next) == (Reason.SUCCEEDED, "succeeded", (), None)
    assert why.since == job.finished_at


def test_a_job_that_failed_says_with_what_and_after_how_many_runs(jobs: Duly) -> None:
    @jobs.task(retry=Backoff.fixed("1ms", max_attempts=2))
    def send() -> None:
        raise ValueError("no such address")

    with jobs.worker():
        job = send.enqueue()
        eventually(lambda: job.refresh().state is State.FAILED)
        why = job.why()
        assert (why.reason, why.answer.because) == (Reason.FAILED, "ValueError: no such address")
        assert (why.answer.details["attempts"], why.answer.details["max_attempts"]) == (2, 2)
        assert why.next == f"duly jobs retry {job.id}"
        do(jobs, why)
        eventually(lambda: len(job.runs) == 4)


def test_a_job_that_was_cancelled_says_why(jobs: Duly) -> None:
    @jobs.task
    def send() -> None:
        raise Cancel("nobody is left to tell")

    with jobs.worker():
        job = send.enqueue()
        eventually(lambda: job.refresh().state is State.CANCELLED)
    assert (job.why().reason, job.why().answer.because) == (Reason.CANCELLED, "nobody is left to tell")


def test_a_job_that_took_too_many_workers_with_it_is_poison(jobs: Duly, raw: Raw) -> None:
    @jobs.task
    def send() -> None: ...

    job = send.enqueue()
    raw.rows(f"UPDATE duly.waiting SET crashes = 2, suspect = 1 WHERE id = '{job.id}'")
    claimed = jobs.store.claim("default", [Lane("", "send")], 1, worker_id=uuid7(), lease_us=1_000, suspect=True)
    assert len(claimed) == 1
    from duly.maintenance.rescue import rescue_silent

    eventually(lambda: jobs.store.lapsed(1_000) or raw.is_postgres)
    raw.rows("UPDATE duly.running SET leased_until = 1")
    silent = {(claimed[0].id, claimed[0].token)}
    if not rescue_silent(jobs.store, silent, lease_us=0, crash_limit=3):
        pytest.fail("it was not rescued")
    why = job.why()
    assert why.reason is Reason.POISON
    assert "3 runs in a row" in why.text
    assert why.next == f"duly jobs retry {job.id}"
