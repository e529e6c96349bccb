"""The short form of every scenario of `make chaos`."""

from __future__ import annotations

import fcntl
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.__main__ import run
from chaos.load import load
from chaos.scenarios import SCENARIOS

load()
ALL = [(name, database) for name, scenario in SCENARIOS.items() for database in scenario.databases]


@pytest.fixture
def alone() -> Iterator[None]:
    """One storm at a time: each has as many processes as a small machine can do with, and times its rescues."""
    with (Path(tempfile.gettempdir()) / "duly-chaos.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.deep
@pytest.mark.timeout(1200)  # with the time in which others have their turn
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name, database", ALL, ids=[f"{name}-{database}" for name, database in ALL])
def test_nothing_is_lost_doubled_or_robbed(name: str, database: str) -> None:
    scenario = SCENARIOS[name]
    if missing := scenario.needs():
        pytest.skip(missing)
    report = run(scenario, database, short=True, seed=random.randrange(1 << 32))
    print(report)
    assert report.ok, report
