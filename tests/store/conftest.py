"""A store on each kind of database, with a clock that tests move; afterwards the tables must hold what always holds.

There are several hundred tests here: on PostgreSQL they share one database, emptied after each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

from duly.store.store import Store, open_database
from tests.clock import ManualClock
from tests.databases import Databases, Kind, lingering_connections
from tests.store import invariants
from tests.store.factory import Factory
from tests.store.raw import Raw

TABLES = "jobs scheduled waiting parked running ended runs rollups unique_keys limits queues workers"
FEW = 1_000


@pytest.fixture(scope="session")
def shared_postgres(databases: Databases) -> Iterator[Callable[[Kind], str]]:
    urls: dict[Kind, str] = {}
    with ExitStack() as stack:

        def url_of(kind: Kind) -> str:
            if kind not in urls:
                urls[kind] = stack.enter_context(databases.fresh(kind))
            return urls[kind]

        yield url_of


@pytest.fixture
def database_url(databases: Databases, database_kind: Kind, shared_postgres: Callable[[Kind], str]) -> Iterator[str]:
    """The URL of a migrated database without rows; the test runs once on each kind."""
    if not database_kind.is_postgres:
        with databases.fresh(database_kind) as url:
            yield url
        return
    url = shared_postgres(database_kind)
    try:
        yield url
    finally:
        leaked = empty(url)
    assert not leaked, "connections were left open; their last statements: " + "; ".join(leaked)


def empty(url: str) -> list[str]:
    """Remove every row. Returns the last statement of each connection that the test left open, having closed it."""
    with psycopg.connect(url, autocommit=True) as connection:
        name, jobs = connection.execute("SELECT current_database(), (SELECT count(*) FROM duly.jobs)").fetchone() or ()
        leaked = lingering_connections(connection, name)
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()", [name])
        verb = "DELETE FROM" if jobs < FEW else "TRUNCATE"
        connection.execute("".join(f"{verb} duly.{table};" for table in TABLES.split()).encode())
    return leaked


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def raw(database_url: str) -> Raw:
    return Raw(database_url)


@pytest.fixture
def store(database_url: str, clock: ManualClock, raw: Raw) -> Iterator[Store]:
    """The store under test, by the test's own clock. What must always be true is checked when the test is over."""
    store = Store(open_database(database_url, clock))
    try:
        yield store
        invariants.check(raw)
    finally:
        store.close()


@pytest.fixture
def make(store: Store, clock: ManualClock, raw: Raw) -> Factory:
    return Factory(store, clock, raw)
