"""The one clock. Everything that needs the time or must sleep is given it; tests move it by hand.

`now_us` is wall time for people and schedules; `lease_us` never steps and counts while the machine sleeps, so that a
lease cannot be lost or won by setting the wall clock.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from duly.domain.errors import InvalidOption
from duly.domain.text import safe_repr

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Where the time comes from. `manual` says that it is moved by hand, so the server's must not be used."""

    manual: bool

    def now_us(self) -> int:
        """Microseconds since the epoch, UTC."""
        ...

    def lease_us(self) -> int:
        """Microseconds on a clock that never steps, the same for all processes of this boot."""
        ...


class SystemClock:
    """The machine's clocks."""

    manual = False

    def now_us(self) -> int:
        """Microseconds since the epoch, UTC."""
        return time.time_ns() // 1_000

    def lease_us(self) -> int:
        """Microseconds since boot, sleep included where the system can tell."""
        if _BOOTTIME is not None:
            return time.clock_gettime_ns(_BOOTTIME) // 1_000
        return time.monotonic_ns() // 1_000


def to_us(moment: datetime, what: str) -> int:
    """Turn an aware datetime into microseconds since the epoch; refuse a naive one."""
    if not isinstance(moment, datetime):
        raise InvalidOption(f"{what} must be a datetime with a time zone, not {safe_repr(moment)}.", option=what)
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidOption(
            f"{what} {moment.isoformat()} has no time zone. Use an aware datetime, e.g. datetime.now(timezone.utc)",
            option=what,
        )
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_us(value: int) -> datetime:
    """Turn microseconds since the epoch into an aware datetime, UTC."""
    return _EPOCH + timedelta(microseconds=value)
