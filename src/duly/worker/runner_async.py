"""Runs `async def` handlers on one event loop in a thread of its own.

A slot is an asyncio task that takes one job after another, so a handler that never waits costs no task of its own.
A handler that changes its context (sets a ContextVar) ends its slot, so nothing leaks into the next job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Coroutine
from contextvars import Context, copy_context
from typing import Any

from duly.worker.context import CURRENT, Run
from duly.worker.executor import Executor

log = logging.getLogger("duly.worker")

YIELD_AFTER_NS = 2_000_000
TELL_SECONDS = 0.5


class AsyncRunner:
    """`slots` handlers at a time, on one loop."""

    def __init__(self, slots: int, executor: Executor) -> None:
        self.slots = slots
        self._executor = executor
        self._queue: deque[Run] = deque()
        self._active = 0
        self._feeding = False
        self._base = Context()
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main, name="duly-loop", daemon=True)

    def start(self) -> None:
        """Start the loop."""
        self._thread.start()
        self._ready.wait()

    def _main(self) -> None:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            serving = loop.create_task(self._serve())
            while not serving.done():
                try:
                    loop.run_until_complete(serving)
                except (SystemExit, KeyboardInterrupt) as error:
                    # Of a task that a handler has started: it stops the loop, which goes on where it was.
                    log.warning("a task beside a handler raised %s; the handlers go on", type(error).__name__)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self._ready.set()
        await self._stopped.wait()
        if self._executor.telling:
            await asyncio.wait(self._executor.telling, timeout=TELL_SECONDS)

    def run_here(self, coroutine: Coroutine[Any, Any, object]) -> object:
        """Run a coroutine of a hook on the loop of the handlers, and wait for it."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def submit(self, runs: list[Run]) -> None:
        """Queue jobs; free slots take them at once."""
        self._queue.extend(runs)
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has been closed: the jobs are released by the worker
            self._loop.call_soon_threadsafe(self._feed)

    def take_back(self) -> list[Run]:
        """Take out the jobs that no slot has begun."""
        taken: list[Run] = []
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self._queue.pop())
        return taken

    def interrupt(self, run: Run) -> None:
        """Cancel a handler; why is noted on the run."""
        run.flag()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cancel, run)

    def _cancel(self, run: Run) -> None:
        if run.phase != 1 or run.asyncio_task is None or not run.should_stop:
            return
        if run.timed_out and not (run.lost or run.fenced or run.stopping or run.cancel_reason is not None):
            return  # its timer does that; a second time would reach it while it cleans up
        run.interrupted = True
        run.asyncio_task.cancel()

    def stop(self, timeout: float) -> None:
        """End the loop."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopped.set)
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _feed(self) -> None:
        """Start slots: few while handlers return at once, doubling as they wait."""
        self._feeding = False
        assert self._loop is not None
        wanted = min(len(self._queue), self.slots - self._active, max(1, self._active))
        for _ in range(wanted):
            self._active += 1
            self._loop.create_task(self._slot(), context=self._base.copy())

    async def _slot(self) -> None:
        queue, executor = self._queue, self._executor
        task = asyncio.current_task()
        assert task is not None
        assert self._loop is not None
        clean = copy_context()
        yielded = time.monotonic_ns()
        try:
            while queue:
                try:
                    run = queue.popleft()
                except IndexError:
                    break
                if queue and not self._feeding and self._active < self.slots:
                    self._feeding = True
                    self._loop.call_soon(self._feed)
                call = executor.prepare(run)
                if call is None:
                    continue
                run.asyncio_task = task
                untouched = await self._run(run, call, task)
                if not untouched or copy_context() != clean:
                    break
                if time.monotonic_ns() - yielded > YIELD_AFTER_NS:
                    await asyncio.sleep(0)
                    yielded = time.monotonic_ns()
        finally:
            self._active -= 1
            if queue:
                self._feed()

    async def _run(self, run: Run, call: tuple[Any, dict[str, Any]], task: asyncio.Task[object]) -> bool:
        """Run a handler. Returns whether its task was left alone: a cancel may still be on its way to what is next."""
        untouched = True
        args, kwargs = call
        token = CURRENT.set(run)
        timer = None
        if run.job.timeout_us is not None:
            assert self._loop is not None
            timer = self._loop.call_later(run.job.timeout_us / 1e6, self._time_out, run)
        run.start()
        try:
            if self._executor.around:
                value = None
                with self._executor.surroundings(run):
                    value = await run.definition.fn(*args, **kwargs)
            else:
                value = await run.definition.fn(*args, **kwargs)
        except BaseException as error:  # SystemExit and KeyboardInterrupt of a handler are its failure, not ours
            self._executor.raised(run, error)
        else:
            self._executor.succeeded(run, value)
        finally:
            if timer is not None:
                timer.cancel()
            while task.cancelling():
                task.uncancel()
                untouched = False
            CURRENT.reset(token)
        return untouched

    def _time_out(self, run: Run) -> None:
        if run.phase == 1:
            run.timed_out = True
            run.flag()
            if run.asyncio_task is not None:
                run.asyncio_task.cancel()
