"""The store's fixtures, and two of a kind at one PostgreSQL database, who meet between two statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from duly.store.opening import open_database
from duly.store.store import Store
from duly.testing import TestClock
from tests.databases import Kind
from tests.guards.racing import Pair
from tests.limits.keyed import Keyed
from tests.store import invariants
from tests.store.conftest import clock, database_url, deadlocks, empty, make, no_deadlock, raw, shared_postgres, store
from tests.store.raw import Raw

__all__ = ["clock", "database_url", "make", "no_deadlock", "raw", "shared_postgres", "store"]


@pytest.fixture
def keyed(store: Store, clock: TestClock, raw: Raw) -> Keyed:
    """A store with jobs that have keys."""
    return Keyed(store, clock, raw)


@pytest.fixture
def pair(pg_kind: Kind, shared_postgres: Callable[[Kind], Raw], clock: TestClock) -> Iterator[Pair]:
    """Two at one PostgreSQL database. Afterwards the tables are sound, and no deadlock had to be broken."""
    raw = shared_postgres(pg_kind)
    before = deadlocks(raw)
    stores = [Store(open_database(raw.url, clock)) for _ in range(2)]
    try:
        yield Pair(*(Keyed(store, clock, raw) for store in stores))
        invariants.check(raw, clock.now_us())
        assert deadlocks(raw) == before, "PostgreSQL had to break a deadlock"
    finally:
        for store in stores:
            store.close()
        leaked = empty(raw)
    assert not leaked, "connections were left open; their last statements: " + "; ".join(leaked)
