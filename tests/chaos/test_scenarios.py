"""The short form of every scenario of `make chaos`."""

from __future__ import annotations

import random

import pytest

from chaos.__main__ import run
from chaos.load import load
from chaos.scenarios import SCENARIOS

load()
ALL = [(name, database) for name, scenario in SCENARIOS.items() for database in scenario.databases]


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name, database", ALL, ids=[f"{name}-{database}" for name, database in ALL])
def test_nothing_is_lost_doubled_or_robbed(name: str, database: str) -> None:
    scenario = SCENARIOS[name]
    if missing := scenario.needs():
        pytest.skip(missing)
    report = run(scenario, database, short=True, seed=random.randrange(1 << 32))
    print(report)
    assert report.ok, report
