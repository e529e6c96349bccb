"""Old runs of recurring jobs are forgotten; the newest of each stay."""

from __future__ import annotations

from datetime import timedelta

import pytest

from duly import Duly
from duly.testing import TestClock, drain
from tests.recurring.killed import claim
from tests.store.raw import Raw


@pytest.mark.requirement("E8")
def test_runs_older_than_the_retention_go_and_the_newest_ten_stay(timed: Duly, clock: TestClock, raw: Raw) -> None:
    @timed.task
    def fetch() -> None: ...

    busy, quiet = fetch.recur("busy", every="1h"), fetch.recur("quiet", every="365d")
    for _ in range(48):
        drain(timed)
        clock.advance("1h")
    assert raw.count("runs") == 49
    assert timed.prune() == 0
    clock.advance(timedelta(days=6))
    assert timed.prune() == 25  # those that ended 7 days ago or more
    assert len(busy.runs()) == 23
    clock.advance(timedelta(days=30))
    assert timed.prune() == 13
    tokens = [row[0] for row in raw.rows(f"SELECT token FROM duly.runs WHERE job_id = '{busy.id}' ORDER BY token")]
    assert tokens == list(range(39, 49))
    assert len(quiet.runs()) == 1
    assert busy.refresh().enabled


@pytest.mark.requirement("E8")
def test_claims_that_were_given_back_do_not_count_as_runs(timed: Duly, clock: TestClock) -> None:
    @timed.task
    def fetch() -> None: ...

    job = fetch.recur("f", every="1h")
    for _ in range(12):
        drain(timed)
        clock.advance("1h")
    for _ in range(15):
        run = claim(timed, "fetch")
        timed.store.give_back([(run.id, run.token)])
    drain(timed)
    clock.advance(timedelta(days=60))
    timed.prune()
    assert len(job.runs()) == 10


@pytest.mark.requirement("E8")
def test_more_jobs_than_one_step_looks_at(timed: Duly, clock: TestClock, raw: Raw) -> None:
    from duly.store import ops_recurring_runs

    @timed.task
    def fetch() -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops_recurring_runs, "PAGE", 3)
        for n in range(40):  # the first of them have nothing to forget
            fetch.recur(n, every="1h" if n >= 35 else "365d")
        for _ in range(12):
            drain(timed)
            clock.advance("1h")
        clock.advance(timedelta(days=30))
        assert timed.prune() == 10
    assert raw.count("runs") == 35 + 50
    assert timed.settings.retention_succeeded == timedelta(days=7)
