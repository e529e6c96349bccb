"""What one worker process counts about itself, for its own metrics. Cheap: batches, not jobs, where that will do."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple

LATENESS: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0)
"""Where the buckets of lateness end, in seconds; the last one has no end."""


class Lateness:
    """How late recurring jobs start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(LATENESS) + 1)
        self._sum = 0.0

    def add(self, seconds: Iterable[float]) -> None:
        """Note how late some started."""
        with self._lock:
            for each in seconds:
                self._counts[bisect_left(LATENESS, each)] += 1
                self._sum += each

    def read(self) -> tuple[list[int], float]:
        """How many were so late, by bucket, and how late all were together."""
        with self._lock:
            return list(self._counts), self._sum


class Figures(NamedTuple):
    """How a worker stands."""

    state: str
    slots: dict[str, int]
    busy: int
    claimed: int
    settled: int
    refused: int
    """Ends of runs that had lost their lease, and so were not recorded."""
    rescued: int
    """Runs of others, whose worker was gone, that this one rescued."""
    calls: int
    """Statements sent to the database."""
    lateness: tuple[list[int], float]
