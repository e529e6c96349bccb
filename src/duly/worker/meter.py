"""Tells those who meter what every run used, in a thread of its own: a slow or failing one delays no job.

What waits for them is bounded. What they are too slow for is dropped, what they raise is logged and not repeated: both
are counted. The rollups in the database have every run, whatever happens here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import islice

from duly.domain.clock import from_us
from duly.domain.usage import UsageRecord
from duly.worker.executor import Concluded
from duly.worker.hooks import RunCoroutine, run_hook
from duly.worker.service import Service

log = logging.getLogger("duly.usage")

BATCH = 500
MOST = 50_000
"""How many records may wait: some 15 MB."""

Sink = Callable[[list[UsageRecord]], object]
_Kept = tuple[str, str, str, str, int, int, str, int, int]


class Meter:
    """Takes what was settled from the finisher, and hands it on in batches."""

    def __init__(
        self, sinks: Sequence[Sink], now_us: Callable[[], int], *, on: RunCoroutine | None = None, most: int = MOST
    ) -> None:
        self._sinks = list(sinks)
        self._now_us = now_us
        self._on = on
        self._most = most
        self._waiting: deque[_Kept] = deque()
        self._handing = False
        self._lock = threading.Lock()
        self._losing = 0
        """How many were dropped since it was last said."""
        self._service = Service("usage", self.step)
        self.delivered = 0
        """Records that every sink took."""
        self.failed = 0
        """Records of batches that a sink raised on."""
        self.dropped = 0
        """Records that nobody was told of: the sinks were too slow, or still busy when the worker stopped."""

    def start(self) -> None:
        """Start the thread."""
        self._service.start()

    def report(self, settled: Sequence[Concluded]) -> None:
        """Take runs that were settled. Called by the finisher: nothing is kept of them but what is told."""
        now_ns, now_us = time.monotonic_ns(), self._now_us()
        kept: list[_Kept] = [
            (
                job.tenant,
                job.task,
                job.queue,
                job.id,
                job.token,
                job.attempt,
                end.outcome,
                now_us - (now_ns - ended_ns) // 1_000,
                max(0, end.ran_us),
            )
            for run, ended_ns, end in settled
            if end.outcome != "released" or end.ran_us >= 0
            for job in (run.job,)
        ]
        if len(self._waiting) + len(kept) > self._most:
            self._drop(len(kept))
            return
        self._waiting.extend(kept)
        self._service.wake()

    def _drop(self, n: int) -> None:
        if not self._losing:
            log.warning("usage: %d records wait and on_usage is too slow for more; dropping them", len(self._waiting))
        with self._lock:
            self._losing += n
            self.dropped += n

    def step(self) -> float:
        """Hand on a batch. Returns how long to wait if there is none."""
        if not self._waiting:
            return 1.0
        self._handing = True
        try:
            batch = [_record(self._waiting.popleft()) for _ in islice(range(BATCH), len(self._waiting))]
            self._hand_on(batch)
        finally:
            self._handing = False
        if self._losing and len(self._waiting) < self._most // 2:
            with self._lock:
                lost, self._losing = self._losing, 0
            log.warning("usage: on_usage has caught up; %d records were dropped", lost)
        return 0.0

    def _hand_on(self, batch: list[UsageRecord]) -> None:
        well = True
        for sink in self._sinks:
            try:
                run_hook(sink, list(batch), on=self._on)
            except BaseException:  # also SystemExit, which must not end the thread
                well = False
                log.exception("usage: %r raised; %d records are not given to it again", sink, len(batch))
        if well:
            self.delivered += len(batch)
        else:
            self.failed += len(batch)

    def stop(self, seconds: float) -> None:
        """Hand on what waits for so long; what is left then is dropped."""
        until = time.monotonic() + seconds
        while (self._waiting or self._handing) and time.monotonic() < until:
            time.sleep(0.005)
        busy, left = self._handing, len(self._waiting)
        self._waiting.clear()
        self._service.stop(max(0.1, until - time.monotonic()) if not busy else 0.1)
        if busy or left:
            self.dropped += left
            log.warning(
                "usage: on_usage was %s when the worker stopped; %d records dropped", "busy" if busy else "late", left
            )


def _record(kept: _Kept) -> UsageRecord:
    tenant, task, queue, job_id, token, attempt, outcome, ended_at, ran_us = kept
    return UsageRecord(
        tenant, task, queue, job_id, token, attempt, outcome, from_us(ended_at - ran_us), timedelta(microseconds=ran_us)
    )
