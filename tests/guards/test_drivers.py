"""One writes at a time, from before its first look; what another process opened is left alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from duly.domain.clock import SystemClock
from duly.domain.ids import uuid7
from duly.domain.records import NewJob
from duly.store import ops_enqueue, sqlite_migrate
from duly.store.call import Call, Dialect, Op
from duly.store.foreign import run_on
from duly.store.migrate import SchemaVersion, migrations
from duly.store.opening import open_database
from duly.store.postgres import PostgresDatabase
from duly.store.sqlite import SqliteDatabase
from duly.store.store import Store
from tests.databases import Databases, Kind
from tests.guards.racing import held
from tests.helpers import never
from tests.store.raw import Raw


@pytest.fixture
def path(sqlite_url: str) -> Path:
    return Path(sqlite_url.removeprefix("sqlite:///"))


@pytest.fixture
def lite_database(path: Path) -> Iterator[SqliteDatabase]:
    with closing(SqliteDatabase(path, SystemClock(), busy_seconds=1)) as database:
        yield database


@pytest.fixture
def stranger(path: Path) -> Iterator[sqlite3.Connection]:
    """Another program at the same file, which does not wait."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as stranger:
        yield stranger


def new_job() -> NewJob:
    return NewJob(id=uuid7(), task="send", args="{}")


def must_be_locked(stranger: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        stranger.execute("CREATE TABLE somebody_elses (x)")


def look_then_write(stranger: sqlite3.Connection) -> Op[None]:
    yield Call("clock", {"queue": "", "horizon": 0})
    must_be_locked(stranger)
    yield from ops_enqueue.enqueue(Dialect.SQLITE, new_job())


def test_nobody_writes_between_the_look_and_the_write_of_an_operation(
    lite_database: SqliteDatabase, stranger: sqlite3.Connection
) -> None:
    lite_database.write(lambda: look_then_write(stranger))


def test_nobody_writes_while_the_tables_are_brought_up_to_date(
    lite_database: SqliteDatabase, stranger: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sqlite_migrate.read_version

    def look(connection: sqlite3.Connection) -> SchemaVersion | None:
        must_be_locked(stranger)
        return real(connection)

    monkeypatch.setattr(sqlite_migrate, "read_version", look)
    assert lite_database.migrate() == []


@pytest.mark.parametrize("begun", [False, True], ids=["autocommit", "a transaction"])
def test_nobody_writes_between_the_look_and_the_write_on_a_callers_connection(
    lite_database: SqliteDatabase, path: Path, stranger: sqlite3.Connection, begun: bool
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as caller:
        if begun:
            caller.execute("BEGIN")
        run_on(caller, lambda: look_then_write(stranger), database=lite_database)


def test_what_another_process_opened_is_not_used_on_sqlite(lite_database: SqliteDatabase) -> None:
    store = Store(lite_database)
    store.enqueue(new_job())
    theirs = lite_database._writer
    lite_database._pid = -1  # as in a forked child
    store.enqueue(new_job())
    assert lite_database._writer is not theirs
    assert theirs is not None
    theirs.execute("SELECT 1")  # and it was not closed
    theirs.close()
    for readers in lite_database._abandoned:
        for reader in readers if isinstance(readers, list) else []:
            reader.close()


def test_what_another_process_opened_is_not_used_on_postgresql(pg_url: str) -> None:
    with closing(PostgresDatabase(pg_url, SystemClock())) as database:
        store = Store(database)
        store.enqueue(new_job())
        theirs = database._connections
        database._pid = -1  # as in a forked child
        store.enqueue(new_job())
        assert database._connections is not theirs
        theirs.close()


def test_one_migrates_at_a_time(databases: Databases, pg_kind: Kind) -> None:
    with (
        databases.fresh(pg_kind, prepared=False) as url,
        closing(Raw(url)) as raw,
        closing(Store(open_database(url, SystemClock()))) as store,
        ThreadPoolExecutor(1) as beside,
    ):
        with held(raw, "SELECT pg_advisory_xact_lock(hashtext('duly migrate duly'))"):
            migrating = beside.submit(store.migrate)
            never(migrating.done, 0.5)
        assert migrating.result() == [each.version for each in migrations(Dialect.POSTGRES)]
