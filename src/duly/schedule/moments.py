"""The instants of a cron expression in a time zone: where readings of the wall clock meet gaps and overlaps.

`made_up`: a reading that falls in a gap stands for the instant right after the gap; otherwise it is left out.
`twice`: a reading that comes twice counts both times; otherwise the first time.

The map from readings to instants never runs backwards as long as `twice` is off, so that one search is enough; with it,
the second pass through an overlap is looked at on its own. Whole seconds throughout.
"""

from __future__ import annotations

from duly.schedule.cron import Cron
from duly.schedule.zones import Zone


def first_after(cron: Cron, zone: Zone | None, after: int, *, made_up: bool, twice: bool) -> int | None:
    """Return the first instant of `cron` that is after `after`."""
    if zone is None:
        return cron.reading_from(after + 1)
    reading, fold = zone.read(after)
    start = reading + 1
    if fold and not twice:
        start = zone.overlap(reading)[1]  # all readings of the overlap had their turn in the first pass
    elif twice and not fold:
        again = _first_of_second_pass(cron, zone, reading)
        if again is not None:
            return again
    while True:
        found = cron.reading_from(start)
        if found is None:
            return None
        first, second = zone.instants(found)
        if first <= second:
            return first if first > after else second
        turn = zone.turn(second, first)
        if made_up:
            return turn
        start = turn + found - second


def _first_of_second_pass(cron: Cron, zone: Zone, reading: int) -> int | None:
    """Return the next instant if `reading` is in the first pass of an overlap and the next is in the second pass."""
    first, second = zone.instants(reading)
    if first >= second:
        return None
    start, end = zone.overlap(reading)
    found = cron.reading_from(reading + 1)
    if found is not None and found < end:
        return None
    again = cron.reading_from(start)
    return again + second - reading if again is not None and again < end else None


def last_at(cron: Cron, zone: Zone | None, at: int, *, made_up: bool, twice: bool) -> int | None:
    """Return the last instant of `cron` that is not after `at`."""
    if zone is None:
        return cron.reading_until(at)
    reading, fold = zone.read(at)
    limit = reading
    if fold:
        start, end = zone.overlap(reading)
        found = cron.reading_until(reading) if twice else None
        if found is not None and found >= start:
            return found + at - reading
        limit = end - 1
    while True:
        found = cron.reading_until(limit)
        if found is None:
            return None
        first, second = zone.instants(found)
        if first <= second:
            return second if twice and second <= at else first
        turn = zone.turn(second, first)
        if made_up:
            return turn
        limit = turn + found - first - 1
