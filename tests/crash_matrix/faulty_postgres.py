"""PostgreSQL with a course: every round trip is a boundary, and what fails there fails on the wire.

Sockets are really shut, backends really terminated, errors really raised by the server, which really aborts the
transaction. Only a server without a free connection is pretended, where we connect.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg

from duly.domain.clock import Clock
from duly.domain.errors import DatabaseUnavailable
from duly.store.call import Call, CopyIn, Foreign, Op, Rows
from duly.store.postgres import PostgresDatabase
from tests.crash_matrix.course import Course
from tests.crash_matrix.modes import Mode

R = TypeVar("R")
EXITED = 77
CONNECTIONS = 2
NOTHING_SENT = ("_commit_gen", "_rollback_gen")
"""What says nothing to the server where no transaction is open."""
IDLE = psycopg.pq.TransactionStatus.IDLE
RAISED = (Mode.SERIALIZATION, Mode.DEADLOCK, Mode.LOCK_TIMEOUT)


class FaultyPostgres(PostgresDatabase):
    """A database whose connections fail where its course says."""

    def __init__(self, url: str, clock: Clock) -> None:
        super().__init__(url, clock, size=CONNECTIONS)
        self.course = Course()
        self.terminate: Callable[[int], object] = lambda pid: None
        """Has the server end one of its processes, if it has not ended, and waits until it has."""
        self._statement = ""

    # -- the course ---------------------------------------------------------------------------------------------------

    def write(self, op: Callable[[], Op[R]], *, atomic: bool = True, again: bool = True) -> R:
        self.course.begin()
        result = super().write(op, atomic=atomic, again=again)
        self.course.end()
        return result

    def _run(self, op: Callable[[], Op[R]], atomic: bool) -> R:
        self.course.try_again()
        return super()._run(op, atomic)

    def migrate(self) -> list[int]:
        self.course.begin()
        result = super().migrate()
        self.course.end()
        return result

    # -- the boundaries -----------------------------------------------------------------------------------------------

    def connect(self) -> psycopg.Connection:
        if self.course.refuses:
            raise DatabaseUnavailable("cannot connect: FATAL: sorry, too many clients already (53300)")
        connection = super().connect()

        def wait(gen: Generator[Any, Any, Any], **options: Any) -> Any:
            name = getattr(gen, "__name__", "")
            if name in NOTHING_SENT and connection.pgconn.transaction_status == IDLE:
                return psycopg.Connection.wait(connection, gen, **options)
            statement = {"_enter_gen": "BEGIN", "_exit_gen": "COMMIT"}.get(name, self._statement)
            return self._cross(connection, statement, lambda: psycopg.Connection.wait(connection, gen, **options))

        connection.__dict__["wait"] = wait
        return connection

    def _execute(self, connection: psycopg.Connection, call: Call | CopyIn | Foreign) -> Rows:
        self._statement = call.name if isinstance(call, Call) else type(call).__name__
        try:
            return super()._execute(connection, call)
        finally:
            self._statement = ""

    def _copy(self, connection: psycopg.Connection, call: CopyIn) -> Rows:
        wait = connection.__dict__.pop("wait")  # all of a COPY is one statement
        try:
            return self._cross(
                connection, f"COPY {call.table}", lambda: super(FaultyPostgres, self)._copy(connection, call)
            )
        finally:
            connection.__dict__["wait"] = wait

    def _execute_directly(self, connection: psycopg.Connection, call: Call) -> Rows:
        return self._cross(
            connection, call.name, lambda: super(FaultyPostgres, self)._execute_directly(connection, call)
        )

    def _cross(self, connection: psycopg.Connection, statement: str, go: Callable[[], R]) -> R:
        mode = self.course.cross(statement)
        aborted = connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.INERROR
        if mode is None or (mode in RAISED and aborted):  # a transaction that has failed does not fail in other ways
            return go()
        if mode in RAISED:
            _ask(connection, f"DO $$ BEGIN RAISE EXCEPTION 'as it may happen' USING ERRCODE = '{mode}'; END $$")
        elif mode is Mode.TERMINATED:
            self.terminate(connection.info.backend_pid)
        elif mode is Mode.EXIT:
            os._exit(EXITED)
        elif mode is Mode.EXIT_SENT:
            if statement == "COMMIT":
                connection.pgconn.send_query(b"COMMIT")
                while connection.pgconn.flush():
                    pass
            else:
                go()
            os._exit(EXITED)
        elif mode.may_commit:
            try:
                answer = go()
            except psycopg.Error:
                self._shut(connection)
                raise
            self._shut(connection)
            if mode is Mode.CUT_IDLE:
                return answer
            _ask(connection, "SELECT 'for the words that libpq has for it'")
        else:
            self.course.refuses = mode is Mode.CROWDED
            self._shut(connection)
        return go()

    def _shut(self, connection: psycopg.Connection) -> None:
        """Cut a connection, and let the server see it: until then it keeps its locks, and others go round them."""
        pid = connection.info.backend_pid
        shut(connection)
        self.terminate(pid)


def shut(connection: psycopg.Connection) -> None:
    """Cut a connection: neither side hears any more of the other."""
    with socket.socket(fileno=os.dup(connection.pgconn.socket)) as ours:
        ours.shutdown(socket.SHUT_RDWR)


def _ask(connection: psycopg.Connection, sql: str) -> None:
    psycopg.Connection.wait(connection, connection._exec_command(sql.encode()))
