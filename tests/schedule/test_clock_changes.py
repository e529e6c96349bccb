"""When clocks are moved: each rule of the policy by a case worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from duly.domain.clock import from_us, to_us
from duly.schedule import Schedule
from tests.schedule.oracle import Case, Grid, judge

NEW_YORK_SPRING = "2026-03-08"  # 02:00 EST -> 03:00 EDT, at 07:00 UTC
NEW_YORK_AUTUMN = "2026-11-01"  # 02:00 EDT -> 01:00 EST, at 06:00 UTC


def _on(day: str, rule: str, zone: str, **options: Any) -> list[str]:
    """Return the ticks of a local day, as UTC."""
    start = to_us(datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)), "day")
    end = to_us((datetime.fromisoformat(day) + timedelta(days=1)).replace(tzinfo=ZoneInfo(zone)), "day")
    schedule = Schedule.make(rule, timezone=zone, **options)
    ticks = [tick for tick in schedule.ticks(start - 1, 100, anchor_us=start) if tick < end]
    backwards = []
    at = schedule.latest_at(end - 1, anchor_us=start)
    while at is not None and at >= start:
        backwards.append(at)
        at = schedule.latest_at(at - 1, anchor_us=start)
    assert backwards[::-1] == ticks
    return [from_us(tick).strftime("%H:%M") for tick in ticks]


@pytest.mark.requirement("C6")
def test_a_fixed_time_in_a_gap_runs_right_after_it() -> None:
    assert _on(NEW_YORK_SPRING, "30 2 * * *", "America/New_York") == ["07:00"]
    assert _on(NEW_YORK_SPRING, "*/10 30 2 * * *", "America/New_York") == ["07:00"]


@pytest.mark.requirement("C6")
def test_a_fixed_time_in_a_gap_is_left_out_if_so_asked() -> None:
    assert _on(NEW_YORK_SPRING, "30 2 * * *", "America/New_York", gap="skip") == []
    assert _on(NEW_YORK_SPRING, "30 1-3 * * *", "America/New_York", gap="skip") == ["06:30", "07:30"]


@pytest.mark.requirement("C6")
def test_several_fixed_times_in_a_gap_and_one_right_after_it_are_one_tick() -> None:
    assert _on(NEW_YORK_SPRING, "0,15,30 2 * * *", "America/New_York") == ["07:00"]
    assert _on(NEW_YORK_SPRING, "0,30 2,3 * * *", "America/New_York") == ["07:00", "07:30"]


@pytest.mark.requirement("C6")
def test_a_fixed_time_in_an_overlap_runs_the_first_time() -> None:
    assert _on(NEW_YORK_AUTUMN, "30 1 * * *", "America/New_York") == ["05:30"]
    assert _on(NEW_YORK_AUTUMN, "0,30 1-2 * * *", "America/New_York") == ["05:00", "05:30", "07:00", "07:30"]


@pytest.mark.requirement("C6")
def test_a_fixed_time_in_an_overlap_runs_both_times_if_so_asked() -> None:
    assert _on(NEW_YORK_AUTUMN, "30 1 * * *", "America/New_York", overlap="twice") == ["05:30", "06:30"]


@pytest.mark.parametrize("options", [{}, {"gap": "skip", "overlap": "twice"}, {"gap": "next", "overlap": "first"}])
@pytest.mark.requirement("C6")
def test_a_wildcard_rule_follows_the_clock_whatever_the_policy(options: dict[str, Any]) -> None:
    spring = _on(NEW_YORK_SPRING, "0 * * * *", "America/New_York", **options)
    autumn = _on(NEW_YORK_AUTUMN, "0 * * * *", "America/New_York", **options)
    assert spring == [f"{hour % 24:02}:00" for hour in range(5, 28)]
    assert autumn == [f"{hour % 24:02}:00" for hour in range(4, 29)]
    assert _on(NEW_YORK_SPRING, "*/30 2 * * *", "America/New_York", **options) == []
    assert _on(NEW_YORK_AUTUMN, "*/30 1 * * *", "America/New_York", **options) == ["05:00", "05:30", "06:00", "06:30"]
    assert _on(NEW_YORK_AUTUMN, "30 */1 * * *", "America/New_York", **options)[1:3] == ["05:30", "06:30"]


@pytest.mark.requirement("C6")
def test_every_is_elapsed_time_in_any_zone() -> None:
    assert _on(NEW_YORK_SPRING, "@every 6h", "America/New_York") == ["05:00", "11:00", "17:00", "23:00"]
    assert _on(NEW_YORK_AUTUMN, "@every 6h", "America/New_York") == ["04:00", "10:00", "16:00", "22:00", "04:00"]


@pytest.mark.requirement("C6")
def test_half_an_hour_is_skipped_and_repeated_on_lord_howe() -> None:
    zone = "Australia/Lord_Howe"  # 02:00 -> 02:30 in October, 02:00 -> 01:30 in April, at 15:30 and 15:00 UTC
    assert _on("2026-10-04", "15 2 * * *", zone) == ["15:30"]
    assert _on("2026-10-04", "*/15 2 * * *", zone) == ["15:30", "15:45"]
    assert _on("2026-04-05", "45 1 * * *", zone) == ["14:45"]
    assert _on("2026-04-05", "45 1 * * *", zone, overlap="twice") == ["14:45", "15:15"]


@pytest.mark.parametrize(
    "zone, day, first",
    [("America/Santiago", "2026-09-06", "04:00"), ("Africa/Cairo", "2026-04-24", "22:00")],
)
@pytest.mark.requirement("C6")
def test_a_day_that_begins_at_one_has_its_midnight_then(zone: str, day: str, first: str) -> None:
    assert _on(day, "@daily", zone) == [first]
    assert _on(day, "0 0,1 * * *", zone) == [first]
    assert _on(day, "@daily", zone, gap="skip") == []
    assert _on(day, "@daily", zone, exclude=[day]) == []
    assert _on(day, "@hourly", zone)[0] == first


@pytest.mark.requirement("C6")
def test_a_day_that_never_was_runs_on_the_next_one() -> None:
    zone = "Pacific/Apia"  # no 2011-12-30: after the 29th came the 31st, at 10:00 UTC
    schedule = Schedule.make("0 9 30 12 *", timezone=zone)
    assert schedule.next_after(to_us(datetime(2011, 6, 1, tzinfo=UTC), ""), anchor_us=0) == to_us(
        datetime(2011, 12, 30, 10, tzinfo=UTC), ""
    )
    assert _on("2011-12-31", "0 9 * * *", zone) == ["10:00", "19:00"]
    assert _on("2011-12-31", "0 9 * * *", zone, gap="skip") == ["19:00"]


@pytest.mark.parametrize(
    "zone, turn",
    [
        ("Africa/Monrovia", datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC)),  # 44:30 behind, a gap
        ("Europe/Amsterdam", datetime(1937, 6, 30, 22, 40, 28, tzinfo=UTC)),  # 20 minutes instead of 19:32
        ("America/St_Johns", datetime(2010, 11, 7, 2, 31, tzinfo=UTC)),  # 00:01 -> 23:01 of the day before
        ("America/St_Johns", datetime(2010, 3, 14, 3, 31, tzinfo=UTC)),
        ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
        ("Asia/Manila", datetime(1990, 7, 28, 15, tzinfo=UTC)),
        ("America/New_York", datetime(2400, 3, 12, 7, tzinfo=UTC)),  # as far ahead as the rules go
    ],
)
@pytest.mark.requirement("C6")
def test_odd_changes_agree_with_the_oracle_second_by_second(zone: str, turn: datetime) -> None:
    instant = int(turn.timestamp())
    grid = Grid(zone, instant - 5400, instant + 5400, 1)
    days = tuple(str((turn + timedelta(days=n)).date()) for n in (-1, 0, 1))
    rules = ("*/10 * * * * *", "30 */5 * * * *", "*/20 0-59/7 0-23 * * *", "0 1,31 0,23 * * *", "15 30 9,22 * * *")
    for rule in rules:
        for exclude in ((), days[:1], days[1:2], days[2:]):
            for gap, overlap in (("next", "first"), ("skip", "first"), ("next", "twice")):
                case = Case(zone, rule, gap, overlap, exclude)  # type: ignore[arg-type]
                assert not judge(case, grid).wrong
