"""Periods of time by the calendar: the hours, days or months between two instants, in a time zone.

Usage is counted by whole hours of UTC, so every period must begin on one; where it does not, that is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from typing import Final, Literal

from duly.domain.clock import from_us
from duly.domain.errors import InvalidOption

Period = Literal["hour", "day", "month"]
HOUR_US: Final = 3_600_000_000
MOST: Final = 10_000


def whole_hours(since_us: int, until_us: int) -> tuple[int, int]:
    """Widen a span to whole hours of UTC."""
    return since_us - since_us % HOUR_US, until_us + -until_us % HOUR_US


def begin_of(period: Period, us: int, zone: tzinfo) -> int:
    """When the period began in which an instant lies."""
    if period == "hour":
        return us - us % HOUR_US
    local = from_us(us).astimezone(zone)
    return _instant(local.year, local.month, local.day if period == "day" else 1, zone)


def periods(period: Period | None, since_us: int, until_us: int, zone: tzinfo) -> list[int]:
    """When the periods of a span begin; the first with the span itself."""
    if period is None or since_us >= until_us:
        return [since_us]
    found = [since_us]
    begin = begin_of(period, since_us, zone)
    _check_whole(begin, zone)
    for at in _following(period, begin, zone):
        if at >= until_us:
            return found
        _check_whole(at, zone)
        found.append(at)
        if len(found) > MOST:
            raise InvalidOption(
                f"that would be more than {MOST:,} periods. Ask for fewer: a later since, or longer periods"
            )
    return found


def _following(period: Period, begin: int, zone: tzinfo) -> Iterator[int]:
    if period == "hour":
        while True:
            begin += HOUR_US
            yield begin
    day = from_us(begin).astimezone(zone).date()
    while True:
        day = day + timedelta(days=1) if period == "day" else (day.replace(day=28) + timedelta(days=4)).replace(day=1)
        yield _instant(day.year, day.month, day.day, zone)


def _instant(year: int, month: int, day: int, zone: tzinfo) -> int:
    """When a day begins; where its midnight is left out, at the first moment after."""
    return round(datetime(year, month, day, tzinfo=zone).timestamp()) * 1_000_000


def _check_whole(at: int, zone: tzinfo) -> None:
    offset = from_us(at).astimezone(zone).utcoffset() or timedelta(0)
    if offset % timedelta(hours=1):
        raise InvalidOption(
            f"time zone {zone} is not whole hours from UTC, and usage is counted by the hours of UTC. "
            "Use one that is, such as UTC"
        )
