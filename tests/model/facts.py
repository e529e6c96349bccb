"""What the model remembers: a job, a unique key, a gate, a recurring job. Plain values, changed by `model.py` alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from duly.domain.rank import DEFAULT_HORIZON_US
from duly.domain.records import HOLD, NewJob
from duly.domain.recurring import NewRecurring

UNSTARTED = ("scheduled", "waiting", "parked")
LANE_QUEUE = "default"


class RunFact(NamedTuple):
    """One execution, as far as the history shows it."""

    job_id: str
    token: int
    attempt: int
    outcome: str
    worker_id: str


@dataclass(slots=True)
class Job:
    """A job and the one place that it is in: scheduled, waiting, parked, running, ended, or nowhere (disabled)."""

    id: str
    task: str
    tenant: str
    args: str
    priority: int
    max_attempts: int
    retry: str | None
    timeout_us: int | None
    unique_key: str | None
    limit_key: str | None
    hold: int
    place: str
    run_at: int
    token: int = 0
    attempt: int = 0
    crashes: int = 0
    reason: str | None = None
    """Why it is parked, or how it ended."""
    mark: str | None = None
    state: str = ""
    """How it ended."""
    finished_at: int | None = None
    worker_id: str | None = None
    claimed_at: int | None = None
    leased_until: int = 0
    deadline_at: int | None = None
    cancel_at: int | None = None
    cancel_reason: str | None = None
    limited: set[str] = field(default_factory=set)
    """The scopes of the limits that its run is counted under."""

    @classmethod
    def new(cls, new: NewJob, *, hold: int, place: str, run_at: int) -> Job:
        return cls(
            new.id, new.task, new.tenant, new.args, new.priority, new.max_attempts, new.retry, new.timeout_us,
            new.unique_key, new.limit_key, hold, place, run_at,
        )  # fmt: skip

    @property
    def rank(self) -> int:
        """Where it stands in its lane: the lower the sooner."""
        return self.run_at - self.priority * (DEFAULT_HORIZON_US // 100)

    @property
    def in_turn(self) -> tuple[int, str]:
        return self.rank, self.id

    @property
    def suspect(self) -> bool:
        return self.crashes > 1

    @property
    def unstarted(self) -> bool:
        return self.place in UNSTARTED

    @property
    def recurs(self) -> bool:
        return self.hold in (HOLD["recurs"], HOLD["spawns"])

    @property
    def waits_for_key(self) -> bool:
        """Whether it is due and stands aside until the key of its limits has room."""
        return self.place == "parked" and self.reason in ("arrived", "key")

    def expired(self, now: int, lease_now: int) -> bool:
        return self.leased_until <= lease_now or (self.deadline_at is not None and self.deadline_at <= now)


@dataclass(slots=True)
class UniqueKey:
    """Who holds a unique key, how, until when, and who waits for it."""

    holder: str
    scope: int
    until: int | None
    following: str | None = None


@dataclass(slots=True)
class Door:
    """A gate or the key of a limit: how many may be inside, and whether it is closed."""

    slots: int | None = None
    paused: bool = False
    paused_until: int | None = None

    def shut(self, now: int) -> bool:
        return self.paused and (self.paused_until is None or self.paused_until > now)


@dataclass(slots=True)
class Recurring:
    """How a recurring job stands."""

    new: NewRecurring
    anchor_at: int
    next_run_at: int | None
    tick_at: int | None
    enabled: bool = True
    token: int = 0
    failures: int = 0
    last_tick_at: int | None = None
    last_outcome: str | None = None
    disabled_by: str | None = None
    disabled_reason: str | None = None
    ticks_done: list[int] = field(default_factory=list)
    """The occurrences whose run is over, or that were given a job of their own."""
