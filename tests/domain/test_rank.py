"""The one number that orders a queue: aging, strict priority, and the bounds of 64 bits."""

from __future__ import annotations

import heapq
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.durations import micros
from duly.domain.errors import InvalidOption
from duly.domain.rank import (
    DEFAULT_HORIZON_US,
    STRICT_HORIZON_US,
    check_priority,
    effective_priority,
    rank,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = micros(datetime(2026, 1, 1, tzinfo=UTC) - EPOCH)
FIRST = micros(datetime.min.replace(tzinfo=UTC) - EPOCH)
LAST = micros(datetime.max.replace(tzinfo=UTC) - EPOCH)
MINUTE = 60_000_000

priorities = st.integers(0, 100)
instants = st.integers(FIRST, LAST)
horizons = st.one_of(st.none(), st.integers(0, STRICT_HORIZON_US * 2))


def test_the_default_horizon_is_one_hour_fifty() -> None:
    assert timedelta(microseconds=DEFAULT_HORIZON_US) == timedelta(hours=1, minutes=50)


@pytest.mark.requirement("C1")
@given(instants, instants, priorities, horizons)
def test_equal_priority_goes_oldest_first(a: int, b: int, priority: int, horizon: int | None) -> None:
    assert (rank(a, priority, horizon) < rank(b, priority, horizon)) == (a < b)


@pytest.mark.requirement("C1")
@given(instants, priorities, priorities)
def test_due_at_the_same_time_the_higher_priority_goes_first(at: int, a: int, b: int) -> None:
    assert (rank(at, a, DEFAULT_HORIZON_US) < rank(at, b, DEFAULT_HORIZON_US)) == (a > b)


@pytest.mark.requirement("C2")
@given(
    horizon=st.integers(1, micros(timedelta(days=365))),
    waited=st.integers(0, micros(timedelta(days=400))),
    low=priorities,
    high=priorities,
)
def test_a_job_that_waited_longer_than_the_horizon_outranks_every_new_one(
    horizon: int, waited: int, low: int, high: int
) -> None:
    old, new = rank(NOW - waited, low, horizon), rank(NOW, high, horizon)
    if waited > horizon:
        assert old < new
    if high > low and waited < (high - low) * (horizon // 100):
        assert new < old


@pytest.mark.requirement("C2")
def test_priority_0_passes_priority_100_after_one_hour_fifty_and_not_before() -> None:
    old = rank(NOW, 0, DEFAULT_HORIZON_US)
    assert rank(NOW + 109 * MINUTE, 100, DEFAULT_HORIZON_US) < old
    assert rank(NOW + 111 * MINUTE, 100, DEFAULT_HORIZON_US) > old


@pytest.mark.requirement("C2")
def test_under_a_permanent_flood_of_priority_100_a_priority_0_job_has_its_turn() -> None:
    """One job runs per minute and three of priority 100 arrive: those of the first 110 minutes go first."""
    waiting = [(rank(NOW, 0, DEFAULT_HORIZON_US), "starved")]
    for minute in range(1, 1000):
        arrival = rank(NOW + minute * MINUTE, 100, DEFAULT_HORIZON_US)
        for number in range(3):
            heapq.heappush(waiting, (arrival, f"flood {minute}.{number}"))
        if heapq.heappop(waiting)[1] == "starved":
            assert minute == 3 * 110 + 1
            return
    pytest.fail("the job of priority 0 never ran")


@pytest.mark.requirement("C2")
@given(st.integers(0, micros(timedelta(days=365_000))), priorities, priorities)
def test_strict_priority_wins_over_a_thousand_years_of_waiting(waited: int, a: int, b: int) -> None:
    if a > b:
        assert rank(NOW, a, None) < rank(NOW - waited, b, None)
        assert rank(NOW, a, STRICT_HORIZON_US) == rank(NOW, a, None)


@given(instants, priorities, horizons)
def test_rank_fits_64_bits_for_any_date_priority_and_horizon(at: int, priority: int, horizon: int | None) -> None:
    assert -(2**63) <= rank(at, priority, horizon) < 2**63


@given(priorities, st.integers(0, STRICT_HORIZON_US))
def test_the_product_that_sql_computes_fits_64_bits(priority: int, horizon: int) -> None:
    assert priority * (horizon // 100) < 2**63


@pytest.mark.parametrize(
    "minutes, priority, expected",
    [
        (-5, 10, 10),
        (0, 0, 0),
        (55, 0, 50),
        (110, 0, 100),
        (55, 80, 100),
        (1, 0, 0),
        (2, 0, 1),
        (10_000, 0, 100),
    ],
)
@pytest.mark.requirement("C2")
def test_effective_priority_rises_by_waiting_up_to_100(minutes: int, priority: int, expected: int) -> None:
    assert effective_priority(NOW + minutes * MINUTE, NOW, priority, DEFAULT_HORIZON_US) == expected


def test_effective_priority_stays_under_strict_priority() -> None:
    assert effective_priority(NOW + 10_000 * MINUTE, NOW, 7, None) == 7
    assert effective_priority(NOW + 10_000 * MINUTE, NOW, 7, STRICT_HORIZON_US) == 7


@given(instants, instants, priorities, horizons)
def test_effective_priority_is_never_below_the_given_one_nor_above_100(
    now: int, at: int, priority: int, horizon: int | None
) -> None:
    assert priority <= effective_priority(now, at, priority, horizon) <= 100


@pytest.mark.parametrize("priority", [0, 1, 100])
def test_priorities_from_0_to_100_are_accepted(priority: int) -> None:
    assert check_priority(priority) == priority


@pytest.mark.parametrize("priority", [-1, 101, 2**64, True, 1.5, "5", None])
def test_other_priorities_are_refused(priority: object) -> None:
    with pytest.raises(InvalidOption, match=r"priority must be .*from 0 .*to 100.*, not "):
        check_priority(priority)  # type: ignore[arg-type]
