"""Knows how long a database has been in reach without a break worth the name."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple

KEPT = 256
"""How many breaks are remembered; where there were more, contact is taken to begin with the oldest of them."""


class _Break(NamedTuple):
    """From the last answer before an error until the first after it."""

    since: float
    until: float


class Contact:
    """What is told of each answer and each error. Any thread may tell: the last word counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """That a break is over and that it was are one word: who asked in between would see no break."""
        self._breaks: deque[_Break] = deque(maxlen=KEPT)
        self._heard: float | None = None
        self._failed = True
        self.clock = time.monotonic

    def answered(self) -> None:
        """The database has done what it was asked."""
        with self._lock:
            now = self.clock()
            if self._failed:
                self._failed = False
                self._breaks.append(_Break(0.0 if self._heard is None else self._heard, now))
            self._heard = now

    def failed(self) -> None:
        """It could not be reached."""
        self._failed = True

    def unbroken_us(self, tolerated_us: int) -> int:
        """How long it has been in reach, in microseconds, where breaks up to `tolerated_us` do not count."""
        with self._lock:
            if self._failed:
                return 0
            breaks = list(self._breaks)
        since = breaks[0].until
        for each in breaks[1:]:
            if each.until - each.since > tolerated_us / 1e6:
                since = each.until
        return int((self.clock() - since) * 1_000_000)
