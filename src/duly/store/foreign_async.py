"""Runs steps on the caller's asynchronous connections: psycopg, asyncpg, aiosqlite, and SQLAlchemy over any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from duly.domain.errors import InvalidOption
from duly.store import foreign_sync
from duly.store.call import Dialect, Op, Rows
from duly.store.database import Database
from duly.store.foreign_kinds import Kind, kind_of, refuse_closed
from duly.store.foreign_steps import Around, Library, Step, Steps, plain, steps_of

if TYPE_CHECKING:
    import aiosqlite
    import psycopg
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

R = TypeVar("R")


class AsyncLibrary(Library, Protocol):
    """A connection whose statements are awaited."""

    async def execute(self, step: Step) -> Rows:
        """Run one statement."""
        ...


async def run(connection: object, op: Callable[[], Op[R]], database: Database, *, bare: bool = False) -> R:
    """Run an operation on the caller's connection."""
    return await take(connection, lambda library: steps_of(library, op, database, bare=bare))


async def take(connection: object, steps: Callable[[Library], Steps[R]]) -> R:
    """Take steps on the caller's connection."""
    match kind_of(connection):
        case Kind.SQLALCHEMY_ASYNC:
            started = cast("AsyncConnection", connection)
            if started.sync_connection is None:
                raise InvalidOption(
                    "connection= is an AsyncConnection not yet open. Open it: async with engine.begin() as connection"
                )
            return await started.run_sync(lambda inner: foreign_sync.take(inner, steps))
        case Kind.SQLALCHEMY_ASYNC_SESSION:
            session = cast("AsyncSession", connection)
            return await session.run_sync(lambda inner: foreign_sync.take(inner, steps))
        case Kind.SQLALCHEMY_ASYNC_SCOPED:
            scoped = cast("async_scoped_session[AsyncSession]", connection)
            return await take(scoped(), steps)
        case _:
            library = await library_of(connection)
            return await drive(steps(library), library.execute)


async def drive(steps: Steps[R], execute: Callable[[Step], Awaitable[Rows]]) -> R:
    """Run each step and send it its rows, or throw it the error."""
    try:
        step = next(steps)
        while True:
            try:
                rows = await (_whole(execute(step)) if step.whole else execute(step))
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


async def _whole(statement: Awaitable[Rows]) -> Rows:
    """Wait for a statement that must not be cut off in the middle. A cancel comes when it is done."""
    done = asyncio.ensure_future(statement)
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait((done,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return done.result()
    done.exception()  # nobody else asks for it
    raise cancelled


async def library_of(connection: object) -> AsyncLibrary:
    """Choose how to run statements on this connection; refuse a closed one."""
    match kind_of(connection):
        case Kind.PSYCOPG_ASYNC:
            by_psycopg = AsyncPsycopg(cast("psycopg.AsyncConnection", connection))
            await by_psycopg.wait_for_answers()
            return by_psycopg
        case Kind.ASYNCPG | Kind.ASYNCPG_POOLED:
            return Asyncpg(cast("_AsyncpgConnection", connection))
        case Kind.AIOSQLITE:
            return await Aiosqlite.of(cast("aiosqlite.Connection", connection))
        case kind:
            raise AssertionError(f"{kind} has no statements to await")


class AsyncPsycopg:
    """The caller's `psycopg.AsyncConnection`."""

    dialect = Dialect.POSTGRES
    style = "pyformat"

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection
        if connection.closed:
            raise refuse_closed(connection)

    def around(self) -> Around:
        """What is around the next statement."""
        return foreign_sync.psycopg_around(self._connection)

    async def wait_for_answers(self) -> None:
        """In a pipeline of the caller's, wait for the answers to what was sent so far."""
        if self._connection.pgconn.pipeline_status:
            async with self._connection.pipeline():
                pass  # leaving it does

    async def execute(self, step: Step) -> Rows:
        """Run one statement, whatever row and cursor factories the connection has."""
        import psycopg
        from psycopg.rows import tuple_row

        async with psycopg.AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(step.sql.encode(), step.params)
            await self.wait_for_answers()
            return plain(await cursor.fetchall()) if cursor.description is not None else ()


class _AsyncpgConnection(Protocol):
    """What we use of asyncpg, which ships no types."""

    def is_closed(self) -> bool: ...
    def is_in_transaction(self) -> bool: ...
    async def fetch(self, query: str, *args: object) -> Sequence[Sequence[object]]: ...


class Asyncpg:
    """The caller's asyncpg connection, also one that a pool lent."""

    dialect = Dialect.POSTGRES
    style = "dollar"

    def __init__(self, connection: _AsyncpgConnection) -> None:
        self._connection = connection
        try:
            closed = connection.is_closed()
        except Exception as error:  # given back to its pool
            raise refuse_closed(connection) from error
        if closed:
            raise refuse_closed(connection)

    def around(self) -> Around:
        """What is around the next statement. asyncpg opens no transaction by itself."""
        return Around.TRANSACTION if self._connection.is_in_transaction() else Around.AUTOCOMMIT

    async def execute(self, step: Step) -> Rows:
        """Run one statement."""
        return plain(await self._connection.fetch(step.sql, *(step.params or ())))


class Aiosqlite:
    """The caller's aiosqlite connection."""

    dialect = Dialect.SQLITE
    style = "question"

    def __init__(self, connection: aiosqlite.Connection, around: Around) -> None:
        self._connection = connection
        self._around = around

    @classmethod
    async def of(cls, connection: aiosqlite.Connection) -> Aiosqlite:
        """Ask in aiosqlite's thread, to which sqlite3's connection belongs, what is around the next statement."""
        try:
            inner = connection._conn
        except ValueError as error:  # aiosqlite says: no active connection
            raise refuse_closed(connection) from error
        around = await connection._execute(foreign_sync.sqlite_around, inner)  # type: ignore[no-untyped-call]
        return cls(connection, around)

    def around(self) -> Around:
        """What is around the next statement."""
        return self._around

    async def execute(self, step: Step) -> Rows:
        """Run one statement, whatever row factory the connection has."""
        async with self._connection.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(step.sql, cast("tuple[str, ...]", step.params or ()))
            return plain(await cursor.fetchall())
