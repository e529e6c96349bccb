"""Timeouts that come at an awkward moment: as a run begins, or while it stops."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from duly import Backoff, Duly, JobFailed
from duly.worker import context
from duly.worker.context import Run
from duly.worker.keeper import Keeper
from duly.worker.registry import Kind
from tests.helpers import eventually, never
from tests.worker.concluded import concluded


def test_a_run_that_begins_while_somebody_looks_for_timeouts_has_all_its_time(
    lite: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = concluded()[0]
    run.job = run.job._replace(timeout_us=60_000_000)
    keeper = Keeper(lite.store, "worker", {run.job.id: run}, lambda run: None, lease=15.0)

    def looked_at() -> int:
        keeper.watch()
        return time.monotonic_ns()

    monkeypatch.setattr(context, "time", SimpleNamespace(monotonic_ns=looked_at))
    run.start()
    monkeypatch.undo()
    keeper.watch()
    assert run.phase == 1
    assert not run.timed_out


def test_a_timeout_in_the_first_moment_of_a_run_costs_no_thread(lite: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Run.start

    def begin_late(run: Run) -> None:
        begin(run)
        if run.job.timeout_us is not None:
            run.timed_out = True
            worker._runners[Kind.THREAD].interrupt(run)

    @lite.task(timeout=30, retry=Backoff.none())
    def hurried() -> None: ...

    @lite.task
    def innocent() -> str:
        return "ran"

    with lite.worker(thread_slots=1) as worker:
        monkeypatch.setattr(Run, "start", begin_late)
        with pytest.raises(JobFailed, match="timed out"):
            hurried.enqueue().wait(5)
        assert innocent.enqueue().wait(5) == "ran"


def test_a_run_that_waits_long_for_its_turn_is_not_taken_away_before_its_time_is_up(jobs: Duly) -> None:
    """A handler blocks the loop, as a child process may take long to start: the time of the next has not begun."""
    blocked, release = threading.Event(), threading.Event()

    @jobs.task
    async def block() -> None:
        blocked.set()
        release.wait(20)

    @jobs.task(timeout=0.2)
    async def wait() -> str:
        return "ran"

    with jobs.worker(lease=0.5) as worker:
        blocking = block.enqueue()
        assert blocked.wait(5)
        waiting = wait.enqueue()
        eventually(lambda: worker.busy == 2)
        never(lambda: waiting.refresh().runs, 1.5)
        release.set()
        assert waiting.wait(5) == "ran"
        blocking.wait(5)
    assert [run.outcome for run in waiting.refresh().runs] == ["succeeded"]


def test_the_deadline_of_a_run_that_never_begins_is_not_put_off_for_ever(lite: Duly) -> None:
    run = concluded()[0]
    run.job = run.job._replace(timeout_us=1_000_000)
    run.came_ns = time.monotonic_ns()
    put_off: list[list[str]] = []

    def renew(pairs: list[tuple[str, int]], lease_us: int, not_running: list[str]) -> dict[str, bool]:
        put_off.append(not_running)
        return {run.job.id: False}

    store: Any = SimpleNamespace(renew=renew, cancel_requests=lambda worker_id: [])
    keeper = Keeper(store, "worker", {run.job.id: run}, lambda run: None, lease=15.0)
    for waited in (1, 200, 301):
        run.came_ns = time.monotonic_ns() - waited * 1_000_000_000
        run.leased_at = 0.0
        keeper.step()
    run.phase = 1
    run.came_ns, run.leased_at = time.monotonic_ns(), 0.0
    keeper.step()
    assert put_off == [[run.job.id], [run.job.id], [], []]
