"""Serves one worker: its metrics, whether it lives, whether it is ready."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from duly.domain.errors import DulyError
from duly.metrics.collector import Collector
from duly.metrics.health import Readiness, alive
from duly.metrics.server import MetricsServer
from duly.store.store import Store

if TYPE_CHECKING:
    from duly.worker.settings import MetricsSettings
    from duly.worker.worker import Worker


class _Metrics:
    """Makes the collector when it is first asked for, so that health works without prometheus-client."""

    def __init__(self, store: Store, worker: Worker, wanted: MetricsSettings) -> None:
        self._make = partial(Collector, store, tenants=wanted.tenants, figures=worker.figures, database=wanted.database)
        self._collector: Collector | None = None

    def begin(self) -> None:
        """Begin to count, if that is possible yet."""
        try:
            self._ready().begin()
        except DulyError:
            return  # said to whoever asks for metrics

    def _ready(self) -> Collector:
        if self._collector is None:
            self._collector = self._make()
        return self._collector

    def render(self, accept: str) -> tuple[str, bytes]:
        """The metrics as text."""
        return self._ready().render(accept)


def serve(store: Store, worker: Worker, wanted: MetricsSettings) -> MetricsServer:
    """Listen; the caller starts and stops it."""
    metrics = _Metrics(store, worker, wanted)
    server = MetricsServer(
        wanted.host,
        wanted.port,
        alive=partial(alive, worker),
        ready=Readiness(store, worker).look,
        render=metrics.render,
        ports=wanted.ports,
    )
    metrics.begin()
    return server
