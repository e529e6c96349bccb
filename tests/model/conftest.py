"""The store's fixtures: a database of each kind, emptied between tests."""

from __future__ import annotations

from tests.store.conftest import clock, database_url, no_deadlock, raw, shared_postgres

__all__ = ["clock", "database_url", "no_deadlock", "raw", "shared_postgres"]
