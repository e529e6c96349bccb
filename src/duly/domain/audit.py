"""Who acts, and what is kept of what they did. Who it is goes with the flow of control, not with a thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal, NamedTuple, get_args

from duly.domain.errors import InvalidOption
from duly.domain.names import check_text
from duly.domain.records import JobRecord
from duly.domain.recurring import RecurringRecord
from duly.domain.text import safe_repr

Via = Literal["python", "cli", "api"]
Snapshot = Mapping[str, object]
MOST_WHO = 255
MOST_VALUE: Final = 2_000
"""How many characters of one value are kept: what changed is worth keeping, not all of a large text."""


class Actor(NamedTuple):
    """Somebody who does something, as far as we were told."""

    who: str | None = None
    via: str = "python"
    told: bool = False
    """Whether somebody said who acts. Without, it is the application's own code."""

    def or_by(self, by: str | None) -> Actor:
        """The same, unless a name was given with the call."""
        return self if by is None else Actor(by, self.via, True)


_NOBODY: Final = Actor()
_acting: ContextVar[Actor] = ContextVar("duly_actor")


def current_actor() -> Actor:
    """Who acts here and now."""
    return _acting.get(_NOBODY)


@contextmanager
def acting_as(who: str, via: str) -> Iterator[None]:
    """Say who acts, until the block is left; in a coroutine, for that coroutine and what it starts."""
    if not check_text(who, "who", MOST_WHO):
        raise InvalidOption("who must not be empty: say who acts")
    if via not in get_args(Via):
        raise InvalidOption(f"via must be one of {', '.join(get_args(Via))}, not {safe_repr(via)}")
    token = _acting.set(Actor(who, via, True))
    try:
        yield
    finally:
        _acting.reset(token)


class AuditRow(NamedTuple):
    """One action as it is stored. The order is that of the statement's columns."""

    id: int
    at: int
    who: str | None
    via: str
    action: str
    job_id: str | None
    tenant: str | None
    task: str | None
    subject: str | None
    reason: str | None
    before: str | None
    after: str | None


def job_snapshot(job: JobRecord | None) -> dict[str, object] | None:
    """What an operator can change about a job. Not its arguments: they may be what a deletion is to erase."""
    if job is None:
        return None
    return {
        "state": str(job.state),
        "priority": job.priority,
        "run_at": job.run_at,
        "attempt": job.attempt,
        "cancel_at": job.cancel_at,
        "reason": job.reason,
    }


_RECURRING = (
    "enabled", "next_run_at", "rule", "args", "queue", "priority", "name", "description", "misfire", "grace_us", "cap",
    "overlap", "failure", "pause_after",
)  # fmt: skip


def recurring_snapshot(job: RecurringRecord) -> dict[str, object]:
    """What an operator can change about a recurring job."""
    return {name: getattr(job, name) for name in _RECURRING}


def difference(before: Snapshot, after: Snapshot) -> tuple[dict[str, object], dict[str, object]]:
    """What differs between two snapshots, on either side."""
    names = [name for name, value in before.items() if after.get(name) != value]
    return {name: before[name] for name in names}, {name: after.get(name) for name in names}


def shortened(value: object) -> object:
    """A value as it is kept: of long text the beginning."""
    return value if not isinstance(value, str) or len(value) <= MOST_VALUE else f"{value[:MOST_VALUE]}…"
