"""Schedules: anchor, bounds, exclusions, jitter; forwards and backwards; stored and read again."""

from __future__ import annotations

import copy
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.domain.clock import from_us, to_us
from duly.domain.errors import InvalidSchedule
from duly.schedule import Schedule
from tests.schedule.test_rules import EXPRESSIONS

SECOND = 1_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR


def _us(*parts: int) -> int:
    return to_us(datetime(*parts, tzinfo=UTC), "instant")  # type: ignore[misc,arg-type]


NOON = _us(2026, 2, 1, 12)


@pytest.mark.requirement("C6")
def test_every_counts_from_the_anchor_and_never_drifts() -> None:
    schedule = Schedule.make("@every 7m")
    anchor = NOON + 123
    assert schedule.next_after(anchor - 1, anchor_us=anchor) == anchor
    assert schedule.next_after(anchor, anchor_us=anchor) == anchor + 420 * SECOND
    late = anchor + 1_000_000 * 420 * SECOND + 99
    assert schedule.next_after(late, anchor_us=anchor) == anchor + 1_000_001 * 420 * SECOND
    assert schedule.latest_at(late, anchor_us=anchor) == anchor + 1_000_000 * 420 * SECOND
    assert schedule.next_after(anchor - 50 * DAY, anchor_us=anchor) == anchor
    assert schedule.latest_at(anchor - 1, anchor_us=anchor) is None
    assert schedule.latest_at(anchor, anchor_us=anchor) == anchor


def test_a_start_is_the_anchor_and_the_first_tick_of_every() -> None:
    schedule = Schedule.make("@every 1h", start=from_us(NOON + 5))
    for anchor in (0, NOON + 77):
        assert schedule.ticks(0, 2, anchor_us=anchor) == [NOON + 5, NOON + 5 + HOUR]
        assert schedule.latest_at(NOON + 4, anchor_us=anchor) is None


def test_there_is_no_tick_before_the_start_nor_after_the_end() -> None:
    schedule = Schedule.make("@hourly", start=from_us(NOON), until=from_us(NOON + 2 * HOUR))
    expected = [NOON, NOON + HOUR, NOON + 2 * HOUR]
    assert schedule.ticks(0, 10, anchor_us=0) == expected
    assert schedule.next_after(expected[-1], anchor_us=0) is None
    assert schedule.latest_at(NOON - 1, anchor_us=0) is None
    assert schedule.latest_at(NOON + 50 * DAY, anchor_us=0) == expected[-1]


def test_an_end_between_two_ticks_leaves_the_earlier_one_as_the_last() -> None:
    schedule = Schedule.make("@daily", until=from_us(NOON + 5))
    assert schedule.next_after(NOON, anchor_us=0) is None
    assert schedule.latest_at(NOON + 9 * DAY, anchor_us=0) == NOON - 12 * HOUR


@pytest.mark.parametrize("rule", ["0 9 * * *", "@every 24h"])
def test_an_excluded_day_has_no_tick(rule: str) -> None:
    anchor = _us(2026, 12, 23, 9)
    schedule = Schedule.make(rule, exclude=["2026-12-26", date(2026, 12, 25)])
    assert schedule.exclude == ("2026-12-25", "2026-12-26")
    ticks = schedule.ticks(anchor, 3, anchor_us=anchor)
    assert [from_us(tick).day for tick in ticks] == [24, 27, 28]
    assert schedule.latest_at(_us(2026, 12, 26, 23), anchor_us=anchor) == _us(2026, 12, 24, 9)


def test_an_excluded_day_is_the_day_in_the_zone_of_the_schedule() -> None:
    schedule = Schedule.make("@hourly", timezone="Asia/Kolkata", exclude=["2026-12-25"])
    assert schedule.next_after(_us(2026, 12, 24, 17, 30), anchor_us=0) == _us(2026, 12, 25, 18, 30)
    assert schedule.latest_at(_us(2026, 12, 25, 18), anchor_us=0) == _us(2026, 12, 24, 17, 30)


def test_a_thousand_excluded_days_of_a_fast_rule_are_leapt_over_day_by_day() -> None:
    days = [date(2026, 1, 1) + timedelta(days=n) for n in range(1_000)]
    for zone in ("UTC", "Europe/Berlin"):
        schedule = Schedule.make("@every 1ms", exclude=days, timezone=zone)
        tick = schedule.next_after(_us(2026, 1, 1, 12), anchor_us=0)
        assert tick is not None
        assert from_us(tick + 2 * HOUR).date() == days[-1] + timedelta(days=1)
        before = schedule.latest_at(tick - 1, anchor_us=0)
        assert before is not None
        assert before < _us(2026, 1, 1)


def test_a_schedule_whose_days_are_all_excluded_has_no_tick() -> None:
    schedule = Schedule.make(
        "@daily", start=from_us(NOON), until=from_us(NOON + DAY), exclude=["2026-02-02"], timezone="UTC"
    )
    assert schedule.next_after(0, anchor_us=0) is None
    assert schedule.latest_at(NOON + DAY, anchor_us=0) is None


@pytest.mark.requirement("C6")
def test_jitter_spreads_a_thousand_keys_evenly_over_the_hour() -> None:
    schedule = Schedule.make("@hourly", jitter="1h")
    shifts = []
    for number in range(1_000):
        tick = schedule.next_after(NOON, anchor_us=0, key=f"customer-{number}")
        assert tick is not None
        shifts.append((tick - NOON) % HOUR)
    tenths = [sum(n * HOUR // 10 <= shift < (n + 1) * HOUR // 10 for shift in shifts) for n in range(10)]
    assert sum(tenths) == 1_000
    assert all(70 <= count <= 130 for count in tenths)
    assert len(set(shifts)) == 1_000


def test_jitter_of_a_key_is_the_same_for_every_tick_and_in_every_process() -> None:
    schedule = Schedule.make("@hourly", jitter="10m")
    ticks = schedule.ticks(NOON, 50, anchor_us=0, key="customer-7")
    shift = (ticks[0] - NOON) % HOUR
    assert shift == 247_399_124  # never changes, in no version
    assert all((tick - NOON) % HOUR == shift < 600 * SECOND for tick in ticks)
    program = (
        "from duly.schedule import Schedule\n"
        f"s = Schedule.from_json({schedule.to_json()!r})\n"
        f"print(s.next_after({NOON}, anchor_us=0, key='customer-7'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) == ticks[0]


def test_jitter_may_be_longer_than_the_interval_and_keeps_within_the_bounds() -> None:
    schedule = Schedule.make("@hourly", jitter="1d", start=from_us(NOON), until=from_us(NOON + 3 * DAY))
    for key in map(str, range(50)):
        ticks = schedule.ticks(0, 1_000, anchor_us=0, key=key)
        assert NOON <= ticks[0] < NOON + DAY
        assert NOON + 3 * DAY - HOUR < ticks[-1] <= NOON + 3 * DAY
        assert all(later - tick == HOUR for tick, later in pairwise(ticks))


def test_excluded_days_are_those_of_the_planned_instants() -> None:
    schedule = Schedule.make("30 23 * * *", jitter="1h", exclude=["2026-02-02"])
    key = next(str(n) for n in range(100) if schedule.next_after(NOON, anchor_us=0, key=str(n)) >= _us(2026, 2, 2))  # type: ignore[operator]
    planned = [from_us(tick).day for tick in schedule.ticks(NOON, 2, anchor_us=0, key=key)]
    assert planned == [2, 4]  # those of the 1st and the 3rd, each after midnight


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Pacific/Apia"])
@pytest.mark.parametrize("rule", ["@every 1000d", "@yearly", "* * * * *", "0 0 29 2 *", "@daily"])
def test_time_ends_with_the_year_9999(rule: str, zone: str) -> None:
    schedule = Schedule.make(rule, timezone=zone, exclude=["9999-12-31", "9999-12-27", "0001-01-01", "0001-01-04"])
    late = _us(9999, 12, 30)
    assert schedule.next_after(late, anchor_us=0) is None
    assert schedule.next_after(2**63 - 1, anchor_us=0) is None
    last = schedule.latest_at(2**63 - 1, anchor_us=0)
    assert last is not None
    assert schedule.next_after(last, anchor_us=0) is None
    assert schedule.next_after(last - 1, anchor_us=0) == last
    assert schedule.latest_at(-(2**63), anchor_us=0) is None
    first = schedule.next_after(-(2**63), anchor_us=_us(1, 1, 1))
    assert first is not None
    assert schedule.latest_at(first, anchor_us=_us(1, 1, 1)) == first


@pytest.mark.parametrize(
    "rules, options, text",
    [
        (None, {}, "{}"),
        ("@hourly", {}, '{"rules":["@hourly"]}'),
        (
            ["0  9 * * MON", timedelta(hours=2)],
            {"timezone": "Europe/Berlin", "gap": "skip", "overlap": "twice", "jitter": "10s"},
            '{"rules":["0 9 * * mon","@every 2h"],"timezone":"Europe/Berlin","jitter_us":10000000,'
            '"gap":"skip","overlap":"twice"}',
        ),
        (
            "@daily",
            {"start": from_us(5), "until": from_us(9), "exclude": ["2026-12-25", "2026-01-01", "2026-01-01"]},
            '{"rules":["@daily"],"start_us":5,"until_us":9,"exclude":["2026-01-01","2026-12-25"]}',
        ),
    ],
)
def test_a_schedule_is_stored_briefly_and_comes_back_equal(rules: Any, options: dict[str, Any], text: str) -> None:
    schedule = Schedule.make(rules, **options)
    assert schedule.to_json() == text
    assert Schedule.from_json(text) == schedule
    assert hash(Schedule.from_json(text)) == hash(schedule)
    assert copy.deepcopy(schedule) == schedule
    assert Schedule.from_json(text) is Schedule.from_json(text)


def test_the_constructor_makes_canonical_too() -> None:
    assert Schedule(("@Hourly", "@hourly"), exclude=("2026-12-25", "2026-01-01")) == Schedule.make(
        "@hourly", exclude=["2026-01-01", "2026-12-25"]
    )


def test_schedules_are_not_loaded_before_they_are_needed_nor_zones_before_one_is_named() -> None:
    program = (
        "import sys, duly\n"
        "print('duly.schedule' in sys.modules)\n"
        "from duly.schedule import Schedule\n"
        "Schedule.make('@hourly').next_after(0, anchor_us=0)\n"
        "print([name for name in ('cronsim', 'zoneinfo', 'difflib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split("\n")[:2] == ["False", "[]"]


ZONES = st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/St_Johns"])
RULES = st.one_of(EXPRESSIONS, st.integers(1, 10**6).map(lambda n: f"@every {n}ms"))


def possible(rule: str | timedelta) -> bool:
    """Whether a rule names any date at all: `* * */14 * fri#2` does not."""
    try:
        Schedule.make(rule)
    except InvalidSchedule:
        return False
    return True


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    start = draw(st.none() | st.datetimes(datetime(1990, 1, 1), datetime(2020, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
    until = draw(st.none() | st.datetimes(datetime(2021, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
    return Schedule.make(
        draw(st.lists(RULES.filter(possible), min_size=1, max_size=3)),
        timezone=draw(ZONES),
        start=start,
        until=until,
        exclude=draw(st.lists(st.dates(date(1990, 1, 1), date(2030, 1, 1)), max_size=3)),
        jitter=draw(st.sampled_from(["0s", "10s", "1h", "3d"])),
        gap=draw(st.sampled_from(["next", "skip"])),
        overlap=draw(st.sampled_from(["first", "twice"])),
    )


INSTANTS = st.integers(_us(1985, 1, 1), _us(2045, 1, 1))


@settings(deadline=None)  # a busy machine is no failure
@given(schedules(), INSTANTS, INSTANTS, st.text(max_size=5))
@pytest.mark.requirement("C6")
def test_ticks_strictly_increase_and_the_latest_is_the_inverse_of_the_next(
    schedule: Schedule, instant: int, anchor: int, key: str
) -> None:
    assert Schedule.from_json(schedule.to_json()) == schedule
    ticks = schedule.ticks(instant, 5, anchor_us=anchor, key=key)
    assert all(tick < later for tick, later in zip([instant, *ticks], ticks, strict=False))
    for tick, later in pairwise(ticks):
        assert schedule.latest_at(tick, anchor_us=anchor, key=key) == tick
        assert schedule.latest_at(later - 1, anchor_us=anchor, key=key) == tick
        assert schedule.next_after(tick - 1, anchor_us=anchor, key=key) == tick
    latest = schedule.latest_at(instant, anchor_us=anchor, key=key)
    if latest is not None:
        assert latest <= instant
        assert schedule.next_after(latest - 1, anchor_us=anchor, key=key) == latest
        following = schedule.next_after(latest, anchor_us=anchor, key=key)
        assert following == (ticks[0] if ticks else None)
