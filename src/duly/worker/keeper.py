"""Keeps leases: renews what this worker really holds, learns of cancels, enforces timeouts, writes progress.

On a thread and a connection of its own, so that neither a blocked event loop nor a busy pool stops it. Where a lease
cannot be renewed in time the run is stopped before anybody else may start it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from duly.domain.errors import DulyError
from duly.store.store import Store
from duly.worker.context import Run

log = logging.getLogger("duly.worker")

TICK = 0.25
CANCEL_EVERY = 0.9
PROGRESS_EVERY = 0.5


class Keeper:
    """Looks after the runs in `held`."""

    def __init__(
        self, store: Store, worker_id: str, held: dict[str, Run], interrupt: Callable[[Run], None], *, lease: float
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._held = held
        self._interrupt = interrupt
        self._lease = lease
        self._next_cancel = 0.0
        self._next_progress = 0.0
        self._failing_since: float | None = None
        self.look_for_cancels = False

    def step(self) -> float:
        """Do what is due. Returns how long until the next look."""
        runs = list(self._held.values())
        if not runs:
            return 1.0
        now = time.monotonic()
        pause = self._time_out(runs)
        self._fence(runs, now)
        try:
            self._renew(runs, now)
            self._cancels(runs, now)
            self._write_progress(runs, now)
            self._failing_since = None
        except DulyError as error:
            if self._failing_since is None:
                self._failing_since = now
                log.warning("leases cannot be renewed: %s; going on", error)
        return pause

    def _renew(self, runs: list[Run], now: float) -> None:
        """Extend the leases older than a third; what no longer holds is stopped."""
        due = [run for run in runs if now - run.leased_at >= self._lease / 3 and not run.lost]
        if not due:
            return
        sent = time.monotonic()
        still = self._store.renew([(run.job.id, run.job.token) for run in due], int(self._lease * 1e6))
        for run in due:
            asked = still.get(run.job.id)
            if asked is not None:
                run.leased_at = sent
                if asked and run.cancel_reason is None:
                    self.look_for_cancels = True
            elif run.phase != 2 and self._held.get(run.job.id) is run:
                self._lose(run, "its lease was given to another worker")

    def _fence(self, runs: list[Run], now: float) -> None:
        """Stop runs whose lease will have passed before the next look, since nobody could confirm it."""
        for run in runs:
            if not run.lost and now - run.leased_at >= self._lease * 0.9:
                self._lose(run, "its lease could not be renewed in time")

    def _lose(self, run: Run, why: str) -> None:
        run.lost = True
        log.warning("job %s (%s) stopped: %s", run.job.id, run.job.task, why)
        self._interrupt(run)
        if run.phase == 0:
            self._held.pop(run.job.id, None)

    def _time_out(self, runs: list[Run]) -> float:
        """Flag runs whose time is up. Returns how long until the next could be."""
        pause = TICK
        now_ns = time.monotonic_ns()
        for run in runs:
            if run.phase != 1 or run.job.timeout_us is None or run.timed_out:
                continue
            left = (run.started_ns + run.job.timeout_us * 1_000 - now_ns) / 1e9
            if left <= 0:
                run.timed_out = True
                self._interrupt(run)
            else:
                pause = min(pause, left + 0.001)
        return pause

    def _cancels(self, runs: list[Run], now: float) -> None:
        """Learn which runs people asked to stop: at a hint, and by looking every second."""
        if not self.look_for_cancels and now < self._next_cancel:
            return
        self.look_for_cancels, self._next_cancel = False, now + CANCEL_EVERY
        mine = {run.job.id: run for run in runs}
        for job_id, token, reason in self._store.cancel_requests(self._worker_id):
            run = mine.get(job_id)
            if run is not None and run.job.token == token and run.cancel_reason is None:
                run.cancel_reason = reason or "cancelled"
                self._interrupt(run)

    def _write_progress(self, runs: list[Run], now: float) -> None:
        if now < self._next_progress:
            return
        self._next_progress = now + PROGRESS_EVERY
        for run in runs:
            pending = run.take_progress()
            if pending is not None and not run.lost:
                self._store.progress(run.job.id, run.job.token, *pending)
