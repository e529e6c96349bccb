"""Where a waiting job stands among others, and when its turn may come by what was measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from duly.domain.rank import DEFAULT_HORIZON_US, effective_priority
from duly.store.ops_why import MOST_COUNTED, JobFacts, Place, Turn
from duly.why import advice
from duly.why.answer import Blocker, Reason, at

MOST_NAMED = 5


def ahead_of(turn: Turn, is_open: Callable[[str, str], bool]) -> int:
    """How many jobs come before by rank: those of its tenant, in lanes that something can be claimed from."""
    return sum(n for (tenant, task), n in turn.ahead.items() if is_open(tenant, task))


def expected(turn: Turn, ahead: int, *, tenant: str, fair: bool) -> int | None:
    """In how many microseconds its turn comes, by what was measured; None if nothing was."""
    if turn.measured_us <= 0:
        return None
    of_turn = turn.ran_of_tenant if fair else turn.ran_in_queue
    if fair and not of_turn:  # it ran nothing meanwhile: it would have its share of what the queue did
        weights = turn.tenants or {tenant: 1.0}
        share = weights.get(tenant, 1.0) / sum(weights.values())
        of_turn = int(turn.ran_in_queue * share)
    waits = [
        (before + 1) * turn.measured_us // ran
        for before, ran in ((turn.ahead_in_lane, turn.ran_in_lane), (ahead, of_turn))
        if ran > 0
    ]
    return max(waits, default=None)


def blocker(job: JobFacts, place: Place, turn: Turn, is_open: Callable[[str, str], bool]) -> Blocker | None:
    """What to say of those that come before; None if none does."""
    ahead = max(ahead_of(turn, is_open), turn.ahead_in_lane)
    if ahead <= 0:
        return None
    wait = expected(turn, ahead, tenant=job.tenant, fair=job.fair)
    return Blocker(
        reason=Reason.BEHIND_OTHERS,
        scope="queue",
        name=job.queue,
        since=at(place.run_at),
        until=None if wait is None else at(job.now + wait),
        next=advice.boost(job.id),
        details={
            "ahead": ahead,
            "ahead_by_task": _by_task(turn, is_open),
            "first": [each for each in turn.first if each != job.id],
            **standing(job, place, turn),
        },
    )


def _by_task(turn: Turn, is_open: Callable[[str, str], bool]) -> dict[str, int]:
    found: dict[str, int] = {}
    for (tenant, task), n in turn.ahead.items():
        if is_open(tenant, task):
            found[task] = found.get(task, 0) + n
    return dict(sorted(found.items(), key=lambda item: -item[1])[:MOST_NAMED])


def standing(job: JobFacts, place: Place, turn: Turn) -> dict[str, Any]:
    """The numbers behind it."""
    others = len(turn.tenants) - (job.tenant in turn.tenants)
    return {
        "position_in_lane": turn.ahead_in_lane + 1,
        "in_lane": turn.in_lane,
        "at_least": max((turn.in_lane, *turn.ahead.values())) >= MOST_COUNTED,
        "other_tenants": others if job.fair else 0,
        "priority": job.priority,
        "effective_priority": effective_priority(
            job.now,
            job.now if place.run_at is None else place.run_at,
            job.priority,
            DEFAULT_HORIZON_US if job.horizon_us is None else job.horizon_us,
        ),
        "runs_measured": turn.ran_of_tenant if job.fair else turn.ran_in_queue,
        "measured_seconds": round(turn.measured_us / 1e6, 1),
    }
