"""Has two meet where they must not: one is stopped between two statements, or at a lock, while the other goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg

from duly.store.call import Call, Op, Rows
from tests.limits.keyed import Keyed
from tests.store.raw import Raw

PATIENCE = 10.0
BLOCKED = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class Pair(NamedTuple):
    """Two at one PostgreSQL database."""

    one: Keyed
    other: Keyed

    @property
    def raw(self) -> Raw:
        return self.one.raw


def interrupted(op: Op[Any], after: str, what: Callable[[], object]) -> Op[Any]:
    """Run an operation; when the statement `after` has been run, do something else before it goes on."""
    rows: Rows = ()
    call, done = next(op), False
    while True:
        rows = yield call
        if isinstance(call, Call) and call.name == after and not done:
            done = True
            what()
        try:
            call = op.send(rows)
        except StopIteration as stop:
            assert done, f"{after} was never run"
            return stop.value


class Beside:
    """Work in another thread, which ends by itself or comes to wait for a lock."""

    def __init__(self, raw: Raw, work: Callable[[], Any]) -> None:
        self._raw = raw
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._answer: Any = None
        self._error: Exception | None = None
        self.waited = False

    def _run(self) -> None:
        try:
            self._answer = self._work()
        except Exception as error:
            self._error = error

    def start(self) -> None:
        """Begin, and see whether it ends or has to wait."""
        self._thread.start()
        deadline = time.monotonic() + PATIENCE
        while self._thread.is_alive() and not self._raw.rows(BLOCKED):
            assert time.monotonic() < deadline, "it neither ends nor waits for a lock"
            time.sleep(0.005)
        self.waited = self._thread.is_alive()

    def must_wait(self) -> None:
        """Begin; it must come to wait for what this one has locked."""
        self.start()
        assert self.waited, f"it did not wait, and said {self._error or self._answer}"

    def must_not_wait(self) -> None:
        """Begin; it must go round what this one has locked."""
        self.start()
        assert not self.waited, "it waits for a lock"

    def answer(self, within: float = PATIENCE) -> Any:
        """What it said, once it has ended."""
        self._thread.join(within)
        assert not self._thread.is_alive(), "it still waits"
        if self._error is not None:
            raise self._error
        return self._answer


@contextmanager
def held(raw: Raw, sql: str) -> Iterator[psycopg.Connection]:
    """A transaction of somebody else that has locked something, and stays open."""
    with psycopg.connect(raw.url) as connection:
        assert connection.execute(sql.encode()).fetchall(), f"nothing to lock: {sql}"
        yield connection
        connection.rollback()


def is_free(raw: Raw, sql: str) -> bool:
    """Whether a row could be locked now."""
    with psycopg.connect(raw.url) as connection:
        try:
            return bool(connection.execute(f"{sql} NOWAIT".encode()).fetchall())
        except psycopg.errors.LockNotAvailable:
            return False


def locks_in_order(raw: Raw, first: str, second: str, work: Callable[[], Any]) -> Any:
    """Have `work` wait for the row that all lock first: it must not hold the second one meanwhile.

    Each is a SELECT that locks one row. Whoever locks them the other way round holds the second, and a third party that
    has the first and wants the second would wait for it for ever.
    """
    beside = Beside(raw, work)
    with held(raw, first):
        beside.must_wait()
        free = is_free(raw, second)
    answer = beside.answer()
    assert free, "what all lock last was locked before what all lock first"
    return answer
