"""Claim: learn which lanes have jobs, and take the first of some of them.

A claim names the lanes it may take, so it never walks over what it cannot. It names the limits that bind them too, and
holds these while it counts what runs under them; lanes that other limits bind, or that are paused, give it nothing.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from duly.domain.limits import Gate
from duly.domain.records import Claimed, Lane
from duly.store.call import Call, Dialect, Op, Value
from duly.store.ops_limits import bits, room, spend

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


class Found(NamedTuple):
    """The lanes of a queue that have jobs, with the rank at the head of each."""

    lanes: list[tuple[Lane, int]]
    suspects: list[tuple[Lane, int]]
    """Of jobs that run alone."""


def look(dialect: Dialect, queue: str, *, after: Lane | None = None) -> Op[Found]:
    """Name the lanes of a queue that have jobs, from one on: MAX_LANES at most; and those of jobs that run alone."""
    if dialect is Dialect.SQLITE:
        ordinary = yield from lanes(dialect, queue, suspect=False, after=after)
        return Found(ordinary, (yield from lanes(dialect, queue, suspect=True)))
    tenant, task = ("", "") if after is None else (after.tenant, after.task)
    rows = yield Call("lanes_and_suspects", {"queue": queue, "n": MAX_LANES, "tenant": tenant, "task": task})
    found = Found([], [])
    for row in rows:
        found[int(str(row[0]))].append((Lane(str(row[1]), str(row[2])), int(str(row[3]))))
    if len(rows) < MAX_LANES:
        return found
    return Found(found.lanes, (yield from lanes(dialect, queue, suspect=True)))  # they come last, and did not all fit


def claim(
    dialect: Dialect,
    *,
    queue: str,
    from_lanes: Sequence[Lane],
    n: int,
    worker_id: str,
    lease_us: int,
    suspect: bool = False,
    gates: Sequence[Gate] = (),
    ended: Sequence[tuple[str, int]] = (),
    shares: Mapping[str, int] | None = None,
) -> Op[Iterable[Claimed]]:
    """Lease up to `n` jobs to a worker, lowest rank first across the lanes named.

    `gates` are the limits that bind all of these lanes: they are held, and no more is taken than they have room for. A
    lane that another limit binds, or that is paused, gives nothing. `ended` are runs of which the caller knows that
    they have ended, though they are not settled yet: they do not count. With `shares` of each tenant's lanes no more
    are taken than its share; lowest rank first within the tenant. What SQLite answers is read after the commit, when
    somebody looks at it: others can write meanwhile.
    """
    if not from_lanes or n <= 0:
        return []
    params: dict[str, Value] = {
        "queue": queue,
        "suspect": int(suspect),
        "n": n,
        "worker_id": worker_id,
        "lease_us": lease_us,
        "limited": bits(gates),
        "fair": shares is not None,
    }
    if dialect is Dialect.SQLITE:
        return (yield from _claim_sqlite(from_lanes, n, params, sorted(gates), ended, shares))
    params["held"] = [f"{scope} {name}" for scope, name in gates]
    gated = bool(gates) or (shares is not None and sum(shares.values()) > n)
    if gated:
        held = sorted(gates)
        params["gate_scopes"], params["gate_names"] = [scope for scope, _ in held], [name for _, name in held]
        params["ended_ids"], params["ended_tokens"] = [pair[0] for pair in ended], [pair[1] for pair in ended]
    if len(from_lanes) == 1:
        if shares is not None:
            params["n"] = min(n, shares.get(from_lanes[0].tenant, 0))
        statement = "claim_gated_lane" if gates else "claim_lane"
        return (yield from _claimed(statement, params | from_lanes[0]._asdict()))
    params["tenants"] = [lane.tenant for lane in from_lanes]
    params["tasks"] = [lane.task for lane in from_lanes]
    params["from_ranks"] = [lane.from_rank for lane in from_lanes]
    params["from_ids"] = [lane.from_id for lane in from_lanes]
    params["shares"] = [n if shares is None else shares.get(lane.tenant, 0) for lane in from_lanes]
    statement = "claim_gated" if gated else "claim" if shares is None else "claim_shares"
    return (yield from _claimed(statement, params))


def _claimed(statement: str, params: dict[str, Value]) -> Op[Iterable[Claimed]]:
    rows = yield Call(statement, params, Claimed._make)
    return [row if type(row) is Claimed else Claimed._make(row) for row in rows]


def _claim_sqlite(
    from_lanes: Sequence[Lane],
    n: int,
    params: dict[str, Value],
    gates: Sequence[Gate],
    ended: Sequence[tuple[str, int]],
    shares: Mapping[str, int] | None,
) -> Op[Iterable[Claimed]]:
    rated: list[Gate] = []
    if (yield Call("any_gate")):
        from_lanes = yield from _open_lanes(from_lanes, str(params["queue"]), gates)
        n, rated = yield from room(gates, n, ended)
    if n <= 0:
        return []
    if len(from_lanes) == 1 and shares is None:
        yield Call("pick_lane", params | from_lanes[0]._asdict() | {"n": n})
    else:
        picked = yield from _pick_from(from_lanes, n, params, shares)
        if not picked:
            return []
        yield Call("pick_jobs", {"ids": json.dumps([job_id for _, job_id in picked])})
    yield Call("lease", params)
    yield Call("leave_lane")
    rows = yield Call("leased_jobs")
    yield Call("clear_leasing")
    leased = _read(str(rows[0][0]))
    if not rated:
        return leased
    jobs = list(leased)
    if jobs:
        yield from spend(rated, len(jobs), json.dumps([job.id for job in jobs]))
    return jobs


def _read(leased: str) -> Iterator[Claimed]:
    yield from map(Claimed._make, json.loads(leased))


def _pick_from(
    from_lanes: Sequence[Lane], n: int, params: dict[str, Value], shares: Mapping[str, int] | None
) -> Op[list[tuple[int, str]]]:
    """The first jobs of several lanes, as (rank, id)."""
    heads: dict[str, list[list[tuple[int, str]]]] = {}
    for lane in from_lanes:
        rows = yield Call("head_of_lane", params | lane._asdict())
        head = [(rank, job_id) for rank, job_id in json.loads(str(rows[0][0]))]
        heads.setdefault("" if shares is None else lane.tenant, []).append(head)
    return _pick(heads, n, shares)


def _open_lanes(from_lanes: Sequence[Lane], queue: str, gates: Sequence[Gate]) -> Op[list[Lane]]:
    """The lanes that nothing bars: no gate that is closed, no limit but those that are held."""
    held = json.dumps([f"{scope} {name}" for scope, name in gates])
    lanes = json.dumps([(lane.tenant, lane.task) for lane in from_lanes])
    rows = yield Call("open_lanes", {"queue": queue, "held": held, "lanes": lanes})
    return [from_lanes[int(str(row[0]))] for row in rows]


def _pick(
    heads: dict[str, list[list[tuple[int, str]]]], n: int, shares: Mapping[str, int] | None
) -> list[tuple[int, str]]:
    """The first `n` by rank; where tenants share, each no more than its share, and if these are too many, in turn."""
    if shares is None:
        return list(islice(heapq.merge(*heads.get("", [])), n))
    places = []
    for tenant, some in heads.items():
        share = shares.get(tenant, 0)
        for place, (rank, job_id) in enumerate(islice(heapq.merge(*some), share), 1):
            places.append((place / share, rank, job_id))
    return sorted((rank, job_id) for _, rank, job_id in sorted(places)[:n])
