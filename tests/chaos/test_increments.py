"""The short form of `python -m chaos.increments`: exact under constant kills, on both databases."""

from __future__ import annotations

import pytest

from chaos.increments import storm


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_increments_under_constant_kills_are_exact(database_url: str) -> None:
    report = storm(database_url, jobs=3_000, processes=3, pause=0.4, least=10, limit=600)
    print(report)
    assert report.exact, report
    assert report.kills >= 10, report
    assert report.crashed, "a storm in which no run was cut short proves nothing"


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_without_completing_in_the_handler_the_same_storm_doubles_effects(database_url: str) -> None:
    """The counter-example: if this came out exact, the other test would prove nothing."""
    report = storm(database_url, jobs=1_500, processes=3, pause=0.4, least=10, limit=600, apart=True)
    assert report.doubled, report
    assert report.counted > report.jobs, report
    assert not report.lost, report
