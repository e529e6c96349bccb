"""What operators do to one job, done to a recurring one; and what becomes of one that kills its workers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from duly import Conflict, Duly, JobNotFound, JobNotRetryable, RecurringJobNotFound, State, current_job
from duly.testing import TestClock, drain
from tests.helpers import Ledger, eventually, worker_process
from tests.recurring.killed import claim, kill_a_run
from tests.store import invariants
from tests.store.raw import Raw

HOUR = timedelta(hours=1)


@pytest.fixture
def runs(timed: Duly) -> list[datetime | None]:
    """The ticks of the runs of a task named fetch."""
    ticks: list[datetime | None] = []

    @timed.task
    def fetch() -> None:
        ticks.append(current_job().tick)

    return ticks


def test_retry_runs_it_now_beside_its_schedule(timed: Duly, clock: TestClock, runs: list[object]) -> None:
    job = timed["fetch"].recur("f", cron="@hourly")
    timed.retry(job.id)
    assert drain(timed).succeeded == 1
    assert (runs, job.refresh().next_run_at) == ([clock.now()], clock.now() + HOUR)
    timed.set_state(job.id, "queued")
    assert drain(timed).succeeded == 1
    clock.advance("1h")
    assert drain(timed).succeeded == 1
    assert runs[-1] == clock.now()


def test_verbs_for_one_that_runs(timed: Duly, clock: TestClock, runs: list[object], raw: Raw) -> None:
    job = timed["fetch"].recur("f", every="1h")
    run = claim(timed, "fetch")
    with pytest.raises(Conflict, match="is running"):
        timed.retry(job.id)
    with pytest.raises(Conflict, match="is running"):
        timed.reschedule(job.id, delay=60)
    with pytest.raises(Conflict, match="recurs and has no end"):
        timed.set_state(job.id, "failed")
    assert timed.cancel(job.id, "enough") == "asked"
    invariants.check(raw)
    timed.delete(job.id)
    assert timed.store.renew([(run.id, run.token)], 1_000_000) == {}
    with pytest.raises(JobNotFound):
        timed.get(job.id)


def test_verbs_for_one_that_waits(timed: Duly, clock: TestClock, runs: list[object]) -> None:
    job = timed["fetch"].recur("f", cron="@hourly")
    with pytest.raises(Conflict, match=r"recurs and does not run now\. Disable it, or delete it"):
        timed.cancel(job.id)
    for state in ("succeeded", "failed"):
        with pytest.raises(Conflict, match="recurs and has no end"):
            timed.set_state(job.id, state)
    timed.reschedule(job.id, delay="10m")
    assert job.refresh().next_run_at == clock.now() + timedelta(minutes=10)
    clock.advance("10m")
    drain(timed)
    assert job.refresh().next_run_at == datetime(2100, 1, 1, 1, tzinfo=UTC)
    timed.set_priority(job.id, 42)
    assert job.refresh().record.priority == 42
    assert timed.boost(job.id) == 52
    timed.delete(job.id)
    with pytest.raises(RecurringJobNotFound):
        job.refresh()
    with pytest.raises(RecurringJobNotFound, match="deleted already"):
        job.delete()


def test_verbs_for_one_that_is_disabled(timed: Duly, clock: TestClock, runs: list[object]) -> None:
    job = timed["fetch"].recur("f", cron="@hourly")
    job.disable()
    verbs: list[Callable[[], object]] = [lambda: timed.retry(job.id), job.run_now]
    for verb in verbs:
        with pytest.raises(Conflict, match=r"is disabled\. Enable it first"):
            verb()
    with pytest.raises(Conflict):
        timed.cancel(job.id)
    with pytest.raises(Conflict, match="has no end"):
        timed.set_state(job.id, "succeeded")
    timed.reschedule(job.id, delay="10m")
    assert (job.refresh().enabled, job.next_run_at) == (False, clock.now() + timedelta(minutes=10))
    job.edit(cron="30 * * * *", priority=7, queue="slow", name="Half past")
    assert (job.enabled, job.next_run_at) == (False, clock.now() + timedelta(minutes=30))
    clock.advance("2h")
    assert drain(timed).runs == ()
    assert job.enable() == clock.now()
    assert drain(timed).succeeded == 1
    assert (timed.get(job.id).queue, timed.get(job.id).priority) == ("slow", 7)


def test_many_at_once_say_what_they_do_not_do(timed: Duly, runs: list[object]) -> None:
    job, plain = timed["fetch"].recur("f", every="1h"), timed["fetch"].enqueue()
    for many in (timed.cancel_many, timed.retry_many, timed.delete_many):
        answer = many([job.id, plain.id])
        assert (answer.done, answer.refused[0][0]) == ([plain.id], job.id)
        assert "it recurs" in answer.refused[0][1]
    assert job.refresh().enabled


def test_it_is_listed_among_jobs_in_its_state(timed: Duly, runs: list[object]) -> None:
    job = timed["fetch"].recur("f", cron="@hourly")
    assert [(each.id, each.state) for each in timed.list()] == [(job.id, State.SCHEDULED)]
    job.disable()
    assert [(each.id, each.state) for each in timed.list()] == [(job.id, State.DISABLED)]
    assert [each.id for each in timed.list(state="disabled")] == [job.id]
    assert timed.list(state="scheduled") == []


def test_a_move_to_another_queue_or_priority_keeps_a_run_by_hand(timed: Duly, runs: list[object]) -> None:
    job = timed["fetch"].recur("f", cron="@hourly")
    job.run_now()
    job.edit(queue="other", priority=9)
    assert drain(timed).succeeded == 1


def test_cancelling_a_running_one_ends_only_that_run(jobs: Duly) -> None:
    started, stopped = threading.Event(), threading.Event()

    @jobs.task
    def fetch() -> None:
        started.set()
        if current_job().wait_cancelled(20):
            stopped.set()

    job = fetch.recur("f", cron="@yearly")
    job.run_now()
    with jobs.worker():
        assert started.wait(10)
        assert jobs.cancel(job.id, "wrong feed") == "asked"
        assert stopped.wait(10)
        eventually(lambda: job.refresh().last_outcome)
        assert (job.enabled, job.last_outcome, job.consecutive_failures) == (True, "cancelled", 0)
        assert job.next_run_at is not None
        started.clear()
        job.run_now()
        assert started.wait(10)
        jobs.cancel(job.id)


# -- killed -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A8", "E5")
def test_a_run_whose_worker_died_is_run_again_for_the_same_tick(
    timed: Duly, clock: TestClock, runs: list[object]
) -> None:
    job = timed["fetch"].recur("f", every="1h")
    tick = clock.now()
    assert kill_a_run(timed, clock, "fetch") == 1
    job.refresh()
    assert (job.enabled, job.last_outcome, job.consecutive_failures) == (True, "crashed", 1)
    assert drain(timed).succeeded == 1
    job.refresh()
    assert (runs, job.consecutive_failures, job.next_run_at) == ([tick], 0, tick + HOUR)


@pytest.mark.requirement("A8")
def test_one_that_takes_three_workers_with_it_is_disabled(timed: Duly, clock: TestClock, runs: list[object]) -> None:
    job = timed["fetch"].recur("f", every="1h")
    for crash in (1, 2, 3):
        assert job.refresh().enabled
        kill_a_run(timed, clock, "fetch")
        assert job.refresh().consecutive_failures == crash
        clock.advance("1h")
    assert not job.enabled
    assert job.disabled_reason is not None
    assert job.disabled_reason.startswith("poison: 3 runs in a row")
    assert drain(timed).runs == ()
    job.enable()
    assert drain(timed).succeeded == 1
    assert job.refresh().consecutive_failures == 0


@pytest.mark.requirement("A8")
def test_disabled_while_its_worker_was_dying_it_stays_disabled(
    timed: Duly, clock: TestClock, runs: list[object]
) -> None:
    job = timed["fetch"].recur("f", every="1h")
    claim(timed, "fetch")
    job.disable("enough")
    kill_a_run(timed, clock, None)
    job.refresh()
    assert (job.enabled, job.running, job.disabled_reason) == (False, False, "enough")
    clock.advance("5h")
    assert drain(timed).runs == ()


@pytest.mark.requirement("A8", "E5", "E7")
def test_a_process_that_is_killed_does_not_keep_the_job(jobs: Duly, ledger: Ledger) -> None:
    from tests.worker.tasks import declare

    tasks = declare(jobs, ledger)
    with worker_process(jobs.settings.url, ledger) as process:
        job = tasks.hold.recur("f", every="1h", args={"name": "x", "seconds": 0.5})
        eventually(lambda: ledger.count("start"), 10)
        process.kill()
        with jobs.worker():
            eventually(lambda: ledger.count("end"), 20)
            eventually(lambda: job.refresh().last_outcome == "succeeded")
    assert [run.outcome for run in job.runs()] == ["crashed", "succeeded"]
    assert job.next_run_at is not None


def test_given_back_by_a_worker_that_stops_it_is_for_the_same_tick(jobs: Duly, raw: Raw) -> None:
    started = threading.Event()
    ticks: list[object] = []

    @jobs.task
    def fetch() -> None:
        ticks.append(current_job().tick)
        started.set()
        if len(ticks) == 1:
            current_job().wait_cancelled(20)

    job = fetch.recur("f", every="1h")
    with jobs.worker(grace=0.1):
        assert started.wait(10)
    assert (job.refresh().consecutive_failures, raw.count("waiting")) == (0, 1)
    with jobs.worker():
        eventually(lambda: job.refresh().last_outcome == "succeeded")
    assert ticks == [ticks[0]] * 2


def test_a_verb_for_what_does_not_exist_says_so(timed: Duly) -> None:
    @timed.task
    def fetch() -> None: ...

    job = fetch.recur("f", every="1h")
    job.delete()
    verbs: list[Callable[[], object]] = [
        job.enable, job.disable, job.run_now, lambda: job.set_enabled(True), lambda: job.edit(every="2h"),
        lambda: job.reschedule(datetime(2100, 1, 1, tzinfo=UTC)), lambda: job.set_enabled(sql="1 = 1"), job.refresh,
    ]  # fmt: skip
    for verb in verbs:
        with pytest.raises(RecurringJobNotFound, match=f"there is no recurring job {job.id}"):
            verb()
    with pytest.raises(RecurringJobNotFound, match="no recurring job has the name 'Nobody'"):
        timed.recurring_by_name("Nobody")
    with pytest.raises(RecurringJobNotFound, match="'x' is not the id of a job"):
        timed.recurring_by_id("x")
    assert issubclass(RecurringJobNotFound, JobNotFound)
    assert issubclass(JobNotRetryable, Conflict)
