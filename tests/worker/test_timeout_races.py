"""Timeouts that come at an awkward moment: as a run begins, or while it stops."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from duly import Backoff, Duly, JobFailed
from duly.worker import context
from duly.worker.context import Run
from duly.worker.keeper import Keeper
from duly.worker.registry import Kind
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
