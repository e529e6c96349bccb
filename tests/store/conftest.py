"""A store on each kind of database, with a clock that tests move; afterwards the tables must hold what always holds.

There are several hundred tests here: on PostgreSQL they share one database, emptied after each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

from duly.store.store import Store, open_database
from tests.clock import ManualClock
from tests.databases import LEAK_SECONDS, Databases, Kind
from tests.store import invariants
from tests.store.factory import Factory
from tests.store.raw import Raw

TABLES = "jobs scheduled waiting parked running ended runs rollups unique_keys limits queues workers"
OTHERS = (
    "FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    " AND pid <> pg_backend_pid()"
)
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
        leaked = others(connection)
        connection.execute("SELECT pg_terminate_backend(pid) " + OTHERS)
        (jobs,) = connection.execute("SELECT count(*) FROM duly.jobs").fetchone() or (0,)
        verb = "DELETE FROM" if jobs < FEW else "TRUNCATE"
        connection.execute("".join(f"{verb} duly.{table};" for table in TABLES.split()).encode())
    return leaked


def others(connection: psycopg.Connection) -> list[str]:
    """The last statement of each other client that is still connected after a moment's grace."""
    deadline = time.monotonic() + LEAK_SECONDS
    while True:
        left = [str(row[0]) for row in connection.execute("SELECT left(query, 200) " + OTHERS)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.005)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def raw(database_url: str) -> Iterator[Raw]:
    raw = Raw(database_url)
    yield raw
    raw.close()


@pytest.fixture
def store(database_url: str, clock: ManualClock, raw: Raw) -> Iterator[Store]:
    """The store under test, by the test's own clock. What must always be true is checked when the test is over."""
    store = Store(open_database(database_url, clock))
    try:
        yield store
        invariants.check(raw)
    finally:
        store.close()


@pytest.fixture(autouse=True)
def no_deadlock(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test during which PostgreSQL had to break a deadlock: a repetition hides it, and costs a second."""
    raw = request.getfixturevalue("raw") if "store" in request.fixturenames else None
    if raw is None or not raw.is_postgres:
        yield
        return
    before = deadlocks(raw)
    yield
    assert deadlocks(raw) == before, "PostgreSQL had to break a deadlock"


def deadlocks(raw: Raw) -> int:
    return int(raw.one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))


@pytest.fixture
def make(store: Store, clock: ManualClock, raw: Raw) -> Factory:
    return Factory(store, clock, raw)
