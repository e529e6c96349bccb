"""Runs steps on the caller's sqlite3, psycopg and SQLAlchemy connections: for each, how it runs one statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from duly.domain.errors import InvalidOption
from duly.store.call import Dialect, Op, Rows
from duly.store.database import Database
from duly.store.foreign_kinds import Kind, kind_of, refuse_closed
from duly.store.foreign_steps import Around, Library, Step, Steps, plain, steps_of

if TYPE_CHECKING:
    import psycopg
    import sqlalchemy
    import sqlalchemy.orm

R = TypeVar("R")
LEGACY_TRANSACTION_CONTROL = -1
_SQLALCHEMY_STYLES = {"psycopg": "pyformat", "psycopg2": "pyformat", "psycopg2cffi": "pyformat", "asyncpg": "dollar"}


class SyncLibrary(Library, Protocol):
    """A connection that runs a statement and returns its rows."""

    def execute(self, step: Step) -> Rows:
        """Run one statement."""
        ...


def run(connection: object, op: Callable[[], Op[R]], database: Database, *, bare: bool = False) -> R:
    """Run an operation on the caller's connection."""
    return take(connection, lambda library: steps_of(library, op, database, bare=bare))


def take(connection: object, steps: Callable[[Library], Steps[R]]) -> R:
    """Take steps on the caller's connection."""
    library = library_of(connection)
    return drive(steps(library), library.execute)


def drive(steps: Steps[R], execute: Callable[[Step], Rows]) -> R:
    """Run each step and send it its rows, or throw it the error."""
    try:
        step = next(steps)
        while True:
            try:
                rows = execute(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def library_of(connection: object) -> SyncLibrary:
    """Choose how to run statements on this connection; refuse a closed one."""
    match kind_of(connection):
        case Kind.SQLITE3:
            return Sqlite3(cast("sqlite3.Connection", connection))
        case Kind.PSYCOPG:
            return Psycopg(cast("psycopg.Connection", connection))
        case Kind.SQLALCHEMY:
            return SqlAlchemy(cast("sqlalchemy.Connection", connection))
        case Kind.SQLALCHEMY_SESSION | Kind.SQLALCHEMY_SCOPED:
            return SqlAlchemy(connection_of(cast("sqlalchemy.orm.Session", connection)))
        case kind:
            raise AssertionError(f"{kind} is not synchronous")


class Sqlite3:
    """The caller's `sqlite3.Connection`."""

    dialect = Dialect.SQLITE
    style = "question"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        try:
            _ = connection.in_transaction
        except sqlite3.ProgrammingError as error:
            raise refuse_closed(connection) from error

    def around(self) -> Around:
        """What is around the next statement."""
        return sqlite_around(self._connection)

    def execute(self, step: Step) -> Rows:
        """Run one statement, whatever row and cursor factories the connection has."""
        cursor = sqlite3.Cursor(self._connection)
        try:
            return plain(cursor.execute(step.sql, cast("tuple[str, ...]", step.params or ())))
        finally:
            cursor.close()


def sqlite_around(connection: sqlite3.Connection) -> Around:
    """What is around the next statement on an SQLite connection, by its old or its new (3.12) way of transactions.

    The new way can be asked for only in the thread that the connection belongs to.
    """
    if connection.in_transaction:
        return Around.TRANSACTION
    autocommit = getattr(connection, "autocommit", LEGACY_TRANSACTION_CONTROL)
    if autocommit == LEGACY_TRANSACTION_CONTROL:
        autocommit = connection.isolation_level is None
    return Around.AUTOCOMMIT if autocommit else Around.NONE_YET


class Psycopg:
    """The caller's `psycopg.Connection`."""

    dialect = Dialect.POSTGRES
    style = "pyformat"

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        if connection.closed:
            raise refuse_closed(connection)
        self._wait_for_answers()

    def around(self) -> Around:
        """What is around the next statement."""
        return psycopg_around(self._connection)

    def _wait_for_answers(self) -> None:
        """In a pipeline of the caller's, wait for the answers to what was sent so far."""
        if self._connection.pgconn.pipeline_status:
            with self._connection.pipeline():
                pass  # leaving it does

    def execute(self, step: Step) -> Rows:
        """Run one statement, whatever row and cursor factories the connection has."""
        import psycopg
        from psycopg.rows import tuple_row

        with psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(step.sql.encode(), step.params)
            self._wait_for_answers()
            return plain(cursor.fetchall()) if cursor.description is not None else ()


def psycopg_around(connection: psycopg.Connection | psycopg.AsyncConnection) -> Around:
    """What is around the next statement on a psycopg connection, synchronous or not."""
    from psycopg.pq import TransactionStatus

    idle = connection.info.transaction_status == TransactionStatus.IDLE
    return Around.AUTOCOMMIT if connection.autocommit and idle else Around.TRANSACTION


class SqlAlchemy:
    """The caller's SQLAlchemy `Connection`, also the synchronous face of an `AsyncConnection`."""

    def __init__(self, connection: sqlalchemy.Connection) -> None:
        self._connection = connection
        if connection.closed:
            raise refuse_closed(connection)
        self.dialect, self.style = dialect_and_style(connection.dialect.name, connection.dialect.driver)

    def around(self) -> Around:
        """What is around the next statement."""
        proxied = self._connection.connection
        driver = cast("object", proxied.driver_connection)
        if self.dialect is Dialect.SQLITE:
            inner = getattr(driver, "_conn", driver)  # aiosqlite has sqlite3's connection inside
            return sqlite_around(cast("sqlite3.Connection", inner))
        if not getattr(proxied.dbapi_connection, "autocommit", False):
            return Around.TRANSACTION
        if self.style == "dollar":
            inside = cast("_Asyncpg", driver).is_in_transaction()
        else:
            inside = int(cast("psycopg.Connection", driver).info.transaction_status) != 0
        return Around.TRANSACTION if inside else Around.AUTOCOMMIT

    def execute(self, step: Step) -> Rows:
        """Run one statement, past SQLAlchemy's own language."""
        result = self._connection.exec_driver_sql(step.sql, cast("tuple[object, ...] | None", step.params))
        return plain(result.fetchall()) if result.returns_rows else ()


class _Asyncpg(Protocol):
    def is_in_transaction(self) -> bool: ...


def connection_of(session: sqlalchemy.orm.Session) -> sqlalchemy.Connection:
    """The connection of a session's transaction."""
    from sqlalchemy.exc import UnboundExecutionError

    try:
        return session.connection()
    except UnboundExecutionError as error:
        raise InvalidOption(
            "connection= is a Session that is not bound to one engine. Pass the connection of duly's database: "
            "session.connection(bind_arguments={'bind': engine})"
        ) from error


def dialect_and_style(name: str, driver: str) -> tuple[Dialect, str]:
    """What SQL, and with which parameters, goes through one of SQLAlchemy's drivers."""
    if name == "sqlite":
        return Dialect.SQLITE, "question"
    if name == "postgresql" and driver in _SQLALCHEMY_STYLES:
        return Dialect.POSTGRES, _SQLALCHEMY_STYLES[driver]
    raise InvalidOption(
        f"connection= is a SQLAlchemy connection by {name}+{driver}, which duly does not know. "
        "Use postgresql+psycopg, postgresql+asyncpg, postgresql+psycopg2, sqlite or sqlite+aiosqlite"
    )
