"""How a worker behaves, as values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from duly.maintenance.prune import Retention
from duly.worker.slots import QueueShare

if TYPE_CHECKING:
    from duly.alerts.settings import AlertSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Where a worker serves its metrics and its health, and what they tell."""

    host: str = "127.0.0.1"
    port: int
    ports: int = 1
    """How many ports to try: several processes on one machine are given one number."""
    tenants: int = 20
    database: bool = True
    """Whether the metrics of the whole database are served beside those of the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How a worker behaves."""

    queues: list[QueueShare] = field(default_factory=lambda: [QueueShare(name="default")])
    thread_slots: int = 10
    async_slots: int = 100
    process_slots: int = 2
    lease: float = 15.0
    renew_every: float | None = None
    """A third of the lease unless told otherwise."""
    grace: float = 25.0
    poll: float = 10.0
    crash_limit: int = 3
    maintenance_interval: float = 60.0
    retention: Retention = field(default_factory=Retention)
    max_result: int = 262_144
    version: str = "0"
    app_path: str | None = None
    alerts: Callable[[], AlertSettings] | None = None
    """How alerts are looked for; None: not by this worker."""
    metrics: MetricsSettings | None = None
    """Where metrics and health are served; None: nowhere."""
    max_jobs: int | None = None
    """Claim no more than this many, then stop: for ticks and for recycling."""
