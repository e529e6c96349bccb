"""How many runs the schedules plan for the hours to come: what a day will bring before it does."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from duly.domain.clock import from_us
from duly.domain.errors import InvalidOption
from duly.schedule.plan import Ticks

if TYPE_CHECKING:
    from duly.app import Duly

MOST_SCHEDULES: Final = 1_000
MOST_TICKS: Final = 100_000
MOST_HOURS: Final = 168
HOUR_US: Final = 3_600_000_000


class Planned(NamedTuple):
    """How many ticks fall into each hour from a moment on."""

    begins_at: datetime
    hours: list[tuple[datetime, int]]
    """When each hour begins, and how many ticks fall into it."""
    complete: bool
    """Whether every schedule and every tick was counted."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        hours = [{"starts_at": at.isoformat(), "ticks": ticks} for at, ticks in self.hours]
        return {"from": self.begins_at.isoformat(), "hours": hours, "complete": self.complete}


def planned(app: Duly, hours: int, tenant: str | None) -> Planned:
    """Count the ticks of enabled schedules in each of the next hours; of the first 1,000 schedules."""
    if not 0 < hours <= MOST_HOURS:
        raise InvalidOption(f"hours must be 1 to {MOST_HOURS}, not {hours}")
    now = app.store.now_us()
    found = app.recurring_jobs(tenant=tenant, enabled=True, limit=MOST_SCHEDULES)
    counts, left = [0] * hours, MOST_TICKS
    for job in found:
        ticks, at = Ticks(job.record), now
        while left > 0 and (following := ticks.after(at)) is not None and following < now + hours * HOUR_US:
            counts[(following - now) // HOUR_US] += 1
            at, left = following, left - 1
    complete = left > 0 and len(found) < MOST_SCHEDULES
    return Planned(from_us(now), [(from_us(now + n * HOUR_US), count) for n, count in enumerate(counts)], complete)
