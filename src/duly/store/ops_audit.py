"""Keeps what operators did, in the transaction in which they did it. Not here: who counts as one (`duly.admin`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from duly.domain.audit import Actor, AuditRow, Snapshot, difference, job_snapshot, recurring_snapshot, shortened
from duly.domain.records import JobRecord
from duly.domain.recurring import RecurringRecord
from duly.store.call import Call, Op, Value

R = TypeVar("R")
Get = Callable[[str], Op[JobRecord | None]]


def keep(
    actor: Actor,
    action: str,
    *,
    job_id: str | None = None,
    tenant: str | None = None,
    task: str | None = None,
    subject: str | None = None,
    reason: str | None = None,
    before: Snapshot | None = None,
    after: Snapshot | None = None,
) -> Op[None]:
    """Write down one action."""
    yield Call(
        "insert_audit",
        {
            "who": actor.who,
            "via": actor.via,
            "action": action,
            "job_id": job_id,
            "tenant": tenant,
            "task": task,
            "subject": subject,
            "reason": reason,
            "before": _text(before),
            "after": _text(after),
        },
    )


def _text(values: Snapshot | None) -> str | None:
    if values is None:
        return None
    return json.dumps({name: shortened(value) for name, value in values.items()}, ensure_ascii=False)


def keep_job(get: Get, actor: Actor | None, action: str, job_id: str, op: Op[R], *, reason: str | None = None) -> Op[R]:
    """Do something to a job and write down what that changed; nothing, if it changed nothing or nobody acts."""
    if actor is None:
        return (yield from op)
    old = yield from get(job_id)
    answer = yield from op
    if old is None:
        return answer
    before, after = job_snapshot(old) or {}, job_snapshot((yield from get(job_id)))
    if after is not None:
        before, after = difference(before, after)
        if not before:
            return answer
    yield from keep(
        actor,
        action,
        job_id=job_id,
        tenant=old.tenant,
        task=old.task,
        reason=reason,
        before={name: value for name, value in before.items() if value is not None},
        after=after,
    )
    return answer


def keep_recurring(
    actor: Actor | None,
    action: str,
    old: RecurringRecord | None,
    new: RecurringRecord | None,
    *,
    reason: str | None = None,
    always: bool = False,
) -> Op[None]:
    """Write down what was done to a recurring job; nothing, if that changed nothing or nobody acts."""
    job = old or new
    if actor is None or job is None:
        return
    before = None if old is None else recurring_snapshot(old)
    after = None if new is None else recurring_snapshot(new)
    if before is not None and after is not None:
        before, after = difference(before, after)
        if not before and not always:
            return
    for whole in (before, after) if before is None or after is None else ():
        if whole is not None:
            del whole["args"]  # only where somebody edits them: what is deleted shall be gone
    subject = f"{job.task}/{job.key}" if job.key else job.task
    yield from keep(
        actor,
        action,
        job_id=job.id,
        tenant=job.tenant,
        task=job.task,
        subject=subject,
        reason=reason,
        before=before,
        after=after,
    )


def set_horizon(queue: str, horizon_us: int | None, *, actor: Actor | None = None) -> Op[None]:
    """Say how fast a queue ages."""
    rows = yield Call("horizon_of", {"queue": queue})
    old = rows[0][0] if rows else None
    yield Call("set_horizon", {"queue": queue, "horizon_us": horizon_us})
    if actor is not None and old != horizon_us:
        yield from keep(actor, "set_aging", subject=queue, before={"horizon_us": old}, after={"horizon_us": horizon_us})


def keep_prune(actor: Actor | None, what: str, gone: int, keep_us: int) -> Op[None]:
    """Write down that somebody forgot some of what was old, if anybody did and anything was."""
    if actor is not None and gone:
        yield from keep(actor, "prune", subject=what, after={"gone": gone, "keep_us": keep_us})


def find(
    *,
    job_id: str | None,
    who: str | None,
    action: str | None,
    tenant: str | None,
    since_at: int | None,
    until_at: int | None,
    before_id: int | None,
    n: int,
) -> Op[list[AuditRow]]:
    """What was done, newest first."""
    params: dict[str, Value] = {
        "job_id": job_id,
        "who": who,
        "action": action,
        "tenant": tenant,
        "since_at": since_at,
        "until_at": until_at,
        "before_id": before_id,
        "n": n,
    }
    name = "list_audit_of" if job_id is not None else "list_audit_of_tenant" if tenant else "list_audit"
    rows = yield Call(name, params)
    return [AuditRow._make(row) for row in rows]


def prune(keep_us: int) -> Op[None]:
    """Forget what was done longer ago than that."""
    yield Call("prune_audit", {"keep_us": keep_us})
