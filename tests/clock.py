"""What tests of the store do to `duly.testing.TestClock` that applications never need to."""

from __future__ import annotations

from datetime import timedelta

from duly.testing import TestClock


class TickingClock(TestClock):
    """Moves on by one microsecond at every look, as a real one does between two statements."""

    def now_us(self) -> int:
        self._now += 1
        return self._now


def set_wall_clock(clock: TestClock, by: timedelta) -> None:
    """Someone sets the machine's clock: wall time jumps, lease time does not."""
    clock._now += us(by)


def boot(clock: TestClock, uptime: timedelta) -> None:
    """The machine was booted `uptime` ago, and the lease clock began anew."""
    clock._lease = us(uptime)


def us(span: timedelta | float) -> int:
    """Microseconds of a timedelta or of a number of seconds."""
    return span // timedelta(microseconds=1) if isinstance(span, timedelta) else round(span * 1_000_000)
