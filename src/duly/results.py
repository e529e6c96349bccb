"""Waits for jobs to end: one look at the database for all that wait, less and less often.

A worker in this process tells at once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable

from duly.domain.errors import DulyError
from duly.store.store import Store

FIRST_LOOK = 0.01
LAST_LOOK = 0.5
CHECK_EVERY = 30.0
GONE = "gone"

Tell = Callable[[str], None]


class Waiters:
    """Who waits for which job. A thread looks while anybody waits, and ends when nobody does."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Tell]] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pause = FIRST_LOOK
        self._next_look = 0.0

    def add(self, job_id: str, tell: Tell) -> None:
        """Call `tell(state)` once when the job has ended, or `tell("gone")` when it is no longer there."""
        if self._pid != os.getpid():  # a forked child: its parent's thread and those who wait are not here
            self._reset()
        with self._lock:
            self._waiting.setdefault(job_id, []).append(tell)
            self._pause = FIRST_LOOK
            self._next_look = min(self._next_look, time.monotonic() + FIRST_LOOK)
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name="duly-results", daemon=True)
                self._thread.start()
        self._wake.set()

    def remove(self, job_id: str, tell: Tell) -> None:
        """Stop waiting."""
        with self._lock:
            others = [each for each in self._waiting.get(job_id, []) if each is not tell]
            if others:
                self._waiting[job_id] = others
            else:
                self._waiting.pop(job_id, None)
            nobody = not self._waiting
        if nobody:
            self._wake.set()

    def ended(self, over: Iterable[tuple[str, str]]) -> None:
        """A worker of this process has settled jobs."""
        if not self._waiting:
            return
        for job_id, state in over:
            with self._lock:
                told = self._waiting.pop(job_id, ())
            for tell in told:
                tell(state)

    def wait(self, job_id: str, timeout: float | None) -> str | None:
        """Wait until a job has ended. Returns how, or None if the time is up."""
        over = threading.Event()
        answer: list[str] = []

        def tell(state: str) -> None:
            answer.append(state)
            over.set()

        self.add(job_id, tell)
        try:
            over.wait(timeout)
        finally:
            self.remove(job_id, tell)
        return answer[0] if answer else None

    def _main(self) -> None:
        next_check = time.monotonic() + CHECK_EVERY
        while True:
            now = time.monotonic()
            with self._lock:
                ids = list(self._waiting)
                if not ids:
                    self._thread = None
                    return
                left = self._next_look - now
                if left <= 0:
                    self._pause = min(self._pause * 1.5, LAST_LOOK)
                    self._next_look = now + self._pause
            if left > 0:
                self._wake.wait(left)
                self._wake.clear()
                continue
            try:
                self.ended(self._store().ended_among(ids).items())
                if now >= next_check:
                    next_check = now + CHECK_EVERY
                    self.ended([(job_id, GONE) for job_id in ids if self._store().get(job_id) is None])
            except DulyError:
                continue  # the next look comes, less and less often
