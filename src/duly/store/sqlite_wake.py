"""Wakes workers on one SQLite file: a datagram socket beside it for those who know, the file's version for the rest."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from duly.domain.errors import DulyError
from duly.store import forks
from duly.store.database import Hint
from duly.store.readable import readable

LOOK_EVERY = 0.04
"""Each look wakes a processor that would sleep: 25 of them a second take half a percent of a core."""
_AF_UNIX = getattr(socket, "AF_UNIX", None)


class SqliteWaker:
    """Waits on a socket of its own; in between looks whether any process has written the file."""

    polls_every = 5.0
    """Seldom: whatever is written by whomever is seen within LOOK_EVERY."""

    def __init__(self, path: Path, worker_id: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._connection: sqlite3.Connection | None = connect()
        self._looking = threading.Lock()
        self._held_for_fork = False
        self._pid = os.getpid()
        self._version = self._data_version()
        self._closed = False
        self._inner, self._poker = socket.socketpair()
        self._socket: socket.socket | None = None
        self._address: str | None = None
        if _AF_UNIX is not None:
            _sweep(path)
            self._bind(f"{path}-duly-{worker_id[-12:]}.sock")
        forks.watch(self)

    def _bind(self, address: str) -> None:
        assert _AF_UNIX is not None
        bound = socket.socket(_AF_UNIX, socket.SOCK_DGRAM)
        try:
            bound.bind(address)
        except OSError:  # the path is too long for a socket, or the disk has none: the look at the version does
            bound.close()
            return
        bound.setblocking(False)
        self._socket, self._address = bound, address

    @property
    def address(self) -> str | None:
        """Where others can poke this worker."""
        return self._address

    def _data_version(self) -> object:
        """Changes when anyone else writes the file. A file that cannot be read says nothing; the worker will notice."""
        try:
            with self._looking:
                if self._connection is None:
                    self._connection = self._connect()
                return self._connection.execute("PRAGMA data_version").fetchone()[0]
        except (sqlite3.Error, DulyError):
            return None

    def before_fork(self, until: float) -> None:
        """Close the connection: a child must not inherit what SQLite knows of it. The next look opens another."""
        if self._pid != os.getpid():
            return  # a child's copy, which nobody uses
        self._held_for_fork = self._looking.acquire(timeout=max(0.0, until - time.monotonic()))
        if self._held_for_fork and self._connection is not None:
            self._connection.close()
            self._connection = None

    def after_fork(self) -> None:
        """Let it look again."""
        if self._held_for_fork and self._pid == os.getpid():
            self._looking.release()

    def wait(self, timeout: float) -> list[Hint]:
        """Wait until poked, until the file changes, or until the time is up."""
        deadline = time.monotonic() + timeout
        inner = self._inner.fileno()
        outer = -1 if self._socket is None else self._socket.fileno()
        files = [inner] if outer < 0 else [inner, outer]
        while not self._closed:
            left = deadline - time.monotonic()
            ready = readable(files, max(0.0, min(left, LOOK_EVERY)))
            if inner in ready:  # closed
                return []
            if outer in ready:
                self._version = self._data_version()
                return self._receive()
            version = self._data_version()
            if version != self._version:
                self._version = version
                return [Hint("changed")]
            if left <= 0:
                return []
        return []

    def _receive(self) -> list[Hint]:
        assert self._socket is not None
        hints: list[Hint] = []
        with contextlib.suppress(BlockingIOError):
            while len(hints) < 256:
                hints.append(_parse(self._socket.recv(4096)))
        return hints

    def close(self) -> None:
        """Stop waiting and remove the socket."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._poker.send(b"x")

    def dispose(self) -> None:
        """Let go of the sockets and the connection, once nobody waits any more."""
        for each in (self._inner, self._poker, self._socket):
            if each is not None:
                each.close()
        if self._address is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._address)
        with self._looking:
            if self._connection is not None:
                self._connection.close()
            self._closed, self._connection = True, None


def _sweep(path: Path) -> None:
    """Remove the sockets of workers that were killed: nobody answers there any more."""
    assert _AF_UNIX is not None
    for left in path.parent.glob(f"{path.name}-duly-*.sock"):
        with socket.socket(_AF_UNIX, socket.SOCK_DGRAM) as out, contextlib.suppress(OSError):
            try:
                out.connect(str(left))
            except ConnectionRefusedError:
                left.unlink()


def _parse(data: bytes) -> Hint:
    try:
        return Hint(*json.loads(data))
    except (ValueError, TypeError):
        return Hint("look")


def poke_sockets(addresses: Sequence[str], hint: Hint) -> None:
    """Send a hint to each worker's socket. A worker that is gone or busy is skipped."""
    if _AF_UNIX is None or not addresses:
        return
    data = json.dumps(hint).encode()
    with socket.socket(_AF_UNIX, socket.SOCK_DGRAM) as out:
        out.setblocking(False)
        for address in addresses:
            with contextlib.suppress(OSError):
                out.sendto(data, address)
