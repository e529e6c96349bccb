"""The short form of `python -m chaos.increments`: exact under constant kills, on both databases."""

from __future__ import annotations

import pytest

from chaos.increments import storm


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_increments_under_constant_kills_are_exact(database_url: str) -> None:
    report = storm(database_url, jobs=3_000, processes=3, pause=0.4, limit=600)
    print(report)
    assert report.exact, report
    assert report.kills >= 10, report
    assert report.crashed, "a storm in which no run was cut short proves nothing"
