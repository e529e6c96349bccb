"""Schedules agree with the oracle, which reads the clock of every minute (see oracle.py)."""

from __future__ import annotations

import random

import pytest

from tests.schedule.oracle import FROM, TO, ZONES, Generator, Grid, judge, transitions

_DAY = 86_400


def _days_around_transitions(zone: str) -> list[Grid]:
    midnights = {turn // _DAY * _DAY - _DAY for turn in transitions(zone)}
    midnights |= set(random.Random(zone).sample(range(FROM, TO, _DAY), 20))
    return [Grid(zone, start, start + 3 * _DAY) for start in sorted(midnights)]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.requirement("C6")
def test_agrees_with_the_oracle_on_the_days_around_every_transition_of_ten_years(zone: str) -> None:
    grids = _days_around_transitions(zone)
    generator = Generator(zone, transitions(zone))
    for _ in range(45):
        case = generator.case()
        for grid in grids:
            assert not judge(case, grid).wrong


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.requirement("C6")
def test_agrees_with_the_oracle_on_every_second_around_transitions(zone: str) -> None:
    turns = transitions(zone)
    grids = [Grid(zone, turn - 7200, turn + 7200, 1) for turn in turns[:4] or [FROM]]
    generator = Generator(zone, turns, seed=2)
    for _ in range(12):
        case = generator.case(seconds=True)
        for grid in grids:
            assert not judge(case, grid, most=400).wrong
