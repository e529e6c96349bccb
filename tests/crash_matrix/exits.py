"""A process that has children do operations and end in the middle of them: `python -m tests.crash_matrix.exits`.

It opens no database itself, so that a child inherits nothing. Reads requests as pickles, answers each with the exit
status of the child.
"""

from __future__ import annotations

import logging
import os
import pickle
import struct
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

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

    def end_in(self, request: Request) -> int:
        """Have a process do an operation and end where it is told. Returns its exit status."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash_matrix.exits"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{SOURCES}:{ROOT}"},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        send(self._process.stdin, request)
        return int(receive(self._process.stdout))

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait(10)
            self._process.stdout.close()
            self._process = None


def send(out: BinaryIO | Any, what: object) -> None:
    data = pickle.dumps(what)
    out.write(struct.pack("!I", len(data)) + data)
    out.flush()


def receive(source: BinaryIO | Any) -> Any:
    head = source.read(4)
    if len(head) < 4:
        raise EOFError("the other process is gone")
    return pickle.loads(source.read(struct.unpack("!I", head)[0]))  # noqa: S301 - our own process


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


def main() -> None:
    from tests.crash_matrix.matrix import deterministic  # everything that a child needs is loaded before the first

    logging.disable(logging.CRITICAL)
    with deterministic():
        serve()


def serve() -> None:
    """Have children do what is asked for, one after the other."""
    while True:
        try:
            request: Request = receive(sys.stdin.buffer)
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
        send(sys.stdout.buffer, os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
