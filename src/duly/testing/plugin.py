"""The pytest plugin: three fixtures. It imports duly only when one of them is used.

`duly_jobs` is the application named by the ini option `duly_app`, on a temporary database, or else a new one without
tasks; `duly_clock` the clock it goes by, to move (override it for another start); `duly_drain` runs what is due.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from functools import partial

    from duly import Duly
    from duly.testing.clock import TestClock
    from duly.testing.drained import Drained


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "duly_app", "the application that duly_jobs puts on a temporary database: module:attribute", default=""
    )


@pytest.fixture
def duly_clock() -> TestClock:
    """A clock that stands still until the test moves it."""
    from duly.testing.clock import TestClock

    return TestClock()


@pytest.fixture
def duly_jobs(request: pytest.FixtureRequest, duly_clock: TestClock) -> Iterator[Duly]:
    """The application on a temporary SQLite file, going by `duly_clock`."""
    from duly.app import Duly
    from duly.testing.isolation import isolated

    named = str(request.config.getini("duly_app"))
    app = _find_app(named) if named else Duly("sqlite:///never-opened.db")
    with isolated(app, clock=duly_clock):
        yield app


@pytest.fixture
def duly_drain(duly_jobs: Duly) -> partial[Drained]:
    """Run every due job of `duly_jobs` here and now; takes the options of `duly.testing.drain`."""
    from functools import partial

    from duly.testing.draining import drain

    return partial(drain, duly_jobs)


def _find_app(named: str) -> Duly:
    import pkgutil

    from duly.app import Duly

    try:
        app = pkgutil.resolve_name(named)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(f"duly_app = {named!r} cannot be loaded: {error}. Write module:attribute") from error
    if not isinstance(app, Duly):
        raise pytest.UsageError(f"duly_app = {named!r} is a {type(app).__name__}, not a Duly. Write module:attribute")
    return app
