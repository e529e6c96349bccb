"""What operators did: who, what, to what, before and after, when and from where. Mixed into `Duly`.

An operator's action is a verb that somebody calls through `Duly`: cancel, retry, delete, set_state, set_priority,
boost, reschedule, set_aging, prune, pause, resume, set_weight, set_fair, set_limit, unset_limit, create_token,
revoke_token; of a recurring job enable, disable, edit, reschedule, run_now, delete; of alerts silence, unsilence,
acknowledge. What the application does as its business (enqueue, recur, register, `set_enabled(sql=...)`) is none,
unless it says who acts; what duly does by itself never is.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from duly.domain import audit
from duly.domain.clock import from_us, to_us
from duly.domain.durations import micros, to_timedelta
from duly.domain.errors import InvalidOption
from duly.domain.ids import is_job_id

if TYPE_CHECKING:
    from duly.store.store import Store

MOST_LISTED = 10_000
ACTIONS = (
    "cancel", "retry", "delete", "set_state", "set_priority", "boost", "reschedule", "set_aging", "prune",
    "add", "edit", "enable", "disable", "run_now", "pause", "resume", "set_weight", "set_fair",
    "set_limit", "unset_limit", "create_token", "revoke_token",
    "silence", "unsilence", "acknowledge", "mend",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One action of an operator."""

    id: int
    at: datetime
    who: str | None
    """Who did it; None where nobody said."""
    via: str
    """From where: python, cli or api."""
    action: str
    job_id: str | None
    tenant: str | None
    task: str | None
    subject: str | None
    """What it was done to, beside a plain job: TASK/KEY of a recurring job, a queue, what was pruned."""
    reason: str | None
    before: dict[str, Any] | None
    """What changed, as it was; None for what was made. Times are in microseconds since the epoch."""
    after: dict[str, Any] | None
    """What changed, as it became; None for what was deleted."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {**asdict(self), "at": self.at.isoformat()}


class Auditing:
    """Says who acts, and shows who did."""

    store: Store

    def acting_as(self, who: str, via: audit.Via = "python") -> AbstractContextManager[None]:
        """Say who acts in this block; what is done there is kept in the audit as theirs.

            with jobs.acting_as("alice"):
                jobs.cancel(job_id)

        Holds for this thread or coroutine and what it awaits or starts as a task, for whichever `Duly`.
        """
        return audit.acting_as(who, via)

    def audit(
        self,
        *,
        job: str | None = None,
        by: str | None = None,
        action: str | None = None,
        tenant: str | None = None,
        since: datetime | timedelta | str | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[AuditRecord]:
        """What operators did, newest first. `before` is the id of the last record of the page before.

        `since` is a time, or how long ago ("7d").
        """
        if not 0 < limit <= MOST_LISTED:
            raise InvalidOption(f"limit must be 1 to {MOST_LISTED}, not {limit}")
        if job is not None and not is_job_id(job):
            raise InvalidOption(f"job must be the id of a job, not {job!r}")
        if action is not None and action not in ACTIONS:
            from duly.domain.names import suggest

            raise InvalidOption(f"there is no action {action!r}.{suggest(action, ACTIONS)} Known: {', '.join(ACTIONS)}")
        rows = self.store.audit(
            job_id=job,
            who=by,
            action=action,
            tenant=tenant,
            since_us=None if since is None else self._moment_us(since),
            until_us=None if until is None else to_us(until, "until"),
            before_id=before,
            n=limit,
        )
        return [_record(row) for row in rows]

    def _moment_us(self, since: datetime | timedelta | str) -> int:
        if isinstance(since, datetime):
            return to_us(since, "since")
        return self.store.now_us() - micros(to_timedelta(since, "since"))


def _record(row: audit.AuditRow) -> AuditRecord:
    values = row._asdict()
    for name in ("before", "after"):
        values[name] = None if values[name] is None else json.loads(values[name])
    return AuditRecord(**{**values, "at": from_us(row.at)})
