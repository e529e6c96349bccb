"""`drain`: what is due runs here, in a fixed order, by the rules of a worker."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from duly import (
    ArgumentsDoNotFit,
    Backoff,
    Cancel,
    Duly,
    InvalidOption,
    Retry,
    Snooze,
    State,
    Unique,
    WorkerError,
    current_job,
)
from duly.domain.limits import Says
from duly.domain.records import Lane
from duly.testing import TestClock, assert_enqueued, drain, enqueued

ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


# -- what runs ----------------------------------------------------------------------------------------------------


def test_every_due_job_runs_and_what_is_later_stays(jobs: Duly) -> None:
    @jobs.task
    def note(n: int) -> int:
        ran.append(n)
        return n * 10

    first = note.enqueue(1)
    note.using(delay="1h").enqueue(2)
    drained = drain(jobs)

    assert ran == [1]
    assert (drained.succeeded, len(drained)) == (1, 1)
    assert drained.jobs == [first]
    assert first.result() == 10
    assert [job.args for job in enqueued(jobs)] == [{"n": 2}]


def test_nothing_due_is_nothing_done(jobs: Duly) -> None:
    drained = drain(jobs)
    assert not drained
    assert repr(drained) == "<Drained nothing was due>"


def test_jobs_that_handlers_enqueue_run_too(jobs: Duly) -> None:
    @jobs.task
    def count_down(n: int) -> None:
        ran.append(n)
        if n:
            count_down.using(queue=f"queue-{n}").enqueue(n - 1)

    count_down.enqueue(3)
    assert drain(jobs).succeeded == 4
    assert ran == [3, 2, 1, 0]


def test_handlers_run_in_this_thread_whatever_their_kind(jobs: Duly) -> None:
    @jobs.task
    def plain() -> None:
        ran.append(threading.current_thread())

    @jobs.task
    async def asynchronous() -> None:
        await asyncio.sleep(0)
        ran.append(threading.current_thread())

    @jobs.task(isolation="process")
    def isolated() -> int:
        ran.append(threading.current_thread())
        return os.getpid()

    @jobs.task(isolation="process")
    async def isolated_and_asynchronous() -> None:
        await asyncio.sleep(0)
        ran.append(threading.current_thread())

    plain.enqueue()
    asynchronous.enqueue()
    here = isolated.enqueue()
    isolated_and_asynchronous.enqueue()
    assert drain(jobs).succeeded == 4
    assert ran == [threading.current_thread()] * 4
    assert here.result() == os.getpid()


def test_async_handlers_of_one_drain_share_a_loop(jobs: Duly) -> None:
    @jobs.task
    async def which() -> None:
        ran.append(asyncio.get_running_loop())

    which.enqueue()
    which.enqueue()
    drain(jobs)
    assert ran[0] is ran[1]
    assert ran[0].is_closed()


def test_order_is_by_priority_then_as_enqueued_across_tasks_and_kinds(jobs: Duly) -> None:
    @jobs.task
    def plain(n: int) -> None:
        ran.append(n)

    @jobs.task
    async def asynchronous(n: int) -> None:
        ran.append(n)

    for n in range(6):
        task = asynchronous if n % 2 else plain
        task.using(tenant=f"tenant-{-n % 3}").enqueue(n)
    plain.using(priority=50).enqueue(-1)
    drain(jobs)
    assert ran == [-1, 0, 1, 2, 3, 4, 5]


def test_order_is_the_same_every_time(jobs: Duly) -> None:
    @jobs.task
    def note(n: int) -> None:
        ran.append(n)

    @jobs.task(concurrency=1)
    def limited(n: int) -> None:
        ran.append(n)

    def enqueue_and_drain() -> list[int]:
        ran.clear()
        for n in range(12):
            (limited if n % 3 == 0 else note).using(queue="abc"[n % 3]).enqueue(n)
        drain(jobs)
        return list(ran)

    first = enqueue_and_drain()
    assert sorted(first) == list(range(12))
    assert [enqueue_and_drain() for _ in range(3)] == [first] * 3


def test_only_the_queues_asked_for_are_drained(jobs: Duly) -> None:
    @jobs.task
    def note(n: int) -> None:
        ran.append(n)

    note.using(queue="mail").enqueue(1)
    note.using(queue="video").enqueue(2)
    assert drain(jobs, queues=["mail"]).succeeded == 1
    assert drain(jobs, queues="mail").succeeded == 0
    assert ran == [1]
    assert drain(jobs).succeeded == 1


def test_jobs_of_tasks_that_are_not_known_here_stay(jobs: Duly, database_url: str, clock: TestClock) -> None:
    other = Duly(database_url, clock=clock)

    @other.task
    def elsewhere() -> None: ...

    job = elsewhere.enqueue()
    assert not drain(jobs)
    assert job.refresh().state is State.QUEUED
    other.close()


def test_limit_stops_a_chain_without_end(jobs: Duly) -> None:
    @jobs.task
    def again() -> None:
        again.enqueue()

    again.enqueue()
    drained = drain(jobs, limit=7)
    assert len(drained) == 7
    assert drained.limit_reached
    assert not drain(jobs, limit=7, queues=["other"]).limit_reached
    with pytest.raises(InvalidOption, match="limit must be 1 or more, not 0"):
        drain(jobs, limit=0)


def test_a_limit_held_by_others_is_respected(jobs: Duly) -> None:
    @jobs.task(concurrency=1)
    def alone() -> None: ...

    alone.enqueue()
    waiting = alone.enqueue()
    jobs.store.gates.set_limit("task", "alone", Says(slots=1))
    held = jobs.store.claim(
        "default", [Lane("", "alone")], 1, worker_id=waiting.id, lease_us=60_000_000, gates=[("task", "alone")]
    )
    assert not drain(jobs)
    jobs.store.give_back([(job.id, job.token) for job in held])
    assert drain(jobs).succeeded == 2


# -- what becomes of them -----------------------------------------------------------------------------------------


def test_outcomes_are_counted_by_what_became_of_the_job(jobs: Duly) -> None:
    @jobs.task(retry=Backoff.fixed("1m", max_attempts=2))
    def fail() -> None:
        raise ValueError("no")

    @jobs.task(retry=Backoff.none())
    def fail_for_good() -> None:
        raise KeyError("gone")

    @jobs.task
    def snooze() -> None:
        raise Snooze(timedelta(minutes=1))

    @jobs.task
    def retry() -> None:
        raise Retry(timedelta(minutes=1))

    @jobs.task
    def cancel() -> None:
        raise Cancel("not needed")

    for task in (fail, fail_for_good, snooze, retry, cancel):
        task.enqueue()
    drained = drain(jobs)
    assert [(run.task, run.outcome, run.attempt) for run in drained.runs] == [
        ("fail", "retried", 1),
        ("fail_for_good", "failed", 1),
        ("snooze", "snoozed", 1),
        ("retry", "retried", 1),
        ("cancel", "cancelled", 1),
    ]
    assert (drained.failed, drained.retried, drained.snoozed, drained.cancelled) == (1, 2, 1, 1)
    assert [type(error) for error in drained.errors] == [ValueError, KeyError, Retry]
    assert "fail: ValueError('no')" in repr(drained)


def test_a_retry_comes_when_its_policy_says_without_jitter(jobs: Duly, clock: TestClock) -> None:
    @jobs.task(retry=Backoff.exponential(jitter=0.5))
    def flaky() -> None:
        if current_job().attempt < 3:
            raise OSError("again")

    flaky.enqueue()
    drain(jobs)
    assert_enqueued(jobs, flaky, run_at=clock.now() + timedelta(seconds=1))
    clock.advance(1)
    drain(jobs)
    assert_enqueued(jobs, flaky, run_at=clock.now() + timedelta(seconds=2))
    clock.advance(2)
    assert drain(jobs).succeeded == 1


def test_an_expired_job_is_cancelled_without_a_run(jobs: Duly, clock: TestClock) -> None:
    @jobs.task
    def late() -> None:
        ran.append("late")

    late.using(expires="1m").enqueue()
    clock.advance("2m")
    drained = drain(jobs)
    assert (drained.cancelled, drained.count("expired"), ran) == (1, 1, [])


def test_arguments_that_do_not_fit_park_the_job(jobs: Duly, database_url: str, clock: TestClock) -> None:
    older = Duly(database_url, clock=clock)

    @older.task(name="send")
    def send_before(to: str) -> None: ...

    @jobs.task
    def send(email: str) -> None: ...

    job = send_before.enqueue("ada")
    with pytest.raises(ArgumentsDoNotFit, match="email"):
        drain(jobs, raise_errors=True)
    assert drain(jobs).parked == 0
    assert job.refresh().state is State.QUEUED
    assert drain(older).succeeded == 1
    older.close()


def test_unique_keys_are_given_back(jobs: Duly) -> None:
    @jobs.task
    def report() -> None: ...

    once = report.using(unique=Unique(key="daily"))
    once.enqueue()
    assert not once.enqueue().created
    assert drain(jobs).succeeded == 1
    assert once.enqueue().created


def test_what_a_handler_logs_is_kept_with_its_run(jobs: Duly) -> None:
    @jobs.task
    def talk() -> None:
        logging.getLogger("shop").warning("hello")

    job = talk.enqueue()
    drain(jobs)
    assert any("hello" in line for line in job.runs[0].log)


def test_hooks_and_middleware_are_called(jobs: Duly) -> None:
    @jobs.on_start
    def start() -> None:
        ran.append("start")

    @jobs.on_stop
    def stop() -> None:
        ran.append("stop")

    @jobs.on_failure
    def failed(job: Any, error: BaseException) -> None:
        ran.append((job.task, str(error)))

    @jobs.middleware
    @contextmanager
    def around(job: Any) -> Iterator[None]:
        ran.append("before")
        yield

    @jobs.task(retry=Backoff.none())
    def fail() -> None:
        raise ValueError("no")

    fail.enqueue()
    drain(jobs)
    assert ran == ["start", "before", ("fail", "no"), "stop"]


def test_a_wait_for_the_result_ends(jobs: Duly) -> None:
    @jobs.task
    def answer() -> int:
        return 42

    job = answer.enqueue()
    drain(jobs)
    assert job.wait(1) == 42


# -- what stops a handler -----------------------------------------------------------------------------------------


def test_a_def_handler_that_takes_too_long_times_out(jobs: Duly) -> None:
    @jobs.task(timeout=0.05, retry=Backoff.none())
    def slow() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            time.sleep(0.001)

    slow.enqueue()
    with pytest.raises(TimeoutError, match="timed out after 50ms"):
        drain(jobs, raise_errors=True)


def test_an_async_handler_that_takes_too_long_times_out(jobs: Duly) -> None:
    @jobs.task(timeout=0.05, retry=Backoff.none())
    async def slow() -> None:
        await asyncio.sleep(30)

    slow.enqueue()
    with pytest.raises(TimeoutError, match="timed out after 50ms"):
        drain(jobs, raise_errors=True)


def test_a_running_job_can_be_cancelled(jobs: Duly) -> None:
    @jobs.task
    def patient() -> None:
        jobs.cancel(current_job().id)
        assert current_job().wait_cancelled(30)
        raise RuntimeError("stopped")

    patient.enqueue()
    assert drain(jobs).cancelled == 1


def test_sys_exit_is_the_failure_of_the_handler(jobs: Duly) -> None:
    @jobs.task(retry=Backoff.none())
    def leave() -> None:
        raise SystemExit(1)

    leave.enqueue()
    assert drain(jobs).failed == 1


@pytest.mark.parametrize("asynchronous", [False, True])
def test_ctrl_c_reaches_whoever_drains(jobs: Duly, asynchronous: bool) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    async def ainterrupt() -> None:
        raise KeyboardInterrupt

    task = jobs.task(ainterrupt if asynchronous else interrupt)
    job = task.enqueue()
    with pytest.raises(KeyboardInterrupt):
        drain(jobs)
    assert job.refresh().state is State.SCHEDULED


def test_pytest_fail_in_a_handler_fails_the_test(jobs: Duly) -> None:
    @jobs.task
    def never() -> None:
        pytest.fail("should not have been called")

    never.enqueue()
    with pytest.raises(pytest.fail.Exception, match="should not have been called"):
        drain(jobs)


def test_ctrl_c_while_a_handler_awaits_gives_its_job_back(jobs: Duly) -> None:
    async def interrupted() -> None:
        loop = asyncio.get_running_loop()

        def raise_in_loop() -> None:
            raise KeyboardInterrupt

        loop.call_later(0.01, raise_in_loop)
        await asyncio.sleep(30)

    job = jobs.task(interrupted).enqueue()
    with pytest.raises(KeyboardInterrupt):
        drain(jobs)
    assert (job.refresh().state, job.attempts) == (State.QUEUED, 0)


# -- raise_errors, until_done -------------------------------------------------------------------------------------


def test_raise_errors_raises_the_first_error_once_it_is_on_record(jobs: Duly) -> None:
    error = ValueError("no")

    @jobs.task
    def fail() -> None:
        raise error

    @jobs.task
    def note() -> None:
        ran.append("note")

    job = fail.enqueue()
    note.enqueue()
    with pytest.raises(ValueError, match="no") as caught:
        drain(jobs, raise_errors=True)
    assert caught.value is error
    assert job.id in caught.value.__notes__[0]
    assert job.last_error == "no"
    assert ran == []


def test_raise_errors_does_not_take_steering_for_an_error(jobs: Duly) -> None:
    @jobs.task(retry=Backoff.fixed(0, max_attempts=2))
    def steer(how: str) -> None:
        raise {"snooze": Snooze(timedelta(days=1)), "cancel": Cancel(), "retry": Retry()}[how]

    steer.enqueue("snooze")
    steer.enqueue("cancel")
    drain(jobs, raise_errors=True)
    steer.enqueue("retry")
    with pytest.raises(Retry):  # twice: the second ends the job as failed
        drain(jobs, raise_errors=True)


def test_until_done_moves_the_clock_from_due_time_to_due_time(jobs: Duly, clock: TestClock) -> None:
    @jobs.task
    def note() -> None:
        ran.append(clock.now() - start)

    @jobs.task(retry=Backoff.delays(["1m", "10m"]))
    def fail() -> None:
        ran.append(clock.now() - start)
        raise ValueError

    start = clock.now()
    began = time.monotonic()
    note.using(delay="5m").enqueue()
    note.using(delay="30d").enqueue()
    fail.enqueue()
    drained = drain(jobs, until_done=True)
    assert [each.total_seconds() / 60 for each in ran] == [0, 1, 5, 11, 30 * 24 * 60]
    assert (drained.succeeded, drained.retried, drained.failed) == (2, 2, 1)
    assert enqueued(jobs) == []
    assert time.monotonic() - began < 20


def test_until_done_does_not_wait_for_jobs_that_it_may_not_run(jobs: Duly, clock: TestClock, database_url: str) -> None:
    other = Duly(database_url, clock=clock)

    @other.task
    def elsewhere() -> None: ...

    @jobs.task
    def note() -> None: ...

    start = clock.now()
    elsewhere.using(delay="1d").enqueue()
    note.using(delay="1h", queue="mine").enqueue()
    note.using(delay="2d", queue="theirs").enqueue()
    assert drain(jobs, until_done=True, queues=["mine"]).succeeded == 1
    assert clock.now() - start == timedelta(hours=1)
    other.close()


def test_until_done_stops_at_the_limit(jobs: Duly) -> None:
    @jobs.task
    def for_ever() -> None:
        raise Snooze(timedelta(minutes=1))

    for_ever.enqueue()
    drained = drain(jobs, until_done=True, limit=20)
    assert (drained.snoozed, drained.limit_reached) == (20, True)


def test_until_done_needs_a_clock_that_can_be_moved(database_url: str) -> None:
    jobs = Duly(database_url)
    with pytest.raises(InvalidOption, match="clock=TestClock"):
        drain(jobs, until_done=True)


def test_it_also_works_by_the_real_clock(database_url: str) -> None:
    jobs = Duly(database_url)

    @jobs.task
    def note(n: int) -> None:
        ran.append(n)

    try:
        note.enqueue(1)
        note.using(delay="1h").enqueue(2)
        assert drain(jobs).succeeded == 1
        assert ran == [1]
    finally:
        jobs.close()


def test_inside_an_event_loop_it_points_to_adrain(jobs: Duly) -> None:
    async def call() -> None:
        drain(jobs)

    asyncio.run(call())  # nothing async to run: fine

    @jobs.task
    async def asynchronous() -> None: ...

    with pytest.raises(WorkerError, match=r"await adrain\(jobs\)"):
        asyncio.run(call())


def test_many_drains_leave_no_connection_and_no_thread(jobs: Duly) -> None:
    @jobs.task
    async def nothing() -> None: ...

    before = threading.active_count()
    for _ in range(30):
        nothing.enqueue()
        drain(jobs)
    assert threading.active_count() == before
