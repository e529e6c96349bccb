"""The wall-clock readings that a cron expression names, found forwards and backwards.

A reading is a whole number of seconds since 1970-01-01 00:00 on the wall, whatever the zone: nothing here knows of
time zones (see `moments.py`) or of text (see `cron_text.py`).

Which days of a month match depends only on the weekday of its first and on its length, so there are 28 kinds of month.
Each kind is a bit mask, worked out when it is first met; a search is a shift and a look at the lowest or highest bit.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

DAY: Final = 86_400
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY: Final = date.min.toordinal() - _EPOCH_ORDINAL
_LAST_DAY: Final = date.max.toordinal() - _EPOCH_ORDINAL
_THURSDAY: Final = 3
_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """The days that match. Weekdays are 0 (Sunday) to 6; `nth` holds (weekday, 1 to 5, or 0 for the last one)."""

    days: frozenset[int]
    last: bool
    last_workday: bool
    weekdays: frozenset[int]
    nth: frozenset[tuple[int, int]]
    both: bool  # a day must match the day field and the weekday field, not just one of them

    def mask(self, first_weekday: int, length: int) -> int:
        """Return the matching days of a month as bits; `first_weekday` is 0 for Monday."""
        mask = 0
        for day in range(1, length + 1):
            weekday = (first_weekday + day) % 7
            in_days = day in self.days or (self.last and day == length)
            in_days = in_days or (self.last_workday and day == _last_workday(first_weekday, length))
            in_week = weekday in self.weekdays or (weekday, (day + 6) // 7) in self.nth
            in_week = in_week or (day + 7 > length and (weekday, 0) in self.nth)
            if (in_days and in_week) if self.both else (in_days or in_week):
                mask |= 1 << day
        return mask


class Cron:
    """One compiled expression. Immutable in effect: the masks are a memory of what was worked out."""

    __slots__ = ("_days", "_first", "_last", "_masks", "_minutes", "_months", "_seconds", "fixed", "text")

    def __init__(
        self,
        text: str,
        *,
        seconds: Iterable[int],
        minutes: Iterable[int],
        hours: Iterable[int],
        days: Days,
        months: Iterable[int],
        fixed: bool,
    ) -> None:
        self.text = text
        self.fixed = fixed
        """It names fixed times of day; otherwise it follows elapsed time (see the package's docstring)."""
        wanted = sorted(minutes)
        self._minutes = array("H", [hour * 60 + minute for hour in sorted(hours) for minute in wanted])
        self._seconds = tuple(sorted(seconds))
        self._first = self._minutes[0] * 60 + self._seconds[0]
        self._last = self._minutes[-1] * 60 + self._seconds[-1]
        self._days = days
        self._months = sum(1 << month for month in set(months))
        self._masks: list[int | None] = [None] * 28

    def ever_comes(self) -> bool:
        """Tell whether there is a matching day. In 400 years every month starts on each weekday, 29 February too."""
        lengths = {length for month in range(1, 13) if self._months >> month & 1 for length in _lengths(month)}
        return any(self._days.mask(weekday, length) for length in lengths for weekday in range(7))

    def reading_from(self, reading: int) -> int | None:
        """Return the first reading that matches and is not before `reading`, None after the year 9999."""
        day, second = divmod(reading, DAY)
        found = self.day_from(day)
        if found == day:
            time = self._time_from(second)
            if time is not None:
                return day * DAY + time
            found = self.day_from(day + 1)
        return None if found is None else found * DAY + self._first

    def reading_until(self, reading: int) -> int | None:
        """Return the last reading that matches and is not after `reading`, None before the year 1."""
        day, second = divmod(reading, DAY)
        found = self.day_until(day)
        if found == day:
            time = self._time_until(second)
            if time is not None:
                return day * DAY + time
            found = self.day_until(day - 1)
        return None if found is None else found * DAY + self._last

    def day_from(self, day: int) -> int | None:
        """Return the first matching day from `day` on, in days since 1970."""
        day = max(day, _FIRST_DAY)
        if day > _LAST_DAY:
            return None
        then = date.fromordinal(day + _EPOCH_ORDINAL)
        year, month = then.year, then.month
        first = day - then.day + 1
        rest = self._mask(first, year, month) >> then.day << then.day
        while not rest:
            first += _length(year, month)
            month += 1
            if month == 13:
                year, month = year + 1, 1
                if year > date.max.year:
                    return None
            rest = self._mask(first, year, month)
        return first + (rest & -rest).bit_length() - 2

    def day_until(self, day: int) -> int | None:
        """Return the last matching day up to `day`, in days since 1970."""
        day = min(day, _LAST_DAY)
        if day < _FIRST_DAY:
            return None
        then = date.fromordinal(day + _EPOCH_ORDINAL)
        year, month = then.year, then.month
        first = day - then.day + 1
        rest = self._mask(first, year, month) & ((2 << then.day) - 1)
        while not rest:
            month -= 1
            if month == 0:
                year, month = year - 1, 12
                if year < date.min.year:
                    return None
            first -= _length(year, month)
            rest = self._mask(first, year, month)
        return first + rest.bit_length() - 2

    def _mask(self, first: int, year: int, month: int) -> int:
        if not self._months >> month & 1:
            return 0
        length = _length(year, month)
        weekday = (first + _THURSDAY) % 7
        mask = self._masks[weekday * 4 + length - 28]
        if mask is None:
            mask = self._masks[weekday * 4 + length - 28] = self._days.mask(weekday, length)
        return mask

    def _time_from(self, second: int) -> int | None:
        minute, second = divmod(second, 60)
        at = bisect_left(self._minutes, minute)
        if at < len(self._minutes) and self._minutes[at] == minute:
            if second <= self._seconds[-1]:
                return minute * 60 + _at_least(self._seconds, second)
            at += 1
        return self._minutes[at] * 60 + self._seconds[0] if at < len(self._minutes) else None

    def _time_until(self, second: int) -> int | None:
        minute, second = divmod(second, 60)
        at = bisect_right(self._minutes, minute) - 1
        if at >= 0 and self._minutes[at] == minute:
            if second >= self._seconds[0]:
                return minute * 60 + _at_most(self._seconds, second)
            at -= 1
        return self._minutes[at] * 60 + self._seconds[-1] if at >= 0 else None


def _at_least(values: Sequence[int], value: int) -> int:
    return values[bisect_left(values, value)]


def _at_most(values: Sequence[int], value: int) -> int:
    return values[bisect_right(values, value) - 1]


def _lengths(month: int) -> tuple[int, ...]:
    return (28, 29) if month == 2 else (_LENGTHS[month],)


def _length(year: int, month: int) -> int:
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return 29
    return _LENGTHS[month]


def _last_workday(first_weekday: int, length: int) -> int:
    weekday = (first_weekday + length - 1) % 7
    return length - max(weekday - 4, 0)
