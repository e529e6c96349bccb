"""Runs store operations on the caller's own connection, in the caller's transaction.

What the operation wrote comes and goes with that transaction; an error takes back only what the operation itself
wrote and leaves the transaction usable. Where no transaction can be open (autocommit), the operation is one of its own.
Errors of the caller's library pass unchanged, so that a caller who repeats a transaction after a conflict still can;
only a connection that cannot be right, or tables that are missing, are explained.

`run_on` takes sqlite3, psycopg and SQLAlchemy (Connection, Session); `arun_on` their asynchronous kin, asyncpg and
aiosqlite. Not here: waking workers on SQLite. Only the caller knows when it commits; workers see the file change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from duly.domain.errors import InvalidOption
from duly.store import foreign_async, foreign_sync
from duly.store.call import Call, Op
from duly.store.database import Database, Hint
from duly.store.foreign_kinds import is_async, name_of
from duly.store.foreign_steps import Around, TablesNotMade, ending, opening
from duly.store.postgres import PostgresDatabase
from duly.store.postgres_wake import channel_of, payload_of

__all__ = ["Around", "abegin_on", "aend_on", "arun_on", "begin_on", "end_on", "is_async", "notifying", "run_on"]

R = TypeVar("R")


def run_on(connection: object, op: Callable[[], Op[R]], *, database: Database, bare: bool = False) -> R:
    """Run an operation on the caller's connection, in a savepoint of the caller's transaction.

    `bare`: it writes by one statement at most, and whoever meets an error rolls back: no savepoint on PostgreSQL.
    """
    if is_async(connection):
        raise InvalidOption(
            f"connection= is an asynchronous {name_of(connection)}: await the call's asynchronous form "
            "(aenqueue instead of enqueue), or pass a synchronous connection"
        )
    try:
        return foreign_sync.run(connection, op, database, bare=bare)
    except TablesNotMade:
        database.migrate()
        return foreign_sync.run(connection, op, database, bare=bare)


async def arun_on(connection: object, op: Callable[[], Op[R]], *, database: Database, bare: bool = False) -> R:
    """Do the same on an asynchronous connection. A synchronous one is used as it is, and blocks as long as it takes."""
    if not is_async(connection):
        return run_on(connection, op, database=database, bare=bare)
    try:
        return await foreign_async.run(connection, op, database, bare=bare)
    except TablesNotMade:
        await asyncio.to_thread(database.migrate)
        return await foreign_async.run(connection, op, database, bare=bare)


def begin_on(connection: object, *, database: Database) -> Around:
    """Have a transaction open on the caller's connection. Returns what was around: if it was none, it is ours to end.

    On SQLite one that is opened here may write from the start.
    """
    return foreign_sync.take(connection, lambda library: opening(library, database))


async def abegin_on(connection: object, *, database: Database) -> Around:
    """Do the same on an asynchronous connection."""
    if not is_async(connection):
        return begin_on(connection, database=database)
    return await foreign_async.take(connection, lambda library: opening(library, database))


def end_on(connection: object, sql: str) -> None:
    """End a transaction that was opened here: COMMIT or ROLLBACK."""
    foreign_sync.take(connection, lambda library: ending(sql))


async def aend_on(connection: object, sql: str) -> None:
    """Do the same on an asynchronous connection."""
    if not is_async(connection):
        end_on(connection, sql)
        return
    await foreign_async.take(connection, lambda library: ending(sql))


def notifying(op: Op[R], hint: Hint, *, database: Database) -> Op[R]:
    """Make an operation also wake workers when the transaction commits: one NOTIFY, on PostgreSQL only."""
    result = yield from op
    if isinstance(database, PostgresDatabase) and database.notifies:
        yield Call("notify", {"channel": channel_of(database.schema), "payload": payload_of(hint)})
    return result
