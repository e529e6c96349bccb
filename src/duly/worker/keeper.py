"""Keeps leases: renews what this worker really holds, learns of cancels, enforces timeouts, writes progress.

`step` talks to the database, on a thread and a connection of its own, so that neither a blocked event loop nor a busy
pool stops it. `watch` never does, so that an outage cannot hold it up: it stops runs whose time is up, and runs whose
lease could not be confirmed before anybody else may start them. If the lease turns out to hold, such a run goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from duly.domain.errors import DulyError
from duly.store.store import Store
from duly.worker.context import Run, lease_time

log = logging.getLogger("duly.worker")

TICK = 0.25
CANCEL_EVERY = 0.8
PROGRESS_EVERY = 0.5
PUT_OFF_SECONDS = 300.0
"""How long a run may wait here for its turn with its deadline put off: longer than any child process takes to begin."""
IDLE_PAUSE = 0.5
"""How often a worker without runs sees whether there are any: nobody tells it when one starts."""


class Keeper:
    """Looks after the runs in `held`."""

    def __init__(
        self,
        store: Store,
        worker_id: str,
        held: dict[str, Run],
        interrupt: Callable[[Run], None],
        *,
        lease: float,
        renew_every: float | None = None,
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._held = held
        self._interrupt = interrupt
        self._lease = lease
        self._renew_every = lease / 3 if renew_every is None else min(renew_every, lease / 3)
        self._idle_pause = min(IDLE_PAUSE, lease / 4)
        self._next_cancel = 0.0
        self._next_progress = 0.0
        self._failing = False
        self._watch_by = float("inf")
        self._frozen = False
        self.thawed_at = lease_time()
        """When this process last began to run, or went on after it had stood still or the machine had slept."""
        self.look_for_cancels = False

    # -- without the database -----------------------------------------------------------------------------------

    def watch(self) -> float:
        """Stop runs whose time is up or whose lease nobody could confirm. Returns how long until the next look."""
        now, late = lease_time(), self.late
        thawed, self._frozen = late and not self._frozen, late
        runs = list(self._held.values())
        if thawed:
            self.thawed_at = now
        else:
            self._fence(runs, now)
        pause = min(TICK, self._lease / 20, self._time_out(runs)) if runs else self._idle_pause
        self._watch_by = now + pause + self._lease / 3
        return pause

    @property
    def late(self) -> bool:
        """Whether `watch` should have been called before now: this process stands still, or did until just now."""
        return lease_time() > self._watch_by

    def _fence(self, runs: list[Run], now: float) -> None:
        """Stop runs whose lease ends soon. Not just after we all stood still: `step` first asks whether it holds."""
        for run in runs:
            if not run.lost and not run.fenced and run.phase != 2 and now - run.leased_at >= self._lease * 0.9:
                run.fenced = True
                self._stop(run, "its lease could not be renewed in time")

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

    def _stop(self, run: Run, why: str) -> None:
        log.warning("job %s (%s) stopped: %s", run.job.id, run.job.task, why)
        self._interrupt(run)

    # -- with the database --------------------------------------------------------------------------------------

    def step(self) -> float:
        """Renew, look for cancels, write progress. Returns how long until the next look."""
        runs = list(self._held.values())
        if not runs:
            return self._idle_pause
        try:
            self._renew(runs)
            self._cancels(runs)
            self._write_progress(runs)
            self._failing = False
        except DulyError as error:
            if not self._failing:
                self._failing = True
                log.warning("leases cannot be renewed: %s; going on", error)
        return max(0.01, min(TICK, self._lease / 10, self._next_cancel - time.monotonic()))

    def _renew(self, runs: list[Run]) -> None:
        """Extend the leases that are old enough; what no longer holds is stopped, what holds after all goes on."""
        sent = lease_time()
        self._give_up_limited(runs, sent)
        due = [run for run in runs if sent - run.leased_at >= self._renew_every and not run.lost]
        if not due:
            return
        not_running = _not_running(due, time.monotonic_ns())
        still = self._store.renew([(run.job.id, run.job.token) for run in due], int(self._lease * 1e6), not_running)
        for run in due:
            asked = still.get(run.job.id)
            if asked is None and run.completion is not None:
                run.leased_at = sent  # its row is gone because it is completed, or held by its own transaction
            elif asked is not None:
                run.leased_at = sent
                if run.fenced:
                    run.regain()
                if asked and run.cancel_reason is None:
                    self.look_for_cancels = True
            elif run.job.id not in still and run.phase != 2 and self._held.get(run.job.id) is run:
                run.lost = True
                self._stop(run, "its lease was given to another worker")

    def _give_up_limited(self, runs: list[Run], now: float) -> None:
        """A lease that ended no longer counts for its task's limit: taken up again, it could be one too many.

        What has ended is not taken up again: how it did is recorded, if its token still holds.
        """
        for run in runs:
            if run.limited and not run.lost and run.phase != 2 and now - run.leased_at >= self._lease:
                run.lost = True
                self._stop(run, "its lease has ended, and with it its place in the limit")

    def _cancels(self, runs: list[Run]) -> None:
        """Learn which runs people asked to stop: at a hint, and by looking several times in two seconds."""
        now = time.monotonic()
        if not self.look_for_cancels and now < self._next_cancel:
            return
        self.look_for_cancels, self._next_cancel = False, now + CANCEL_EVERY
        mine = {run.job.id: run for run in runs}
        for job_id, token, reason in self._store.cancel_requests(self._worker_id):
            run = mine.get(job_id)
            if run is not None and run.job.token == token and run.cancel_reason is None:
                run.cancel_reason = reason or "cancelled"
                self._interrupt(run)

    def _write_progress(self, runs: list[Run]) -> None:
        now = time.monotonic()
        if now < self._next_progress:
            return
        self._next_progress = now + PROGRESS_EVERY
        for run in runs:
            pending = run.take_progress()
            if pending is not None and not run.lost:
                self._store.progress(run.job.id, run.job.token, *pending)


def _not_running(runs: list[Run], now_ns: int) -> list[str]:
    """Whose time does not count: they have not begun yet, or have ended and are not on record yet.

    A child process that takes long to start is not to be taken for one that hangs, nor is a run that waits for somebody
    who holds its unique key or its recurring job.
    """
    since = now_ns - int(PUT_OFF_SECONDS * 1e9)
    timed = [run for run in runs if run.job.timeout_us is not None]
    return [run.job.id for run in timed if run.phase == 2 or (run.phase == 0 and run.came_ns > since)]
