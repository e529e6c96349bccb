"""A clock that stands still until a test moves it, so that tests never sleep to make time pass."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2100, 1, 1, tzinfo=UTC)  # later than any server started: a lease can have lapsed since


class ManualClock:
    """Implements `duly.domain.clock.Clock`. Wall time and lease time move together unless told otherwise."""

    manual = True

    def __init__(self, start: datetime = START) -> None:
        self.now = self.lease = int(start.timestamp()) * 1_000_000

    def now_us(self) -> int:
        return self.now

    def lease_us(self) -> int:
        return self.lease

    def advance(self, span: timedelta | float) -> None:
        """Let time pass: a timedelta, or seconds."""
        microseconds = us(span)
        self.now += microseconds
        self.lease += microseconds

    def set_wall_clock_back(self, span: timedelta | float) -> None:
        """Someone sets the machine's clock: wall time jumps, lease time does not."""
        self.now -= us(span)


class TickingClock(ManualClock):
    """Moves on by one microsecond at every look, as a real one does between two statements."""

    def now_us(self) -> int:
        self.now += 1
        return self.now


def us(span: timedelta | float) -> int:
    """Microseconds of a timedelta or of a number of seconds."""
    return span // timedelta(microseconds=1) if isinstance(span, timedelta) else round(span * 1_000_000)
