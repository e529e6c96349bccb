"""F24: many schedulers, one tick: exactly one accepted run each, whoever is killed or paused."""

from __future__ import annotations

import pytest

from tests.recurring.chaos import torment


@pytest.mark.deep
@pytest.mark.requirement("A8", "E5", "E6")
def test_each_tick_has_one_accepted_run_whoever_is_killed_or_paused(database_url: str) -> None:
    report = torment(database_url, seconds=40, processes=6, seed=7)
    assert not report.missing, str(report)
    assert not report.repeated, str(report)
    assert report.kills > 5, "nobody was killed, so nothing was shown"
