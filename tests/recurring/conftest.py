"""A `Duly` on a fresh database, by the real clock or by one that tests move; afterwards what must always hold holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from duly import Duly
from duly.testing import TestClock
from tests.foreign.conftest import Case, cases
from tests.helpers import opened
from tests.store import invariants
from tests.store.raw import Raw


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", list(cases(metafunc.config)))


@pytest.fixture
def raw(request: pytest.FixtureRequest) -> Iterator[Raw]:
    """The tables behind the store's back; when the test is over they must hold what always holds."""
    names = request.fixturenames
    if "case_url" in names:
        url = request.getfixturevalue("case_url")
    else:
        url = request.getfixturevalue("pg_url" if "pg_url" in names else "database_url")
    with closing(Raw(url)) as raw:
        yield raw
        invariants.check(raw)


@pytest.fixture
def jobs(database_url: str, raw: Raw) -> Iterator[Duly]:
    """A `Duly` by the real clock; the test runs once on each kind of database."""
    with opened(database_url) as jobs:
        yield jobs


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def timed(database_url: str, raw: Raw, clock: TestClock) -> Iterator[Duly]:
    """A `Duly` by a clock that stands until the test moves it."""
    with opened(database_url, clock=clock) as jobs:
        yield jobs


@pytest.fixture
def case_url(databases: object, case: Case) -> Iterator[str]:
    """A migrated database for a caller of one library."""
    from tests.databases import Databases

    assert isinstance(databases, Databases)
    with databases.fresh(case.kind) as url:
        yield url
