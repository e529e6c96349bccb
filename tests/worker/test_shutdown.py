"""Stopping: what runs may end, what does not is given back unharmed, what has not begun goes back at once."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from duly import Backoff, DatabaseUnavailable, Duly, Snooze, State, WorkerError, current_job
from tests.helpers import Ledger, eventually, opened, worker_process
from tests.worker.tasks import declare


@pytest.mark.requirement("D4")
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_what_runs_may_end_within_the_grace(lite: Duly, kind: str) -> None:
    started = threading.Event()

    def work() -> int:
        started.set()
        time.sleep(0.4)
        return 7

    async def awork() -> int:
        started.set()
        await asyncio.sleep(0.4)
        return 7

    task = lite.declare(work if kind == "def" else awork, {"name": "work"})
    with lite.worker(grace=10):
        job = task.enqueue()
        assert started.wait(5)
        waiting = None
    waiting = task.enqueue()
    assert job.refresh().state is State.SUCCEEDED
    assert job.result() == 7
    assert waiting.state is State.QUEUED
    assert lite.workers() == []


@pytest.mark.parametrize("kind", ["heeding def", "deaf def", "async def"])
def test_what_does_not_end_is_given_back_and_the_attempt_not_counted(
    jobs: Duly, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.worker.worker.STOP_SECONDS", 0.5)
    started, deaf = threading.Event(), threading.Event()

    def heeding() -> None:
        started.set()
        current_job().wait_cancelled(20)

    def ignoring() -> str:
        started.set()
        deaf.wait(20)
        return "too late"

    async def coroutine() -> None:
        started.set()
        await asyncio.sleep(20)

    function = {"heeding def": heeding, "deaf def": ignoring, "async def": coroutine}[kind]
    task = jobs.declare(function, {"name": "work", "retry": Backoff.none()})
    worker = jobs.worker()
    worker.start()
    job = task.enqueue()
    assert started.wait(5)
    before = time.monotonic()
    worker.stop(grace=0.1)
    assert time.monotonic() - before < 5
    found = jobs.get(job.id)
    assert (found.state, found.attempts, found.record.crashes) == (State.QUEUED, 0, 0)
    assert found.last_error is None
    assert [run.outcome for run in found.runs] in ([], ["released"])
    deaf.set()
    eventually(lambda: not [t for t in threading.enumerate() if t.name.startswith("duly-slot")])
    assert jobs.get(job.id).state is State.QUEUED, "what the deaf one did at last was not recorded"


def test_a_job_given_back_runs_to_its_end_with_the_next_worker(lite: Duly) -> None:
    ran: list[int] = []

    @lite.task(retry=Backoff.none())
    async def work() -> str:
        ran.append(current_job().attempt)
        if len(ran) == 1:
            await asyncio.sleep(20)
        return "done"

    with lite.worker(grace=0):
        job = work.enqueue()
        eventually(lambda: ran)
    with lite.worker():
        assert job.wait(5) == "done"
    assert ran == [1, 1]


def test_a_handler_that_snoozes_when_told_to_stop_is_snoozed(lite: Duly) -> None:
    started = threading.Event()

    @lite.task
    def work() -> None:
        started.set()
        if current_job().wait_cancelled(10):
            raise Snooze(timedelta(hours=1))

    with lite.worker(grace=0):
        job = work.enqueue()
        assert started.wait(5)
    assert (job.refresh().state, job.attempts) == (State.SCHEDULED, 0)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_second_stop_ends_the_wait_at_once(jobs: Duly, kind: str) -> None:
    started, over = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        over.wait(20)

    async def awork() -> None:
        started.set()
        await asyncio.sleep(20)

    task = jobs.declare(work if kind == "def" else awork, {"name": "work"})
    worker = jobs.worker()
    worker.start()
    job = task.enqueue()
    assert started.wait(5)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(worker.stop, 30)
        eventually(lambda: worker._worker._state == "draining")
        before = time.monotonic()
        worker.stop()
        assert time.monotonic() - before < 2.0
        first.result(5)
    assert (job.refresh().state, job.attempts) == (State.QUEUED, 0)
    over.set()


@pytest.mark.everywhere
def test_jobs_claimed_ahead_go_back_when_the_worker_stops(jobs: Duly) -> None:
    begun: list[int] = []
    slow, blocked, over = threading.Event(), threading.Event(), threading.Event()

    @jobs.task
    def work(n: int) -> None:
        begun.append(n)
        if slow.is_set():
            blocked.set()
            over.wait(10)

    stored = work.enqueue_many([{"n": n} for n in range(3_000)])
    worker = jobs.worker(thread_slots=1)
    worker.start()
    eventually(lambda: len(begun) > 300)
    slow.set()
    assert blocked.wait(5)
    assert worker._worker.busy > 1, "there is a supply for a slot that turns over so fast"
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(worker.stop, 10)
        eventually(lambda: worker._worker.busy == 1)
        over.set()
        stopping.result(15)
    counts = jobs.counts()
    assert counts.running == []
    assert sum(row[3] for row in counts.waiting) == 3_000 - len(begun)
    assert counts.ended == {"succeeded": len(begun)}
    last = jobs.get(stored[-1].id)
    assert (last.state, last.attempts, last.runs) == (State.QUEUED, 0, [])


def test_a_worker_starts_once_and_stops_twice(lite: Duly) -> None:
    @lite.task
    def work() -> int:
        return 1

    worker = lite.worker()
    worker.stop()
    worker = lite.worker()
    running = worker.start()
    with pytest.raises(WorkerError, match="already been started"):
        worker.start()
    assert work.enqueue().wait(5) == 1
    worker.stop()
    worker.stop()
    assert running.wait(0)
    with pytest.raises(WorkerError, match="already been started"):
        worker.start()


def test_nothing_that_was_done_is_forgotten_at_the_stop(jobs: Duly) -> None:
    """Runs that ended just before the stop are written before it returns."""
    ran: list[int] = []

    @jobs.task
    async def work(n: int) -> None:
        ran.append(n)

    for round_number in range(5):
        with jobs.worker():
            work.enqueue_many([{"n": n} for n in range(50)])
            eventually(lambda r=round_number: len(ran) > r * 10)  # type: ignore[misc]
        assert jobs.counts().ended.get("succeeded", 0) == len(ran)
        assert jobs.counts().running == []


def test_stopping_while_the_database_is_away_ends_and_the_lease_does_the_rest(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.worker.worker.FINISH_SECONDS", 0.5)
    monkeypatch.setattr("duly.worker.worker.STOP_SECONDS", 0.5)
    started = threading.Event()
    with opened(database_url) as jobs:

        @jobs.task
        async def work() -> None:
            started.set()
            await asyncio.sleep(20)

        worker = jobs.worker()
        running = worker.start()
        job = work.enqueue()
        assert started.wait(5)

        def away(*_: object, **__: object) -> None:
            raise DatabaseUnavailable("away")

        with monkeypatch.context() as patched:
            for store in (jobs.store, running._finisher._store, running._keeper._store, running._claimer._store):
                for name in ("settle", "remove_worker", "renew"):
                    patched.setattr(store, name, away)
            before = time.monotonic()
            worker.stop(grace=0)
            assert time.monotonic() - before < 5
        assert job.refresh().state is State.RUNNING


@pytest.mark.requirement("D4")
def test_a_process_that_stops_its_worker_leaves_no_job_behind(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger, worker={"grace": 0.2}) as process:
        stored = [tasks.ahold.enqueue(str(n), 30) for n in range(20)]
        quick = tasks.ahold.enqueue("quick", 0.1)
        eventually(lambda: ledger.count("start") == 21)
        assert process.leave() == 0
    assert {job.refresh().state for job in stored} == {State.QUEUED}
    assert {job.attempts for job in stored} == {0}
    assert quick.refresh().state is State.SUCCEEDED
    assert jobs.workers() == []


def test_nobody_turns_in_circles_while_another_part_takes_its_time_to_stop(
    jobs: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = jobs.worker()
    running = worker.start()
    entered, leave = threading.Event(), threading.Event()

    def slow() -> float:
        entered.set()
        leave.wait(5)
        return 1.0

    waits: list[float] = []
    assert running._waker is not None
    wait = running._waker.wait

    def counted(timeout: float) -> object:
        waits.append(timeout)
        return wait(timeout)

    monkeypatch.setattr(running._waker, "wait", counted)
    monkeypatch.setattr(running._keep_service, "_step", slow)
    running._keep_service.wake()
    assert entered.wait(5)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    time.sleep(0.3)
    leave.set()
    stopping.join(10)
    assert not stopping.is_alive()
    assert len(waits) <= 5
