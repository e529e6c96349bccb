"""A `Duly` on a fresh database with two tenants who have the same of everything; what always holds is checked after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from duly import Duly
from tests.helpers import opened
from tests.store import invariants
from tests.store.raw import Raw
from tests.tenant.world import World


@pytest.fixture
def raw(database_url: str) -> Iterator[Raw]:
    """The tables behind the store's back; when the test is over they must hold what always holds."""
    with closing(Raw(database_url)) as raw:
        yield raw
        invariants.check(raw)


@pytest.fixture
def jobs(database_url: str, raw: Raw) -> Iterator[Duly]:
    with opened(database_url) as jobs:
        yield jobs


@pytest.fixture
def world(jobs: Duly, raw: Raw) -> World:
    """Two tenants, acme and globex, with the same jobs, keys and names."""
    return World(jobs, raw)
