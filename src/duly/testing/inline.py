"""A worker's parts, made for one thread: the caller's, where a test can see what a handler does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from duly.domain.records import Settled
from duly.store.ops_recurring_runs import Ended
from duly.store.store import Store
from duly.worker.context import Run
from duly.worker.executor import Executor
from duly.worker.registry import Kind, Registry, TaskDefinition, is_coroutine_function
from duly.worker.runner_async import AsyncRunner
from duly.worker.runner_thread import ThreadRunner
from duly.worker.slots import Pool


class OneSlot(Pool):
    """Takes one job at a time, however fast they end."""

    @property
    def target(self) -> int:
        """One."""
        return 1


class StandingStore(Store):
    """For a clock that stands: between the end of a run and its settling no time passes."""

    def settle(self, batch: Sequence[Settled], **options: Any) -> set[str]:
        """End runs, now."""
        return super().settle([each._replace(age_us=0) for each in batch], **(options | {"ages": None}))

    def settle_keyed(self, settled: Settled, hold: int, **options: Any) -> bool | None:
        """End one run, now."""
        return super().settle_keyed(settled._replace(age_us=0), hold, **options)

    def end_recurring(self, batch: Sequence[Settled], **options: Any) -> Ended:
        """End runs of recurring jobs, now."""
        return super().end_recurring([each._replace(age_us=0) for each in batch], **options)


class WatchedExecutor(Executor):
    """Remembers what the last handler raised."""

    error: BaseException | None = None

    def raised(self, run: Run, error: BaseException) -> None:
        """The handler raised."""
        self.error = error
        super().raised(run, error)


def of_one_kind(registry: Registry) -> Registry:
    """The same tasks as if all were `def`: they share the one slot, so they start in the order that their ranks say."""
    return replace(
        registry,
        tasks={name: replace(task, kind=Kind.THREAD) for name, task in registry.tasks.items()},
        registered={place: replace(task, kind=Kind.THREAD) for place, task in registry.registered.items()},
    )


def is_async(task: TaskDefinition) -> bool:
    """Whether a handler needs a loop. One that is isolated in a process runs here like any other."""
    if task.kind is not Kind.PROCESS:
        return task.kind is Kind.ASYNC
    return is_coroutine_function(task.fn)


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
