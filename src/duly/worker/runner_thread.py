"""Runs `def` handlers in threads, started when needed and kept.

A thread cannot be killed. A timeout raises in it at its next Python instruction; a cancel is a flag it may look at.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Callable
from contextvars import Context
from typing import Any

from duly.worker.context import CURRENT, Run
from duly.worker.executor import Executor


class ThreadRunner:
    """`slots` handlers at a time, each in a thread."""

    def __init__(self, slots: int, executor: Executor) -> None:
        self.slots = slots
        self._executor = executor
        self._queue: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._guard = threading.Lock()
        self._out = 0
        """Jobs submitted and not yet ended or taken back."""

    def start(self) -> None:
        """Nothing yet: threads start with the first jobs."""

    def submit(self, runs: list[Run]) -> None:
        """Queue jobs; have a thread for each, up to the slots, so that none waits while there is room."""
        with self._guard:
            self._out += len(runs)
            wanted = min(self._out, self.slots)
        for run in runs:
            self._queue.put(run)
        while len(self._threads) < wanted:
            thread = threading.Thread(target=self._work, name=f"duly-slot-{len(self._threads) + 1}", daemon=True)
            thread.start()  # which may fail: then there is one less, until the next jobs come
            self._threads.append(thread)

    def take_back(self) -> list[Run]:
        """Take out the jobs that no thread has begun."""
        taken: list[Run] = []
        while True:
            try:
                run = self._queue.get_nowait()
            except queue.Empty:
                break
            if run is not None:
                taken.append(run)
        with self._guard:
            self._out -= len(taken)
        return taken

    def interrupt(self, run: Run) -> None:
        """Flag a handler; raise in it if its time is up."""
        run.flag()
        if run.timed_out:
            with self._guard:
                if run.phase == 1 and run.thread_id is not None:
                    _raise_in(run.thread_id, TimeoutError)

    def stop(self, timeout: float) -> None:
        """End idle threads; those inside a handler are left to it."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(timeout / max(1, len(self._threads)))

    def _work(self) -> None:
        while (run := self._queue.get()) is not None:
            call = self._executor.prepare(run)
            if call is not None:
                Context().run(self._run, run, call[0], call[1])
            with self._guard:
                self._out -= 1

    def _run(self, run: Run, args: Any, kwargs: dict[str, Any]) -> None:
        CURRENT.set(run)
        watched = run.job.timeout_us is not None
        if watched:
            run.thread_id = threading.get_ident()
        try:
            try:
                run.start()  # in here: from now on its time may be up, and that is raised at any instruction
                value = self._call(run, args, kwargs)
            finally:
                if watched:
                    self._leave(run)
        except BaseException as error:  # SystemExit of a handler is its failure, not ours
            self._executor.raised(run, error)
        else:
            self._executor.succeeded(run, value)

    def _call(self, run: Run, args: Any, kwargs: dict[str, Any]) -> object:
        function: Callable[..., object] = run.definition.fn
        if not self._executor.around:
            return function(*args, **kwargs)
        value: object = None
        with self._executor.surroundings(run):
            value = function(*args, **kwargs)
        return value

    def _leave(self, run: Run) -> None:
        """From here on no timeout may be raised in this thread; one already on its way arrives here."""
        with self._guard:
            run.phase = 2
            raised = run.timed_out
        if raised:
            _absorb()


class _Absorbed(BaseException):
    """Raised in a thread by itself, in place of what may still be on its way there."""


def _absorb() -> None:
    """Let nothing arrive in this thread that was raised there before.

    It is replaced and waited for, not taken back: after that Python 3.11 looks for it for ever, at every step of every
    thread, and under a profiler or tracer it does nothing else any more.
    """
    try:
        _raise_in(threading.get_ident(), _Absorbed)
        while True:
            time.sleep(0)
    except _Absorbed:
        return


def _raise_in(thread_id: int, error: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(error))
