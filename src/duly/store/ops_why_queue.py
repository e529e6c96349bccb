"""What `duly why --queue` asks of the database, as values: all that waits, by lanes, gates and reasons, not by job."""

from __future__ import annotations

from typing import NamedTuple

from duly.domain.limits import Gate
from duly.domain.records import Lane
from duly.store import ops_claim
from duly.store.call import Call, Dialect, Op, Value
from duly.store.ops_keys import group_of
from duly.store.ops_why import (
    MEASURED_US,
    MINUTE_US,
    MOST_COUNTED,
    GateFacts,
    WorkerFacts,
    gate_of,
    key_facts,
    named,
    passes,
    whole,
    with_holders,
    worker_facts,
)

BUDGET = 200_000
"""So many waiting rows are counted at most, all lanes together."""
LEAST_COUNTED = 100
MOST_QUEUES = 200
MOST_PAIRS = 200
MOST_GROUPS = 200
MOST_GATES = 100_000


class LaneFacts(NamedTuple):
    """A lane in which jobs wait."""

    queue: str
    suspect: bool
    tenant: str
    task: str
    jobs: int
    first: str
    due_at: int


class ParkedFacts(NamedTuple):
    """Jobs of one task that are parked for one reason. Keys beyond the first few go together, without an example."""

    reason: str
    task: str
    queue: str
    tenant: str
    key: str | None
    jobs: int
    since: int
    example: str | None
    detail: str | None


class ScheduledFacts(NamedTuple):
    """Jobs whose time has not come."""

    queue: str
    kind: str
    jobs: int
    first_at: int
    example: str


class LapsedFacts(NamedTuple):
    """Runs of a queue whose leases have passed."""

    queue: str
    jobs: int
    for_us: int
    example: str


class Standing(NamedTuple):
    """Everything that holds what waits in some queues."""

    now: int
    gates: dict[Gate, GateFacts]
    workers: tuple[WorkerFacts, ...]
    lanes: list[LaneFacts]
    counted: int
    """How far lanes were counted."""
    more_lanes: bool
    """Whether a queue has more lanes than were looked at."""
    parked: list[ParkedFacts]
    keys: dict[str, GateFacts]
    scheduled: list[ScheduledFacts]
    lapsed: list[LapsedFacts]
    rates: dict[str, tuple[int, int]]
    """What each queue did, and in how many microseconds."""


def standing(dialect: Dialect, queue: str | None, tenant: str | None) -> Op[Standing]:
    """Read what holds the jobs of a queue, or of all; of one tenant, or of all. By lanes and gates, not by job."""
    now = whole((yield Call("why_clock"))[0][0])
    gates = {(gate.scope, gate.name): gate for gate in map(gate_of, (yield Call("why_all_gates", {"n": MOST_GATES})))}
    lanes, counted, more = yield from _waiting(dialect, queue, tenant)
    used = {gate for lane in lanes for gate in passes(lane.queue, lane.tenant, lane.task)}
    held = yield from with_holders(gate for name, gate in gates.items() if name in used)
    gates |= {(gate.scope, gate.name): gate for gate in held}
    parked = yield from _parked(queue, tenant)
    keys: dict[str, GateFacts] = {}
    for key in dict.fromkeys(each.key for each in parked if each.key is not None):
        keys[key] = yield from key_facts(key, list(gates.values()) if ("keys", group_of(key)) in gates else [])
    only: dict[str, Value] = {"queue": queue, "tenant": tenant}
    scheduled = yield Call("why_scheduled", only | {"n": MOST_COUNTED})
    lapsed = yield Call("why_lapsed", only)
    rates: dict[str, tuple[int, int]] = {}
    since = now - now % MINUTE_US - MEASURED_US + MINUTE_US
    for name in sorted({lane.queue for lane in lanes}):
        row = (yield Call("why_rate", {"queue": name, "tenant": tenant or "", "task": "", "since_at": since}))[0]
        rates[name] = (whole(row[0] if tenant is None else row[1]), 0 if row[3] is None else now - whole(row[3]))
    workers = yield from worker_facts()
    return Standing(
        now,
        gates,
        workers,
        lanes,
        counted,
        more,
        parked,
        keys,
        [ScheduledFacts(str(r[0]), str(r[1]), whole(r[2]), whole(r[3]), str(r[4])) for r in scheduled],
        [LapsedFacts(str(r[0]), whole(r[1]), whole(r[2]), str(r[3])) for r in lapsed],
        rates,
    )


def _waiting(dialect: Dialect, queue: str | None, tenant: str | None) -> Op[tuple[list[LaneFacts], int, bool]]:
    queues = [queue] if queue is not None else (yield from _queues())
    found: list[tuple[str, bool, list[Lane]]] = []
    more = False
    for name in queues:
        for suspect in (False, True):
            after = None if tenant is None else Lane(tenant, "")
            lanes = [lane for lane, _ in (yield from ops_claim.lanes(dialect, name, suspect=suspect, after=after))]
            more = more or len(lanes) >= ops_claim.MAX_LANES
            found.append((name, suspect, [lane for lane in lanes if tenant is None or lane.tenant == tenant]))
    total = sum(len(lanes) for _, _, lanes in found)
    most = max(LEAST_COUNTED, min(MOST_COUNTED, BUDGET // max(1, total)))
    waiting: list[LaneFacts] = []
    for name, suspect, lanes in found:
        if lanes:
            params: dict[str, Value] = {"queue": name, "suspect": int(suspect), "n": most}
            for row in (yield Call("why_lanes", params | named(dialect, lanes))):
                waiting.append(
                    LaneFacts(name, suspect, str(row[0]), str(row[1]), whole(row[2]), str(row[3]), whole(row[4]))
                )
    return waiting, most, more


def _queues() -> Op[list[str]]:
    found: list[str] = []
    while len(found) < MOST_QUEUES:
        rows = yield Call("why_next_queue", {"queue": found[-1] if found else ""})
        if not rows:
            break
        found.append(str(rows[0][0]))
    return found


def _parked(queue: str | None, tenant: str | None) -> Op[list[ParkedFacts]]:
    found: list[ParkedFacts] = []
    at: dict[str, Value] = {"reason": "", "task": ""}
    for _ in range(MOST_PAIRS):
        rows = (yield Call("why_next_parked_task", at)) or (yield Call("why_next_parked_reason", at))
        if not rows:
            break
        reason, task = str(rows[0][0]), str(rows[0][1])
        at = {"reason": reason, "task": task}
        params = at | {"queue": queue, "tenant": tenant, "n": MOST_COUNTED, "groups": MOST_GROUPS}
        rows = yield Call("why_parked", params)
        for row in rows:
            key, detail = (None if value is None else str(value) for value in (row[2], row[6]))
            found.append(
                ParkedFacts(
                    reason, task, str(row[0]), str(row[1]), key, whole(row[3]), whole(row[4]), str(row[5]), detail
                )
            )
        others = (whole(rows[0][7]) if rows else 0) - sum(whole(row[3]) for row in rows)
        if others:
            last = found[-1]
            found.append(last._replace(key=None, jobs=others, example=None, detail=None))
    return found
