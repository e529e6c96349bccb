"""Tells when a worker process should make room for a fresh one: after so many jobs, or above so much memory.

recycle = Recycle(worker, max_jobs=1000, max_memory=500)
while not recycle.ready():          # stops claiming when a limit is reached, then waits for what runs
    ...
worker.stop()
sys.exit(RECYCLE)                   # a supervisor starts another at once
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a supervisor reads the exit code from here and needs no worker
    from duly.worker.worker import Worker

log = logging.getLogger("duly.worker")

RECYCLE = 75
"""The exit code by which a worker process asks to be started again."""
LOOK_EVERY = 1.0


class Recycle:
    """Watches one worker. Nothing that runs is cut short: there is no hurry."""

    def __init__(self, worker: Worker, *, max_jobs: int | None = None, max_memory: float | None = None) -> None:
        self._worker = worker
        self._max_jobs = max_jobs
        self._max_memory = max_memory
        self._next_look = 0.0
        self.reason: str | None = None
        """Which limit was reached, once one was."""

    def ready(self) -> bool:
        """Whether a limit was reached and nothing runs any more. Cheap; to be called now and then."""
        if self.reason is None:
            self.reason = self._reached()
            if self.reason is None:
                return False
            log.info("%s: no new jobs; a fresh process goes on when those that run have ended", self.reason)
            self._worker.retire()
        return self._worker.idle

    def _reached(self) -> str | None:
        if self._max_jobs is not None and self._worker.claimed >= self._max_jobs:
            return f"{self._worker.claimed} jobs claimed"
        now = time.monotonic()
        # One that has done nothing yet is not replaced: a limit below what it starts with would replace it for ever.
        if self._max_memory is None or now < self._next_look or not self._worker.settled:
            return None
        self._next_look = now + LOOK_EVERY
        used = resident_mb()
        return f"{used:.0f} MB of memory used" if used > self._max_memory else None


def resident_mb() -> float:
    """Return how much memory this process uses now, or the most it has used where only that is known."""
    return resident_bytes() / 2**20


def resident_bytes() -> int:
    """The same in bytes. It costs one small read."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 2**10
