"""A connection that cannot be right is refused with what it is and what to pass; the caller's transaction survives."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import aiosqlite
import asyncpg
import psycopg
import psycopg_pool
import pytest
import sqlalchemy
from sqlalchemy.orm import Session, sessionmaker

from duly.domain.errors import DulyError, InvalidOption, SchemaMissing, SchemaTooNew, SchemaTooOld
from duly.domain.records import Enqueued
from duly.store import ops_enqueue
from duly.store.call import Op
from duly.store.foreign import arun_on, is_async, run_on
from duly.store.foreign_sync import dialect_and_style
from duly.store.store import Store
from tests.databases import Databases, Kind
from tests.foreign.callers import by, sqlite_path
from tests.foreign.conftest import by_hand
from tests.foreign.jobs import a_job


@pytest.fixture
def on_sqlite(sqlite_url: str) -> Iterator[Store]:
    with closing(Store.open(sqlite_url)) as store:
        yield store


@pytest.fixture
def on_postgres(pg_url: str) -> Iterator[Store]:
    with closing(Store.open(pg_url)) as store:
        yield store


def enqueue_on(connection: object, store: Store) -> Enqueued:
    return run_on(connection, lambda: ops_enqueue.enqueue(store.dialect, a_job()), database=store.database)


async def aenqueue_on(connection: object, store: Store) -> Enqueued:
    return await arun_on(connection, lambda: ops_enqueue.enqueue(store.dialect, a_job()), database=store.database)


# -- no connection at all -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, words",
    [
        (None, "not NoneType. Pass one of sqlite3, aiosqlite, psycopg, asyncpg or SQLAlchemy"),
        (object(), "not object. Pass one of"),
        ("postgresql://user:secret@host/db", "not str. Open a connection"),
        (sqlalchemy.create_engine("sqlite://"), "not sqlalchemy Engine. Take one from the engine: with engine.begin()"),
        (sessionmaker(), "not sqlalchemy sessionmaker. Make a session"),
        (psycopg_pool.ConnectionPool(open=False), "not psycopg_pool ConnectionPool. Take one from the pool"),
        (psycopg_pool.NullConnectionPool(open=False), "not psycopg_pool NullConnectionPool. Take one from the pool"),
    ],
)
def test_value_that_is_no_connection(on_sqlite: Store, value: object, words: str) -> None:
    with pytest.raises(InvalidOption, match=r"connection= must be an open connection") as refused:
        enqueue_on(value, on_sqlite)
    assert words in str(refused.value)
    assert "secret" not in str(refused.value)
    with pytest.raises(InvalidOption):
        asyncio.run(aenqueue_on(value, on_sqlite))
    with pytest.raises(InvalidOption):
        is_async(value)


def test_cursor_instead_of_its_connection(on_sqlite: Store, sqlite_url: str) -> None:
    with (
        closing(sqlite3.connect(sqlite_path(sqlite_url))) as connection,
        pytest.raises(InvalidOption, match=r"not sqlite3 Cursor. Pass its connection: cursor.connection"),
    ):
        enqueue_on(connection.cursor(), on_sqlite)


def test_asyncpg_pool_instead_of_a_connection(on_postgres: Store) -> None:
    async def try_it() -> None:
        pool = asyncpg.create_pool("postgresql:///nowhere")
        with pytest.raises(InvalidOption, match=r"not asyncpg Pool\. Take one from the pool: async with pool\.acquire"):
            await aenqueue_on(pool, on_postgres)
        with pytest.raises(InvalidOption, match=r"not asyncpg PoolAcquireContext. Await it first"):
            await aenqueue_on(pool.acquire(), on_postgres)

    asyncio.run(try_it())


def test_psycopg2_without_sqlalchemy(on_postgres: Store, pg_url: str) -> None:
    psycopg2 = pytest.importorskip("psycopg2")
    with (
        closing(psycopg2.connect(pg_url)) as connection,
        pytest.raises(InvalidOption, match=r"not psycopg2 connection\. Use psycopg 3, or psycopg2 through SQL"),
    ):
        enqueue_on(connection, on_postgres)


def test_sqlalchemy_by_a_driver_we_do_not_know() -> None:
    with pytest.raises(InvalidOption, match=r"by mysql\+pymysql, which duly does not know. Use postgresql\+psycopg"):
        dialect_and_style("mysql", "pymysql")
    with pytest.raises(InvalidOption, match=r"by postgresql\+pg8000"):
        dialect_and_style("postgresql", "pg8000")


def test_session_without_an_engine(on_sqlite: Store) -> None:
    with Session() as session, pytest.raises(InvalidOption, match=r"Session that is not bound to one engine"):
        enqueue_on(session, on_sqlite)


def test_recognising_a_connection_imports_no_library(tmp_path: Path) -> None:
    program = (
        "import sys, sqlite3, duly.store.foreign as f\n"
        "f.is_async(sqlite3.connect(':memory:'))\n"
        "print([n for n in ('psycopg', 'asyncpg', 'sqlalchemy', 'aiosqlite') if n in sys.modules])"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


# -- closed, or of the other colour ---------------------------------------------------------------------------


def test_closed_connections_on_sqlite(on_sqlite: Store, sqlite_url: str) -> None:
    connection = sqlite3.connect(sqlite_path(sqlite_url))
    connection.close()
    with pytest.raises(InvalidOption, match=r"connection= is a closed sqlite3 Connection. Pass one that is open"):
        enqueue_on(connection, on_sqlite)
    engine = sqlalchemy.create_engine(sqlite_url)
    through_sqlalchemy = engine.connect()
    through_sqlalchemy.close()
    with pytest.raises(InvalidOption, match=r"closed sqlalchemy Connection"):
        enqueue_on(through_sqlalchemy, on_sqlite)
    engine.dispose()

    async def try_it() -> None:
        connection = await aiosqlite.connect(sqlite_path(sqlite_url))
        await connection.close()
        with pytest.raises(InvalidOption, match=r"closed aiosqlite Connection"):
            await aenqueue_on(connection, on_sqlite)

    asyncio.run(try_it())


def test_closed_connections_on_postgres(on_postgres: Store, pg_url: str) -> None:
    connection = psycopg.connect(pg_url)
    connection.close()
    with pytest.raises(InvalidOption, match=r"closed psycopg Connection"):
        enqueue_on(connection, on_postgres)

    async def try_it() -> None:
        by_psycopg = await psycopg.AsyncConnection.connect(pg_url)
        await by_psycopg.close()
        with pytest.raises(InvalidOption, match=r"closed psycopg AsyncConnection"):
            await aenqueue_on(by_psycopg, on_postgres)
        async with asyncpg.create_pool(pg_url, min_size=1) as pool:
            by_asyncpg = await pool.acquire()
            await pool.release(by_asyncpg)
            with pytest.raises(InvalidOption, match=r"closed asyncpg PoolConnectionProxy"):
                await aenqueue_on(by_asyncpg, on_postgres)
        by_asyncpg = await asyncpg.connect(pg_url)
        await by_asyncpg.close()
        with pytest.raises(InvalidOption, match=r"closed asyncpg Connection"):
            await aenqueue_on(by_asyncpg, on_postgres)

    asyncio.run(try_it())


def test_sqlalchemy_async_connection_that_was_never_opened(on_sqlite: Store, sqlite_url: str) -> None:
    pytest.importorskip("greenlet")
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

    async def try_it() -> None:
        engine = create_async_engine(by("aiosqlite", sqlite_url))
        with pytest.raises(InvalidOption, match=r"AsyncConnection not yet open. Open it: async with engine.begin"):
            await aenqueue_on(engine.connect(), on_sqlite)
        with pytest.raises(InvalidOption, match=r"not sqlalchemy AsyncEngine. Take one from the engine: async with"):
            await aenqueue_on(engine, on_sqlite)
        with pytest.raises(InvalidOption, match=r"not sqlalchemy async_sessionmaker. Make a session: async with"):
            await aenqueue_on(async_sessionmaker(engine), on_sqlite)
        await engine.dispose()

    asyncio.run(try_it())


def test_asynchronous_connection_in_a_synchronous_call(on_sqlite: Store, sqlite_url: str) -> None:
    async def try_it() -> None:
        async with aiosqlite.connect(sqlite_path(sqlite_url)) as connection:
            with pytest.raises(InvalidOption, match=r"an asynchronous aiosqlite Connection: await the call's async"):
                enqueue_on(connection, on_sqlite)

    asyncio.run(try_it())


def test_synchronous_connection_in_an_asynchronous_call_just_works(on_sqlite: Store, sqlite_url: str) -> None:
    with closing(sqlite3.connect(sqlite_path(sqlite_url))) as connection:
        answer = asyncio.run(aenqueue_on(connection, on_sqlite))
        connection.commit()
    assert on_sqlite.get(answer.id) is not None


# -- another database -----------------------------------------------------------------------------------------


def test_sqlite_connection_to_another_file(on_sqlite: Store, tmp_path: Path) -> None:
    for other in (str(tmp_path / "other.db"), ":memory:"):
        with closing(sqlite3.connect(other)) as connection:
            connection.execute("CREATE TABLE notes (text)")
            connection.execute("INSERT INTO notes VALUES ('mine')")
            with pytest.raises(InvalidOption, match=r"leads to .*(other|memory).*, but duly uses /.*duly\.db\. Pass a"):
                enqueue_on(connection, on_sqlite)
            connection.commit()
            assert connection.execute("SELECT count(*) FROM notes").fetchone() == (1,)


def test_sqlite_file_by_another_name_is_the_same_file(on_sqlite: Store, sqlite_url: str, tmp_path: Path) -> None:
    path = sqlite_path(sqlite_url)
    (tmp_path / "link.db").symlink_to(path)
    for name in (os.path.relpath(path), str(tmp_path / "link.db")):
        with closing(sqlite3.connect(name)) as connection:
            answer = enqueue_on(connection, on_sqlite)
            connection.commit()
        assert on_sqlite.get(answer.id) is not None


def test_connection_to_the_other_kind_of_database(
    on_sqlite: Store, on_postgres: Store, sqlite_url: str, pg_url: str
) -> None:
    with psycopg.connect(pg_url) as connection:
        with pytest.raises(InvalidOption, match=r"leads to PostgreSQL, but duly uses sqlite:///.*duly\.db\. Pass"):
            enqueue_on(connection, on_sqlite)
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with (
        closing(sqlite3.connect(sqlite_path(sqlite_url))) as own,
        pytest.raises(InvalidOption, match=r"leads to SQLite, but duly uses postgresql://"),
    ):
        enqueue_on(own, on_postgres)


# -- tables ---------------------------------------------------------------------------------------------------


def test_postgres_without_our_tables(on_postgres: Store, databases: Databases, pg_kind: Kind) -> None:
    async def try_it(url: str) -> None:
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            with pytest.raises(SchemaMissing):
                await aenqueue_on(connection, on_postgres)
            await connection.execute("SELECT 1")
        await connection.close()

    with databases.fresh(pg_kind, prepared=False) as url:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE notes (text text)")
            with pytest.raises(SchemaMissing, match=r"no tables of duly in schema 'duly'. Pass .* run: duly migrate"):
                enqueue_on(connection, on_postgres)
            connection.execute("INSERT INTO notes VALUES ('mine')")
            connection.commit()
            with pytest.raises(SchemaMissing):
                enqueue_on(connection, on_postgres)
        engine = sqlalchemy.create_engine(by("psycopg", url))
        with engine.connect() as through_sqlalchemy, pytest.raises(SchemaMissing):
            enqueue_on(through_sqlalchemy, on_postgres)
        engine.dispose()
        asyncio.run(try_it(url))


def test_sqlite_tables_are_made_at_first_use(tmp_path: Path) -> None:
    with closing(Store.open(f"sqlite:///{tmp_path}/new.db")) as store:
        with closing(sqlite3.connect(tmp_path / "new.db")) as connection:
            answer = enqueue_on(connection, store)
            connection.commit()
        assert store.get(answer.id) is not None


def test_sqlite_tables_are_made_at_first_asynchronous_use(tmp_path: Path) -> None:
    async def try_it(store: Store) -> Enqueued:
        async with aiosqlite.connect(tmp_path / "new.db") as connection:
            answer = await aenqueue_on(connection, store)
            await connection.commit()
        return answer

    with closing(Store.open(f"sqlite:///{tmp_path}/new.db")) as store:
        answer = asyncio.run(try_it(store))
        assert store.get(answer.id) is not None


def test_sqlite_tables_cannot_be_made_during_the_callers_transaction(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    with closing(Store.open(url)) as store, closing(sqlite3.connect(tmp_path / "new.db")) as connection:
        connection.execute("CREATE TABLE notes (text)")
        connection.execute("INSERT INTO notes VALUES ('mine')")
        with pytest.raises(SchemaMissing, match=r"no tables of duly yet, and your open .* Run: duly migrate"):
            enqueue_on(connection, store)
        connection.commit()
        assert connection.execute("SELECT count(*) FROM notes").fetchone() == (1,)


@pytest.mark.parametrize("version, expected", [(0, SchemaTooOld), (9_999, SchemaTooNew), (None, None)])
def test_tables_of_another_version(database_url: str, version: int | None, expected: type[DulyError] | None) -> None:
    prefix = "duly." if database_url.startswith("postgres") else "duly_"
    by_hand(database_url, f"ALTER TABLE {prefix}jobs RENAME COLUMN headers TO captions")
    if version is not None:
        by_hand(database_url, f"DELETE FROM {prefix}schema_version WHERE version > 1")
        by_hand(database_url, f"UPDATE {prefix}schema_version SET version = {version}")

    def op() -> Op[Enqueued]:
        return ops_enqueue.enqueue(store.dialect, a_job())

    with closing(Store.open(database_url)) as store:
        engine = sqlalchemy.create_engine(database_url.replace("postgresql:", "postgresql+psycopg:"))
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text("CREATE TABLE notes (text varchar(9))"))
            with pytest.raises(expected or sqlalchemy.exc.DBAPIError):
                run_on(connection, op, database=store.database)
            connection.execute(sqlalchemy.text("SELECT * FROM notes"))
        engine.dispose()
