"""Claim: learn which lanes have jobs, and take the first of some of them.

A claim names the lanes it may take, so it never walks over what it cannot. With a limited task the limit's row is
locked in one statement and the live leases are counted in the next: in one statement the count would predate the lock.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping, Sequence
from itertools import islice

from duly.domain.records import Claimed, Lane
from duly.store.call import Call, Dialect, Op, Value

MAX_LANES = 1_000


def lanes(dialect: Dialect, queue: str, *, suspect: bool, after: Lane | None = None) -> Op[list[tuple[Lane, int]]]:
    """Name the lanes of a queue that have jobs, with the rank at the head of each: MAX_LANES of them at most."""
    tenant, task = ("", "") if after is None else (after.tenant, after.task)
    params: dict[str, Value] = {"queue": queue, "suspect": int(suspect), "n": MAX_LANES, "tenant": tenant, "task": task}
    if dialect is Dialect.POSTGRES:
        rows = yield Call("lanes", params)
        return [(Lane(str(row[0]), str(row[1])), int(str(row[2]))) for row in rows]
    found: list[tuple[Lane, int]] = []
    while len(found) < MAX_LANES:
        rows = (yield Call("next_task", params)) or (yield Call("next_tenant", params))
        if not rows:
            break
        tenant, task = str(rows[0][0]), str(rows[0][1])
        found.append((Lane(tenant, task), int(str(rows[0][2]))))
        params |= {"tenant": tenant, "task": task}
    return found


def claim(
    dialect: Dialect,
    *,
    queue: str,
    from_lanes: Sequence[Lane],
    n: int,
    worker_id: str,
    lease_us: int,
    suspect: bool = False,
    limited: bool = False,
    shares: Mapping[str, int] | None = None,
) -> Op[list[Claimed]]:
    """Lease up to `n` jobs to a worker, lowest rank first across the lanes named.

    With `limited` the lanes are those of one task that has a limit, and no more are taken than it has room for. With
    `shares` of each tenant's lanes no more are taken than its share; lowest rank first within the tenant.
    """
    if not from_lanes or n <= 0:
        return []
    if limited:
        room = yield from _room(from_lanes[0].task)
        if room <= 0:
            return []
        if room < n:
            n, shares = room, None if shares is None else _cut(shares, room)
    params: dict[str, Value] = {
        "queue": queue,
        "suspect": int(suspect),
        "n": n,
        "worker_id": worker_id,
        "lease_us": lease_us,
        "limited": limited,
    }
    if dialect is Dialect.SQLITE:
        return (yield from _claim_sqlite(from_lanes, n, params, shares))
    if len(from_lanes) == 1:
        if shares is not None:
            params["n"] = min(n, shares.get(from_lanes[0].tenant, 0))
        rows = yield Call("claim_lane", params | from_lanes[0]._asdict())
        return [Claimed._make(row) for row in rows]
    params["tenants"] = [lane.tenant for lane in from_lanes]
    params["tasks"] = [lane.task for lane in from_lanes]
    params["from_ranks"] = [lane.from_rank for lane in from_lanes]
    params["from_ids"] = [lane.from_id for lane in from_lanes]
    if shares is not None:
        params["shares"] = [shares.get(lane.tenant, 0) for lane in from_lanes]
    rows = yield Call("claim" if shares is None else "claim_shares", params)
    return [Claimed._make(row) for row in rows]


def _room(task: str) -> Op[int]:
    """Hold a task's limit and say how many more may run."""
    rows = yield Call("lock_limit", {"task": task})
    if not rows:
        return 0
    live = yield Call("count_limited", {"task": task})
    return int(str(rows[0][0])) - int(str(live[0][0]))


def _cut(shares: Mapping[str, int], room: int) -> dict[str, int]:
    """Shares that come to no more than `room`, the first tenants first."""
    cut: dict[str, int] = {}
    for tenant, share in shares.items():
        cut[tenant] = min(share, room)
        room -= cut[tenant]
    return cut


def _claim_sqlite(
    from_lanes: Sequence[Lane], n: int, params: dict[str, Value], shares: Mapping[str, int] | None
) -> Op[list[Claimed]]:
    heads: dict[str, list[list[tuple[int, str]]]] = {}
    closed = set((yield Call("closed_gates")))
    if closed:
        from_lanes = (
            []
            if ("queue", params["queue"]) in closed
            else [lane for lane in from_lanes if not {("task", lane.task), ("tenant", lane.tenant)} & closed]
        )
    for lane in from_lanes:
        rows = yield Call("head_of_lane", params | lane._asdict())
        head = [(rank, job_id) for rank, job_id in json.loads(str(rows[0][0]))]
        heads.setdefault("" if shares is None else lane.tenant, []).append(head)
    if shares is None:
        picked = list(islice(heapq.merge(*heads.get("", [])), n))
    else:
        firsts = [islice(heapq.merge(*some), shares.get(tenant, 0)) for tenant, some in heads.items()]
        picked = list(islice(heapq.merge(*firsts), n))
    if not picked:
        return []
    ids: dict[str, Value] = {"ids": json.dumps([job_id for _, job_id in picked])}
    yield Call("lease", params | ids)
    yield Call("leave_lane", ids)
    rows = yield Call("leased_jobs", ids)
    leased = json.loads(str(rows[0][0]))
    return [Claimed._make([*row, rank]) for row, (rank, _) in zip(leased, picked, strict=True)]


def set_limit(task: str, slots: int) -> Op[None]:
    """State how many jobs of a task may run at once, in all processes together."""
    yield Call("set_limit", {"task": task, "slots": slots})
