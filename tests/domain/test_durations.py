"""Durations: what is read, what is refused and where, what is shown."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.durations import LONGEST, human, micros, to_timedelta
from duly.domain.errors import InvalidOption


@pytest.mark.parametrize(
    "value, expected",
    [
        ("30m", timedelta(minutes=30)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("1h 30m", timedelta(hours=1, minutes=30)),
        (" 1.5s ", timedelta(seconds=1.5)),
        (".5s", timedelta(milliseconds=500)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
        ("250ms", timedelta(milliseconds=250)),
        ("5us", timedelta(microseconds=5)),
        ("5µs", timedelta(microseconds=5)),
        ("5μs", timedelta(microseconds=5)),
        ("3000ns", timedelta(microseconds=3)),
        ("0.1s", timedelta(microseconds=100_000)),
        ("+1m", timedelta(minutes=1)),
        ("0", timedelta(0)),
        ("0s", timedelta(0)),
        (90, timedelta(seconds=90)),
        (0.25, timedelta(milliseconds=250)),
        (0, timedelta(0)),
        (timedelta(hours=2), timedelta(hours=2)),
    ],
)
@pytest.mark.requirement("C6")
def test_reads_numbers_as_seconds_and_text_by_its_units(value: float | str, expected: timedelta) -> None:
    assert to_timedelta(value, "delay") == expected


@pytest.mark.parametrize("value", ["1ns", "0.1us", 1e-9])
def test_a_duration_below_a_microsecond_is_never_silently_nothing(value: float | str) -> None:
    assert to_timedelta(value, "delay") == timedelta(microseconds=1)


@pytest.mark.parametrize(
    "text, position, reason",
    [
        ("", 1, "a number is missing"),
        ("-", 2, "a number is missing"),
        ("30", 3, "a unit is missing"),
        ("1h30", 5, "a unit is missing"),
        ("1h30x", 5, "unknown unit 'x'"),
        ("h", 1, "a number is expected"),
        ("1h,5m", 3, "a number is expected"),
        (".s", 1, "a number is expected"),
        ("5 m", 2, "a unit is missing"),
        ("1.2.3s", 4, "a unit is missing"),
        ("٣s", 1, "a number is expected"),
        ("1M", 2, "unknown unit 'M'"),
    ],
)
@pytest.mark.requirement("C6")
def test_unreadable_text_is_refused_with_name_value_position_and_reason(text: str, position: int, reason: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        to_timedelta(text, "every")
    message = str(caught.value)
    assert message.startswith("every ")
    assert repr(text) in message
    assert f"position {position}: {reason}" in message


@pytest.mark.parametrize(
    "value",
    [True, None, [], b"1s", float("nan"), float("inf"), 10**400, 1e300, "9" * 80 + "w", "1" * 5000 + "s"],
)
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(InvalidOption, match="delay"):
        to_timedelta(value, "delay")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1, -0.5, "-5m", timedelta(seconds=-1)])
def test_negative_is_refused_unless_allowed(value: float | str | timedelta) -> None:
    with pytest.raises(InvalidOption, match="delay must not be negative"):
        to_timedelta(value, "delay")
    assert to_timedelta(value, "delay", allow_negative=True) < timedelta(0)


def test_longer_than_a_thousand_years_is_refused() -> None:
    assert to_timedelta(LONGEST, "delay") == LONGEST
    with pytest.raises(InvalidOption, match="at most 365000 days"):
        to_timedelta(LONGEST + timedelta(microseconds=1), "delay")
    with pytest.raises(InvalidOption, match="at most 365000 days"):
        to_timedelta(timedelta.min, "delay", allow_negative=True)


@given(st.timedeltas())
def test_micros_is_exact(duration: timedelta) -> None:
    assert micros(duration) == duration // timedelta(microseconds=1)


@pytest.mark.parametrize(
    "duration, text",
    [
        (timedelta(0), "0s"),
        (timedelta(microseconds=7), "7us"),
        (timedelta(microseconds=1500), "1.5ms"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(seconds=1.5), "1.5s"),
        (timedelta(seconds=15), "15s"),
        (timedelta(seconds=59.9999), "59.999s"),
        (timedelta(minutes=1), "1m"),
        (timedelta(hours=1, minutes=30), "1h30m"),
        (timedelta(hours=1, seconds=59), "1h"),
        (timedelta(days=2, hours=3, minutes=4), "2d3h"),
        (timedelta(days=400), "400d"),
        (timedelta(minutes=-5), "-5m"),
    ],
)
def test_human_shows_the_two_largest_units(duration: timedelta, text: str) -> None:
    assert human(duration) == text


@given(st.timedeltas(min_value=timedelta(0), max_value=LONGEST))
def test_human_text_reads_back_as_no_more_and_not_much_less(duration: timedelta) -> None:
    back = to_timedelta(human(duration), "text")
    assert back <= duration <= back + max(back / 24, timedelta(microseconds=1))


@given(st.text(alphabet="0123456789.+- nuµmshdwx", max_size=12))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        duration = to_timedelta(text, "delay")
    except InvalidOption:
        return
    assert timedelta(0) <= duration <= LONGEST
