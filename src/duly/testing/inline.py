"""The runners of a worker, but in the caller's thread: what a handler does, it does where the test can see it."""

from __future__ import annotations

import asyncio
import inspect

from duly.worker.context import Run
from duly.worker.executor import Executor
from duly.worker.registry import Kind, TaskDefinition
from duly.worker.runner_async import AsyncRunner
from duly.worker.runner_thread import ThreadRunner


def is_async(task: TaskDefinition) -> bool:
    """Whether a handler needs a loop. One that is isolated in a process runs here like any other."""
    return task.kind is Kind.ASYNC or (task.kind is Kind.PROCESS and inspect.iscoroutinefunction(task.fn))


class InlineThreadRunner(ThreadRunner):
    """Runs `def` handlers in the thread that submits them."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(1, executor)

    def submit(self, runs: list[Run]) -> None:
        """Run them, one after the other."""
        with self._guard:
            self._out += len(runs)
        for run in runs:
            self._queue.put(run)
        self._queue.put(None)
        self._work()


class InlineAsyncRunner(AsyncRunner):
    """Runs `async def` handlers on a private loop in the thread that submits them, or on a loop that runs elsewhere."""

    def __init__(self, executor: Executor, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(1, executor)
        self._loop = loop
        self._private: asyncio.Runner | None = None

    def submit(self, runs: list[Run]) -> None:
        """Run them, one after the other."""
        if self._loop is None:
            # A loop of our own, and without the handler for Ctrl-C that asyncio.run would install.
            self._private = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            self._loop = self._private.get_loop()
        for run in runs:
            self._queue.append(run)
            if self._private is None:
                asyncio.run_coroutine_threadsafe(self._one(), self._loop).result()
            else:
                self._loop.run_until_complete(self._one())

    async def _one(self) -> None:
        self._active += 1
        assert self._loop is not None
        await self._loop.create_task(self._slot(), context=self._base.copy())

    def stop(self, timeout: float) -> None:
        """Close the private loop; what is still on it is cancelled."""
        if self._private is not None:
            self._private.close()
