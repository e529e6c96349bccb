"""What applications do to their connections beside the plain case: codecs, scoped sessions, pipelines, cancellation."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import scoped_session, sessionmaker

from duly.domain.ids import uuid7_many
from duly.domain.records import Counts, Enqueued, NewJob
from duly.domain.states import State
from duly.store import ops_enqueue
from duly.store.foreign import arun_on, run_on
from duly.store.store import Store
from tests.foreign.callers import by, sqlite_path
from tests.foreign.jobs import a_job, a_unique_job, state_of, that_breaks_a_rule


@pytest.fixture
def on_sqlite(sqlite_url: str) -> Iterator[Store]:
    with closing(Store.open(sqlite_url)) as store:
        store.counts()
        yield store


@pytest.fixture
def on_postgres(pg_url: str) -> Iterator[Store]:
    with closing(Store.open(pg_url)) as store:
        yield store


def enqueue_on(connection: object, store: Store, job: NewJob) -> Enqueued:
    return run_on(connection, lambda: ops_enqueue.enqueue(store.dialect, job), database=store.database)


async def aenqueue_on(connection: object, store: Store, job: NewJob) -> Enqueued:
    return await arun_on(connection, lambda: ops_enqueue.enqueue(store.dialect, job), database=store.database)


# -- sqlite3 --------------------------------------------------------------------------------------------------


def test_transaction_that_has_only_begun_waits_for_another_writer(on_sqlite: Store, sqlite_url: str) -> None:
    """Reading first and writing then would fail at once if another process wrote in between."""
    rows = [(job_id, "{}", None) for job_id in uuid7_many(10)]
    other = sqlite3.connect(sqlite_path(sqlite_url), isolation_level=None, check_same_thread=False)
    mine = sqlite3.connect(sqlite_path(sqlite_url), isolation_level=None)
    with closing(other), closing(mine):
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE others (text)")
        mine.execute("BEGIN")
        ends = threading.Timer(0.2, other.execute, ["COMMIT"])
        ends.start()
        run_on(
            mine,
            lambda: ops_enqueue.enqueue_many(on_sqlite.dialect, a_job(), rows, copy=False),
            database=on_sqlite.database,
        )
        mine.execute("COMMIT")
        ends.join()
    assert [each[3] for each in on_sqlite.counts().waiting] == [10]


def test_failed_enqueue_leaves_no_lock_behind(on_sqlite: Store, sqlite_url: str) -> None:
    with closing(sqlite3.connect(sqlite_path(sqlite_url))) as connection:
        with pytest.raises(sqlite3.IntegrityError):
            run_on(connection, lambda: that_breaks_a_rule(on_sqlite, a_job()), database=on_sqlite.database)
        assert not connection.in_transaction


def test_connection_of_another_thread_is_not_called_closed(on_sqlite: Store, sqlite_url: str) -> None:
    with (
        closing(sqlite3.connect(sqlite_path(sqlite_url))) as connection,
        ThreadPoolExecutor(1) as threads,
        pytest.raises(sqlite3.ProgrammingError, match="thread"),
    ):
        threads.submit(enqueue_on, connection, on_sqlite, a_job()).result()


def test_text_as_bytes(on_sqlite: Store, sqlite_url: str) -> None:
    first = a_unique_job()
    with closing(sqlite3.connect(sqlite_path(sqlite_url))) as connection:
        connection.text_factory = bytes
        enqueue_on(connection, on_sqlite, first)
        assert enqueue_on(connection, on_sqlite, a_unique_job()) == Enqueued(first.id, created=False)
        connection.commit()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3.Connection.autocommit came with Python 3.12")
@pytest.mark.parametrize("autocommit", [False, True])
def test_the_new_way_of_transactions_in_sqlite3(on_sqlite: Store, sqlite_url: str, autocommit: bool) -> None:
    first, second = a_job(), a_job()
    options: dict[str, Any] = {"autocommit": autocommit}
    with closing(sqlite3.connect(sqlite_path(sqlite_url), **options)) as connection:
        enqueue_on(connection, on_sqlite, first)
        connection.rollback()
        enqueue_on(connection, on_sqlite, second)
        connection.commit()
    assert state_of(on_sqlite, first) is (State.QUEUED if autocommit else None)
    assert state_of(on_sqlite, second) is State.QUEUED


# -- SQLAlchemy -----------------------------------------------------------------------------------------------


def test_sqlalchemy_that_begins_sqlite_transactions_itself(on_sqlite: Store, sqlite_url: str) -> None:
    """The recipe of SQLAlchemy's documentation for savepoints on SQLite."""
    engine = sqlalchemy.create_engine(sqlite_url)

    @sqlalchemy.event.listens_for(engine, "connect")
    def _(dbapi_connection: sqlite3.Connection, _: object) -> None:
        dbapi_connection.isolation_level = None

    @sqlalchemy.event.listens_for(engine, "begin")
    def _(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    lost, kept = a_job(), a_job()
    with engine.connect() as connection:
        enqueue_on(connection, on_sqlite, lost)
        connection.rollback()
        with connection.begin():
            with connection.begin_nested() as nested:
                enqueue_on(connection, on_sqlite, lost)
                nested.rollback()
            enqueue_on(connection, on_sqlite, kept)
            assert state_of(on_sqlite, kept) is None
    engine.dispose()
    assert (state_of(on_sqlite, lost), state_of(on_sqlite, kept)) == (None, State.QUEUED)


def test_savepoint_of_sqlalchemy(on_postgres: Store, pg_url: str) -> None:
    lost, kept = a_job(), a_job()
    engine = sqlalchemy.create_engine(by("psycopg", pg_url))
    with engine.begin() as connection:
        with connection.begin_nested() as nested:
            enqueue_on(connection, on_postgres, lost)
            nested.rollback()
        with connection.begin_nested():
            enqueue_on(connection, on_postgres, kept)
    engine.dispose()
    assert (state_of(on_postgres, lost), state_of(on_postgres, kept)) == (None, State.QUEUED)


def test_scoped_session(on_sqlite: Store, sqlite_url: str) -> None:
    engine = sqlalchemy.create_engine(sqlite_url)
    session = scoped_session(sessionmaker(engine))
    lost, kept = a_job(), a_job()
    enqueue_on(session, on_sqlite, lost)
    session.rollback()
    enqueue_on(session, on_sqlite, kept)
    session.commit()
    session.remove()
    engine.dispose()
    assert (state_of(on_sqlite, lost), state_of(on_sqlite, kept)) == (None, State.QUEUED)


def test_async_scoped_session(on_postgres: Store, pg_url: str) -> None:
    pytest.importorskip("greenlet")
    from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine

    job = a_job()

    async def try_it() -> None:
        engine = create_async_engine(by("asyncpg", pg_url))
        session = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
        await aenqueue_on(session, on_postgres, job)
        assert state_of(on_postgres, job) is None
        await session.commit()
        await session.remove()
        await engine.dispose()

    asyncio.run(try_it())
    assert state_of(on_postgres, job) is State.QUEUED


# -- psycopg --------------------------------------------------------------------------------------------------


def test_transaction_blocks_of_psycopg(on_postgres: Store, pg_url: str) -> None:
    lost, kept = a_job(), a_job()
    with psycopg.connect(pg_url, autocommit=True) as connection, connection.transaction():
        with connection.transaction(force_rollback=True):
            enqueue_on(connection, on_postgres, lost)
        with connection.transaction():
            enqueue_on(connection, on_postgres, kept)
        assert state_of(on_postgres, kept) is None
    assert (state_of(on_postgres, lost), state_of(on_postgres, kept)) == (None, State.QUEUED)


@pytest.mark.parametrize("autocommit", [False, True])
def test_pipeline_of_psycopg(on_postgres: Store, pg_url: str, autocommit: bool) -> None:
    failed, kept = a_job(), a_unique_job()
    with psycopg.connect(pg_url, autocommit=autocommit) as connection, connection.pipeline():
        connection.execute("CREATE TABLE notes (text text)")
        with pytest.raises(psycopg.errors.CheckViolation):
            run_on(connection, lambda: that_breaks_a_rule(on_postgres, failed), database=on_postgres.database)
        enqueue_on(connection, on_postgres, kept)
        connection.execute("INSERT INTO notes VALUES ('mine')")
    assert (state_of(on_postgres, failed), state_of(on_postgres, kept)) == (None, State.QUEUED)


@pytest.mark.parametrize("autocommit", [False, True])
def test_pipeline_of_asynchronous_psycopg(on_postgres: Store, pg_url: str, autocommit: bool) -> None:
    job = a_unique_job()

    async def try_it() -> None:
        connecting = psycopg.AsyncConnection.connect(pg_url, autocommit=autocommit)
        async with await connecting as connection, connection.pipeline():
            await connection.execute("CREATE TABLE notes (text text)")
            await aenqueue_on(connection, on_postgres, job)

    asyncio.run(try_it())
    assert state_of(on_postgres, job) is State.QUEUED


def test_conflict_between_transactions_is_the_callers_to_see(on_postgres: Store, pg_url: str) -> None:
    with psycopg.connect(pg_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM duly.jobs")
        on_postgres.enqueue(a_unique_job())
        with pytest.raises(psycopg.errors.SerializationFailure):
            enqueue_on(connection, on_postgres, a_unique_job())
        connection.rollback()
        assert not enqueue_on(connection, on_postgres, a_unique_job()).created


def test_lost_connection_is_the_callers_to_see(on_postgres: Store, pg_url: str) -> None:
    job = a_job()
    connection = psycopg.connect(pg_url)
    with psycopg.connect(pg_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 2000)", [connection.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        enqueue_on(connection, on_postgres, job)
    connection.close()
    assert on_postgres.counts() == Counts()


# -- asyncpg and cancellation ---------------------------------------------------------------------------------


def test_codecs_of_the_application(on_postgres: Store, pg_url: str) -> None:
    """Applications teach asyncpg to give them dicts for JSON and their own class for ids; ours stay as they are."""
    first = a_unique_job(args='{"n":1}')

    async def try_it() -> None:
        connection = await asyncpg.connect(pg_url)
        await connection.set_type_codec("json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        await connection.set_type_codec(
            "uuid", encoder=lambda value: value.hex, decoder=lambda text: text, schema="pg_catalog"
        )
        await aenqueue_on(connection, on_postgres, first)
        rows = [(job_id, '{"n":1}', None) for job_id in uuid7_many(3)]
        await arun_on(
            connection,
            lambda: ops_enqueue.enqueue_many(on_postgres.dialect, a_job(), rows, copy=False),
            database=on_postgres.database,
        )
        await connection.close()

    asyncio.run(try_it())
    found = on_postgres.get(first.id)
    assert found is not None
    assert found.args == '{"n":1}'
    assert [each[3] for each in on_postgres.counts().waiting] == [4]


@pytest.mark.parametrize("library", ["asyncpg", "psycopg"])
def test_cancelled_task_leaves_the_transaction_usable(on_postgres: Store, pg_url: str, library: str) -> None:
    failed, kept = a_unique_job(), a_job()

    async def open_it() -> Any:
        if library == "asyncpg":
            return await asyncpg.connect(pg_url)
        return await psycopg.AsyncConnection.connect(pg_url)

    async def try_it(holder: psycopg.Connection) -> None:
        connection = await open_it()
        if library == "asyncpg":
            await connection.execute("BEGIN")
        waits = asyncio.create_task(aenqueue_on(connection, on_postgres, failed))
        while holder.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is None:
            await asyncio.sleep(0.01)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        await aenqueue_on(connection, on_postgres, kept)
        await connection.execute("COMMIT")
        await connection.close()

    with psycopg.connect(pg_url) as holder:
        enqueue_on(holder, on_postgres, a_unique_job())  # holds the key, uncommitted
        asyncio.run(try_it(holder))
    assert (state_of(on_postgres, failed), state_of(on_postgres, kept)) == (None, State.QUEUED)
