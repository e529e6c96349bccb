"""The answer to "why does it not run?", as data: a code that stays the same, what it is about, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from duly.domain.clock import from_us


class Reason(StrEnum):
    """Why a job does not run, or how it stands. Programs may rely on these."""

    # it is nowhere, or twice: damage
    NOWHERE = "nowhere"
    TWO_PLACES = "two_places"
    # its own place says so
    DISABLED = "disabled"
    ARGUMENTS = "arguments"
    EXPIRED = "expired"
    NOT_DUE = "not_due"
    RETRY = "retry"
    SNOOZED = "snoozed"
    RECURS = "recurs"
    UNIQUE = "unique"
    PARKED = "parked"
    # until somebody does something
    PAUSED = "paused"
    NO_WORKER = "no_worker"
    NO_WORKER_FOR_QUEUE = "no_worker_for_queue"
    UNKNOWN_TASK = "unknown_task"
    # until some time
    BLOCKED = "blocked"
    BREAKER_OPEN = "breaker_open"
    QUOTA_USED_UP = "quota_used_up"
    RATE_USED_UP = "rate_used_up"
    # until others have ended
    LIMIT_FULL = "limit_full"
    BREAKER_PROBING = "breaker_probing"
    SUSPECT = "suspect"
    WORKERS_BUSY = "workers_busy"
    BEHIND_OTHERS = "behind_others"
    # nothing holds it
    STARTING = "starting"
    UNEXPLAINED = "unexplained"
    # it runs
    RUNNING = "running"
    CANCEL_REQUESTED = "cancel_requested"
    LEASE_LAPSED = "lease_lapsed"
    PREVIOUS_RUN = "previous_run"
    # it has ended
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    POISON = "poison"
    CANCELLED = "cancelled"


_CLASSES = (
    {Reason.NOWHERE, Reason.TWO_PLACES},
    {
        Reason.DISABLED,
        Reason.ARGUMENTS,
        Reason.EXPIRED,
        Reason.NOT_DUE,
        Reason.RETRY,
        Reason.SNOOZED,
        Reason.RECURS,
        Reason.UNIQUE,
        Reason.PARKED,
    },
    {Reason.NO_WORKER, Reason.NO_WORKER_FOR_QUEUE, Reason.UNKNOWN_TASK},
    {Reason.BLOCKED, Reason.BREAKER_OPEN, Reason.QUOTA_USED_UP, Reason.RATE_USED_UP},
    {
        Reason.LIMIT_FULL,
        Reason.BREAKER_PROBING,
        Reason.SUSPECT,
        Reason.WORKERS_BUSY,
        Reason.BEHIND_OTHERS,
    },
)
UNTIL_SOMEBODY, UNTIL_A_TIME = 2, 3
"""The places of these classes."""
_ORDER = list(Reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A job that holds what another waits for, and who runs it. Of others' jobs only that they are there."""

    job_id: str | None
    place: str
    task: str | None = None
    worker_id: str | None = None
    host: str | None = None
    pid: int | None = None
    since: datetime | None = None
    leased_for: float | None = None
    """Seconds for which its lease still holds."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "job_id": self.job_id,
            "place": self.place,
            "task": self.task,
            "worker_id": self.worker_id,
            "host": self.host,
            "pid": self.pid,
            "since": _iso(self.since),
            "leased_for": self.leased_for,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """One thing that holds a job, or how it stands."""

    reason: Reason
    scope: str | None = None
    """What it is about, with `name`: queue, task, tenant or key."""
    name: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    by: str | None = None
    because: str | None = None
    """What whoever did it, or the error, says."""
    holders: tuple[Holder, ...] = ()
    next: str | None = None
    """The command to go on with; None if there is nothing to do but to wait."""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """A sentence about it, times in UTC."""
        from duly.why.words import sentence

        return sentence(self)

    @property
    def rank(self) -> tuple[int, float, int]:
        """What decides comes first: by who can end it, then by when it ends."""
        number = next((i for i, reasons in enumerate(_CLASSES) if self.reason in reasons), len(_CLASSES))
        if self.reason is Reason.PAUSED:
            number = UNTIL_SOMEBODY if self.until is None else UNTIL_A_TIME
        ends = float("inf") if self.until is None or number != UNTIL_A_TIME else self.until.timestamp()
        return number, -ends, _ORDER.index(self.reason)

    def to_dict(self, text: str | None = None) -> dict[str, Any]:
        """As plain values, for JSON; with another sentence than its own if one is given."""
        return {
            "reason": str(self.reason),
            "text": self.text if text is None else text,
            "scope": self.scope,
            "name": self.name,
            "since": _iso(self.since),
            "until": _iso(self.until),
            "by": self.by,
            "because": self.because,
            "holders": [holder.to_dict() for holder in self.holders],
            "next": self.next,
            "details": dict(self.details),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a job does not run, or how it stands."""

    job_id: str
    state: str
    """scheduled, queued, running, succeeded, failed, cancelled, disabled; nowhere if it is in no place."""
    task: str
    queue: str
    tenant: str | None
    answer: Blocker
    """What decides."""
    blockers: tuple[Blocker, ...] = ()
    """All that hold it at this moment, the deciding one first; none if it runs, is about to, or has ended."""
    details: Mapping[str, Any] = field(default_factory=dict)
    at: datetime

    @property
    def reason(self) -> Reason:
        """The code of what decides."""
        return self.answer.reason

    @property
    def text(self) -> str:
        """What decides, as a sentence."""
        return self.answer.text

    @property
    def next(self) -> str | None:
        """The command to go on with."""
        return self.answer.next

    @property
    def since(self) -> datetime | None:
        """Since when that holds."""
        return self.answer.since

    @property
    def until(self) -> datetime | None:
        """Until when, where that is known."""
        return self.answer.until

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "job_id": self.job_id,
            "state": self.state,
            "task": self.task,
            "queue": self.queue,
            "tenant": self.tenant,
            **self.answer.to_dict(),
            "blockers": [blocker.to_dict() for blocker in self.blockers],
            "details": {**self.details, **self.answer.details},
            "at": self.at.isoformat(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Jobs of a queue that wait for the same thing."""

    queue: str
    blocker: Blocker
    jobs: int
    at_least: bool
    """Whether there may be more: nothing is counted further than it helps."""
    example: str | None
    """One of them, to ask `duly why` about; None if none may be named."""
    tasks: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()

    @property
    def reason(self) -> Reason:
        """The code of what holds them."""
        return self.blocker.reason

    @property
    def text(self) -> str:
        """A sentence about them, times in UTC."""
        from duly.why.words import of_many

        return of_many(self.blocker)

    @property
    def next(self) -> str | None:
        """The command to go on with."""
        return self.blocker.next

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "queue": self.queue,
            "jobs": self.jobs,
            "at_least": self.at_least,
            "example": self.example,
            "tasks": list(self.tasks),
            "tenants": list(self.tenants),
            **self.blocker.to_dict(self.text),
        }


def in_order(blockers: Iterable[Blocker]) -> tuple[Blocker, ...]:
    """The deciding one first."""
    return tuple(sorted(blockers, key=lambda each: each.rank))


def at(us: int | None) -> datetime | None:
    """An instant of the database's for people."""
    return None if us is None else from_us(us)


def iso(us: int | None) -> str | None:
    """An instant of the database's for JSON."""
    return _iso(at(us))


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
