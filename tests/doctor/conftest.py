"""A `Duly` on a fresh database of each kind, a second connection to break things with, and a clock that tests move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from duly import Duly
from duly.domain.ids import uuid7
from duly.testing import TestClock
from duly.worker.identity import this_process
from tests.helpers import opened
from tests.store.factory import Factory
from tests.store.raw import Raw


@pytest.fixture
def raw(request: pytest.FixtureRequest) -> Iterator[Raw]:
    """The tables behind the store's back."""
    names = request.fixturenames
    name = next(each for each in ("pg_url", "sqlite_url", "database_url") if each in names or each == "database_url")
    with closing(Raw(request.getfixturevalue(name))) as raw:
        yield raw


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def timed(database_url: str, clock: TestClock) -> Iterator[Duly]:
    """A `Duly` by a clock that stands until the test moves it."""
    with opened(database_url, clock=clock) as jobs:
        yield jobs


@pytest.fixture
def pg(pg_url: str) -> Iterator[Duly]:
    """A `Duly` on PostgreSQL."""
    with opened(pg_url) as jobs:
        yield jobs


@pytest.fixture
def make(timed: Duly, clock: TestClock, raw: Raw) -> Factory:
    """Short words for what a worker and a producer do, by the test's clock."""
    return Factory(timed.store, clock, raw)


def add_worker(
    jobs: Duly,
    *,
    tasks: str = "[]",
    queues: str = '["default"]',
    version: str | None = None,
    lease_us: int = 15_000_000,
) -> str:
    """Put a worker on record, whose process is this one."""
    from duly import __version__

    worker_id = uuid7()
    jobs.store.add_worker(
        worker_id,
        this_process(),
        lease_us=lease_us,
        queues=queues,
        tasks=tasks,
        slots=4,
        wake=None,
        version=version or __version__,
    )
    return worker_id
