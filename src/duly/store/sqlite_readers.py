"""The connections of one process that only read an SQLite file: any number at a time, used again."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Readers:
    """Lends connections, and can have all of them back."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._idle: list[sqlite3.Connection] = []
        self._lent = 0
        self._held = False
        self._round = 0
        """Changes when all are closed: what was lent before is not taken back."""
        self._changed = threading.Condition()

    @contextmanager
    def one(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection. After an error it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held)
            connection, lent_in = self._idle.pop() if self._idle else None, self._round
            self._lent += 1
        sound = False
        try:
            if connection is None:
                connection = self._connect()
            yield connection
            sound = True
        finally:
            with self._changed:
                keep = sound and lent_in == self._round
                if connection is not None and keep:
                    self._idle.append(connection)
                elif connection is not None:
                    connection.close()
                self._lent -= 1
                self._changed.notify_all()

    def add(self, connection: sqlite3.Connection) -> None:
        """Take one that somebody has opened."""
        with self._changed:
            self._idle.append(connection)

    def close(self) -> None:
        """Close all, those that are lent when they come back."""
        with self._changed:
            self._round += 1
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def hold(self, until: float) -> bool:
        """Close all and lend none until `let_go`. Returns whether all had come back by that moment."""
        with self._changed:
            self._held = True
            back = self._changed.wait_for(lambda: not self._lent, max(0.0, until - time.monotonic()))
        self.close()
        return back

    def let_go(self) -> None:
        """Lend again."""
        with self._changed:
            self._held = False
            self._changed.notify_all()
