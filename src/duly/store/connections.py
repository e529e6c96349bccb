"""A few open connections, handed out one at a time. No threads, no checks: who finds one broken drops it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg


class Connections:
    """At most `size` connections, opened when needed."""

    def __init__(self, connect: Callable[[], psycopg.Connection], size: int) -> None:
        self._connect = connect
        self._free: list[psycopg.Connection] = []
        self._lock = threading.Lock()
        self._room = threading.Semaphore(size)
        self._generation = 0
        self._out: dict[int, int] = {}

    def take(self) -> psycopg.Connection:
        """Have a connection to oneself; wait for one if all are taken. It must be given back or dropped."""
        self._room.acquire()
        try:
            with self._lock:
                connection = self._free.pop() if self._free else None
            if connection is None:
                connection = self._connect()
        except BaseException:
            self._room.release()
            raise
        self._out[id(connection)] = self._generation
        return connection

    def give(self, connection: psycopg.Connection) -> None:
        """Give a sound connection back for the next one."""
        with self._lock:
            keep = self._out.pop(id(connection), -1) == self._generation and not connection.closed
            if keep:
                self._free.append(connection)
        if not keep:  # everything was closed while it was in use
            connection.close()
        self._room.release()

    def drop(self, connection: psycopg.Connection) -> None:
        """Close a connection that may be broken or in the middle of something."""
        self._out.pop(id(connection), None)
        connection.close()
        self._room.release()

    def close(self) -> None:
        """Close those that are free; those in use are closed when they come back."""
        with self._lock:
            self._generation += 1
            for connection in self._free:
                connection.close()
            self._free.clear()
