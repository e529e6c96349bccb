"""What runs inside a child process: one handler at a time, in the main thread, told over a socket what to do.

The main thread runs handlers, so that a signal can interrupt them even in a blocking call. A second thread listens:
it passes on jobs and requests to stop, sends progress, and ends everything when the worker is gone. Messages are JSON,
one object a line; nothing is pickled.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import inspect
import json
import logging
import os
import queue
import select
import signal
import socket
import threading
import time
from contextvars import Context, copy_context
from types import FrameType
from typing import Any, NoReturn

from duly.domain.records import Claimed
from duly.domain.recurring import Occurrence
from duly.domain.text import describe_exception
from duly.worker.context import CURRENT, Run
from duly.worker.executor import Concluded, Executor
from duly.worker.hooks import run_hook, run_hook_whatever
from duly.worker.lifeline import end_with_parent
from duly.worker.locate import Address, Place, Post, find
from duly.worker.registry import Registry, TaskDefinition

log = logging.getLogger("duly.worker")

LOADING = "_DULY_CHILD_LOADS"
"""In the environment of a child while it imports: its pid. A worker must not be started then."""
POLITE = 0.2
PROGRESS_EVERY = 0.25


def main(channel: socket.socket, hello: dict[str, Any]) -> None:
    """Serve until told to go. Called by the line of code that the worker starts a child with."""
    os.set_inheritable(channel.fileno(), False)
    with contextlib.suppress(Exception):  # no usable stderr
        faulthandler.enable()
    end_with_parent(hello["parent"])
    Child(channel, hello).serve()


class ChildRun(Run):
    """A run whose log lines go to the worker as they come, so that they outlive this process."""

    __slots__ = ("_child",)

    def __init__(self, child: Child, job: Claimed, definition: TaskDefinition) -> None:
        super().__init__(job, definition, 0.0)
        self._child = child

    def log(self, line: str) -> None:
        """Keep a line with this run."""
        self._child.send({"line": line})

    def announce_completion(self) -> None:
        """Tell the worker that this run may be on record from now on."""
        self._child.send({"completing": True})


class Forward(logging.Handler):
    """Hands log records of a run to the worker, which shows them as it shows its own, and keeps them with the run."""

    def __init__(self, child: Child) -> None:
        super().__init__(logging.NOTSET)
        self._child = child
        self._text = logging.Formatter("%(message)s")

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record; outside a run do what logging does without any handler."""
        others = len(logging.getLogger().handlers) > 1
        if self._child.run is None or self._child.pid != os.getpid():  # a handler may have forked
            if not others and logging.lastResort is not None and record.levelno >= logging.lastResort.level:
                logging.lastResort.handle(record)
            return
        try:
            text = self._text.format(record)
        except Exception:
            self.handleError(record)
            return
        self._child.send({"log": [record.name, record.levelno, record.created, text, others]})


class Child:
    """This process."""

    def __init__(self, channel: socket.socket, hello: dict[str, Any]) -> None:
        self.pid = os.getpid()
        self._channel = channel
        self._max_result: int = hello["max_result"]
        self._clock_offset: int = hello["clock_offset"]
        self._orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._ordered = self._done = 0
        self._places: dict[str, Place] = {}
        self._registries: dict[int, Registry] = {}
        self._loop: asyncio.Runner | None = None
        self._lock = threading.Lock()
        self.run: ChildRun | None = None
        self._task: asyncio.Task[object] | None = None
        # About being interrupted. Signal handlers run in the main thread only, between two of its instructions.
        self._target: ChildRun | None = None
        self._interruptible = False
        self._sending = False
        self._owed = False
        logging.getLogger().setLevel(hello["log_level"])
        logging.getLogger().addHandler(Forward(self))

    def serve(self) -> None:
        """Run what is ordered, until told to go."""
        self._catch_signals()
        threading.Thread(target=self._listen, name="duly-child-ear", daemon=True).start()
        while "run" in (order := self._orders.get()):
            self._attempt(Claimed(*order["run"]), order["occurrence"], order["post"])
            self._done += 1
        for registry in self._registries.values():
            for hook in registry.on_stop:
                run_hook_whatever(hook)

    # -- one job ------------------------------------------------------------------------------------------------------

    def _attempt(self, job: Claimed, occurrence: list[Any] | None, post: list[Any]) -> None:
        try:
            place = self._place(job.task, post)
        except BaseException as error:  # also SystemExit: what an import does must not end this loop
            text = describe_exception(error)
            self.send({"unable": [text.kind, text.message, text.traceback]})
            return
        run = self.run = ChildRun(self, job, place.definition)
        run.occurrence = None if occurrence is None else Occurrence._make(occurrence)
        executor = self._executor(place)
        try:
            call = executor.prepare(run)
            if call is not None:
                self._catch_signals()  # a handler before may have taken them
                run.start()
                self.send({"started": True})
                Context().run(self._call, executor, run, *call)
        finally:
            self.run = self._target = None
            self._owed = False

    def _place(self, name: str, post: list[Any]) -> Place:
        """Find the task, and call the start-up hooks that its handler may count on."""
        place = self._places.get(name)
        if place is None:
            os.environ[LOADING] = str(os.getpid())
            try:
                place = find(_read_post(post))
            finally:
                del os.environ[LOADING]
            if place.registry is not None and id(place.registry) not in self._registries:
                for hook in place.registry.on_start:
                    run_hook(hook)
                self._registries[id(place.registry)] = place.registry
            self._places[name] = place
        return place

    def _executor(self, place: Place) -> Executor:
        told = place.registry is not None

        def conclude(concluded: Concluded) -> None:
            if self.pid != os.getpid():
                os._exit(1)  # a handler forked and let the copy come this far
            if concluded[0].recorded:
                self.send(recorded_message(concluded))
                return
            self.send({"settled": list(concluded[2]), "told": told})

        return Executor(place.registry or Registry(), conclude, max_result=self._max_result, now_us=self._now_us)

    def _now_us(self) -> int:
        return time.time_ns() // 1_000 + self._clock_offset

    def _call(self, executor: Executor, run: ChildRun, args: Any, kwargs: dict[str, Any]) -> None:
        CURRENT.set(run)
        try:
            try:
                self._interruptible = True
                with executor.surroundings(run):
                    value = run.definition.fn(*args, **kwargs)
                    if inspect.isawaitable(value):
                        value = self._finish(value)
            finally:
                self._interruptible = False
        except BaseException as error:  # SystemExit and KeyboardInterrupt of a handler are its failure, not ours
            executor.raised(run, error)
        else:
            executor.succeeded(run, value)

    def _finish(self, awaitable: Any) -> object:
        """Run what an `async def` handler returned, on one loop for all of them."""

        async def body() -> object:
            self._task = asyncio.current_task()
            try:
                return await awaitable
            finally:
                self._task = None

        self._interruptible = False  # an exception out of nowhere would break the loop: its task is cancelled instead
        if self._loop is None:
            self._loop = asyncio.Runner()
        try:
            return self._loop.run(body(), context=copy_context())  # else all would run in the context of the first
        except (SystemExit, KeyboardInterrupt):
            # Of a task beside the handler's: the loop stopped there and then, in the midst of all the others.
            loop, self._loop = self._loop, None
            loop.close()
            raise

    # -- stopping a handler -------------------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        """Take part in no shutdown that the worker has not asked for: it may let us finish."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN, which a program started by a handler would inherit

    def _on_signal(self, _: int, __: FrameType | None) -> None:
        if self._target is None or self._target is not self.run or not self._interruptible:
            return
        if self._sending:
            self._owed = True  # half a message must not be left on its way
            return
        self._raise()

    def _raise(self) -> None:
        run, self._target = self._target, None
        if run is not None and self._interruptible:
            raise TimeoutError("the time for this run is up") if run.timed_out else KeyboardInterrupt

    def _stop(self, order: dict[str, Any]) -> None:
        """Flag the run, as its handler may look; then interrupt it."""
        run = self.run
        if run is None or (run.job.id, run.job.token) != (order["id"], order["token"]):
            return
        match order["stop"]:
            case "timeout":
                run.timed_out = True
            case "cancel":
                run.cancel_reason = order["reason"]
            case _:
                run.stopping = True
        run.flag()
        if not run.timed_out and self._task is None:
            time.sleep(POLITE)  # time to notice by itself
        if self._task is not None and self._loop is not None:
            self._loop.get_loop().call_soon_threadsafe(self._cancel_task, run)
        elif self.run is run:
            self._target = run
            signal.pthread_kill(_main_thread(), signal.SIGTERM)

    def _cancel_task(self, run: ChildRun) -> None:
        if self._task is not None and self.run is run:
            self._task.cancel()

    # -- the socket ---------------------------------------------------------------------------------------------------

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, whole, from any thread."""
        data = json.dumps(message).encode() + b"\n"
        in_main = threading.get_ident() == _main_thread()
        with self._lock:
            if in_main:
                self._sending = True
            try:
                self._channel.sendall(data)
            except OSError:
                _end_all()
            finally:
                if in_main:
                    self._sending = False
        if in_main and self._owed:
            self._owed = False
            self._raise()

    def _listen(self) -> None:
        """Pass on what comes; while a run goes on, look for its progress."""
        readable = select.poll()
        readable.register(self._channel, select.POLLIN)
        rest = b""
        while True:
            while not readable.poll(None if self._ordered == self._done else PROGRESS_EVERY * 1_000):
                self._send_progress()
            try:
                data = self._channel.recv(65_536)
            except OSError:
                data = b""
            if not data:
                _end_all()
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, order: dict[str, Any]) -> None:
        if "stop" in order:
            self._stop(order)
            return
        self._ordered += "run" in order
        self._orders.put(order)

    def _send_progress(self) -> None:
        run = self.run
        pending = None if run is None else run.take_progress()
        if pending is not None:
            self.send({"progress": list(pending)})


def recorded_message(concluded: Concluded) -> dict[str, Any]:
    """What the worker must know of a run that is on record."""
    completion = concluded[0].completion
    return {"recorded": list(concluded[2]), "next": None if completion is None else list(completion.following)}


def _main_thread() -> int:
    ident = threading.main_thread().ident
    assert ident is not None
    return ident


def _end_all() -> NoReturn:
    """The worker is gone: end at once, with every process that a handler has started and not set free."""
    os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _read_post(data: list[Any]) -> Post:
    name, address, app, hooks, retry, max_attempts, retry_on, give_up_on = data
    return Post(
        name,
        Address(*address),
        app,
        [Address(*each) for each in hooks],
        retry,
        max_attempts,
        [Address(*each) for each in retry_on],
        [Address(*each) for each in give_up_on],
    )
