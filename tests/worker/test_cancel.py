"""Cancel: a job that waits never runs; one that runs learns of it within a second, also when the hint is lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from duly import Backoff, Duly, State, current_job
from tests.helpers import Ledger, eventually, opened, worker_process
from tests.worker.tasks import declare


class Patient:
    """Tasks that run until they are told to stop."""

    def __init__(self, jobs: Duly) -> None:
        self.jobs = jobs
        self.started = threading.Event()
        self.stopped = threading.Event()

        def flagged() -> str:
            self.started.set()
            job = current_job()
            while not job.cancelled():
                time.sleep(0.005)
            self.stopped.set()
            return "gave up"

        def waiting() -> None:
            self.started.set()
            current_job().wait_cancelled(20)
            self.stopped.set()

        async def coroutine() -> None:
            self.started.set()
            try:
                await asyncio.sleep(20)
            finally:
                self.stopped.set()

        for function in (flagged, waiting, coroutine):
            jobs.declare(function, {"retry": Backoff.fixed(0)})


@pytest.fixture(params=[True, False], ids=["notified", "hint lost"])
def patient(database_url: str, request: pytest.FixtureRequest) -> Iterator[Patient]:
    """With hints, and without any: what is sent is thrown away."""
    with opened(database_url) as jobs, pytest.MonkeyPatch.context() as patched:
        if not request.param:
            patched.setattr(jobs.store.database, "poke", lambda *_: None)
        yield Patient(jobs)


@pytest.mark.everywhere
@pytest.mark.parametrize("task", ["flagged", "waiting", "coroutine"])
def test_a_running_handler_sees_the_cancel_within_a_second(patient: Patient, task: str) -> None:
    jobs = patient.jobs
    job = jobs.enqueue(task)
    with jobs.worker():
        assert patient.started.wait(5)
        asked = time.monotonic()
        assert jobs.cancel(job.id, "changed my mind") == "asked"
        assert patient.stopped.wait(5)
        took = time.monotonic() - asked
        eventually(lambda: jobs.get(job.id).state is State.CANCELLED)
    assert took < 1.0, f"{took:.2f} s"
    found = jobs.get(job.id)
    assert found.reason == "changed my mind"
    assert [run.outcome for run in found.runs] == ["cancelled"]


@pytest.mark.parametrize("task", ["flagged", "coroutine"])
def test_without_notifications_at_all_it_still_takes_less_than_a_second(database_url: str, task: str) -> None:
    with opened(database_url, notify=False) as jobs:
        patient = Patient(jobs)
        with jobs.worker():
            job = jobs.enqueue(task)
            assert patient.started.wait(5)
            asked = time.monotonic()
            job.cancel()
            assert patient.stopped.wait(5)
            assert time.monotonic() - asked < 1.0
            eventually(lambda: job.refresh().state is State.CANCELLED)


def test_a_job_that_runs_in_another_process_is_cancelled_within_a_second(
    jobs: Duly, database_url: str, ledger: Ledger
) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger):
        job = tasks.heed.enqueue("one")
        eventually(lambda: ledger.count("start", "one"))
        asked = time.monotonic()
        job.cancel()
        (heeded,) = eventually(lambda: ledger.entries("heeded", "one"))
        assert heeded.at - asked < 1.0
        eventually(lambda: job.refresh().state is State.CANCELLED)


def test_a_job_that_waits_for_its_retry_is_cancelled(jobs: Duly) -> None:
    @jobs.task(retry=Backoff.fixed(60))
    def fails() -> None:
        raise OSError

    with jobs.worker():
        job = fails.enqueue()
        eventually(lambda: job.refresh().state is State.SCHEDULED)
        assert job.cancel() == "cancelled"
    assert (job.refresh().state, len(job.runs)) == (State.CANCELLED, 1)


def test_a_handler_that_does_not_look_at_the_flag_ends_as_it_ends(lite: Duly) -> None:
    go, started = threading.Event(), threading.Event()

    @lite.task
    def deaf() -> int:
        started.set()
        go.wait(10)
        return 7

    with lite.worker():
        job = deaf.enqueue()
        assert started.wait(5)
        assert job.cancel() == "asked"
        assert job.cancel("again") == "asked"
        eventually(lambda: job.refresh().record.cancel_at)
        go.set()
        assert job.wait(5) == 7, "it had finished its work: that is what is recorded"


def test_a_handler_that_raises_when_cancelled_is_cancelled_not_failed(lite: Duly) -> None:
    started = threading.Event()

    @lite.task(retry=Backoff.fixed(0))
    def work() -> None:
        started.set()
        if current_job().wait_cancelled(10):
            raise RuntimeError("cleaning up")

    with lite.worker():
        job = work.enqueue()
        assert started.wait(5)
        job.cancel()
        eventually(lambda: job.refresh().state is State.CANCELLED)
    assert len(job.runs) == 1


def test_a_cancelled_coroutine_disturbs_neither_its_slot_nor_its_neighbours(lite: Duly) -> None:
    started = threading.Semaphore(0)

    @lite.task
    async def work(n: int) -> int:
        started.release()
        await asyncio.sleep(0.3 if n else 20)
        return n

    with lite.worker(async_slots=3):
        doomed = work.enqueue(0)
        others = [work.enqueue(n) for n in range(1, 7)]
        assert started.acquire(timeout=5)
        eventually(lambda: doomed.refresh().state is State.RUNNING)
        doomed.cancel()
        assert [job.wait(10) for job in others] == list(range(1, 7))
        eventually(lambda: doomed.refresh().state is State.CANCELLED)


def test_many_running_jobs_are_cancelled_at_once(jobs: Duly) -> None:
    running: list[int] = []

    @jobs.task
    async def work(n: int) -> None:
        running.append(n)
        await asyncio.sleep(20)

    with jobs.worker():
        stored = work.enqueue_many([{"n": n} for n in range(60)])
        eventually(lambda: len(running) == 60)
        asked = time.monotonic()
        for job in stored:
            job.cancel()
        eventually(lambda: jobs.counts().ended == {"cancelled": 60}, within=10)
        assert time.monotonic() - asked < 8
