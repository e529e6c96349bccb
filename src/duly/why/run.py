"""How a job stands that runs or has ended: judged from the facts alone."""

from __future__ import annotations

from typing import Any

from duly.domain.recurring import RecurringRecord
from duly.schedule.plan import Ticks
from duly.store.ops_why import Facts, LastRun, Place
from duly.why import advice, lane
from duly.why.answer import Blocker, Reason, at, iso


def running(facts: Facts, place: Place, recurring: RecurringRecord | None) -> Blocker:
    """How a job runs: where, since when, and whether its worker is still there."""
    job = facts.job
    worker = lane.people(facts.workers).get(place.worker_id or "")
    left = None if place.leased_until is None else place.leased_until - job.lease_now
    details: dict[str, Any] = {
        "worker_id": place.worker_id,
        "host": None if worker is None else worker.record.process.host,
        "pid": None if worker is None else worker.record.process.pid,
        "worker_seen_seconds_ago": None if worker is None else round(worker.record.silent_us / 1e6, 1),
        "worker_alive": worker is not None and worker.alive,
        "leased_for": None if left is None else round(left / 1e6, 3),
        "progress": place.progress,
        "progress_text": place.progress_text,
        "deadline_at": iso(place.deadline_at),
    }
    if recurring is not None:
        details |= {"overlap": recurring.overlap, "next_tick_at": iso(_next_tick(recurring, job.now))}
    since = at(place.since)
    if left is not None and (left <= 0 or _left_by_a_boot(facts, place) or (worker is not None and not worker.alive)):
        others = [each for each in facts.workers if each.alive and each is not worker]
        lapses = 0 if _left_by_a_boot(facts, place) else max(left, 0)
        return Blocker(
            reason=Reason.LEASE_LAPSED,
            since=since,
            until=at(job.now + lapses),
            next=None if others else advice.start_worker(job.queue),
            details=details | {"rescuers": len(others)},
        )
    if place.cancel_at is not None:
        return Blocker(
            reason=Reason.CANCEL_REQUESTED,
            since=at(place.cancel_at),
            because=place.cancel_reason,
            next=advice.show(job.id),
            details=details,
        )
    if recurring is not None and recurring.overlap != "allow" and place.since is not None:
        missed = Ticks(recurring).after(max(place.since, recurring.tick_at or 0))
        if missed is not None and missed <= job.now:
            return Blocker(
                reason=Reason.PREVIOUS_RUN,
                since=since,
                next=advice.cancel(job.id),
                details=details | {"missed_at": iso(missed)},
            )
    return Blocker(reason=Reason.RUNNING, since=since, next=advice.show(job.id), details=details)


def _left_by_a_boot(facts: Facts, place: Place) -> bool:
    """Whether it was claimed before this machine was last switched on, if leases go by its clock."""
    booted = facts.job.now - facts.job.lease_now
    worker = lane.people(facts.workers).get(place.worker_id or "")
    return (place.since or 0) < booted and (worker is None or worker.record.seen_at < booted)


def _next_tick(recurring: RecurringRecord, now: int) -> int | None:
    return Ticks(recurring).after(now)


def ended(facts: Facts, place: Place) -> Blocker:
    """What a job ended with."""
    job, last = facts.job, facts.last_run
    details: dict[str, Any] = {"attempts": place.attempt, "max_attempts": job.max_attempts}
    error = None if last is None else error_of(last)
    since = at(place.since)
    if place.name == "succeeded":
        return Blocker(reason=Reason.SUCCEEDED, since=since, details=details)
    if place.name == "failed":
        poison = (place.reason or "").startswith("poison")
        return Blocker(
            reason=Reason.POISON if poison else Reason.FAILED,
            since=since,
            because=error,
            next=advice.retry(job.id),
            details=details | {"ended_because": place.reason, "crashes": place.crashes},
        )
    expired = last is not None and last.outcome == "expired"
    return Blocker(
        reason=Reason.EXPIRED if expired else Reason.CANCELLED,
        since=since,
        because=place.reason,
        next=None if expired else advice.retry(job.id),
        details=details,
    )


def error_of(run: LastRun) -> str | None:
    """What a run raised, in a line."""
    if run.error_kind is None:
        return run.error
    return run.error_kind if not run.error else f"{run.error_kind}: {run.error}"
