"""Sends hints after commits: at once when they are rare, a few together from a thread when they come in a burst.

Every hint is sent after the commit it is about, so a worker that fell asleep meanwhile is not missed. In a burst one
hint stands for all that are alike.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable

from duly.store.database import Hint

RARE = 0.005
TOGETHER = 0.001
LINGER = 0.5
MOST = 16


class Poker:
    """Sends hints, at most about a thousand times a second. `send` must not raise."""

    def __init__(self, send: Callable[[Hint], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._pending: dict[Hint, Hint] = {}
        """By all that a hint says but the rank: of those that differ in nothing else the lowest is told."""
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._last = 0.0
        self._closed = False

    def poke(self, hint: Hint) -> None:
        """Send a hint now, or with others in a moment."""
        now = time.monotonic()
        if now - self._last > RARE and not self._pending:
            self._last = now
            self._send(hint)
            return
        self._last = now
        with self._lock:
            alike = hint._replace(rank=None)
            self._pending[alike] = _lower(hint, self._pending.get(alike, hint))
            if self._thread is None:
                self._start()
        if not self._wake.is_set():
            self._wake.set()

    def _start(self) -> None:
        self._closed = False
        self._thread = threading.Thread(target=self._main, name="duly-poker", daemon=True)
        atexit.register(self.close)
        self._thread.start()

    def _main(self) -> None:
        while True:
            called = self._closed or self._wake.wait(LINGER)  # a close may have come while we sent
            self._wake.clear()
            with self._lock:
                hints = list(self._pending.values())
                self._pending.clear()
                if not hints and (self._closed or not called):
                    self._thread = None
                    break
            for hint in hints if len(hints) <= MOST else [Hint("look")]:
                self._send(hint)
            time.sleep(TOGETHER)
        atexit.unregister(self.close)

    def close(self) -> None:
        """Send what waits and end the thread."""
        thread = self._thread
        self._closed = True
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2.0)


def _lower(one: Hint, other: Hint) -> Hint:
    """Of two hints about one lane the one that stands for both: where no rank is known, there must be a look."""
    if one.rank is None or other.rank is None:
        return one if one.rank is None else other
    return one if one.rank < other.rank else other
