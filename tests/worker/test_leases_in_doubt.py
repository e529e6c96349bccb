"""Leases that could not be confirmed in time: who was stopped for that has not failed, and what has ended is kept."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from duly import Backoff, Duly, State, current_job
from duly.domain.records import Lane
from duly.worker.child_handle import ChildHandle
from duly.worker.context import Run, lease_time
from duly.worker.finisher import Finisher
from duly.worker.keeper import Keeper
from duly.worker.worker import Worker
from tests.helpers import Ledger, eventually
from tests.store.factory import WORKER
from tests.worker.test_process_runner import FAR, knowing, start_of, working

LEASE = 10.0


def put_in_doubt(worker: Worker, run: Run) -> None:
    """As the keeper does it when nobody answers."""
    run.fenced = True
    worker._interrupt(run)


def test_a_coroutine_that_was_cancelled_for_its_lease_goes_back_though_the_lease_held(lite: Duly) -> None:
    stopping, regained = threading.Event(), threading.Event()
    runs: list[Run] = []

    @lite.task(retry=Backoff.none())
    async def work() -> str:
        runs.append(current_job())
        if len(runs) == 1:
            try:
                await asyncio.sleep(20)
            finally:
                stopping.set()
                await asyncio.to_thread(regained.wait, 5)
        return "done"

    with lite.worker() as worker:
        job = work.enqueue()
        put_in_doubt(worker, eventually(lambda: runs)[0])
        assert stopping.wait(5)
        runs[0].regain()
        regained.set()
        assert job.wait(5) == "done"
    assert [run.outcome for run in job.refresh().runs] == ["released", "succeeded"]
    assert job.attempts == 1


def test_a_coroutine_whose_lease_is_confirmed_in_the_last_moment_is_not_cancelled(lite: Duly) -> None:
    @lite.task(retry=Backoff.none())
    async def work() -> str:
        put_in_doubt(worker, current_job())
        current_job().regain()
        await asyncio.sleep(0.01)
        return "done"

    with lite.worker() as worker:
        job = work.enqueue()
        assert job.wait(5) == "done"
    assert [run.outcome for run in job.refresh().runs] == ["succeeded"]


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_a_thread_that_stopped_for_its_lease_goes_back_though_the_lease_held(lite: Duly, ends: str) -> None:
    runs: list[Run] = []

    @lite.task(retry=Backoff.none())
    def work() -> str:
        run = current_job()
        runs.append(run)
        if len(runs) == 1:
            put_in_doubt(worker, run)
            assert run.wait_cancelled(5)
            run.regain()
            if ends == "raises":
                raise RuntimeError("stopped halfway")
        return "done"

    with lite.worker() as worker:
        job = work.enqueue()
        assert job.wait(5) == "done"
    assert [run.outcome for run in job.refresh().runs] == ["released", "succeeded"]
    assert job.attempts == 1


def test_a_thread_that_did_not_look_while_its_lease_was_in_doubt_fails_for_its_own_reasons(lite: Duly) -> None:
    @lite.task(retry=Backoff.none())
    def work() -> None:
        put_in_doubt(worker, current_job())
        current_job().regain()
        assert not current_job().wait_cancelled(0.001)
        raise ValueError("its own")

    with lite.worker() as worker:
        job = work.enqueue()
        eventually(lambda: job.refresh().state is State.FAILED)
    assert [(run.outcome, run.error_kind) for run in job.runs] == [("failed", "ValueError")]


@pytest.fixture
def app(lite: Duly) -> Duly:
    """One that knows tasks that children find."""
    return knowing(lite)


def test_a_child_that_was_killed_for_its_lease_has_not_crashed_though_the_lease_held(
    app: Duly, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = ChildHandle.kill
    held: list[Run] = []

    def kill_and_regain(child: ChildHandle) -> None:
        kill(child)
        for run in held:
            run.regain()

    monkeypatch.setattr(ChildHandle, "kill", kill_and_regain)
    with working(app) as worker:
        job = app["hold"].using(max_attempts=1).enqueue(name="a", ledger=str(ledger.path), seconds=0.5)
        start_of(ledger)
        eventually(lambda: worker._held[job.id].phase == 1)
        held.append(worker._held[job.id])
        put_in_doubt(worker, held[0])
        job.wait(FAR)
    assert [run.outcome for run in job.refresh().runs] == ["released", "succeeded"]


def test_a_run_under_a_limit_that_ended_is_recorded_though_its_lease_lapsed_meanwhile(jobs: Duly) -> None:
    """The database was away for longer than a lease: how the run ended was waiting to be written."""

    @jobs.task(concurrency=1)
    def work() -> None: ...

    work.enqueue()
    jobs.store.gates.declare(jobs.registry.limits(), jobs.registry.key_groups())
    how: Any = {"worker_id": WORKER, "lease_us": 1, "gates": (("task", work.name),)}
    (job,) = jobs.store.claim("default", [Lane("", work.name)], 1, **how)
    run = Run(job, work.definition, lease_time() - LEASE * 1.1)
    run.bound, run.limited = how["gates"], True
    held = {job.id: run}
    stopped: list[Run] = []
    finisher = Finisher(jobs.store, held, lambda *_: None, finished=lambda over: None, due_in=lambda seconds: None)
    keeper = Keeper(jobs.store, WORKER, held, stopped.append, lease=LEASE)
    worker: Any = jobs.worker()._worker
    executor = worker._executor
    executor._conclude = finisher.conclude
    run.start()
    executor.succeeded(run, None)
    keeper.watch()
    keeper.step()
    finisher.step()
    assert (finisher.settled, finisher.refused, stopped) == (1, 0, [])
    assert jobs.get(job.id).state is State.SUCCEEDED


def test_runs_that_end_while_a_worker_gives_up_on_the_rest_do_not_disturb_it(
    lite: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker: Any = lite.worker()._worker

    class Ending:
        """A run that ends, with another, when somebody looks at it."""

        lost, completion = False, None
        job = run = None

        @property
        def phase(self) -> int:
            worker._held.pop("one", None)
            return 2

    monkeypatch.setattr(worker, "_interrupt", lambda run: None)
    monkeypatch.setattr("duly.worker.worker.STOP_SECONDS", 0.0)
    worker._held |= {"one": Ending(), "two": Ending()}
    worker._interrupt_all()
    assert set(worker._held) == {"two"}
