"""The loop of `async def` handlers: what one handler does to it, or to its own task, reaches no other."""

from __future__ import annotations

import asyncio
import threading

import pytest

from duly import Backoff, Duly, JobFailed, current_job
from duly.worker.slots import Pool
from tests.helpers import eventually


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_task_beside_a_handler_that_ends_the_program_ends_only_its_own_run(
    lite: Duly, error: type[BaseException]
) -> None:
    started, go = threading.Event(), threading.Event()

    async def leave() -> None:
        raise error(3)

    @lite.task(retry=Backoff.none())
    async def careless() -> None:
        await asyncio.gather(leave())

    @lite.task(retry=Backoff.none())
    async def other() -> str:
        started.set()
        while not go.is_set():
            await asyncio.sleep(0.005)
        return "went on"

    with lite.worker():
        beside = other.enqueue()
        assert started.wait(5)
        with pytest.raises(JobFailed, match=error.__name__):
            careless.enqueue().wait(5)
        later = other.enqueue()
        go.set()
        assert (beside.wait(5), later.wait(5)) == ("went on", "went on")


def test_a_handler_that_cancels_its_own_task_and_returns_disturbs_no_other(
    lite: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    @lite.task(retry=Backoff.none())
    async def careless() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    @lite.task(retry=Backoff.none())
    async def innocent() -> str:
        await asyncio.sleep(0)
        return "ran"

    monkeypatch.setattr(Pool, "target", 20)  # so that they are all here, and one task takes one after the other
    stored = [task.enqueue() for _ in range(5) for task in (careless, innocent)]
    with lite.worker(async_slots=1):
        eventually(lambda: all(job.refresh().finished_at for job in stored))
    assert [run.outcome for job in stored for run in job.runs] == ["succeeded"] * 10


def test_a_timeout_does_not_come_a_second_time_while_the_handler_cleans_up(lite: Duly) -> None:
    """The loop has a timer, and the keeper looks too: both may find that the time is up."""
    cleaned: list[str] = []

    @lite.task(timeout=0.05, retry=Backoff.none())
    async def slow() -> None:
        try:
            await asyncio.sleep(20)
        finally:
            worker._interrupt(current_job())
            await asyncio.sleep(0.01)
            cleaned.append("up")

    with lite.worker() as worker, pytest.raises(JobFailed, match="timed out"):
        slow.enqueue().wait(5)
    assert cleaned == ["up"]
