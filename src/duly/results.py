"""Waits for jobs to end: one look at the database for all that wait, less and less often; at once if a worker is in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from duly.domain.errors import DulyError
from duly.store.store import Store

FIRST_LOOK = 0.01
LAST_LOOK = 0.5

Tell = Callable[[str], None]


class Waiters:
    """Who waits for which job. A thread looks while anybody waits, and ends when nobody does."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Tell]] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pause = FIRST_LOOK

    def add(self, job_id: str, tell: Tell) -> None:
        """Call `tell(state)` once when the job has ended."""
        with self._lock:
            self._waiting.setdefault(job_id, []).append(tell)
            self._pause = FIRST_LOOK
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
        self._wake.set()

    def ended(self, over: list[tuple[str, str]]) -> None:
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
        while True:
            with self._lock:
                ids = list(self._waiting)
                if not ids:
                    self._thread = None
                    return
                pause, self._pause = self._pause, min(self._pause * 1.5, LAST_LOOK)
            try:
                self.ended(list(self._store().ended_among(ids).items()))
            except DulyError:
                time.sleep(LAST_LOOK)
            self._wake.clear()
            self._wake.wait(pause)
