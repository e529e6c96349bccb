"""The store's fixtures, and short words for jobs with keys."""

from __future__ import annotations

import pytest

from duly.store.store import Store
from duly.testing import TestClock
from tests.limits.keyed import Keyed
from tests.store.conftest import clock, database_url, make, no_deadlock, raw, shared_postgres, store
from tests.store.raw import Raw

__all__ = ["clock", "database_url", "make", "no_deadlock", "raw", "shared_postgres", "store"]


@pytest.fixture
def keyed(store: Store, clock: TestClock, raw: Raw) -> Keyed:
    """A store with jobs that have keys."""
    return Keyed(store, clock, raw)
