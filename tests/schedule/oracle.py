"""An oracle for schedules: reads the wall clock of every minute (or second) and matches it, field by field.

It shares nothing with what it judges: its own reading of expressions, its own way to find gaps and overlaps (the clock
jumps, the clock shows what it has shown before), and the standard library's zones. It is slow in nature and made
bearable by columns: one byte per minute and field, matched by table and joined by `&` on large integers.

`make oracle` judges ten years, minute by minute, in seven zones; the tests judge the days around every transition.
"""

from __future__ import annotations

import random
import sys
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import get_args
from zoneinfo import ZoneInfo

from duly.schedule import Schedule
from duly.schedule.options import Gap, Overlap

ZONES = (
    "America/New_York",
    "Europe/London",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Cairo",
    "Asia/Kolkata",
    "UTC",
)
FROM = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp())
TO = int(datetime(2030, 1, 1, tzinfo=UTC).timestamp())
_DAY = 86_400
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_RANGES = {"second": (0, 59), "minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 7)}
_COLUMNS = (*_RANGES, "nth", "last", "last_week", "last_workday")


def transitions(zone: str, start: int = FROM, end: int = TO) -> list[int]:
    """Return the hours (and half hours) at which the zone's offset has just changed."""
    tz = ZoneInfo(zone)
    found = []
    before = datetime.fromtimestamp(start, tz).utcoffset()
    for instant in range(start, end, 1800):
        offset = datetime.fromtimestamp(instant, tz).utcoffset()
        if offset != before:
            found.append(instant)
        before = offset
    return found


@dataclass(frozen=True, slots=True)
class _Gap:
    """Readings that never came: those from `first` up to `end`, found at the instant of index `at`."""

    at: int
    first: datetime
    end: datetime


class Grid:
    """The wall clock of a zone, read every `step` seconds of an interval."""

    def __init__(self, zone: str, start: int, end: int, step: int = 60) -> None:
        self.start, self.end, self.step = start, end, step
        columns = {name: bytearray() for name in _COLUMNS}
        self.ordinals = array("l")
        again = bytearray()
        self.gaps: list[_Gap] = []
        tz = ZoneInfo(zone)
        pace = timedelta(seconds=step)
        before = furthest = datetime.fromtimestamp(start, tz).replace(tzinfo=None) - pace
        for instant in range(start, end, step):
            reading = datetime.fromtimestamp(instant, tz).replace(tzinfo=None, fold=0)
            again.append(reading <= furthest)
            if reading > before + pace:
                self.gaps.append(_Gap(len(again) - 1, before + pace, reading))
            before, furthest = reading, max(furthest, reading)
            self._add(columns, reading)
        self.again = int.from_bytes(again, "big")
        self.columns = {name: bytes(column) for name, column in columns.items()}

    def _add(self, columns: dict[str, bytearray], reading: datetime) -> None:
        columns["second"].append(reading.second)
        columns["minute"].append(reading.minute)
        columns["hour"].append(reading.hour)
        ordinal, day, month, weekday, nth, last, last_week, last_workday = _of_date(reading.date())
        self.ordinals.append(ordinal)
        columns["day"].append(day)
        columns["month"].append(month)
        columns["weekday"].append(weekday)
        columns["nth"].append(nth)
        columns["last"].append(last)
        columns["last_week"].append(last_week)
        columns["last_workday"].append(last_workday)

    def ticks(self, expression: str, gap: Gap, overlap: Overlap, exclude: Iterable[str] = ()) -> list[int]:
        """Return the instants of an expression within the interval, in seconds."""
        fields = expression.split()
        minute, hour = fields[-5], fields[-4]
        fixed = not minute.startswith("*") and not hour.startswith("*")
        matching = _matching(self.columns, fields)
        if fixed and overlap == "first":
            matching &= ~self.again
        found = set(_indices(matching, len(self.ordinals)))
        if fixed and gap == "next":
            found.update(hole.at for hole in self.gaps if self._is_wanted(hole, fields))
        excluded = {date.fromisoformat(day).toordinal() for day in exclude}
        return [self.start + index * self.step for index in sorted(found) if self.ordinals[index] not in excluded]

    def _is_wanted(self, hole: _Gap, fields: list[str]) -> bool:
        columns = {name: bytearray() for name in _COLUMNS}
        ghost = Grid.__new__(Grid)
        ghost.ordinals = array("l")
        reading = hole.first
        while reading < hole.end:
            ghost._add(columns, reading)
            reading += timedelta(seconds=self.step)
        return _matching({name: bytes(column) for name, column in columns.items()}, fields) != 0


_DATES: dict[date, tuple[int, int, int, int, int, int, int, int]] = {}


def _of_date(day: date) -> tuple[int, int, int, int, int, int, int, int]:
    known = _DATES.get(day)
    if known is None:
        following = [day + timedelta(days=n) for n in range(1, 8)]
        later_workdays = [d for d in following if d.month == day.month and d.isoweekday() < 6]
        known = _DATES[day] = (
            day.toordinal(),
            day.day,
            day.month,
            day.isoweekday() % 7,
            (day.day - 1) // 7 + 1,
            following[0].month != day.month,
            following[6].month != day.month,
            day.isoweekday() < 6 and not later_workdays,
        )
    return known


def _matching(columns: dict[str, bytes], fields: list[str]) -> int:
    """Return an integer with a byte per reading, 1 where all fields match."""
    names = list(_RANGES)[-len(fields) :]
    by_name = dict(zip(names, fields, strict=True))
    result = _column(columns["second"], _values(by_name.get("second", "0"), "second"))
    for name in ("minute", "hour", "month"):
        result &= _column(columns[name], _values(by_name[name], name))
    days = weekdays = 0
    for term in by_name["day"].split(","):
        if term in ("L", "LW"):
            days |= int.from_bytes(columns["last" if term == "L" else "last_workday"], "big")
        else:
            days |= _column(columns["day"], _values(term, "day"))
    for term in by_name["weekday"].split(","):
        weekdays |= _weekday(columns, term)
    if by_name["day"].startswith("*") or by_name["weekday"].startswith("*"):
        return result & days & weekdays
    return result & (days | weekdays)


def _weekday(columns: dict[str, bytes], term: str) -> int:
    weekday, _, nth = term.removesuffix("L").partition("#")
    found = _column(columns["weekday"], {value % 7 for value in _values(weekday, "weekday")})
    if term.endswith("L"):
        found &= int.from_bytes(columns["last_week"], "big")
    return found & _column(columns["nth"], {int(nth)}) if nth else found


def _column(column: bytes, values: set[int]) -> int:
    return int.from_bytes(column.translate(bytes(value in values for value in range(256))), "big")


def _values(text: str, name: str) -> set[int]:
    low, high = _RANGES[name]
    found: set[int] = set()
    for term in text.split(","):
        body, _, step = term.partition("/")
        first, _, last = body.partition("-")
        if body == "*":
            bounds = low, high
        elif last:
            bounds = _number(first, name), _number(last, name)
        else:
            bounds = _number(first, name), high if step else _number(first, name)
        found.update(value for value in range(bounds[0], bounds[1] + 1) if (value - bounds[0]) % int(step or 1) == 0)
    return found


def _number(text: str, name: str) -> int:
    if text.isdigit():
        return int(text)
    return _MONTHS.index(text) + 1 if name == "month" else _WEEKDAYS.index(text)


def _indices(matching: int, length: int) -> Iterator[int]:
    data = matching.to_bytes(length, "big")
    at = data.find(1)
    while at >= 0:
        yield at
        at = data.find(1, at + 1)


@dataclass(frozen=True, slots=True)
class Case:
    """One generated schedule, in a zone."""

    zone: str
    expression: str
    gap: Gap
    overlap: Overlap
    exclude: tuple[str, ...]

    def schedule(self) -> Schedule:
        """Return it as what is to be judged."""
        return Schedule.make(
            self.expression, timezone=self.zone, gap=self.gap, overlap=self.overlap, exclude=self.exclude
        )


class Generator:
    """Makes up expressions: fixed and wildcard, mostly in the hours in which clocks are moved."""

    def __init__(self, zone: str, turns: list[int], seed: int = 0) -> None:
        self.random = random.Random(f"{zone} {seed}")
        self.zone = zone
        self.turns = turns

    def case(self, *, seconds: bool = False) -> Case:
        """Return the next schedule."""
        pick = self.random
        fields = [self._minute(), self._hour(), *self._date()]
        if seconds:
            fields.insert(0, pick.choice(["0", "30", "*/20", "59", "10-12", "5,50"]))
        exclude: tuple[str, ...] = ()
        if self.turns and pick.random() < 0.25:
            turn = datetime.fromtimestamp(pick.choice(self.turns), ZoneInfo(self.zone)).date()
            exclude = tuple(sorted({str(turn + timedelta(days=pick.randint(-1, 1))) for _ in range(2)}))
        return Case(self.zone, " ".join(fields), pick.choice(get_args(Gap)), pick.choice(get_args(Overlap)), exclude)

    def _minute(self) -> str:
        pick = self.random
        number = pick.choice([0, 1, 15, 29, 30, 31, 45, 59, pick.randrange(60)])
        kind = pick.random()
        if kind < 0.45:
            return str(number)
        if kind < 0.65:
            return ",".join(map(str, sorted({number, pick.randrange(60), pick.choice([0, 30])})))
        if kind < 0.75:
            return f"{min(number, 50)}-{min(number, 50) + pick.randint(1, 9)}/{pick.randint(1, 4)}"
        if kind < 0.80:
            return f"{number}/{pick.choice([7, 20])}"
        return f"*/{pick.choice([10, 15, 20, 30, 45])}" if kind < 0.97 else "*"

    def _hour(self) -> str:
        pick = self.random
        number = pick.choice([0, 0, 1, 1, 2, 2, 3, 23, pick.randrange(24)])
        kind = pick.random()
        if kind < 0.45:
            return str(number)
        if kind < 0.60:
            return ",".join(map(str, sorted({number, pick.randrange(24), pick.choice([0, 1, 2])})))
        if kind < 0.75:
            return f"{min(number, 20)}-{min(number, 20) + pick.randint(1, 3)}"
        if kind < 0.80:
            return f"{number}/{pick.choice([5, 6])}"
        return f"*/{pick.choice([2, 3, 5, 6, 12])}" if kind < 0.9 else "*"

    def _date(self) -> tuple[str, str, str]:
        pick = self.random
        day = month = weekday = "*"
        kind = pick.random()
        if kind < 0.10:
            day = pick.choice(["1", "29", "30", "31", "L", "LW", "1-7", "*/2", "8,L", "25-31/2"])
        elif kind < 0.25:
            weekday = pick.choice(["sun", "0", "7", "1-5", "mon-fri", "sat,sun", "0#1", "sun#2", "7L", "5L", "*/2"])
        elif kind < 0.32:
            day, weekday = pick.choice([("1-7", "sun"), ("*/3", "sun"), ("25-31", "*/6"), ("L", "0L"), ("13", "fri")])
        if pick.random() < 0.12:
            month = pick.choice(["3", "mar-apr", "10,11", "*/2", "9/1", "apr,sep"])
        return day, month, weekday


@dataclass(slots=True)
class Verdict:
    """What judging found: how many questions were asked, and the first wrong answer."""

    asked: int = 0
    wrong: str = ""


def judge(case: Case, grid: Grid, *, most: int | None = None, seed: int = 0) -> Verdict:
    """Compare a schedule with the oracle: every step from tick to tick, both ways, and instants in between.

    With more ticks than `most`, that many are picked, those next to a gap or overlap first of all.
    """
    verdict = Verdict()
    schedule = case.schedule()
    ticks = [tick * 1_000_000 for tick in grid.ticks(case.expression, case.gap, case.overlap, case.exclude)]
    first, last = grid.start * 1_000_000, grid.end * 1_000_000 - 1
    pick = random.Random(seed)
    chosen: Iterable[int] = range(len(ticks))
    if most is not None and len(ticks) > most:
        chosen = sorted({*_near_turns(case, ticks), *pick.sample(range(len(ticks)), most)})
    for index in chosen:
        before = ticks[index - 1] if index else first - 1
        _ask(verdict, case, "next_after", before, ticks[index], schedule.next_after(before, anchor_us=0))
        if index:
            at = ticks[index] - 1
            _ask(verdict, case, "latest_at", at, before, schedule.latest_at(at, anchor_us=0))
    for _ in range(30):
        instant = pick.randrange(first, last)
        at = bisect_right(ticks, instant)
        if at < len(ticks):
            _ask(verdict, case, "next_after", instant, ticks[at], schedule.next_after(instant, anchor_us=0))
        if at:
            _ask(verdict, case, "latest_at", instant, ticks[at - 1], schedule.latest_at(instant, anchor_us=0))
    after_all = schedule.next_after(ticks[-1] if ticks else first - 1, anchor_us=0)
    if after_all is not None and after_all <= last:
        _ask(verdict, case, "next_after", ticks[-1] if ticks else first - 1, None, after_all)
    return verdict


def _near_turns(case: Case, ticks: list[int]) -> Iterator[int]:
    for turn in transitions(case.zone):
        start = bisect_left(ticks, (turn - _DAY) * 1_000_000)
        yield from range(start, bisect_right(ticks, (turn + _DAY) * 1_000_000))


def _ask(verdict: Verdict, case: Case, verb: str, instant: int, expected: int | None, answer: int | None) -> None:
    verdict.asked += 1
    if answer != expected and not verdict.wrong:
        shown = [None if us is None else str(datetime.fromtimestamp(us / 1e6, UTC)) for us in (expected, answer)]
        at = datetime.fromtimestamp(instant / 1e6, UTC)
        verdict.wrong = f"{case}: {verb}({at}) is {shown[1]}, and the oracle says {shown[0]}"


def main(cases: int = 60, most: int = 200_000) -> int:
    """Judge ten years in every zone; return the exit code."""
    began = time.monotonic()
    wrong = asked = 0
    for zone in ZONES:
        grid = Grid(zone, FROM, TO)
        turns = transitions(zone)
        print(f"{zone}: {len(grid.ordinals):,} minutes, {len(turns)} transitions", flush=True)
        generator = Generator(zone, turns, seed=1)
        for number in range(cases):
            case = generator.case()
            verdict = judge(case, grid, most=most, seed=number)
            asked += verdict.asked
            if verdict.wrong:
                wrong += 1
                print(f"  WRONG {verdict.wrong}", flush=True)
            if number % 10 == 9:
                print(f"  {number + 1} expressions, {asked:,} answers, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{asked:,} answers, {wrong} expressions wrong, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
