"""Wakes workers on PostgreSQL: LISTEN on a connection of its own. Where a pooler swallows it, look every 200 ms.

A pooler may give LISTEN and the statements after it to one server connection and yet pass no notification on. So where
one is between (not the process that greeted us answers), a notification of our own must arrive first.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from duly.domain.errors import DulyError
from duly.store.database import Hint
from duly.store.readable import readable

if TYPE_CHECKING:
    import psycopg

SEPARATOR = "\x1f"
MAX_PAYLOAD = 400
PING_EVERY = 30.0
RECONNECT_EVERY = 2.0
TRIAL_SECONDS = 1.0


def channel_of(schema: str) -> str:
    """The channel that workers of one schema listen on."""
    return f"duly_{schema}"[:63]


def payload_of(hint: Hint) -> str:
    """Write a hint as a payload; names too long for one are left out, which only makes it less precise."""
    text = SEPARATOR.join("" if part is None else str(part) for part in hint)
    return text if len(text.encode()) <= MAX_PAYLOAD else "look"


def hint_of(payload: str) -> Hint:
    """Read a payload; anything unknown is a plain hint to look."""
    parts = payload.split(SEPARATOR)
    if len(parts) not in (6, 7):
        return Hint("look")
    kind, queue, tenant, task, rank, job_id, *sender = parts
    return Hint(kind, queue, tenant, task, int(rank) if rank.lstrip("-").isdigit() else None, job_id, *sender)


class PostgresWaker:
    """Listens. A lost notification costs time only: the worker looks by itself every `polls_every` seconds."""

    def __init__(self, connect: Callable[[], psycopg.Connection], channel: str, *, listen: bool) -> None:
        self._connect = connect
        self._channel = channel
        self._closed = False
        self._inner, self._poker = socket.socketpair()
        self._connection: psycopg.Connection | None = None
        self._listen = listen
        self._next_connect = 0.0
        self._last_heard = 0.0
        self.polls_every = 10.0 if listen else 0.2

    @property
    def address(self) -> str | None:
        """PostgreSQL needs none."""
        return None

    def wait(self, timeout: float) -> list[Hint]:
        """Wait until notified, or until the time is up."""
        if not self._listen:
            readable([self._inner.fileno()], timeout)
            return []
        fresh = self._ensure_listening()
        if fresh:
            return [Hint("look")]
        sources = (
            [self._inner.fileno()] if self._connection is None else [self._inner.fileno(), self._connection.fileno()]
        )
        if self._connection is None:
            timeout = min(timeout, RECONNECT_EVERY)
        ready = readable(sources, timeout)
        if self._closed or self._connection is None or len(ready) == 0:
            return []
        return self._receive()

    def _receive(self) -> list[Hint]:
        assert self._connection is not None
        hints: list[Hint] = []
        try:
            self._connection.pgconn.consume_input()
            while (note := self._connection.pgconn.notifies()) is not None:
                hints.append(hint_of(note.extra.decode("utf-8", "replace")))
            self._last_heard = time.monotonic()
        except Exception:  # whatever broke, a new connection mends it; until then the worker polls
            self._drop()
            return [Hint("look")]
        return hints

    def _ensure_listening(self) -> bool:
        """Connect and listen if not yet, ping if long silent. Returns whether it is a new connection."""
        now = time.monotonic()
        if self._connection is not None:
            if now - self._last_heard > PING_EVERY:
                self._ping(now)
            return False
        if now < self._next_connect:
            return False
        self._next_connect = now + RECONNECT_EVERY
        try:
            self._connection = self._connect()
            self._connection.execute(f'LISTEN "{self._channel}"')
            heard = self._connection.execute("SELECT pg_backend_pid() FROM pg_listening_channels()").fetchone()
            direct = heard is not None and heard[0] == self._connection.pgconn.backend_pid
            listening = direct or (heard is not None and self._is_heard(self._connection))
        except Exception as error:
            self._drop()
            if not isinstance(error, DulyError):
                self.polls_every = 1.0
            return False
        if listening:
            self.polls_every, self._last_heard = 10.0, now
        else:
            self._listen, self.polls_every = False, 0.2
            self._drop()
        return True

    def _is_heard(self, connection: psycopg.Connection) -> bool:
        """Whether a notification that another connection sends arrives here."""
        with self._connect() as other:
            other.execute("SELECT pg_notify(%s, 'look')", (self._channel,))
        readable([self._inner.fileno(), connection.fileno()], TRIAL_SECONDS)
        connection.pgconn.consume_input()
        if connection.pgconn.notifies() is not None:
            return True
        connection.execute(f'UNLISTEN "{self._channel}"')  # most likely where LISTEN went
        return False

    def _ping(self, now: float) -> None:
        assert self._connection is not None
        try:
            if self._connection.execute("SELECT 1 FROM pg_listening_channels()").fetchone() is None:
                self._drop()  # whatever is between forgot it
            self._last_heard = now
        except Exception:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None
            if self._listen:
                self.polls_every = 1.0

    def close(self) -> None:
        """Stop waiting."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._poker.send(b"x")

    def dispose(self) -> None:
        """Let go of the connection and the sockets."""
        self._drop()
        self._inner.close()
        self._poker.close()
