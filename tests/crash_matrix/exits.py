"""A process that has children do operations and end in the middle of them: `python -m tests.crash_matrix.exits`.

It opens no database itself, so that a child inherits nothing. Answers each request with the exit status of the child.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NamedTuple

import duly
from tests.crash_matrix.course import Course, Place
from tests.crash_matrix.modes import Mode

ROOT = Path(__file__).parents[2]
SOURCES = str(Path(duly.__file__).parents[1])


class Request(NamedTuple):
    """An operation to do, and where to end."""

    operation: str
    url: str
    now: int
    lease: int
    kept: dict[str, Any]
    place: Place
    mode: Mode


class Exits:
    """The other end: a process for one session."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._ours: Connection | None = None

    def end_in(self, request: Request) -> int:
        """Have a process do an operation and end where it is told. Returns its exit status."""
        if self._ours is None:
            self._ours, theirs = Pipe()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash_matrix.exits", str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{SOURCES}:{ROOT}"},
                pass_fds=[theirs.fileno()],
            )
            theirs.close()
        self._ours.send(request)
        return int(self._ours.recv())

    def close(self) -> None:
        if self._ours is not None and self._process is not None:
            self._ours.close()
            self._process.wait(10)
            self._ours = self._process = None


def do(request: Request) -> None:
    """Do the operation; it ends this process where the request says, or not at all."""
    from tests.crash_matrix.operations import OPERATIONS
    from tests.crash_matrix.world import World, open_faulty, store_on

    operation = OPERATIONS[request.operation]
    clock = operation.clock()
    clock._now, clock._lease = request.now, request.lease
    database = open_faulty(request.url, clock)
    store = store_on(database)
    operation.warm(store)
    database.course = Course(request.place, request.mode)
    operation.act(World(store, clock, request.kept))


def main(fileno: str) -> None:
    from tests.crash_matrix.matrix import deterministic  # everything that a child needs is loaded before the first

    logging.disable(logging.CRITICAL)
    with deterministic():
        serve(Connection(int(fileno)))


def serve(theirs: Connection) -> None:
    """Have children do what is asked for, one after the other."""
    while True:
        try:
            request: Request = theirs.recv()
        except EOFError:
            return
        child = os.fork()
        if child == 0:
            try:
                do(request)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        theirs.send(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(*sys.argv[1:])
