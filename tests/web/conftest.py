"""A `Duly` with a few tasks, and a client of its API."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from duly import Backoff, Duly
from tests.helpers import opened
from tests.store.raw import Raw
from tests.web.browser import Browser, browse


def declare(jobs: Duly) -> None:
    """Tasks that succeed, fail, and log."""

    @jobs.task
    def add(x: int, y: int = 2) -> int:
        return x + y

    @jobs.task(queue="mail", retry=Backoff.none())
    def send(to: str, password: str = "") -> dict[str, str]:
        logging.getLogger("shop").warning("sending to %s with password=%s", to, password)
        if to == "nobody":
            raise ValueError(f"no such address: {to}, password {password}")
        return {"to": to, "password": password, "said": f"with {password}"}


@pytest.fixture
def jobs(database_url: str) -> Iterator[Duly]:
    """A `Duly` with tasks on a fresh database; the test runs once on each kind."""
    with opened(database_url) as jobs:
        declare(jobs)
        yield jobs


@pytest.fixture
def lite(sqlite_url: str) -> Iterator[Duly]:
    """The same on SQLite alone."""
    with opened(sqlite_url) as jobs:
        declare(jobs)
        yield jobs


@pytest.fixture
def api(jobs: Duly) -> Browser:
    """A client that may do everything."""
    return browse(jobs)


@pytest.fixture
def lite_api(lite: Duly) -> Browser:
    """The same on SQLite alone."""
    return browse(lite)


@pytest.fixture
def raw(database_url: str) -> Iterator[Raw]:
    """A look behind the store's back."""
    raw = Raw(database_url)
    yield raw
    raw.close()
