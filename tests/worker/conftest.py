"""A `Duly` on a fresh database, and a ledger, for every test here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from duly import Duly
from duly.store.store import Store
from tests.helpers import Ledger, opened
from tests.postgres import PostgresServer


@pytest.fixture
def jobs(database_url: str) -> Iterator[Duly]:
    """A `Duly` on a fresh database; the test runs once on each kind."""
    with opened(database_url) as jobs:
        yield jobs


@pytest.fixture
def lite(sqlite_url: str) -> Iterator[Duly]:
    """A `Duly` on SQLite alone, for what does not depend on the database."""
    with opened(sqlite_url) as jobs:
        yield jobs


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """An empty ledger."""
    return Ledger(tmp_path / "ledger")


@pytest.fixture
def own_server_url(pg_server: PostgresServer) -> str:
    """A migrated database on a server of this test's own."""
    store = Store.open(pg_server.url())
    store.migrate()
    store.close()
    return pg_server.url()
