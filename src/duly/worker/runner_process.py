"""Runs handlers of tasks with `isolation="process"`, each in a child process that can be killed.

A slot is a thread that owns a child: it starts one when it gets its first job, gives it one job after another, and ends
it after a while without any. Whatever the handler does (hold the GIL, exhaust the memory, crash), the worker goes on.

How a run is stopped: the child is told, so that `cancelled()` is true in the handler, and what it does is interrupted
by `TimeoutError` or `KeyboardInterrupt` (`CancelledError` in an `async def`); soon after, it is killed. A lost lease is
not announced: whatever the handler still did would be done twice. A child that was interrupted is not used again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import threading
import time
from collections import deque
from contextvars import Context
from typing import Any

from duly.domain.errors import WorkerError
from duly.domain.records import Settled
from duly.worker.capture import keep
from duly.worker.child_handle import ChildHandle, Message
from duly.worker.child_main import LOADING
from duly.worker.completing import completion_elsewhere
from duly.worker.context import CURRENT, Run
from duly.worker.executor import Executor
from duly.worker.locate import Post, post_of
from duly.worker.registry import Kind, TaskDefinition

log = logging.getLogger("duly.worker")

BEGIN_SECONDS = 120.0
IDLE_SECONDS = 300.0
TIMEOUT_GRACE = 1.0
STOP_GRACE = 0.5
BYE_SECONDS = 0.7


class ProcessRunner:
    """`slots` handlers at a time, each in a child process."""

    def __init__(self, slots: int, executor: Executor, app_path: str | None = None) -> None:
        if os.environ.get(LOADING) == str(os.getpid()):
            raise WorkerError(
                "a worker was started by the import of a module whose task runs in a child process. "
                'Start it only in the main program: if __name__ == "__main__":'
            )
        self.slots = slots
        self.executor = executor
        self._app_path = app_path
        self._posts: dict[str, Post] = {}
        for task in executor.registry:
            if task.kind is Kind.PROCESS:
                self.post_of(task)
        self._queue: deque[Run] = deque()
        self._lock = threading.Lock()
        self._all: list[Slot] = []
        self._idle: list[Slot] = []

    def post_of(self, task: TaskDefinition) -> Post:
        """How a child finds a task. One that no child could find is refused when the worker is made."""
        if task.name not in self._posts:
            self._posts[task.name] = post_of(task, self.executor.registry, self._app_path)
        return self._posts[task.name]

    def start(self) -> None:
        """Nothing yet: children start with the first jobs."""

    def submit(self, runs: list[Run]) -> None:
        """Queue jobs; slots that are free take them, those with a child first."""
        with self._lock:
            self._queue.extend(runs)
            while self._queue and (self._idle or len(self._all) < self.slots):
                self._free_slot().give(self._queue.popleft())

    def _free_slot(self) -> Slot:
        if self._idle:
            return self._idle.pop()  # the one used last: others may end their children
        slot = Slot(self, len(self._all) + 1)
        self._all.append(slot)
        return slot

    def next_for(self, slot: Slot) -> Run | None:
        """A job for a slot that has become free, or none: then it waits to be given one."""
        with self._lock:
            if self._queue:
                return self._queue.popleft()
            self._idle.append(slot)
            return None

    def take_back(self) -> list[Run]:
        """Take out the jobs that no slot has begun."""
        with self._lock:
            taken = list(self._queue)
            self._queue.clear()
            return taken

    def interrupt(self, run: Run) -> None:
        """Have a handler stopped; why is noted on the run. Never waits."""
        slot = run.child
        if isinstance(slot, Slot):
            slot.wake()

    def stop(self, timeout: float) -> None:
        """End every child."""
        until = time.monotonic() + timeout
        for slot in self._all:
            slot.close()
        for slot in self._all:
            slot.thread.join(max(0.0, until - time.monotonic()))


class Slot:
    """A thread and its child process."""

    def __init__(self, runner: ProcessRunner, number: int) -> None:
        self._runner = runner
        self._executor = runner.executor
        self._given: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._child: ChildHandle | None = None
        self._closing = False
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self.thread = threading.Thread(target=self._main, name=f"duly-process-{number}", daemon=True)
        try:
            self.thread.start()
        except RuntimeError:
            self._woken.close()
            self._waker.close()
            raise

    # -- from other threads -------------------------------------------------------------------------------------------

    def give(self, run: Run) -> None:
        """Take a job while idle."""
        self._given.put(run)

    def wake(self) -> None:
        """Look at the run now."""
        with contextlib.suppress(OSError):  # it is awake, or has ended
            self._waker.send(b"!")

    def close(self) -> None:
        """End, with the child."""
        self._closing = True
        self._given.put(None)
        self.wake()

    # -- in its own thread --------------------------------------------------------------------------------------------

    def _main(self) -> None:
        while not self._closing:
            run = self._runner.next_for(self) or self._wait()
            if run is None:
                continue
            run.child = self
            try:
                Context().run(self._attempt, run)
            except Exception as error:  # ours, not the handler's
                log.exception("job %s: its child process could not be looked after", run.job.id)
                self._drop_child()
                if run.phase != 2:
                    self._fail(run, error)
            finally:
                run.child = None
        self._drop_child(BYE_SECONDS)
        self._woken.close()
        self._waker.close()

    def _wait(self) -> Run | None:
        try:
            return self._given.get(timeout=None if self._child is None else IDLE_SECONDS)
        except queue.Empty:
            self._drop_child(BYE_SECONDS)
            return self._given.get()

    def _attempt(self, run: Run) -> None:
        """Give a job to the child. One that ends before the handler has begun is replaced, once."""
        CURRENT.set(run)
        how = ""
        for _ in range(2):
            if not self._executor.admit(run):
                return
            child = self._living_child()
            message = {"run": run.job, "occurrence": run.occurrence, "post": self._runner.post_of(run.definition)}
            child.send(message)
            self._attend(run, child)
            if run.phase == 2:
                return
            how = self._drop_child()
            if run.phase == 1:
                self._executor.died(run, f"the child process {how}")
                return
        self._fail(run, WorkerError(f"the child process {how} before the task had begun"))

    def _living_child(self) -> ChildHandle:
        if self._child is not None and self._child.look():
            self._drop_child()
        if self._child is None:
            self._child = ChildHandle(
                self._woken, max_result=self._executor.max_result, clock_offset=self._executor.clock_offset
            )
        return self._child

    def _attend(self, run: Run, child: ChildHandle) -> None:
        """Listen until the run has been concluded or the child has ended, and stop it when told to."""
        begin_by = time.monotonic() + BEGIN_SECONDS
        kill_at: float | None = None
        while not child.ended and run.phase != 2:
            now = time.monotonic()
            if self._closing:
                run.stopping = True
            if run.lost or run.fenced or self._closing or (kill_at is not None and now >= kill_at):
                run.interrupted = True
                child.kill()
            elif run.cancelled() and kill_at is None:
                child.send(_stop_order(run))
                kill_at = now + (TIMEOUT_GRACE if run.timed_out else STOP_GRACE)
            elif run.phase == 0 and now >= begin_by:
                self._fail(run, WorkerError(f"the child process had not begun the task after {BEGIN_SECONDS:.0f} s"))
                child.kill()
                break
            until = kill_at if kill_at is not None else begin_by if run.phase == 0 else None
            for message in child.listen(None if until is None or child.killed else until - now):
                self._heed(run, message)
        if run.phase == 2 and (run.cancelled() or child.killed):
            self._drop_child()  # what an interruption left behind must not meet another job

    def _heed(self, run: Run, message: Message) -> None:
        match message:
            case {"started": True}:
                run.start()
            case {"progress": [fraction, text]}:
                run.progress(fraction, text)
            case {"line": str(line)}:
                run.log(line)
            case {"log": [name, level, created, text, shown]}:
                _relay(run, _record(name, level, created, text), shown=shown)
            case {"completing": True}:
                run.completion = completion_elsewhere(run)
            case {"recorded": [*values], "next": following}:
                self._executor.recorded_elsewhere(run, Settled(*values), following)
            case {"settled": [*values], "told": bool(told)}:
                self._executor.settled_elsewhere(run, Settled(*values), told=told)
            case {"unable": [kind, text, traceback]}:
                error = WorkerError(f"the child process could not load the task: {kind}: {text}")
                error.add_note(traceback)
                self._fail(run, error)
            case _:
                raise WorkerError(f"the child process said {message!r:.200}")

    def _fail(self, run: Run, error: Exception) -> None:
        if run.phase == 0:
            run.start()
        self._executor.raised(run, error)

    def _drop_child(self, seconds: float = 0.0) -> str:
        child, self._child = self._child, None
        return "" if child is None else child.dispose(seconds)


def _stop_order(run: Run) -> dict[str, Any]:
    why = "timeout" if run.timed_out else "stop" if run.cancel_reason is None else "cancel"
    return {"stop": why, "reason": run.cancel_reason, "id": run.job.id, "token": run.job.token}


def _record(name: str, level: int, created: float, text: str) -> logging.LogRecord:
    record = logging.LogRecord(name, level, "", 0, text, None, None)
    record.created = created
    return record


def _relay(run: Run, record: logging.LogRecord, *, shown: bool) -> None:
    """Show a child's record as one of ours, which also keeps it with the run. One that was shown there is only kept."""
    logger = logging.getLogger(record.name)
    if shown:
        keep(run, record)
    elif logger.isEnabledFor(record.levelno):
        logger.handle(record)
