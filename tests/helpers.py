"""What the behaviour tests share: waiting for a condition, a `Duly` that closes, ledgers, workers in processes."""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from duly import Duly

ROOT = Path(__file__).parents[1]
T = TypeVar("T")


def eventually(predicate: Callable[[], T], within: float = 5.0, every: float = 0.005) -> T:
    """Wait until `predicate()` is true and return what it gave; fail when the time is up."""
    deadline = time.monotonic() + within
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"still not so after {within} s: {value!r}")
        time.sleep(every)


def never(predicate: Callable[[], object], within: float) -> None:
    """Fail as soon as `predicate()` is true; return when the time is up."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        assert not predicate(), "it happened"
        time.sleep(0.005)


@contextmanager
def opened(url: str, **settings: Any) -> Iterator[Duly]:
    """A `Duly` that is closed at the end."""
    jobs = Duly(url, **settings)
    try:
        yield jobs
    finally:
        jobs.close()


class Entry(NamedTuple):
    """One line of a ledger."""

    name: str
    event: str
    pid: int
    at: float


class Ledger:
    """A file that handlers in any process append lines to, so that a test can prove what ran, when and where."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, event: str = "ran") -> None:
        """Append one line; whole lines, whatever else is written at the same time."""
        line = json.dumps([name, event, os.getpid(), time.monotonic()]) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def entries(self, event: str | None = None, name: str | None = None) -> list[Entry]:
        """The lines so far, those of one event or one name if asked."""
        if not self.path.exists():
            return []
        text = self.path.read_text()
        whole = text[: text.rfind("\n") + 1]  # of a line that is being written, only a part may be there yet
        found = [Entry(*json.loads(line)) for line in whole.splitlines()]
        return [each for each in found if event in (None, each.event) and name in (None, each.name)]

    def count(self, event: str | None = None, name: str | None = None) -> int:
        """How many such lines there are."""
        return len(self.entries(event, name))

    def most_at_once(self) -> int:
        """How many handlers were between their start and end lines at the same time, at most."""
        now = most = 0
        for entry in sorted(self.entries(), key=lambda each: each.at):
            now += {"start": 1, "end": -1}.get(entry.event, 0)
            most = max(most, now)
        return most


class WorkerProcess:
    """A worker in a process of its own: `tests/worker/program.py`, or another program of that kind."""

    program = "tests.worker.program"

    def __init__(self, url: str, ledger: Ledger, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.program, url, str(ledger.path), json.dumps(options)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def ready(self, within: float = 15.0) -> WorkerProcess:
        """Wait until its worker has started."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], within)
        assert ready, "the worker process did not start in time"
        assert self.process.stdout.readline().strip() == "ready"
        return self

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it at once, and reap it."""
        self.process.kill()
        self.process.wait()

    def leave(self, within: float = 20.0) -> int:
        """Have it stop its worker and end; returns its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(within)

    def close(self) -> None:
        """Make sure that it is gone."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def worker_process(url: str, ledger: Ledger, **options: Any) -> Iterator[WorkerProcess]:
    """A worker in a process of its own, started, and gone at the end."""
    process = WorkerProcess(url, ledger, **options)
    try:
        yield process.ready()
    finally:
        process.close()


def processes_of(pid: int) -> list[int]:
    """A process and all that it started, directly or not."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process and its children without ending them: whoever talks to them hears nothing, not even a refusal.

    The process first: a child that it has while its children are being looked for would go on.
    """
    stopped = [pid]
    try:
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        for each in processes_of(pid)[1:]:
            os.kill(each, signal.SIGSTOP)
            stopped.append(each)
        yield
    finally:
        for each in stopped:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Hold an SQLite file's write lock, as a program that forgot to commit does."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=10)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()
