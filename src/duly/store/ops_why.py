"""What `duly why` asks of the database, as values: everything that can hold one job. It changes and judges nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from duly.domain.limits import Gate, Rate
from duly.domain.records import Lane, WorkerRecord
from duly.store import ops_claim, ops_workers
from duly.store.call import Call, Dialect, Op, Row, Value
from duly.store.ops_keys import group_of

MOST_COUNTED = 10_000
"""So many jobs of a lane are counted; beyond that there are "so many or more"."""
MOST_LANES = 64
MOST_HOLDERS = 10
MEASURED_US = 300_000_000
MINUTE_US = 60_000_000


class JobFacts(NamedTuple):
    """A job, and how its queue goes. The order is that of the statement's columns."""

    id: str
    task: str
    queue: str
    tenant: str
    priority: int
    max_attempts: int
    created_at: int
    expires_at: int | None
    unique_key: str | None
    limit_key: str | None
    fair: bool
    horizon_us: int | None
    now: int
    lease_now: int


class Place(NamedTuple):
    """A place that a job is in: scheduled, waiting, parked, running, or the state in which it ended."""

    name: str
    run_at: int | None
    attempt: int
    crashes: int
    hold: int
    rank: int | None
    suspect: int
    worker_id: str | None
    since: int | None
    """When it was parked, claimed or ended."""
    leased_until: int | None
    deadline_at: int | None
    cancel_at: int | None
    cancel_reason: str | None
    progress: float | None
    progress_text: str | None
    reason: str | None
    detail: str | None
    mark: str | None


class LastRun(NamedTuple):
    """How the last run of a job ended."""

    attempt: int
    outcome: str
    started_at: int
    finished_at: int
    worker_id: str
    error_kind: str | None
    error: str | None


class HolderFacts(NamedTuple):
    """A job that holds what another waits for."""

    job_id: str | None
    """None for jobs that whoever asks may not see."""
    place: str
    tenant: str | None
    task: str | None
    worker_id: str | None
    since: int
    leased_us: int | None
    """How long its lease still holds."""


class GateFacts(NamedTuple):
    """A gate, or a key: what it says and how it stands, and who holds its slots."""

    scope: str
    name: str
    slots: int | None = None
    rate: Rate | None = None
    refuses: bool = False
    spent_until: int = 0
    used: int = 0
    breaker: str | None = None
    most_waiting: int | None = None
    blocked_until: int | None = None
    blocked_reason: str | None = None
    paused_at: int | None = None
    paused_until: int | None = None
    paused_by: str | None = None
    paused_reason: str | None = None
    breaker_state: str | None = None
    opens_at: int | None = None
    tries: int = 0
    failures: int = 0
    own_rate: bool = True
    """Of a key: whether it has a rate of its own beside its group's."""
    live: int = 0
    holders: tuple[HolderFacts, ...] = ()


class WorkerFacts(NamedTuple):
    """A worker on record and what it holds, by task and queue."""

    record: WorkerRecord
    load: dict[tuple[str, str], int]
    alive: bool = True


class Turn(NamedTuple):
    """Where a waiting job stands, and how fast those before it go."""

    ahead_in_lane: int
    in_lane: int
    first: tuple[str, ...]
    """The first jobs of its lane."""
    ahead: dict[tuple[str, str], int]
    """Those before it that share its turns, by tenant and task."""
    gates: tuple[GateFacts, ...]
    """The gates that these pass: what is shut or full comes before nobody."""
    tenants: dict[str, float]
    """Who takes turns in this queue, with their weights."""
    ran_in_queue: int
    ran_of_tenant: int
    ran_in_lane: int
    measured_us: int


class Facts(NamedTuple):
    """Everything that can hold one job."""

    job: JobFacts
    places: tuple[Place, ...]
    last_run: LastRun | None
    gates: tuple[GateFacts, ...]
    key: GateFacts | None
    ahead_by_key: int
    unique_holder: HolderFacts | None
    workers: tuple[WorkerFacts, ...]
    turn: Turn | None
    moved: bool
    """Whether the job went elsewhere while all this was read, so that it does not fit together."""


# -- one job ----------------------------------------------------------------------------------------------------------


def facts(dialect: Dialect, job_id: str) -> Op[Facts | None]:
    """Read everything that can hold one job; None if there is no such job."""
    rows = yield Call("why_job", {"id": job_id})
    if not rows:
        return None
    job = JobFacts._make(rows[0])
    job = job._replace(id=str(job.id), fair=bool(job.fair))
    places = tuple(_place(row) for row in (yield Call("why_places", {"id": job_id})))
    runs = yield Call("why_last_run", {"id": job_id})
    gates = yield from _gates_of(job)
    key = None if job.limit_key is None else (yield from key_facts(job.limit_key, gates))
    ahead = 0
    holder = None
    turn = None
    for place in places:
        if place.name == "parked" and place.rank is not None and place.mark is not None:
            params: dict[str, Value] = {"key": place.mark, "rank": place.rank, "id": job_id, "n": MOST_COUNTED}
            ahead = whole((yield Call("why_ahead_by_key", params))[0][0])
        if place.name == "parked" and place.reason == "unique" and place.mark is not None:
            rows = yield Call("why_holder", {"id": place.mark})
            holder = _holder(rows[0]) if rows else None
        if place.name == "waiting":
            turn = yield from _turn(dialect, job, place)
    last = LastRun._make(runs[0])._replace(worker_id=str(runs[0][4])) if runs else None
    workers = yield from worker_facts()
    still = tuple(_place(row) for row in (yield Call("why_places", {"id": job_id})))
    moved = [_where(place) for place in places] != [_where(place) for place in still]
    return Facts(job, places, last, gates, key, ahead, holder, workers, turn, moved)


def _where(place: Place) -> tuple[object, ...]:
    return place.name, place.attempt, place.run_at, place.rank, place.reason


def _place(row: Row) -> Place:
    place = Place._make(row)
    return place._replace(worker_id=None if place.worker_id is None else str(place.worker_id))


def _gates_of(job: JobFacts) -> Op[tuple[GateFacts, ...]]:
    params = {
        "queue": job.queue,
        "task": job.task,
        "tenant": job.tenant,
        "key_group": None if job.limit_key is None else group_of(job.limit_key),
    }
    found = [gate_of(row) for row in (yield Call("why_gates", params))]
    return (yield from with_holders(found))


def with_holders(gates: Iterable[GateFacts]) -> Op[tuple[GateFacts, ...]]:
    """The same gates, those that limit how many run with who holds their slots."""
    found = []
    for gate in gates:
        if gate.slots is not None and gate.scope in ("queue", "task", "tenant"):
            rows = yield Call("why_held_by_gate", {"scope": gate.scope, "name": gate.name, "n": MOST_HOLDERS})
            gate = _held(gate, rows)
        found.append(gate)
    return tuple(found)


def key_facts(key: str, gates: Sequence[GateFacts]) -> Op[GateFacts]:
    """How a key stands. What it does not say itself, its group says."""
    rows = yield Call("why_key", {"key": key})
    found = _key(rows[0]) if rows else GateFacts("key", key)
    group = next((gate for gate in gates if (gate.scope, gate.name) == ("keys", group_of(key))), None)
    if group is not None:
        found = found._replace(
            slots=group.slots if found.slots is None else found.slots,
            rate=group.rate if found.rate is None else found.rate,
            own_rate=found.rate is not None,
            breaker=group.breaker,
        )
    return _held(found, (yield Call("why_held_by_key", {"key": key, "n": MOST_HOLDERS})))


def _turn(dialect: Dialect, job: JobFacts, place: Place) -> Op[Turn]:
    suspect, rank = bool(place.suspect), place.rank or 0
    own = Lane(job.tenant, job.task)
    lanes = yield from ops_claim.lanes(dialect, job.queue, suspect=suspect)
    if not any(lane == own for lane, _ in lanes):
        lanes += yield from ops_claim.lanes(dialect, job.queue, suspect=suspect, after=Lane(job.tenant, ""))
    before = sorted((head, lane) for lane, head in set(lanes) if head <= rank)
    sharing = [lane for _, lane in before if lane.tenant == job.tenant or not job.fair][:MOST_LANES]
    if own not in sharing:
        sharing.append(own)
    at: dict[str, Value] = {"queue": job.queue, "suspect": int(suspect), "rank": rank, "id": job.id, "n": MOST_COUNTED}
    ahead = {(str(r[0]), str(r[1])): whole(r[2]) for r in (yield Call("why_ahead", at | named(dialect, sharing)))}
    others = [lane for lane in sharing if lane != own and ahead.get(lane[:2])]
    gates = (yield Call("why_gates_of", named(dialect, others))) if others else []
    passed = yield from with_holders(map(gate_of, gates))
    counted = yield Call("why_lanes", at | named(dialect, [own]))
    first = yield Call("why_first", at | {"tenant": job.tenant, "task": job.task, "n": 3})
    weights = {str(name): float(str(weight)) for name, weight in (yield Call("weights"))}
    since = job.now - job.now % MINUTE_US - MEASURED_US + MINUTE_US
    rate = yield Call("why_rate", {"queue": job.queue, "tenant": job.tenant, "task": job.task, "since_at": since})
    in_queue, of_tenant, in_lane, began = rate[0]
    return Turn(
        ahead_in_lane=ahead.get((job.tenant, job.task), 0),
        in_lane=whole(counted[0][2]) if counted else 0,
        first=tuple(str(row[0]) for row in first),
        ahead={lane: n for lane, n in ahead.items() if n},
        gates=passed,
        tenants={lane.tenant: weights.get(lane.tenant, 1.0) for lane, _ in lanes},
        ran_in_queue=whole(in_queue),
        ran_of_tenant=whole(of_tenant),
        ran_in_lane=whole(in_lane),
        measured_us=0 if began is None else job.now - whole(began),
    )


def named(dialect: Dialect, lanes: Sequence[Lane]) -> dict[str, Value]:
    """Some lanes as parameters."""
    if dialect is Dialect.SQLITE:
        return {"lanes": json.dumps([(lane.tenant, lane.task) for lane in lanes])}
    return {"tenants": [lane.tenant for lane in lanes], "tasks": [lane.task for lane in lanes]}


# -- workers and gates ------------------------------------------------------------------------------------------------


def passes(queue: str, tenant: str, task: str) -> tuple[Gate, ...]:
    """The gates that a lane passes."""
    return ("queue", queue), ("task", task), ("tenant", tenant), ("minute", tenant), ("day", tenant)


def worker_facts() -> Op[tuple[WorkerFacts, ...]]:
    """Every worker on record, and what each holds."""
    records = yield from ops_workers.everyone()
    load: dict[str, dict[tuple[str, str], int]] = {}
    for worker_id, task, queue, n in (yield Call("why_load")):
        load.setdefault(str(worker_id), {})[str(task), str(queue)] = whole(n)
    return tuple(WorkerFacts(record, load.get(record.id, {})) for record in records)


def gate_of(row: Row) -> GateFacts:
    """A row of the statements about gates."""
    scope, name, slots, rate_n, rate_us, burst, refuses, spent_until, used, breaker, most_waiting, *rest = row
    return GateFacts(
        str(scope),
        str(name),
        None if slots is None else whole(slots),
        _rate(rate_n, rate_us, burst),
        bool(refuses),
        whole(spent_until),
        whole(used),
        None if breaker is None else str(breaker),
        None if most_waiting is None else whole(most_waiting),
        *rest,  # type: ignore[arg-type]
    )


def _key(row: Row) -> GateFacts:
    name, slots, rate_n, rate_us, burst, spent_until, opens_at, state, tries, failures, *rest = row
    found = GateFacts("key", str(name), None if slots is None else whole(slots), _rate(rate_n, rate_us, burst))
    blocked_until, blocked_reason, paused_at, paused_until, paused_by, paused_reason = rest
    return found._replace(
        spent_until=whole(spent_until),
        opens_at=None if opens_at is None else whole(opens_at),
        breaker_state=None if state is None else str(state),
        tries=whole(tries),
        failures=whole(failures),
        blocked_until=None if blocked_until is None else whole(blocked_until),
        blocked_reason=None if blocked_reason is None else str(blocked_reason),
        paused_at=None if paused_at is None else whole(paused_at),
        paused_until=None if paused_until is None else whole(paused_until),
        paused_by=None if paused_by is None else str(paused_by),
        paused_reason=None if paused_reason is None else str(paused_reason),
    )


def _rate(n: object, per_us: object, burst: object) -> Rate | None:
    return (
        None if n is None or per_us is None else Rate(whole(n), whole(per_us), None if burst is None else whole(burst))
    )


def _holder(row: Row) -> HolderFacts:
    job_id, place, tenant, task, worker_id, since, leased_us = row[:7]
    return HolderFacts(
        str(job_id),
        str(place),
        str(tenant),
        str(task),
        None if worker_id is None else str(worker_id),
        whole(since),
        None if leased_us is None else whole(leased_us),
    )


def _held(gate: GateFacts, rows: Sequence[Row]) -> GateFacts:
    return gate._replace(live=whole(rows[0][7]) if rows else 0, holders=tuple(_holder(row) for row in rows))


def whole(value: object) -> int:
    """A number of the database's; nothing is 0."""
    return 0 if value is None else int(str(value))
