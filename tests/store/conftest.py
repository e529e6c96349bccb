"""A store on each kind of database, with a clock that tests move; afterwards the tables must hold what always holds.

There are several hundred tests here: on PostgreSQL they share one database, emptied after each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from duly.store.opening import open_database
from duly.store.store import Store
from duly.testing import TestClock
from tests.databases import Databases, Kind
from tests.pool import LEAK_SECONDS
from tests.store import invariants
from tests.store.factory import Factory
from tests.store.raw import Raw

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'duly' AND tablename <> 'schema_version'"
OTHERS = (
    "FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    " AND pid <> pg_backend_pid()"
)
FEW = 1_000


@pytest.fixture(scope="session")
def shared_postgres(databases: Databases) -> Iterator[Callable[[Kind], Raw]]:
    """One database of each kind, by a connection that lasts for the session."""
    found: dict[Kind, Raw] = {}
    with ExitStack() as stack:

        def raw_of(kind: Kind) -> Raw:
            if kind not in found:
                found[kind] = Raw(stack.enter_context(databases.fresh(kind)))
                stack.callback(found[kind].close)
            return found[kind]

        yield raw_of


@pytest.fixture
def database_url(raw: Raw) -> str:
    """The URL of a migrated database without rows; the test runs once on each kind."""
    return raw.url


@pytest.fixture
def raw(databases: Databases, database_kind: Kind, shared_postgres: Callable[[Kind], Raw]) -> Iterator[Raw]:
    """A migrated database without rows, by a connection beside the store's."""
    if database_kind.is_postgres:
        raw = shared_postgres(database_kind)
        try:
            yield raw
        finally:
            leaked = empty(raw)
        assert not leaked, "connections were left open; their last statements: " + "; ".join(leaked)
    else:
        with databases.fresh(database_kind) as url:
            raw = Raw(url)
            yield raw
            raw.close()


def empty(raw: Raw) -> list[str]:
    """Remove every row. Returns the last statement of each connection that the test left open, having closed it."""
    deadline = time.monotonic() + LEAK_SECONDS
    while (left := raw.rows("SELECT left(query, 200) " + OTHERS)) and time.monotonic() < deadline:
        time.sleep(0.005)
    raw.rows("SELECT pg_terminate_backend(pid) " + OTHERS)
    verb = "DELETE FROM" if raw.count("jobs") < FEW else "TRUNCATE"
    raw.rows("".join(f"{verb} duly.{table};" for (table,) in raw.rows(TABLES)))
    return [str(row[0]) for row in left]


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def store(database_url: str, clock: TestClock, raw: Raw) -> Iterator[Store]:
    """The store under test, by the test's own clock. What must always be true is checked when the test is over."""
    store = Store(open_database(database_url, clock))
    try:
        yield store
        invariants.check(raw, clock.now_us())
    finally:
        store.close()


@pytest.fixture(autouse=True)
def no_deadlock(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test during which PostgreSQL had to break a deadlock: a repetition hides it, and costs a second."""
    raw = request.getfixturevalue("raw") if "raw" in request.fixturenames else None
    if raw is None or not raw.is_postgres:
        yield
        return
    before = deadlocks(raw)
    yield
    assert deadlocks(raw) == before, "PostgreSQL had to break a deadlock"


def deadlocks(raw: Raw) -> int:
    return int(raw.one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))


@pytest.fixture
def make(store: Store, clock: TestClock, raw: Raw) -> Factory:
    return Factory(store, clock, raw)
