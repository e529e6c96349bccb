"""An application on each kind of database, by a clock that stands; and pytest in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

import duly
from duly import Duly
from duly.testing import TestClock

SOURCE = str(Path(duly.__file__).parents[1])


class RunPytest(Protocol):
    """Runs pytest on the files of a test."""

    def __call__(self, *args: str, apart: bool = False) -> pytest.RunResult: ...


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def jobs(database_url: str, clock: TestClock) -> Iterator[Duly]:
    app = Duly(database_url, clock=clock)
    try:
        yield app
    finally:
        app.close()


@pytest.fixture
def run_pytest(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> RunPytest:
    """Run pytest with our plugin and no other; `apart`, in a process that has not imported duly."""
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-W error -p duly.testing.plugin")
    pytester.syspathinsert()

    def run(*args: str, apart: bool = False) -> pytest.RunResult:
        if apart:
            return pytester.runpytest_subprocess(*args, timeout=60)
        return pytester.runpytest_inprocess(*args)

    return run
