"""Whether anything can be claimed from a lane: one queue, tenant and task. One judgement for one job and for all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from duly.domain.limits import QUOTAS
from duly.domain.names import suggest
from duly.store.ops_why import GateFacts, HolderFacts, WorkerFacts, passes
from duly.why import advice
from duly.why.answer import Blocker, Holder, Reason, at

MOST_SEEN = 5
"""So many workers are named at most."""


class Room(NamedTuple):
    """How full one worker is for one lane."""

    slots: int
    busy: int


def blockers(
    queue: str,
    tenant: str,
    task: str,
    *,
    gates: Iterable[GateFacts],
    workers: Sequence[WorkerFacts],
    now: int,
) -> list[Blocker]:
    """Everything that keeps a lane from being claimed from at this moment."""
    mine, by_id = set(passes(queue, tenant, task)), people(workers)
    found = [each for gate in gates if (gate.scope, gate.name) in mine for each in at_gate(gate, now, by_id)]
    return found + nobody(queue, task, workers)


def shut(queue: str, tenant: str, task: str, gates: Iterable[GateFacts], now: int) -> bool:
    """Whether one of these gates keeps a lane shut at this moment."""
    mine = set(passes(queue, tenant, task))
    return any(True for gate in gates if (gate.scope, gate.name) in mine for _ in at_gate(gate, now, {}))


# -- gates ------------------------------------------------------------------------------------------------------------


def at_gate(gate: GateFacts, now: int, workers: Mapping[str, WorkerFacts]) -> Iterator[Blocker]:
    """What a gate or a key holds back with at this moment."""
    if gate.paused_at is not None and (gate.paused_until is None or gate.paused_until > now):
        yield Blocker(
            reason=Reason.PAUSED,
            scope=gate.scope,
            name=gate.name,
            since=at(gate.paused_at),
            until=at(gate.paused_until),
            by=gate.paused_by,
            because=gate.paused_reason,
            next=advice.resume(gate.scope, gate.name),
        )
    if gate.blocked_until is not None and gate.blocked_until > now:
        yield Blocker(
            reason=Reason.BLOCKED,
            scope=gate.scope,
            name=gate.name,
            until=at(gate.blocked_until),
            because=gate.blocked_reason,
        )
    yield from _at_rate(gate, now)
    if gate.slots is not None and gate.scope not in ("keys", *QUOTAS) and gate.live >= gate.slots:
        yield Blocker(
            reason=Reason.LIMIT_FULL,
            scope=gate.scope,
            name=gate.name,
            holders=tuple(holder(each, workers) for each in gate.holders),
            next=advice.raise_slots(gate),
            details={"slots": gate.slots, "held": gate.live},
        )


def _at_rate(gate: GateFacts, now: int) -> Iterator[Blocker]:
    if gate.rate is None or gate.refuses or gate.scope == "keys":
        return
    opens = gate.rate.opens_at(gate.spent_until, gate.used, now)
    if opens <= now:
        return
    if gate.scope in QUOTAS:
        yield Blocker(
            reason=Reason.QUOTA_USED_UP,
            scope="tenant",
            name=gate.name,
            until=at(opens),
            next=advice.raise_rate(gate),
            details={"quota": gate.rate.n, "per": gate.scope, "used": gate.used},
        )
        return
    yield Blocker(
        reason=Reason.RATE_USED_UP,
        scope=gate.scope,
        name=gate.name,
        until=at(opens),
        next=advice.raise_rate(gate),
        details={"rate": str(gate.rate), "burst": gate.rate.burst},
    )


def holder(facts: HolderFacts, workers: Mapping[str, WorkerFacts]) -> Holder:
    """Who holds something, and where it runs."""
    worker = workers.get(facts.worker_id or "")
    return Holder(
        job_id=facts.job_id,
        place=facts.place,
        task=facts.task,
        worker_id=facts.worker_id,
        host=None if worker is None else worker.record.process.host,
        pid=None if worker is None else worker.record.process.pid,
        since=at(facts.since),
        leased_for=None if facts.leased_us is None else round(facts.leased_us / 1e6, 3),
    )


def people(workers: Iterable[WorkerFacts]) -> dict[str, WorkerFacts]:
    """Workers by id."""
    return {worker.record.id: worker for worker in workers}


# -- workers ----------------------------------------------------------------------------------------------------------


def nobody(queue: str, task: str, workers: Sequence[WorkerFacts]) -> list[Blocker]:
    """Whether no worker could take the job, or none has room for it."""
    here = live(workers)
    if not here:
        seen = max((worker.record.seen_at for worker in workers), default=None)
        return [
            Blocker(
                reason=Reason.NO_WORKER,
                since=at(seen),
                next=advice.start_worker(queue),
                details={
                    "workers": [_seen(worker) for worker in workers[:MOST_SEEN]],
                    "workers_on_record": len(workers),
                },
            )
        ]
    taking = [worker for worker in here if takes(worker, queue)]
    if not taking:
        return [
            Blocker(
                reason=Reason.NO_WORKER_FOR_QUEUE,
                scope="queue",
                name=queue,
                next=advice.start_worker(queue),
                details={
                    "workers": [_seen(worker) for worker in here[:MOST_SEEN]],
                    "queues_served": sorted({name for worker in here for name in json.loads(worker.record.queues)}),
                },
            )
        ]
    knowing = [worker for worker in taking if knows(worker, task)]
    if not knowing:
        known = sorted({name for worker in taking for name in json.loads(worker.record.tasks)})
        elsewhere = [worker for worker in here if worker not in taking and knows(worker, task)]
        return [
            Blocker(
                reason=Reason.UNKNOWN_TASK,
                scope="task",
                name=task,
                next=advice.start_worker(queue),
                details={
                    "workers": [_seen(worker) for worker in taking[:MOST_SEEN]],
                    "known": known[:20],
                    "suggestion": suggest(task, known).strip() or None,
                    "known_by_workers_of_other_queues": [_seen(worker) for worker in elsewhere[:MOST_SEEN]],
                },
            )
        ]
    rooms = [room(worker, queue, task) for worker in knowing]
    if all(each.busy >= each.slots for each in rooms):
        return [_busy(knowing, rooms)]
    return []


def _busy(knowing: Sequence[WorkerFacts], rooms: Sequence[Room]) -> Blocker:
    running: dict[str, int] = {}
    for worker in knowing:
        for (task, _), n in worker.load.items():
            running[task] = running.get(task, 0) + n
    most = sorted(running.items(), key=lambda item: -item[1])[:MOST_SEEN]
    return Blocker(
        reason=Reason.WORKERS_BUSY,
        next=advice.start_worker(),
        details={
            "slots": sum(each.slots for each in rooms),
            "busy": sum(each.busy for each in rooms),
            "workers": [_seen(worker) for worker in knowing[:MOST_SEEN]],
            "running": dict(most),
        },
    )


def live(workers: Iterable[WorkerFacts]) -> list[WorkerFacts]:
    """Workers that live and take jobs."""
    return [worker for worker in workers if worker.alive and worker.record.state == "running"]


def takes(worker: WorkerFacts, queue: str) -> bool:
    """Whether a worker takes from a queue."""
    return queue in json.loads(worker.record.queues)


def knows(worker: WorkerFacts, task: str) -> bool:
    """Whether a worker knows a task."""
    return task in json.loads(worker.record.tasks)


def room(worker: WorkerFacts, queue: str, task: str) -> Room:
    """How many jobs of a lane's kind a worker runs at once, and how many of these slots are in use.

    A queue that was promised slots has no more than these; whichever is fuller counts.
    """
    capacity = json.loads(worker.record.capacity or "{}")
    pool = Room(worker.record.slots, sum(worker.load.values()))
    pools = capacity.get("pools", [])
    named = {name: each for each in pools for name in each["tasks"] or ()}
    rest = next((each for each in pools if each["tasks"] is None), None)
    own = named.get(task, rest)
    if own is not None:
        in_it = sum(n for (name, _), n in worker.load.items() if named.get(name, rest) is own)
        pool = Room(own["slots"], in_it)
    promised = capacity.get("queues", {}).get(queue)
    if promised is not None:
        share = Room(promised, sum(n for (_, name), n in worker.load.items() if name == queue))
        return min(pool, share, key=lambda each: each.slots - each.busy)
    return pool


def _seen(worker: WorkerFacts) -> dict[str, object]:
    """A worker as people know it."""
    record = worker.record
    return {
        "id": record.id,
        "host": record.process.host,
        "pid": record.process.pid,
        "alive": worker.alive,
        "state": record.state,
        "silent_seconds": round(record.silent_us / 1e6, 1),
    }
