"""`adrain`: the same from a coroutine, with async handlers on the caller's loop."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from duly import Duly, State
from duly.testing import TestClock, adrain


def test_async_handlers_run_on_the_callers_loop_and_def_handlers_in_a_thread(jobs: Duly) -> None:
    ran: list[Any] = []

    @jobs.task
    async def asynchronous() -> None:
        await asyncio.sleep(0)
        ran.append(asyncio.get_running_loop())

    @jobs.task
    def plain() -> None:
        ran.append(threading.current_thread())

    async def test() -> None:
        await asynchronous.aenqueue()
        await plain.aenqueue()
        assert (await adrain(jobs)).succeeded == 2
        assert ran[0] is asyncio.get_running_loop()
        assert ran[1] is not threading.current_thread()

    asyncio.run(test())


def test_errors_are_raised_in_the_coroutine(jobs: Duly) -> None:
    @jobs.task
    async def fail() -> None:
        raise ValueError("no")

    async def test() -> None:
        await fail.aenqueue()
        with pytest.raises(ValueError, match="no"):
            await adrain(jobs, raise_errors=True)

    asyncio.run(test())


def test_until_done_and_the_other_options_are_the_same(jobs: Duly, clock: TestClock) -> None:
    @jobs.task
    async def later() -> None: ...

    async def test() -> None:
        start = clock.now()
        await later.using(delay="1h").aenqueue()
        assert (await adrain(jobs, until_done=True)).succeeded == 1
        assert clock.now() - start == timedelta(hours=1)

    asyncio.run(test())


def test_cancelled_it_gives_the_running_job_back(jobs: Duly) -> None:
    started = asyncio.Event()

    @jobs.task
    async def patient() -> None:
        started.set()
        await asyncio.sleep(30)

    async def test() -> None:
        job = await patient.aenqueue()
        await patient.aenqueue()
        draining = asyncio.create_task(adrain(jobs))
        await started.wait()
        draining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await draining
        assert (job.refresh().state, job.attempts) == (State.QUEUED, 0)

    asyncio.run(test())
