"""Counts from any thread, without losing any."""

from __future__ import annotations

import threading


class Tally:
    """A number that grows."""

    __slots__ = ("_lock", "n")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.n = 0

    def add(self, n: int = 1) -> None:
        """Count."""
        with self._lock:
            self.n += n
