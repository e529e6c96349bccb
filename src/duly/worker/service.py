"""The loop that every background duty shares: step, wait, be woken, survive any error, stop.

`step()` returns how many seconds until it wants to be called next. Looping, waking, backing off, logging and stopping
are written here, once.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable

log = logging.getLogger("duly.worker")

STUCK_SECONDS = 120.0
"""A step that takes longer than this does not turn any more: longer than any wait for a database that is away."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0


class Service:
    """A named thread that calls `step` again and again until stopped. An error pauses it, never ends it."""

    def __init__(
        self, name: str, step: Callable[[], float], *, on_error: Callable[[Exception], None] | None = None
    ) -> None:
        self.name = name
        self._step = step
        self._on_error = on_error
        self._wake = threading.Event()
        self._stop = False
        self._pause = FIRST_PAUSE
        self._failing = False
        self._turn_by = math.inf
        """When the step under way should have ended, or the next one begun."""
        self._thread = threading.Thread(target=self._main, name=f"duly-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Have the next step now."""
        if not self._wake.is_set():
            self._wake.set()

    @property
    def stuck(self) -> bool:
        """Whether its thread has ended, or does not turn, though nobody stopped it."""
        if self._stop or self._thread.ident is None:
            return False
        return not self._thread.is_alive() or time.monotonic() > self._turn_by

    @property
    def stopping(self) -> bool:
        """Whether it has been told to stop."""
        return self._stop

    def tell(self) -> None:
        """Tell it to stop, and wait for nothing."""
        self._stop = True
        self._wake.set()

    def stop(self, timeout: float = 10.0) -> None:
        """Tell it to stop and wait for the step under way."""
        self.tell()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _main(self) -> None:
        while not self._stop:
            self._turn_by = time.monotonic() + STUCK_SECONDS
            try:
                wait = self._step()
                self._pause, self._failing = FIRST_PAUSE, False
            except Exception as error:
                wait = self._failed(error)
            self._turn_by = time.monotonic() + wait + STUCK_SECONDS
            if wait > 0 and not self._stop:
                self._wake.wait(wait)
            self._wake.clear()

    def _failed(self, error: Exception) -> float:
        """Say it once, then pause longer and longer, with jitter so that many workers do not return together."""
        level = logging.DEBUG if self._failing else logging.WARNING
        log.log(level, "%s: %s; going on", self.name, error, exc_info=not self._failing)
        self._failing = True
        if self._on_error is not None:
            self._on_error(error)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return self._pause * (0.5 + random.random() / 2)
