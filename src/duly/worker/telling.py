"""What a worker tells of itself while it runs: metrics and health, what those who meter are told, and alerts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from duly.domain.records import HOLD
from duly.store.store import Store
from duly.worker.executor import Concluded
from duly.worker.hooks import RunCoroutine
from duly.worker.meter import Meter
from duly.worker.registry import Registry
from duly.worker.service import Service
from duly.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from duly.metrics.figures import Lateness
    from duly.metrics.server import MetricsServer
    from duly.worker.worker import Worker

ALERTS_AFTER = 1.0
"""How long after its start a worker first looks for alerts: a short life should cost nothing."""


class Telling:
    """Of one worker. What nobody asked for is not done, and not loaded."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: WorkerSettings,
        *,
        now_us: Callable[[], int],
        on: Callable[[], RunCoroutine | None],
    ) -> None:
        self._store = store
        self._registry = registry
        self._settings = settings
        self._now_us = now_us
        self._on = on
        self._server: MetricsServer | None = None
        self._lateness: Lateness | None = None
        self.meter: Meter | None = None
        self.alerts: Service | None = None
        """What looks for alerts, if this worker does."""

    def serve(self, worker: Worker) -> None:
        """Serve metrics and health, if asked to."""
        wanted = self._settings.metrics
        if wanted is None:
            return
        from duly.metrics.figures import Lateness
        from duly.metrics.serve import serve

        self._lateness = Lateness()
        self._server = serve(self._store, worker, wanted)
        self._server.start()

    def start(self) -> None:
        """Tell those who meter, if there are any, and look for alerts."""
        if self._registry.on_usage:
            self.meter = Meter(self._registry.on_usage, self._now_us, on=self._on())
            self.meter.start()
        self._watch_for_alerts()

    def _watch_for_alerts(self) -> None:
        settings = self._settings.alerts
        if settings is None or not settings().enabled:
            return
        from duly.alerts.evaluate import Evaluator

        evaluator = Evaluator(self._store, settings, self._registry.on_alert, on=self._on)
        first = iter((min(ALERTS_AFTER, settings().interval.total_seconds()),))
        service = Service("alerts", lambda: next(first, 0.0) or evaluator.step(stopping=lambda: service.stopping))
        self.alerts = service

    @property
    def report(self) -> Callable[[list[Concluded]], None] | None:
        """What wants to hear of runs that have ended; None if nobody does: then nothing is gathered."""
        return None if self.meter is None and self._lateness is None else self._report

    def _report(self, ended: list[Concluded]) -> None:
        if self.meter is not None:
            self.meter.report(ended)
        if self._lateness is not None:
            self._note_lateness(self._lateness, ended)

    def _note_lateness(self, lateness: Lateness, ended: list[Concluded]) -> None:
        """Note how late recurring jobs were."""
        late: list[float] = []
        now_us, now_ns = self._now_us(), time.monotonic_ns()
        for run, ended_ns, settled in ended:
            if run.job.hold == HOLD["recurs"] and settled.ran_us >= 0:
                started = now_us - (now_ns - ended_ns) // 1_000 - settled.ran_us
                late.append(max(0.0, (started - run.job.run_at) / 1e6))
        if late:
            lateness.add(late)

    def lateness(self) -> tuple[list[int], float]:
        """How late recurring jobs were, by bucket, and the sum."""
        from duly.metrics.figures import LATENESS

        return ([0] * (len(LATENESS) + 1), 0.0) if self._lateness is None else self._lateness.read()

    @property
    def address(self) -> tuple[str, int] | None:
        """Where it serves metrics and health, if it does."""
        return None if self._server is None else self._server.address

    def stop(self) -> None:
        """Serve no more."""
        if self._server is not None:
            self._server.stop()
