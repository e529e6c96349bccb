"""The values about recurring jobs that pass between the layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

ENDLESS = 1_000_000
"""How many attempts a recurring job has, more than it will ever need: it never ends as failed."""


class NewRecurring(NamedTuple):
    """A recurring job that code or a person wants to exist. None leaves to the job that exists what it has."""

    id: str
    tenant: str
    task: str
    key: str
    rule: str
    queue: str
    args: str
    priority: int
    retry: str | None
    timeout_us: int | None
    name: str | None
    description: str | None
    misfire: str
    grace_us: int
    cap: int
    overlap: str
    failure: str
    pause_after: int | None
    tags: str | None
    """As JSON; "" leaves to the job that exists what it has."""
    created_by: str | None
    declared: str
    """A digest of all this: the same again changes nothing, so that an operator's edit stays."""
    declared_in: str | None = None
    enabled: bool = True
    max_attempts: int | None = ENDLESS
    limit_key: str | None = ""
    """The key of its limits; "" leaves to the job that exists what it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurringRecord:
    """A recurring job as it stands in the database. The order is that of the statement's columns."""

    id: str
    tenant: str
    task: str
    key: str
    name: str | None
    description: str | None
    rule: str
    anchor_at: int
    misfire: str
    grace_us: int
    cap: int
    overlap: str
    failure: str
    pause_after: int | None
    declared: str | None
    declared_in: str | None
    created_by: str | None
    created_at: int
    updated_at: int
    enabled: bool
    next_run_at: int | None
    tick_at: int | None
    last_tick_at: int | None
    last_run_at: int | None
    failures: int
    last_outcome: str | None
    last_error: str | None
    disabled_at: int | None
    disabled_by: str | None
    disabled_reason: str | None
    queue: str
    priority: int
    args: str
    timeout_us: int | None
    retry: str | None
    running_since: int | None
    now: int


class Occurrence(NamedTuple):
    """What a worker must know of a recurring job that it has claimed."""

    id: str
    tick_at: int | None
    """The occurrence that is due; None if a person asked for this run."""
    tenant: str
    task: str
    key: str
    rule: str
    anchor_at: int
    misfire: str
    grace_us: int
    failure: str


class Ending(NamedTuple):
    """A recurring job whose run ends, as it stands."""

    id: str
    token: int
    attempt: int
    claimed_at: int
    cancel_at: int | None
    enabled: bool
    tick_at: int | None
    next_run_at: int | None
    failures: int
    tenant: str
    task: str
    key: str
    rule: str
    anchor_at: int
    misfire: str
    cap: int
    overlap: str
    failure: str
    pause_after: int | None
    now: int
    mirror: str | None
    hook: bool
    run_at: int = 0
    """When this run was due."""
    moved: bool = False
    """Whether it was edited meanwhile, and goes back to another place than it came from."""


class Spawning(NamedTuple):
    """A schedule that makes a job of its own for each tick, and has one due."""

    id: str
    run_at: int
    tick_at: int | None
    last_tick_at: int | None
    tenant: str
    task: str
    key: str
    rule: str
    anchor_at: int
    misfire: str
    grace_us: int
    cap: int
    now: int
    failures: int = 0
    last_run_at: int | None = None


class Next(NamedTuple):
    """What becomes of a recurring job after a run."""

    state: str
    """Where it goes: `recurs` at `place_at`, back to be `queued`, or `idle`."""
    place_at: int | None
    next_run_at: int | None
    tick_at: int | None
    failures: int
    enabled: bool = True
    reason: str | None = None
    """Why it is disabled from now on, if that is what follows."""
    fresh: bool = True
    """Whether its attempts are counted from 0 again."""


class Change(NamedTuple):
    """A change of a recurring job's next run or whether it is enabled: what a mirror and a hook are given."""

    job_id: str
    tenant: str
    task: str
    key: str
    enabled: bool
    next_run_at: int | None
    """None when disabled."""
    outcome: str | None
    """How the run ended that led to this change; None if no run did."""
    error: str | None
    failures: int
    last_run_at: int | None
