"""Keeps several worker processes alive: starts them, passes signals on, starts again what dies, frees its jobs at once.

Small on purpose: it imports no application and holds no job, so that nothing a handler does can end it. It must be
called in the main thread: that is where signals arrive, and the children end when the thread that started them does.
"""

from __future__ import annotations

import logging
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from duly.domain.records import WorkerRecord
from duly.maintenance.rescue import Deaths, rescue_dead
from duly.store.store import Store
from duly.worker import identity
from duly.worker.recycle import RECYCLE
from duly.worker.service import Service

log = logging.getLogger("duly.supervisor")

SOON = 10.0
"""A process that ends sooner than this after its start has not worked."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
SLACK = 10.0
"""How much longer than its grace a process may take to stop."""
ECHO = 0.5
"""A SIGTERM sooner than this after another is the same one: some send it to a process and to its whole group."""
USAGE = 2
STOPPING = (signal.SIGTERM, signal.SIGINT)


def run_supervised(
    argv: list[str],
    processes: int,
    *,
    store: Store,
    crash_limit: int,
    grace: float,
    once: bool = False,
    program: Sequence[str] = (sys.executable, "-m", "duly"),
) -> int:
    """Run `program argv` in several processes until told to stop, or until all have ended by themselves.

    Adds `--child --parent PID` to the arguments. A process that ends is started again: at once if its exit code is 75,
    else after a pause if it did not live long; with `once` any exit code of its own but 75 is the end of it.
    Returns 0, or 2 if a process says at its start that it is used wrongly, or 1 if one had to be killed.
    """
    command = [*program, *argv, "--child", "--parent", str(os.getpid())]
    return Supervisor(command, processes, store, crash_limit=crash_limit, grace=grace, once=once).run()


class Member:
    """One of the processes that should run."""

    def __init__(self, number: int, command: list[str]) -> None:
        self.number = number
        self._command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.started = 0.0
        self.start_at: float | None = 0.0
        """When to start it next; None if it runs or is done."""
        self._short_lives = 0

    def start(self) -> None:
        """Start it, in a group of its own: Ctrl-C comes to the supervisor alone, which passes it on once."""
        self.started, self.start_at = time.monotonic(), None
        try:
            self.process = subprocess.Popen(self._command, process_group=0)
        except OSError as error:  # no memory or no process to be had just now
            pause = self.start_again(at_once=False) or FIRST_PAUSE
            self.start_at = time.monotonic() + pause
            log.warning("worker process %d cannot be started: %s; trying again in %.1f s", self.number, error, pause)

    def send(self, number: int) -> None:
        """Pass a signal on."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def start_again(self, *, at_once: bool) -> float:
        """Plan the next start: at once after a life of some length, later and later if it dies again and again."""
        now = time.monotonic()
        lived = now - self.started
        self._short_lives = 0 if at_once or lived > SOON else self._short_lives + 1
        pause = 0.0
        if self._short_lives > 1:
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._short_lives - 2)) * (0.5 + random.random() / 2)
        self.start_at = now + pause
        return pause


class Supervisor:
    """The processes, and what is to become of them."""

    def __init__(
        self, command: list[str], processes: int, store: Store, *, crash_limit: int, grace: float, once: bool
    ) -> None:
        self._members = [Member(number, command) for number in range(1, processes + 1)]
        self._grace = grace
        self._once = once
        self._stopping = 0
        self._signalled = 0.0
        self._kill_at: float | None = None
        self._code = 0
        self._rescuer = Rescuer(store, crash_limit)

    def run(self) -> int:
        """Supervise until all have ended. Returns the exit code."""
        self._rescuer.start()
        try:
            with _signals() as arrived:
                while self._step():
                    for number in _wait(arrived, self._pause()):
                        self._take_signal(number)
        finally:
            for member in self._members:
                if member.process is not None:  # an error of ours: nobody would look after them
                    member.process.kill()
                    member.process.wait()
            self._rescuer.finish()
        return self._code

    def _step(self) -> bool:
        """Start what should run, see what has ended. Returns whether there is anything left to look after."""
        now = time.monotonic()
        for member in self._members:
            if member.process is not None and member.process.poll() is not None:
                self._ended(member, member.process)
            if member.start_at is not None and now >= member.start_at:
                member.start()
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_all()
        return any(member.process is not None or member.start_at is not None for member in self._members)

    def _pause(self) -> float | None:
        """How long nothing will happen unless a signal comes, SIGCHLD among them."""
        moments = [member.start_at for member in self._members if member.start_at is not None]
        if self._kill_at is not None:
            moments.append(self._kill_at)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    # -- what ends ----------------------------------------------------------------------------------------------------

    def _ended(self, member: Member, process: subprocess.Popen[bytes]) -> None:
        code, lived = process.returncode, time.monotonic() - member.started
        member.process = None
        if code not in (0, RECYCLE):
            self._rescuer.rescue(process.pid)
        if self._stopping:
            return
        if self._once and code >= 0 and code != RECYCLE:
            self._code = self._code or code
            return
        if code == USAGE and lived < SOON:
            self._code = USAGE
            self._stop(signal.SIGTERM)
            return
        pause = member.start_again(at_once=code == RECYCLE)
        if code == RECYCLE:
            log.info("worker process %d (pid %d) is replaced by a fresh one", member.number, process.pid)
            return
        log.warning(
            "worker process %d (pid %d) %s after %.1f s; starting another%s",
            member.number,
            process.pid,
            f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}",
            lived,
            f" in {pause:.1f} s" if pause else "",
        )

    # -- stopping -----------------------------------------------------------------------------------------------------

    def _take_signal(self, number: int) -> None:
        if number not in STOPPING:
            return
        before, self._signalled = self._signalled, time.monotonic()
        if number != signal.SIGTERM or self._signalled - before > ECHO:
            self._stop(number)

    def _stop(self, number: int) -> None:
        """Have all processes stop. They give running jobs the grace the first time, and none the second."""
        self._stopping += 1
        log.info("stopping %s", "the worker processes" if self._stopping == 1 else "at once")
        for member in self._members:
            member.start_at = None
            member.send(number)
        self._kill_at = time.monotonic() + SLACK + (self._grace if self._stopping == 1 else 0.0)

    def _kill_all(self) -> None:
        self._kill_at = None
        for member in self._members:
            if member.process is not None:
                log.error("worker process %d (pid %d) does not stop and is killed", member.number, member.process.pid)
                member.send(signal.SIGKILL)
                self._code = self._code or 1


class Rescuer:
    """Frees the jobs of processes that have ended, on a thread of its own: a slow database must not delay a signal."""

    def __init__(self, store: Store, crash_limit: int) -> None:
        self._store = store
        self._crash_limit = crash_limit
        self._dead: set[int] = set()
        self._deaths = Deaths(store)
        self._service = Service("rescuer", self._step)

    def start(self) -> None:
        """Start the thread."""
        self._service.start()

    def rescue(self, pid: int) -> None:
        """Free what the workers of a process that has just ended were running."""
        self._dead.add(pid)
        self._service.wake()

    def _step(self) -> float:
        pids = set(self._dead)
        if not pids:
            return 60.0
        rescue_dead(
            self._store, self._those(pids), identity.is_gone, crash_limit=self._crash_limit, deaths=self._deaths
        )
        self._dead -= pids - {worker.process.pid for worker in self._those(pids)}
        if not self._dead:
            self._store.close()  # hours may pass before the next
        return 1.0

    def _those(self, pids: set[int]) -> list[WorkerRecord]:
        """The workers on the list that were one of these processes."""
        found = [worker for worker in self._store.workers() if worker.process.pid in pids]
        return [worker for worker in found if identity.is_gone(worker.process)]

    def finish(self, seconds: float = 5.0) -> None:
        """Free what is left to free, and end. Where the database is away the leases will lapse."""
        until = time.monotonic() + seconds
        self._deaths.linger = 0.0  # nobody comes again
        while self._dead and time.monotonic() < until:
            self._service.wake()
            time.sleep(0.01)
        self._service.stop()


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """Have signals arrive as bytes on a socket, those that end children among them."""
    arrived, sender = socket.socketpair()
    arrived.setblocking(False)
    sender.setblocking(False)
    fd = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, lambda *_: None) for number in (*STOPPING, signal.SIGCHLD)}
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(fd)
        arrived.close()
        sender.close()


def _wait(arrived: socket.socket, seconds: float | None) -> list[int]:
    ready, _, _ = select.select([arrived], [], [], seconds)
    return list(arrived.recv(1_024)) if ready else []
