"""A clock that stands still until a test moves it, so that tests never sleep to make time pass."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from duly.domain.clock import from_us, to_us
from duly.domain.durations import micros, to_timedelta

START = datetime(2100, 1, 1, tzinfo=UTC)
"""The same in every test run, and later than now: a `run_at` taken from the real clock is due."""


class TestClock:
    """A `Clock` moved by hand. With `Duly(url, clock=clock)` every time in the database comes from it.

    On PostgreSQL too. Workers sleep by the real clock and are not woken when this one moves: use `drain`.
    """

    __test__: ClassVar[bool] = False  # pytest: not a class of tests
    manual = True

    def __init__(self, start: datetime = START) -> None:
        self._now = self._lease = to_us(start, "start")
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<TestClock {self.now().isoformat()}>"

    def now(self) -> datetime:
        """What time it is, UTC."""
        return from_us(self.now_us())

    def advance(self, by: timedelta | float | str) -> datetime:
        """Let time pass: a timedelta, seconds, or text like "5m". Returns what time it is then."""
        passed = micros(to_timedelta(by, "by"))
        with self._lock:
            self._now += passed
            self._lease += passed
        return self.now()

    def move_to(self, moment: datetime) -> datetime:
        """Let time pass until `moment`. To an earlier one the clock is set back, and leases go on."""
        moment_us = to_us(moment, "moment")
        with self._lock:
            self._lease += max(0, moment_us - self._now)
            self._now = moment_us
        return self.now()

    # -- what duly asks ---------------------------------------------------------------------------------------

    def now_us(self) -> int:
        """Microseconds since the epoch, UTC."""
        return self._now

    def lease_us(self) -> int:
        """Microseconds on a clock that never goes back."""
        return self._lease
