"""The store's fixtures: a database of each kind, emptied between tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.store.conftest import clock, database_url, no_deadlock, raw, shared_postgres

__all__ = ["clock", "database_url", "no_deadlock", "raw", "shared_postgres"]


@pytest.fixture(autouse=True)
def nobody_logs() -> Iterator[None]:
    """Thousands of workers die here; nobody wants to read of each."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
