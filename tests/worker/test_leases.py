"""Leases: a live worker's job is never given away, and a worker that lost its lease changes nothing."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import Any

import pytest

from duly import Backoff, DatabaseUnavailable, Duly, State, current_job
from duly.domain.ids import uuid7
from duly.domain.records import Lane
from tests.helpers import Ledger, eventually, frozen, locked, never, opened, worker_process
from tests.postgres import PostgresServer
from tests.worker.tasks import declare


@pytest.mark.requirement("A8", "D7")
def test_a_handler_that_blocks_the_loop_for_three_leases_runs_exactly_once(
    jobs: Duly, database_url: str, ledger: Ledger
) -> None:
    """F10: the lease is renewed from a thread of its own, though the event loop stands still."""
    tasks = declare(jobs, ledger)
    with jobs.worker(lease=1.0):
        job = tasks.block.enqueue("one", 3.2)
        eventually(lambda: ledger.count("start"))
        with worker_process(database_url, ledger, worker={"lease": 1.0}):
            job.wait(10)
    assert [entry.event for entry in ledger.entries()] == ["start", "end"]
    assert [run.outcome for run in job.runs] == ["succeeded"]
    assert job.refresh().attempts == 1


@pytest.mark.parametrize("when", ["finished", "running"])
def test_a_worker_that_lost_its_lease_cannot_finish(jobs: Duly, database_url: str, ledger: Ledger, when: str) -> None:
    """F2: it stands still past its lease, another takes the job, it wakes and wants to record its own end."""
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger, worker={"lease": 1.0}) as stopped:
        job = tasks.hold.enqueue("one", 0.8)
        eventually(lambda: ledger.count("start"))
        stopped.send(signal.SIGSTOP)
        with jobs.worker(lease=1.0):
            eventually(lambda: ledger.count("start") == 2, within=10)
            if when == "finished":
                job.wait(10)
            stopped.send(signal.SIGCONT)
            eventually(lambda: ledger.count("end") == 2)
            job.wait(10)
            assert stopped.leave() == 0, "it has written, or tried to write, all that it had"
    winner = job.refresh().runs[-1]
    assert [run.outcome for run in job.runs] == ["crashed", "succeeded"]
    assert job.state is State.SUCCEEDED
    assert job.record.token == winner.token == job.runs[0].token + 1
    (second,) = [entry for entry in ledger.entries("end") if entry.pid != stopped.pid]
    assert second.pid != stopped.pid


def test_a_worker_that_stood_still_past_its_lease_but_was_not_robbed_goes_on(
    jobs: Duly, database_url: str, ledger: Ledger
) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger, worker={"lease": 1.0}) as stopped:
        threaded, coroutine = tasks.hold.enqueue("def", 2.5), tasks.ahold.enqueue("async", 2.5)
        eventually(lambda: ledger.count("start") == 2)
        stopped.send(signal.SIGSTOP)
        time.sleep(1.5)
        stopped.send(signal.SIGCONT)
        threaded.wait(10)
        coroutine.wait(10)
    assert ledger.count("start") == 2
    assert [run.outcome for job in (threaded, coroutine) for run in job.runs] == ["succeeded", "succeeded"]


def test_a_run_is_stopped_before_its_lease_ends_when_the_database_does_not_answer(
    pg_server: PostgresServer, own_server_url: str
) -> None:
    """F3: not even a refused connection, just silence. The process stays, and goes on when the database does."""
    told: dict[str, float] = {}
    runs: list[str] = []

    with opened(own_server_url) as jobs:

        @jobs.task(retry=Backoff.none())
        async def coroutine() -> str:
            runs.append("coroutine")
            if runs.count("coroutine") == 1:
                try:
                    await asyncio.sleep(20)
                finally:
                    told["coroutine"] = time.monotonic()
            return "done"

        @jobs.task(retry=Backoff.none())
        def threaded() -> str:
            runs.append("threaded")
            if runs.count("threaded") == 1:
                current_job().wait_cancelled(20)
                told["threaded"] = time.monotonic()
            return "done"

        with jobs.worker(lease=2.0):
            first, second = coroutine.enqueue(), threaded.enqueue()
            eventually(lambda: len(runs) == 2)
            with frozen(pg_server.pid):
                silent = time.monotonic()
                eventually(lambda: len(told) == 2)
            assert all(at - silent < 2.0 for at in told.values()), "leases that were valid then end 2 s later at most"
            assert first.wait(20) == "done"
            assert second.wait(20) == "done"
        assert sorted(runs) == ["coroutine", "coroutine", "threaded", "threaded"]
        for job in (first, second):
            assert [run.outcome for run in job.runs] == ["released", "succeeded"]
            assert job.refresh().attempts == 1, "being stopped by an outage costs no attempt"


@pytest.mark.requirement("A8")
def test_an_outage_longer_than_the_lease_robs_nobody_on_postgresql(
    pg_server: PostgresServer, own_server_url: str, ledger: Ledger
) -> None:
    with opened(own_server_url) as jobs:
        tasks = declare(jobs, ledger)
        with jobs.worker(lease=1.0), worker_process(own_server_url, ledger, worker={"lease": 1.0}):
            job = tasks.hold.enqueue("one", 4.5)
            eventually(lambda: ledger.count("start"))
            pg_server.stop("immediate")
            time.sleep(1.5)
            pg_server.start()
            job.wait(20)
        assert [entry.event for entry in ledger.entries()] == ["start", "end"]
        assert [run.outcome for run in job.runs] == ["succeeded"]


@pytest.mark.requirement("A8")
def test_an_outage_longer_than_the_lease_robs_nobody_on_sqlite(sqlite_url: str, ledger: Ledger) -> None:
    with opened(sqlite_url) as jobs:
        tasks = declare(jobs, ledger)
        with jobs.worker(lease=1.0), worker_process(sqlite_url, ledger, worker={"lease": 1.0}):
            job = tasks.hold.enqueue("one", 4.0)
            eventually(lambda: ledger.count("start"))
            with locked(sqlite_url):
                time.sleep(2.0)
            job.wait(20)
        assert [entry.event for entry in ledger.entries()] == ["start", "end"]
        assert [run.outcome for run in job.runs] == ["succeeded"]


def test_a_lease_is_renewed_by_job_and_token_never_for_all_that_a_worker_has(jobs: Duly) -> None:
    """F4: a claim whose answer was lost is not kept alive by the worker that does not know of it."""
    started, go = threading.Event(), threading.Event()

    @jobs.task
    def work(n: int) -> int:
        if n == 0:
            started.set()
            go.wait(10)
        return n

    with jobs.worker(["default"], lease=1.0, thread_slots=2) as worker:
        held = work.enqueue(0)
        assert started.wait(5)
        unknown = work.using(queue="elsewhere").enqueue(7)
        lane = [Lane("", "work")]
        assert jobs.store.claim("elsewhere", lane, 1, worker_id=worker.id, lease_us=1_000_000)
        eventually(lambda: unknown.refresh().state is State.QUEUED, within=10)
        assert held.refresh().state is State.RUNNING
        go.set()
        held.wait(5)
    assert len(held.runs) == 1


@pytest.mark.parametrize("lost", ["claim", "claim, and the database stays away"])
def test_a_claim_whose_answer_was_lost_is_given_back_without_costing_an_attempt(
    jobs: Duly, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """F4: the database has leased the job to us, and the answer never arrived."""

    @jobs.task(retry=Backoff.none())
    def work(n: int) -> int:
        return n

    with jobs.worker(lease=20.0) as worker:
        store = worker._claimer._store
        real_claim, real_held_by = store.claim, jobs.store.held_by
        failing: list[int] = []

        def claim_and_lose(*args: Any, **kwargs: Any) -> Any:
            found = real_claim(*args, **kwargs)
            if found and not failing:
                failing.append(1)
                raise DatabaseUnavailable("the answer was lost")
            return found

        def held_by(*args: Any) -> Any:
            if "stays away" in lost and len(failing) < 4:
                failing.append(1)
                raise DatabaseUnavailable("still away")
            return real_held_by(*args)

        monkeypatch.setattr(store, "claim", claim_and_lose)
        monkeypatch.setattr(jobs.store, "held_by", held_by)
        job = work.enqueue(3)
        assert job.wait(10) == 3
    assert failing
    assert [run.outcome for run in job.runs] == ["succeeded"]
    assert job.refresh().attempts == 1


def test_an_idle_lease_is_never_longer_than_asked(jobs: Duly) -> None:
    """The lease in the database is what the worker believes in: not renewed, it ends."""

    @jobs.task
    def work() -> None: ...

    work.enqueue()
    (claimed,) = jobs.store.claim("default", [Lane("", "work")], 1, worker_id=uuid7(), lease_us=300_000)
    assert jobs.store.lapsed(0) == []
    eventually(lambda: [run.id for run in jobs.store.lapsed(0)] == [claimed.id])
    assert jobs.store.renew([(claimed.id, claimed.token)], 60_000_000) == {claimed.id: False}
    never(lambda: jobs.store.lapsed(0), 0.1)
