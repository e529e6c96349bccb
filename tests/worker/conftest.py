"""A server that a test of workers may stop and start."""

from __future__ import annotations

import pytest

from duly.store.store import Store
from tests.postgres import PostgresServer


@pytest.fixture
def own_server_url(pg_server: PostgresServer) -> str:
    """A migrated database on a server of this test's own."""
    store = Store.open(pg_server.url())
    store.migrate()
    store.close()
    return pg_server.url()
