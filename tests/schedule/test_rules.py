"""Rules: what can be written, its canonical text, and the days and times that it names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st

from duly.domain.clock import from_us, to_us
from duly.domain.errors import InvalidSchedule
from duly.schedule import Schedule
from tests.schedule.oracle import Generator

NOON = to_us(datetime(2026, 2, 1, 12, tzinfo=UTC), "noon")  # a Sunday


def _first(rule: str, n: int = 3) -> list[str]:
    schedule = Schedule.make(rule)
    return [from_us(tick).strftime("%Y-%m-%d %H:%M:%S") for tick in schedule.ticks(NOON, n, anchor_us=NOON)]


@pytest.mark.parametrize(
    "rule, ticks",
    [
        ("@yearly", ["2027-01-01 00:00:00", "2028-01-01 00:00:00"]),
        ("@annually", ["2027-01-01 00:00:00", "2028-01-01 00:00:00"]),
        ("@monthly", ["2026-03-01 00:00:00", "2026-04-01 00:00:00"]),
        ("@weekly", ["2026-02-08 00:00:00", "2026-02-15 00:00:00"]),
        ("@daily", ["2026-02-02 00:00:00", "2026-02-03 00:00:00"]),
        ("@midnight", ["2026-02-02 00:00:00", "2026-02-03 00:00:00"]),
        ("@hourly", ["2026-02-01 13:00:00", "2026-02-01 14:00:00"]),
        ("@every 1h30m", ["2026-02-01 13:30:00", "2026-02-01 15:00:00"]),
        ("@every 90s", ["2026-02-01 12:01:30", "2026-02-01 12:03:00"]),
        ("@every 1d", ["2026-02-02 12:00:00", "2026-02-03 12:00:00"]),
        ("*/5 * * * *", ["2026-02-01 12:05:00", "2026-02-01 12:10:00"]),
        ("*/20 * * * * *", ["2026-02-01 12:00:20", "2026-02-01 12:00:40"]),
        ("59 59 23 31 12 *", ["2026-12-31 23:59:59", "2027-12-31 23:59:59"]),
        ("0 9 * * mon-fri", ["2026-02-02 09:00:00", "2026-02-03 09:00:00"]),
        ("0 9 * * sat-sun", ["2026-02-07 09:00:00", "2026-02-08 09:00:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
        ("0 0 L * *", ["2026-02-28 00:00:00", "2026-03-31 00:00:00"]),
        ("0 0 LW * *", ["2026-02-27 00:00:00", "2026-03-31 00:00:00"]),
        ("0 0 * * fri#2", ["2026-02-13 00:00:00", "2026-03-13 00:00:00"]),
        ("0 0 * * 5L", ["2026-02-27 00:00:00", "2026-03-27 00:00:00"]),
        ("0 0 * * friL", ["2026-02-27 00:00:00", "2026-03-27 00:00:00"]),
        ("0 0 13 * fri", ["2026-02-06 00:00:00", "2026-02-13 00:00:00"]),  # either
        ("0 0 */13 * fri", ["2026-02-27 00:00:00", "2026-03-27 00:00:00"]),  # both, as one starts with *
        ("0 0 29 2 */7", ["2032-02-29 00:00:00", "2060-02-29 00:00:00"]),
        ("30 10/6 * * *", ["2026-02-01 16:30:00", "2026-02-01 22:30:00"]),
    ],
)
@pytest.mark.requirement("C6")
def test_a_rule_ticks_when_it_says(rule: str, ticks: list[str]) -> None:
    assert _first(rule, 2) == ticks


@pytest.mark.parametrize(
    "written, canonical",
    [
        ("  @Daily ", "@daily"),
        ("@EVERY 1H30M", "@every 1h30m"),
        ("@every 90m", "@every 1h30m"),
        ("@every 1h 30m", "@every 1h30m"),
        ("@every 14d", "@every 2w"),
        ("@every 1500us", "@every 1ms500us"),
        ("@every 5000µs", "@every 5ms"),
        ("@every 1000000ns", "@every 1ms"),
        ("0  9\t* *  MON-Fri", "0 9 * * mon-fri"),
        ("00 09 * JAN,feb 05", "0 9 * jan,feb 5"),
        ("0 0 lw * *", "0 0 LW * *"),
        ("0 0 * * FRIl", "0 0 * * friL"),
        ("0 0 * * Fri#2", "0 0 * * fri#2"),
        (timedelta(minutes=90), "@every 1h30m"),
        (timedelta(milliseconds=1), "@every 1ms"),
    ],
)
@pytest.mark.requirement("C6")
def test_case_and_blanks_are_made_canonical(written: str | timedelta, canonical: str) -> None:
    assert Schedule.make(written).rules == (canonical,)
    assert Schedule.make(canonical).rules == (canonical,)


def test_several_rules_tick_whenever_one_of_them_does_and_once_when_two_do() -> None:
    schedule = Schedule.make(["0 9 * * *", "0 */9 * * *", "0 9 * * *", timedelta(hours=11)])
    assert schedule.rules == ("0 9 * * *", "0 */9 * * *", "@every 11h")
    shown = [from_us(tick).strftime("%d %H") for tick in schedule.ticks(NOON, 6, anchor_us=NOON)]
    assert shown == ["01 18", "01 23", "02 00", "02 09", "02 10", "02 18"]


def test_without_rules_there_is_no_tick() -> None:
    for schedule in (Schedule.make(None), Schedule.make([])):
        assert schedule.rules == ()
        assert schedule.next_after(NOON, anchor_us=0) is None
        assert schedule.latest_at(NOON, anchor_us=0) is None
        assert schedule.ticks(NOON, 5, anchor_us=0) == []


@pytest.mark.requirement("C6")
def test_agrees_with_cronsim_where_no_clock_is_moved() -> None:
    generator = Generator("UTC", [], seed=3)
    start = datetime(2024, 2, 28, 23, 59, 59, tzinfo=UTC)
    for number in range(300):
        expression = generator.case(seconds=number % 3 == 0).expression
        schedule = Schedule.make(expression)
        other, reverse = CronSim(expression, start), CronSim(expression, start, reverse=True)
        assert schedule.ticks(to_us(start, "start"), 20, anchor_us=0) == [to_us(next(other), "") for _ in range(20)]
        at = to_us(start, "start")
        for _ in range(20):
            found = schedule.latest_at(at - 1, anchor_us=0)
            assert found == to_us(next(reverse), "")
            at = found


@settings(deadline=None)  # a busy machine is no failure
@given(st.text(alphabet="0123456789*/,-#LWlw@ ?monfrijaevy", max_size=30))
def test_any_text_is_read_or_refused_and_what_is_read_can_be_told(text: str) -> None:
    read = _read(text)
    if isinstance(read, InvalidSchedule):
        assert read.text == text
        assert read.position is None or 0 <= read.position <= len(text)
    else:
        assert read.describe()
        assert Schedule.make(read.rules) == read


def _read(text: str) -> Schedule | InvalidSchedule:
    try:
        return Schedule.make(text)
    except InvalidSchedule as error:
        return error


def _field(low: int, high: int, *extra: str) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    pair = st.tuples(value, value).map(sorted)
    step = st.integers(1, high)
    term = st.one_of(
        st.just("*"),
        value.map(str),
        pair.map(lambda two: f"{two[0]}-{two[1]}"),
        step.map(lambda n: f"*/{n}"),
        st.tuples(value, step).map(lambda two: f"{two[0]}/{two[1]}"),
        st.tuples(pair, step).map(lambda two: f"{two[0][0]}-{two[0][1]}/{two[1]}"),
        *([st.sampled_from(extra)] if extra else []),
    )
    return st.lists(term, min_size=1, max_size=3).map(",".join)


EXPRESSIONS = st.tuples(
    _field(0, 59),
    _field(0, 23),
    _field(1, 28, "L", "LW"),
    _field(1, 12, "jan", "mar-jul"),
    _field(0, 7, "mon", "fri#2", "5L", "sunL", "fri-sun", "7#5"),
).map(" ".join)


@settings(deadline=None)  # a busy machine is no failure
@given(EXPRESSIONS)
@example("* * */14 * fri#2")  # the second Friday is never the 1st, 15th or 29th
def test_whatever_is_well_formed_is_read_and_can_be_told(expression: str) -> None:
    """Or refused, if no day is ever both what it asks of the day of the month and of the weekday."""
    schedule = _read(expression)
    if isinstance(schedule, InvalidSchedule):
        assert "there is no such date" in str(schedule)
        assert next(CronSim(expression.replace("sunL", "0L"), from_us(NOON)), None) is None
        return
    assert schedule.rules == (expression,)
    assert schedule.describe()
    tick = schedule.next_after(NOON, anchor_us=0)
    assert tick is not None
    assert tick > NOON
