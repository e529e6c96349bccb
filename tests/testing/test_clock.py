"""The clock that tests move: it stands, it moves on, and every time in the database comes from it."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta, timezone

import pytest

from duly import Duly, InvalidOption
from duly.domain.clock import Clock
from duly.testing import TestClock, drain

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_it_stands_until_it_is_moved() -> None:
    clock: Clock = TestClock(NOON)
    assert clock.manual
    assert clock.now_us() == clock.now_us() == int(NOON.timestamp()) * 1_000_000


def test_it_starts_at_the_same_time_in_every_run_and_later_than_now() -> None:
    assert TestClock().now() == TestClock().now() > datetime.now(UTC)


@pytest.mark.parametrize("by", [timedelta(minutes=5), 300, 300.0, "5m"])
def test_it_advances_by_a_timedelta_seconds_or_text(by: timedelta | float | str) -> None:
    clock = TestClock(NOON)
    assert clock.advance(by) == clock.now() == NOON + timedelta(minutes=5)


def test_the_lease_clock_moves_along() -> None:
    clock = TestClock(NOON)
    before = clock.lease_us()
    clock.advance("1s")
    clock.move_to(clock.now() + timedelta(seconds=2))
    assert clock.lease_us() - before == 3_000_000


def test_set_back_it_goes_back_but_the_lease_clock_does_not() -> None:
    clock = TestClock(NOON)
    before = clock.lease_us()
    assert clock.move_to(NOON - timedelta(hours=1)) == clock.now() == NOON - timedelta(hours=1)
    assert clock.lease_us() == before


def test_it_takes_any_time_zone_and_answers_in_utc() -> None:
    clock = TestClock(datetime(2026, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == NOON
    assert clock.now().tzinfo is UTC


def test_a_time_without_a_zone_is_refused() -> None:
    naive = NOON.replace(tzinfo=None)
    with pytest.raises(InvalidOption, match="time zone"):
        TestClock(naive)
    with pytest.raises(InvalidOption, match="time zone"):
        TestClock().move_to(naive)


def test_time_does_not_pass_backwards() -> None:
    with pytest.raises(InvalidOption, match="negative"):
        TestClock().advance(-1)


def test_pytest_does_not_take_it_for_a_class_of_tests() -> None:
    assert TestClock.__test__ is False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "TestClock 2026-05-01T12:00:00+00:00" in repr(TestClock(NOON))


def test_every_time_in_the_database_comes_from_it(jobs: Duly, clock: TestClock) -> None:
    @jobs.task
    def wait_a_minute() -> None:
        clock.advance("1m")

    start = clock.now()
    job = wait_a_minute.using(delay="1h").enqueue()
    assert (job.created_at, job.run_at) == (start, start + timedelta(hours=1))
    assert not drain(jobs)

    claimed = clock.advance("1h")
    drain(jobs)
    (run,) = job.runs
    assert (run.started_at, run.finished_at) == (claimed, claimed + timedelta(minutes=1))
    assert job.refresh().finished_at == clock.now()
