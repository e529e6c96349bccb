"""SQLite with a course: every statement on a connection is a boundary.

A lock is really held where SQLite would wait for one (BEGIN IMMEDIATE), and pages really run out. Elsewhere the error
is raised in place of the statement, and the transaction is rolled back where SQLite would have done so.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from duly.domain.clock import Clock
from duly.store.call import Call, CopyIn, Foreign, Op, Rows
from duly.store.sqlite import SqliteDatabase
from tests.crash_matrix.course import Course
from tests.crash_matrix.modes import Mode

R = TypeVar("R")
EXITED = 77
BUSY_SECONDS = 0.01
MOST_PAGES = 1_073_741_823
WORDS = {
    Mode.BUSY: "database is locked",
    Mode.FULL: "database or disk is full",
    Mode.IOERR: "disk I/O error",
}
UNCOUNTED = ("PRAGMA", "ROLLBACK")


class FaultySqlite(SqliteDatabase):
    """A database whose connections fail where its course says."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path, clock, synchronous="off", busy_seconds=BUSY_SECONDS, connect=self._connected)
        self.course = Course()
        self._statement = ""
        self._short: list[sqlite3.Connection] = []

    def _connected(self, path: str) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=_Connection)
        connection.database = self
        return connection

    # -- the course ---------------------------------------------------------------------------------------------------

    def write(self, op: Callable[[], Op[R]], *, atomic: bool = True, again: bool = True) -> R:
        self.course.begin()
        result = super().write(op, atomic=atomic, again=again)
        self.course.end()
        return result

    def read(self, op: Callable[[], Op[R]]) -> R:
        self.course.begin()
        result = super().read(op)
        self.course.end()
        return result

    def migrate(self) -> list[int]:
        self.course.begin()
        result = super().migrate()
        self.course.end()
        return result

    def heal(self) -> None:
        """There is room on the disk again."""
        self.course.heal()
        for connection in self._short:
            sqlite3.Connection.execute(connection, f"PRAGMA max_page_count={MOST_PAGES}").fetchall()
        self._short.clear()

    # -- the boundaries -----------------------------------------------------------------------------------------------

    def _execute(self, connection: sqlite3.Connection, call: Call | CopyIn | Foreign, now: int, lease_now: int) -> Rows:
        self._statement = call.name if isinstance(call, Call) else type(call).__name__
        try:
            return super()._execute(connection, call, now, lease_now)
        finally:
            self._statement = ""

    def cross(self, connection: sqlite3.Connection, sql: str, go: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        """Run a statement, or have happen what is to happen there."""
        if sql.startswith(UNCOUNTED):
            return go()
        mode = self.course.cross(self._statement or sql.split("(")[0].strip()[:40])
        if mode is None:
            return go()
        if mode is Mode.EXIT:
            os._exit(EXITED)
        if mode is Mode.EXIT_SENT:
            go()
            os._exit(EXITED)
        if mode is Mode.NO_PAGES:
            sqlite3.Connection.execute(connection, "PRAGMA max_page_count=1").fetchall()  # no more than there are
            self._short.append(connection)
            return go()
        if mode is Mode.BUSY and sql == "BEGIN IMMEDIATE":
            other = sqlite3.connect(self.path, isolation_level=None)
            try:
                other.execute("BEGIN IMMEDIATE")
                return go()
            finally:
                other.close()
        if mode is not Mode.BUSY and connection.in_transaction:
            sqlite3.Connection.execute(connection, "ROLLBACK")
        raise sqlite3.OperationalError(WORDS[mode])


class _Connection(sqlite3.Connection):
    database: FaultySqlite

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        def go() -> sqlite3.Cursor:
            return super(_Connection, self).execute(sql, *parameters)

        database = getattr(self, "database", None)
        return go() if database is None else database.cross(self, sql, go)
