"""A task that is cancelled while its operation begins leaves the caller's connection as it was."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
from psycopg.pq import TransactionStatus
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from duly.domain.records import NewJob
from duly.domain.states import State
from duly.store import foreign, ops_enqueue
from duly.store.store import Store
from tests.foreign.callers import by, sqlite_path
from tests.foreign.jobs import a_job, state_of

pytestmark = pytest.mark.requirement("D6")
OPEN = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
STEPS = 200


@pytest.fixture
def on_postgres(pg_url: str) -> Iterator[Store]:
    with closing(Store.open(pg_url)) as store:
        yield store


async def aenqueue_on(connection: object, store: Store, job: NewJob) -> None:
    await foreign.arun_on(connection, lambda: ops_enqueue.enqueue(store.dialect, job), database=store.database)


async def cancelled_as_it_begins(waits: asyncio.Task[Any], watching: psycopg.Connection) -> None:
    """Cancel a task when the server has begun its transaction and the task has not heard of it: its loop stands."""
    for _ in range(STEPS):
        await asyncio.sleep(0)
        assert not waits.done()
        if has_begun(watching):
            break
    else:
        raise AssertionError("it never began")
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits


def has_begun(watching: psycopg.Connection) -> bool:
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        if watching.execute(OPEN.encode()).fetchone():
            return True
    return False


async def open_by(library: str, url: str) -> Any:
    if library == "asyncpg":
        return await asyncpg.connect(url)
    return await psycopg.AsyncConnection.connect(url, autocommit=True)


def is_inside(connection: Any) -> bool:
    if isinstance(connection, psycopg.AsyncConnection):
        return connection.info.transaction_status != TransactionStatus.IDLE
    return bool(connection.is_in_transaction())


@pytest.mark.parametrize("what", ["an operation", "completing"])
@pytest.mark.parametrize("library", ["asyncpg", "psycopg"])
def test_a_begin_that_is_cancelled_leaves_no_transaction_open(
    on_postgres: Store, pg_url: str, library: str, what: str
) -> None:
    lost, kept = a_job(), a_job()

    async def try_it(watching: psycopg.Connection) -> None:
        connection = await open_by(library, pg_url)
        if what == "completing":
            op: Any = foreign.abegin_on(connection, database=on_postgres.database)
        else:
            op = aenqueue_on(connection, on_postgres, lost)
        await cancelled_as_it_begins(asyncio.create_task(op), watching)
        assert not is_inside(connection)
        await aenqueue_on(connection, on_postgres, kept)
        assert not is_inside(connection)
        await connection.close()

    with psycopg.connect(pg_url, autocommit=True) as watching:
        asyncio.run(try_it(watching))
    assert (state_of(on_postgres, lost), state_of(on_postgres, kept)) == (None, State.QUEUED)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_a_begin_through_sqlalchemy_that_is_cancelled_leaves_no_transaction_open(
    on_postgres: Store, pg_url: str, driver: str
) -> None:
    """SQLAlchemy itself drops the connection of whoever is cancelled, and opens another when it is used again."""
    lost, kept = a_job(), a_job()

    async def try_it(watching: psycopg.Connection) -> None:
        engine = create_async_engine(by(driver, pg_url), isolation_level="AUTOCOMMIT")
        connection: AsyncConnection = await engine.connect()
        await cancelled_as_it_begins(asyncio.create_task(aenqueue_on(connection, on_postgres, lost)), watching)
        await connection.close()
        async with engine.connect() as another:
            await aenqueue_on(another, on_postgres, kept)
        assert not has_begun(watching)
        await engine.dispose()

    with psycopg.connect(pg_url, autocommit=True) as watching:
        asyncio.run(try_it(watching))
    assert (state_of(on_postgres, lost), state_of(on_postgres, kept)) == (None, State.QUEUED)


def test_a_begin_on_aiosqlite_that_is_cancelled_leaves_no_transaction_open(sqlite_url: str) -> None:
    """The thread of aiosqlite goes on with what nobody waits for any more: it would hold the file for ever."""
    store, lost, kept = Store.open(sqlite_url), a_job(), a_job()

    async def try_it(other: sqlite3.Connection) -> None:
        connection = await aiosqlite.connect(sqlite_path(sqlite_url), isolation_level=None)
        seen: list[str] = []
        await connection.set_trace_callback(seen.append)
        other.execute("BEGIN IMMEDIATE")
        waits = asyncio.create_task(aenqueue_on(connection, store, lost))
        while "BEGIN IMMEDIATE" not in seen:
            await asyncio.sleep(0.001)
        waits.cancel()
        await asyncio.sleep(0)
        other.execute("ROLLBACK")
        with pytest.raises(asyncio.CancelledError):
            await waits
        assert not connection.in_transaction
        await aenqueue_on(connection, store, kept)
        await connection.close()

    with closing(sqlite3.connect(sqlite_path(sqlite_url), isolation_level=None)) as other:
        asyncio.run(try_it(other))
    assert (state_of(store, lost), state_of(store, kept)) == (None, State.QUEUED)
    store.close()
