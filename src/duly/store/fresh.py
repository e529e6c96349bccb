"""What the jobs of one bulk enqueue share, and in what they differ."""

from __future__ import annotations

from typing import NamedTuple

from duly.domain.rank import rank
from duly.domain.records import NewJob
from duly.store.call import Rows

Fresh = tuple[str, str, str | None] | tuple[str, str, str | None, str | None]
"""In what they differ: id, arguments, unique key, and the key of its limits if any has one."""


def limit_key(row: Fresh) -> str | None:
    """The key of a job's limits."""
    return row[3] if len(row) > 3 else None


class Plan(NamedTuple):
    """The instants and the rank that they share."""

    now: int
    run_at: int
    expires_at: int | None
    rank: int


def plan_of(model: NewJob, clock: Rows) -> Plan:
    """When they are due and expire, and how they rank, by the database's clock and the horizon of their queue."""
    now, horizon = int(str(clock[0][0])), int(str(clock[0][1]))
    run_at = model.run_at if model.run_at is not None else now + model.delay_us
    expires_at = model.expires_at
    if expires_at is None and model.expires_us is not None:
        expires_at = run_at + model.expires_us
    return Plan(now, run_at, expires_at, rank(run_at, model.priority, horizon))
