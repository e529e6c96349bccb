"""A sweep enqueues what has not been refreshed for long, each target at most once at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from duly import ConfigurationError, Duly, InvalidOption
from duly.testing import TestClock, drain
from tests.foreign.conftest import by_hand
from tests.store.raw import Raw

MONTH = timedelta(days=30)


def pages(timed: Duly, clock: TestClock, ages: Mapping[int, int]) -> None:
    """The application's pages, refreshed so many days ago."""
    moment = "timestamptz" if timed.settings.url.startswith("postgres") else "text"
    by_hand(
        timed.settings.url,
        f"CREATE TABLE pages (id integer PRIMARY KEY, lang text, refreshed_at {moment})",
        *(
            f"INSERT INTO pages VALUES ({page}, 'en', '{(clock.now() - timedelta(days=days)).isoformat(sep=' ')}')"
            for page, days in ages.items()
        ),
    )


@pytest.mark.requirement("C14")
def test_by_sql(timed: Duly, clock: TestClock) -> None:
    pages(timed, clock, {1: 1, 2: 29, 3: 31, 4: 90})
    refreshed: list[tuple[int, str]] = []

    @timed.task
    def refresh(page: int, lang: str = "de", force: bool = False) -> None:
        refreshed.append((page, lang))

    timed.sweep(refresh, stale="SELECT id, lang FROM pages WHERE refreshed_at < :before ORDER BY id")
    drain(timed)
    assert refreshed == [(3, "en"), (4, "en")]
    job = timed.recurring_job("sweep:refresh")
    assert job.schedule.rules == ("@every 6h",)
    assert job.next_run_at == clock.now() + timedelta(hours=6)
    clock.advance("2d")
    refreshed.clear()
    drain(timed)
    assert refreshed == [(2, "en"), (3, "en"), (4, "en")]


@pytest.mark.requirement("C14", "C3")
def test_a_target_is_not_enqueued_again_while_it_waits(timed: Duly, clock: TestClock, raw: Raw) -> None:
    @timed.task(queue="slow")
    def refresh(page: int) -> None: ...

    sweep = timed.sweep(refresh, stale=lambda before: [{"page": 1}, {"page": 2}], every="1h", batch=1)
    queue = sweep.definition.queue
    assert queue == "slow"
    task = timed.registry.tasks.pop("refresh")  # nobody runs what it enqueues
    for _ in range(3):
        drain(timed)
        clock.advance("1h")
    assert sorted(job.args["page"] for job in timed.list(task="refresh")) == [1, 2]
    assert {job.enqueued_by for job in timed.list(task="refresh")} == {"sweep:refresh"}
    timed.registry.tasks["refresh"] = task
    drain(timed)  # first what waits; then the sweep, which is due again
    assert raw.one("SELECT count(*) FROM duly.jobs WHERE task = 'refresh'") == 4


@pytest.mark.requirement("C14")
def test_by_a_function_that_is_given_the_time(timed: Duly, clock: TestClock) -> None:
    asked: list[datetime] = []

    @timed.task
    def refresh(page: int) -> None: ...

    def stale(before: datetime) -> Iterator[dict[str, Any]]:
        asked.append(before)
        yield from ({"page": n} for n in range(25))

    timed.sweep(refresh, stale=stale, older_than="3d", every="30m", key="pages", batch=10)
    drained = drain(timed)
    assert asked == [clock.now() - timedelta(days=3)]
    assert drained.succeeded == 26
    job = timed.recurring_job("sweep:refresh:pages")
    assert job.schedule.rules == ("@every 30m",)


@pytest.mark.requirement("C14")
def test_thirty_days_by_default(timed: Duly, clock: TestClock) -> None:
    asked: list[datetime] = []

    @timed.task
    def refresh(page: int) -> None: ...

    def stale(before: datetime) -> list[dict[str, Any]]:
        asked.append(before)
        return []

    timed.sweep(refresh, stale=stale)
    drain(timed)
    assert asked == [clock.now() - MONTH]


@pytest.mark.requirement("C14")
def test_what_is_wrong_with_a_sweep_is_said(timed: Duly, clock: TestClock) -> None:
    pages(timed, clock, {1: 90})

    @timed.task
    def refresh(page: int) -> None: ...

    timed.sweep(refresh, stale="SELECT id, lang FROM pages WHERE refreshed_at < :before", key="wide")
    drain(timed)
    job = timed.recurring_job("sweep:refresh:wide")
    assert job.last_outcome == "failed"
    assert job.last_error is not None
    assert ConfigurationError.__name__ in job.last_error
    assert "returns 2 columns, and the task takes 1 arguments (page)" in job.last_error
    with pytest.raises(InvalidOption, match="stale must be SQL or a function"):
        timed.sweep(refresh, stale=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="batch must be a whole number"):
        timed.sweep(refresh, stale="SELECT 1", batch=0)
    with pytest.raises(InvalidOption, match="the SQL names :befor"):
        timed.sweep(refresh, stale="SELECT id FROM pages WHERE refreshed_at < :befor", key="misspelt")
