"""Why one job does not run, or how it stands: judged from the facts alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from duly.domain.records import HOLD
from duly.domain.recurring import RecurringRecord
from duly.schedule.plan import Ticks
from duly.store.ops_why import Facts, Place
from duly.why import advice, key, lane, turn
from duly.why.answer import UNTIL_SOMEBODY, Blocker, Reason, Why, at, in_order, iso
from duly.why.run import ended, error_of, running

LONG_US = 60_000_000
"""So long after its time a job that nothing holds should have started."""
CLOSE_US = 1_000_000
RECURS = (HOLD["recurs"], HOLD["spawns"])


def judge(facts: Facts, recurring: RecurringRecord | None = None) -> Why:
    """Say why a job does not run, or how it stands."""
    found = _found(facts, recurring)
    holding = tuple(each for each in found if each.reason not in _NOT_HELD)
    job = facts.job
    return Why(
        job_id=job.id,
        state=_state(facts, recurring),
        task=job.task,
        queue=job.queue,
        tenant=job.tenant or None,
        answer=found[0],
        blockers=holding,
        details=_details(facts),
        at=at(job.now),  # type: ignore[arg-type]
    )


_NOT_HELD = {
    Reason.STARTING,
    Reason.RUNNING,
    Reason.CANCEL_REQUESTED,
    Reason.LEASE_LAPSED,
    Reason.PREVIOUS_RUN,
    Reason.SUCCEEDED,
    Reason.FAILED,
    Reason.POISON,
    Reason.CANCELLED,
}


def _found(facts: Facts, recurring: RecurringRecord | None) -> tuple[Blocker, ...]:
    match facts.places:
        case []:
            return (_nowhere(facts, recurring),)
        case [place]:
            pass
        case several:
            return (
                Blocker(reason=Reason.TWO_PLACES, next=advice.FIX, details={"places": [each.name for each in several]}),
            )
    match place.name:
        case "scheduled":
            return _scheduled(facts, place, recurring)
        case "waiting":
            return _waiting(facts, place)
        case "parked":
            return _parked(facts, place)
        case "running":
            return (running(facts, place, recurring),)
        case _:
            return (ended(facts, place),)


def _state(facts: Facts, recurring: RecurringRecord | None) -> str:
    if not facts.places:
        return "disabled" if recurring is not None and not recurring.enabled else "nowhere"
    name = facts.places[0].name
    return {"waiting": "queued", "parked": "queued"}.get(name, name)


def _details(facts: Facts) -> dict[str, Any]:
    details: dict[str, Any] = {"created_at": at(facts.job.created_at).isoformat()}  # type: ignore[union-attr]
    if facts.job.limit_key is not None:
        details["key"] = facts.job.limit_key
    for place in facts.places:
        recurs = place.hold in RECURS
        details |= {"attempt": place.attempt, "max_attempts": None if recurs else facts.job.max_attempts}
        if place.name == "waiting" and facts.turn is not None:
            details |= turn.standing(facts.job, place, facts.turn)
    return details


# -- in no place ------------------------------------------------------------------------------------------------------


def _nowhere(facts: Facts, recurring: RecurringRecord | None) -> Blocker:
    if recurring is None or recurring.enabled:
        return Blocker(reason=Reason.NOWHERE, next=advice.FIX)
    return Blocker(
        reason=Reason.DISABLED,
        since=at(recurring.disabled_at),
        by=recurring.disabled_by,
        because=recurring.disabled_reason,
        next=advice.schedule("enable", facts.job.id),
        details={"next_run_at": iso(recurring.next_run_at), "failures": recurring.failures},
    )


# -- later ------------------------------------------------------------------------------------------------------------


def _scheduled(facts: Facts, place: Place, recurring: RecurringRecord | None) -> tuple[Blocker, ...]:
    """Its time has not come; what will hold it then too is told beside."""
    job, due = facts.job, place.run_at or 0
    held = _lane(facts) + _key(facts)
    if due <= job.now:
        return in_order(held) or (_nothing_holds(facts, place),)
    then = [each for each in held if _still(each, due)]
    return (_later(facts, place, recurring), *in_order(then))


def _still(blocker: Blocker, due: int) -> bool:
    """Whether a blocker is there to stay until a job is due."""
    number, _, _ = blocker.rank
    if number == UNTIL_SOMEBODY:
        return True
    return blocker.until is not None and blocker.until.timestamp() * 1e6 >= due - CLOSE_US


def _later(facts: Facts, place: Place, recurring: RecurringRecord | None) -> Blocker:
    job, last = facts.job, facts.last_run
    until = at(place.run_at)
    if recurring is not None:
        failing = recurring.failures > 0 and recurring.next_run_at != recurring.tick_at
        return Blocker(
            reason=Reason.RETRY if failing else Reason.RECURS,
            until=until,
            since=at(recurring.last_run_at),
            because=recurring.last_error if recurring.failures else None,
            next=advice.schedule("run", job.id),
            details={
                "failures": recurring.failures,
                "rule": Ticks(recurring).schedule.describe(),
                "overlap": recurring.overlap,
                "last_run_at": iso(recurring.last_run_at),
            },
        )
    if place.attempt > 0 and last is not None and last.outcome in ("failed", "crashed"):
        return Blocker(
            reason=Reason.RETRY,
            until=until,
            since=at(last.finished_at),
            because=error_of(last),
            next=advice.retry(job.id),
            details={"attempt": place.attempt, "max_attempts": job.max_attempts, "crashes": place.crashes},
        )
    snoozed = last is not None and last.outcome == "snoozed"
    return Blocker(
        reason=Reason.SNOOZED if snoozed else Reason.NOT_DUE,
        until=until,
        since=at(last.finished_at) if last is not None and snoozed else at(job.created_at),
        next=advice.retry(job.id),
    )


# -- due --------------------------------------------------------------------------------------------------------------


def _lane(facts: Facts) -> list[Blocker]:
    job = facts.job
    return lane.blockers(job.queue, job.tenant, job.task, gates=facts.gates, workers=facts.workers, now=job.now)


def _key(facts: Facts) -> list[Blocker]:
    if facts.key is None:
        return []
    workers = lane.people(facts.workers)
    return key.blockers(facts.key, facts.job.now, workers, task=facts.job.task, ahead=facts.ahead_by_key)


def _waiting(facts: Facts, place: Place) -> tuple[Blocker, ...]:
    job = facts.job
    found = _lane(facts)
    if (expired := _expired(facts)) is not None:
        found.append(expired)
    if place.suspect:
        found.append(_suspect(facts, place))
    if facts.turn is not None and (behind := turn.blocker(job, place, facts.turn, _open_lanes(facts))) is not None:
        found.append(behind)
    return in_order(found) or (_nothing_holds(facts, place),)


def _open_lanes(facts: Facts) -> Callable[[str, str], bool]:
    """Whether jobs of another lane of its queue come before: not if nobody knows them, or they are held back."""
    job, turn = facts.job, facts.turn
    here = [worker for worker in lane.live(facts.workers) if lane.takes(worker, job.queue)]

    def is_open(tenant: str, task: str) -> bool:
        if (tenant, task) == (job.tenant, job.task):
            return True
        known = not here or any(lane.knows(worker, task) for worker in here)
        return known and not lane.shut(job.queue, tenant, task, turn.gates if turn is not None else (), job.now)

    return is_open


def _expired(facts: Facts) -> Blocker | None:
    expires = facts.job.expires_at
    if expires is None or expires > facts.job.now:
        return None
    return Blocker(reason=Reason.EXPIRED, since=at(expires), next=advice.cancel(facts.job.id))


def _suspect(facts: Facts, place: Place) -> Blocker:
    return Blocker(
        reason=Reason.SUSPECT,
        since=at(place.run_at),
        because=None if facts.last_run is None else error_of(facts.last_run),
        next=advice.show(facts.job.id),
        details={"crashes": place.crashes},
    )


def _nothing_holds(facts: Facts, place: Place) -> Blocker:
    """A worker takes it in a moment; if that moment is long over, we do not know why."""
    since = max(place.run_at or 0, place.since or 0)
    late = facts.job.now - since > LONG_US
    return Blocker(
        reason=Reason.UNEXPLAINED if late else Reason.STARTING,
        since=at(since),
        next=advice.CHECK if late else None,
    )


def _parked(facts: Facts, place: Place) -> tuple[Blocker, ...]:
    job = facts.job
    if place.reason in ("key", "arrived"):
        held = _lane(facts) + _key(facts)
        if (expired := _expired(facts)) is not None:
            held.append(expired)
        return in_order(held) or (_nothing_holds(facts, place),)
    if place.reason == "unique":
        holder = facts.unique_holder
        named = None if holder is None else lane.holder(holder, lane.people(facts.workers))
        return (
            Blocker(
                reason=Reason.UNIQUE,
                scope="unique key",
                name=job.unique_key,
                since=at(place.since),
                holders=() if named is None else (named,),
                next=advice.CHECK if named is None or named.job_id is None else command_for(named.job_id),
            ),
        )
    if place.reason == "arguments":
        return (
            Blocker(
                reason=Reason.ARGUMENTS,
                scope="task",
                name=job.task,
                since=at(place.since),
                because=place.detail,
                next=advice.retry(job.id),
            ),
        )
    return (
        Blocker(
            reason=Reason.PARKED,
            since=at(place.since),
            because=": ".join(each for each in (place.reason, place.detail) if each),
            next=advice.retry(job.id),
        ),
    )


def command_for(job_id: str) -> str:
    """Ask the same of the job that another waits for."""
    return advice.command("why", job_id)
