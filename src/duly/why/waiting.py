"""What holds all that waits: grouped by reason, judged by lanes and gates. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from duly.domain.limits import Gate
from duly.store.ops_why import MOST_COUNTED, GateFacts, passes
from duly.store.ops_why_queue import LaneFacts, ParkedFacts, ScheduledFacts, Standing
from duly.why import advice, key, lane
from duly.why.answer import Blocker, Group, Reason, at, in_order

MOST_NAMED = 5
_LATER = {"not_due": Reason.NOT_DUE, "retry": Reason.RETRY, "recurs": Reason.RECURS}


@dataclass(slots=True)
class _Gathered:
    """A group as it grows."""

    queue: str
    blocker: Blocker
    jobs: int = 0
    at_least: bool = False
    example: str | None = None
    tasks: dict[str, None] = field(default_factory=dict)
    tenants: dict[str, None] = field(default_factory=dict)


class Groups:
    """Groups of jobs by queue and by what holds them."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Reason, str | None, str | None], _Gathered] = {}

    def add(
        self,
        queue: str,
        blocker: Blocker,
        jobs: int,
        *,
        example: str | None,
        at_least: bool = False,
        task: str | None = None,
        tenant: str | None = None,
    ) -> None:
        """Add jobs to the group of what holds them. The first to come is the example."""
        at = queue, blocker.reason, blocker.scope, blocker.name
        group = self._found.setdefault(at, _Gathered(queue, blocker, example=example))
        group.jobs += jobs
        group.at_least = group.at_least or at_least
        if task is not None:
            group.tasks[task] = None
        if tenant:
            group.tenants[tenant] = None

    def done(self) -> list[Group]:
        """The groups by queue, what decides first, then the larger first."""
        found = [
            Group(
                queue=each.queue,
                blocker=each.blocker,
                jobs=each.jobs,
                at_least=each.at_least,
                example=each.example,
                tasks=tuple(each.tasks)[:MOST_NAMED],
                tenants=tuple(each.tenants)[:MOST_NAMED],
            )
            for each in self._found.values()
        ]
        return sorted(found, key=lambda each: (each.queue, each.blocker.rank[0], -each.jobs))


def judge(standing: Standing) -> list[Group]:
    """Say what holds all that waits."""
    groups = Groups()
    for each in standing.lanes:
        groups.add(
            each.queue,
            _in_lane(each, standing),
            each.jobs,
            example=each.first,
            at_least=each.jobs >= standing.counted,
            task=each.task,
            tenant=each.tenant,
        )
    for parked in standing.parked:
        groups.add(
            parked.queue,
            _set_aside(parked, standing),
            parked.jobs,
            example=parked.example,
            at_least=parked.jobs >= MOST_COUNTED,
            task=parked.task,
            tenant=parked.tenant,
        )
    for later in standing.scheduled:
        for blocker in _later(later, standing):
            groups.add(later.queue, blocker, later.jobs, example=later.example, at_least=later.jobs >= MOST_COUNTED)
    for lapsed in standing.lapsed:
        blocker = Blocker(
            reason=Reason.LEASE_LAPSED,
            until=at(standing.now),
            next=None if lane.live(standing.workers) else advice.start_worker(lapsed.queue),
            details={
                "worker_alive": False,
                "leased_for": -lapsed.for_us / 1e6,
                "rescuers": len(lane.live(standing.workers)),
            },
        )
        groups.add(lapsed.queue, blocker, lapsed.jobs, example=lapsed.example)
    return groups.done()


def _gates(standing: Standing, names: tuple[Gate, ...]) -> Iterator[GateFacts]:
    return (standing.gates[name] for name in names if name in standing.gates)


def _in_lane(each: LaneFacts, standing: Standing) -> Blocker:
    """What decides for a lane; if nothing holds it, its jobs are being worked off."""
    found = in_order(
        lane.blockers(
            each.queue,
            each.tenant,
            each.task,
            gates=_gates(standing, passes(each.queue, each.tenant, each.task)),
            workers=standing.workers,
            now=standing.now,
        )
    )
    if found:
        return found[0]
    if each.suspect:
        return Blocker(reason=Reason.SUSPECT, next=advice.show(each.first), details={"crashes": 2})
    ran, measured_us = standing.rates.get(each.queue, (0, 0))
    return Blocker(
        reason=Reason.STARTING,
        since=at(each.due_at),
        details={"runs_measured": ran, "measured_seconds": round(measured_us / 1e6, 1)},
    )


def _set_aside(parked: ParkedFacts, standing: Standing) -> Blocker:
    """What decides for jobs that are parked."""
    workers = lane.people(standing.workers)
    match parked.reason:
        case "key" | "arrived":
            found = lane.blockers(
                parked.queue,
                parked.tenant,
                parked.task,
                gates=_gates(standing, passes(parked.queue, parked.tenant, parked.task)),
                workers=standing.workers,
                now=standing.now,
            )
            if parked.key is not None and parked.key in standing.keys:
                found += key.blockers(standing.keys[parked.key], standing.now, workers, task=parked.task)
            first = in_order(found)
            if first:
                return first[0]
            if parked.key is None:
                return Blocker(
                    reason=Reason.PARKED, scope="keys", because="its key has no room", since=at(parked.since)
                )
            return Blocker(reason=Reason.STARTING, since=at(parked.since))
        case "unique":
            return Blocker(
                reason=Reason.UNIQUE,
                scope="unique keys",
                since=at(parked.since),
                next=None if parked.example is None else advice.command("why", parked.example),
            )
        case "arguments":
            return Blocker(
                reason=Reason.ARGUMENTS,
                scope="task",
                name=parked.task,
                since=at(parked.since),
                because=parked.detail,
                next=None if parked.example is None else advice.retry(parked.example),
            )
        case other:
            return Blocker(reason=Reason.PARKED, scope="parked", name=other, because=other, since=at(parked.since))


def _later(later: ScheduledFacts, standing: Standing) -> Iterator[Blocker]:
    """What is scheduled waits for its time; what is late, for somebody who puts it into its lane."""
    if later.kind in _LATER:
        yield Blocker(reason=_LATER[later.kind], until=at(later.first_at))
    elif not lane.live(standing.workers):
        yield Blocker(reason=Reason.NO_WORKER, next=advice.start_worker(later.queue), details={"workers": []})
    else:
        yield Blocker(reason=Reason.STARTING, since=at(later.first_at))
