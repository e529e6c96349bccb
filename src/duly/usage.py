"""What ran, added up by tenant, task, queue and period; and those who want to be told of every run. Mixed into `Duly`.

The sums come from the rollups, which are written with every run and outlive it (`retention_rollups`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, TypeVar

from duly.domain.clock import from_us, to_us
from duly.domain.durations import micros, to_timedelta
from duly.domain.errors import InvalidOption
from duly.domain.names import suggest
from duly.domain.periods import Period, begin_of, periods, whole_hours
from duly.domain.usage import UsageRecord

if TYPE_CHECKING:
    from duly.store.store import Store
    from duly.worker.registry import Registry

R = TypeVar("R")
WAYS = ("tenant", "task", "queue")
PERIODS = ("hour", "day", "month")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What ran in a span of time. What it was not divided by is None; the empty tenant is nobody in particular."""

    starts_at: datetime
    ends_at: datetime
    tenant: str | None
    task: str | None
    queue: str | None
    runs: int
    succeeded: int
    failed: int
    retried: int
    """Runs that failed or crashed and were followed by another."""
    cancelled: int
    crashed: int
    ran: timedelta
    """How long all runs took together."""
    waited: timedelta
    """How long they waited together, from when they were due until they began."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "starts_at": self.starts_at.isoformat(),
            "ends_at": self.ends_at.isoformat(),
            "tenant": self.tenant,
            "task": self.task,
            "queue": self.queue,
            "runs": self.runs,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "retried": self.retried,
            "cancelled": self.cancelled,
            "crashed": self.crashed,
            "ran_seconds": self.ran.total_seconds(),
            "waited_seconds": self.waited.total_seconds(),
        }


class Metering:
    """Shows what was used, and tells those who meter."""

    store: Store
    registry: Registry

    def usage(
        self,
        *,
        since: datetime | timedelta | str = "30d",
        until: datetime | None = None,
        by: str | Iterable[str] = ("tenant", "task"),
        period: Period | None = None,
        tenant: str | None = None,
        task: str | None = None,
        timezone: str = "UTC",
    ) -> list[Usage]:
        """What ran between two times, added up by any of tenant, task and queue, and by the hour, day or month.

        A run counts when it ended. `since` is a time, or how long ago ("7d"), then from the beginning of that period.
        Counts are by whole hours of UTC: `since` and `until` are widened to them, and days and months are of UTC or of
        a time zone that is whole hours from it. Where nothing ran there is no record.
        """
        ways, zone = _ways(by), _zone(timezone)
        if period is not None and period not in PERIODS:
            raise InvalidOption(f"period must be one of {', '.join(PERIODS)}, not {period!r}")
        from_us_, until_us = self._span(since, until, period, zone)
        starts = periods(period, from_us_, until_us, zone)
        rows = self.store.sum_usage([*starts, until_us], by=ways, tenant=tenant, task=task)
        return [_usage(row, [*starts, until_us], zone) for row in rows]

    def _span(
        self, since: datetime | timedelta | str, until: datetime | None, period: Period | None, zone: tzinfo
    ) -> tuple[int, int]:
        now = self.store.now_us()
        until_us = now + 1 if until is None else to_us(until, "until")
        if isinstance(since, datetime):
            since_us = to_us(since, "since")
        else:
            since_us = now - micros(to_timedelta(since, "since"))
            since_us = since_us if period is None else begin_of(period, since_us, zone)
        if since_us >= until_us:
            raise InvalidOption("since must be before until")
        return whole_hours(since_us, until_us)

    def on_usage(self, function: Callable[[list[UsageRecord]], R]) -> Callable[[list[UsageRecord]], R]:
        """Have a function be told what every run used, in batches, after it was settled; in the worker that ran it.

        It runs in a thread of its own. What it raises is logged, and that batch is not given again; what it is too
        slow for is dropped, and both are counted. `usage()` has every run, also those whose worker died.
        """
        self.registry.on_usage.append(function)
        return function


def _ways(by: str | Iterable[str]) -> tuple[str, ...]:
    ways = tuple(by.split(",") if isinstance(by, str) else by)
    ways = tuple(way.strip() for way in ways if way.strip())
    for way in ways:
        if way not in WAYS:
            raise InvalidOption(f"usage is not counted by {way!r}.{suggest(way, WAYS)} Known: {', '.join(WAYS)}")
    return ways


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    from duly.schedule.zones import find_zone

    find_zone(name)  # it refuses an unknown one, and says which may be meant
    return ZoneInfo(name)


def _usage(row: Sequence[object], bounds: Sequence[int], zone: tzinfo) -> Usage:
    n, tenant, task, queue, *counts = row
    index = int(str(n))
    runs, succeeded, failed, retried, cancelled, crashed, ran_us, waited_us = (int(str(each)) for each in counts)
    return Usage(
        starts_at=from_us(bounds[index]).astimezone(zone),
        ends_at=from_us(bounds[index + 1]).astimezone(zone),
        tenant=None if tenant is None else str(tenant),
        task=None if task is None else str(task),
        queue=None if queue is None else str(queue),
        runs=runs,
        succeeded=succeeded,
        failed=failed,
        retried=retried,
        cancelled=cancelled,
        crashed=crashed,
        ran=timedelta(microseconds=ran_us),
        waited=timedelta(microseconds=waited_us),
    )
