"""Asks the database, and judges what it says: behind `Duly.why` and `Duly.why_waiting`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duly.domain.records import HOLD
from duly.store import ops_why, ops_why_queue
from duly.store.ops_why import WorkerFacts
from duly.why import hide, job, waiting
from duly.why.answer import Group, Why
from duly.worker.identity import is_alive

if TYPE_CHECKING:
    from duly.app import Duly
    from duly.domain.recurring import RecurringRecord

LOOKS = 5
"""How often to look again at a job that moves while it is looked at."""
RECURRING = (HOLD["recurs"], HOLD["spawns"])


def why(app: Duly, job_id: str, *, tenant: str | None = None) -> Why | None:
    """Why a job does not run, or how it stands. None if there is no such job, or it is another tenant's."""
    store = app.store
    facts = store.database.read(lambda: ops_why.facts(store.dialect, job_id))
    for _ in range(LOOKS - 1):
        if facts is None or not facts.moved:
            break
        facts = store.database.read(lambda: ops_why.facts(store.dialect, job_id))
    if facts is None or (tenant is not None and facts.job.tenant != tenant):
        return None
    recurring: RecurringRecord | None = None
    if not facts.places or any(place.hold in RECURRING for place in facts.places):
        recurring = store.database.read(lambda: store.recurring.get(job_id))
    facts = facts._replace(workers=_alive(facts.workers))
    if tenant is None:
        return job.judge(facts, recurring)
    return hide.answer(job.judge(hide.from_tenant(facts, tenant), recurring))


def why_waiting(app: Duly, *, queue: str | None = None, tenant: str | None = None) -> list[Group]:
    """What holds all that waits in a queue, or in all; of one tenant, or of all."""
    store = app.store
    standing = store.database.read(lambda: ops_why_queue.standing(store.dialect, queue, tenant))
    standing = standing._replace(workers=_alive(standing.workers))
    if tenant is None:
        return waiting.judge(standing)
    standing = standing._replace(
        gates={name: hide.gate(gate, tenant) for name, gate in standing.gates.items()},
        keys={name: hide.gate(key, tenant) for name, key in standing.keys.items()},
    )
    return [hide.group(group) for group in waiting.judge(standing)]


def _alive(workers: tuple[WorkerFacts, ...]) -> tuple[WorkerFacts, ...]:
    """Tell which workers live, as far as can be seen from here."""
    return tuple(worker._replace(alive=is_alive(worker.record)) for worker in workers)
