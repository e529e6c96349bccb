"""Settle: end runs, fenced. Each run leaves `running` only if its token still holds; what does not hold changes nothing.

Also here: renewing leases, progress, cancel requests and the search for runs whose worker is gone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby

from duly.domain.rank import DEFAULT_HORIZON_US
from duly.domain.records import HOLD, Lapsed, Settled
from duly.domain.states import TERMINAL
from duly.domain.unique import storage_key
from duly.store.call import Call, Dialect, Op, Value
from duly.store.ops_enqueue import take_unstarted

_COLUMNS = (
    "ids",
    "tokens",
    "states",
    "outcomes",
    "delays",
    "uncounted",
    "crashes",
    "ran",
    "ages",
    "reasons",
    "error_kinds",
    "errors",
    "tracebacks",
    "results",
    "logs",
)


def settle(dialect: Dialect, batch: Sequence[Settled], *, shard: int = 0, only_expired: bool = False) -> Op[set[str]]:
    """End runs whose jobs hold no unique key. Returns the ids that were accepted."""
    if not batch:
        return set()
    params: dict[str, Value] = {"only_expired": only_expired, "shard": shard, "horizon": DEFAULT_HORIZON_US}
    if dialect is Dialect.POSTGRES:
        params |= dict(zip(_COLUMNS, (list(column) for column in zip(*batch, strict=True)), strict=True))
        rows = yield Call("settle", params)
        return {str(row[0]) for row in rows}
    return (yield from _settle_sqlite(batch, params))


def _settle_sqlite(batch: Sequence[Settled], params: dict[str, Value]) -> Op[set[str]]:
    rows = yield Call("settle_held", params | {"batch": json.dumps([(each.id, each.token) for each in batch])})
    held = set(json.loads(str(rows[0][0])))
    batch = [each for each in batch if each.id in held]
    if not batch:
        return set()
    params["batch"] = json.dumps(batch)
    yield Call("settle_runs", params)
    for place, some in groupby(sorted(batch, key=_place), key=_place):
        yield Call(place, params | {"batch": json.dumps(list(some))})
    yield Call("settle_rollups", params)
    yield Call("settle_done", {"ids": json.dumps([each.id for each in batch])})
    return held


def _place(settled: Settled) -> str:
    return "settle_ended" if settled.state in TERMINAL else f"settle_{settled.state}"


def settle_keyed(dialect: Dialect, settled: Settled, hold: int, *, shard: int = 0, only_expired: bool = False) -> Op[set[str]]:
    """End one run whose job holds a unique key: pass the key on, give it back, or find it taken."""
    if hold == HOLD["queued"] and settled.state not in TERMINAL:
        settled = yield from _retake_key(settled)
    accepted = yield from settle(dialect, [settled], shard=shard, only_expired=only_expired)
    if accepted and hold == HOLD["live"] and settled.state in TERMINAL:
        yield from free_key(dialect, settled.id)
    return accepted


def _retake_key(settled: Settled) -> Op[Settled]:
    """A job that goes back to the queue needs its key again; if a newer job has it, this one is superseded."""
    rows = yield Call("get_job", {"id": settled.id})
    if not rows or rows[0][12] is None:
        return settled
    key: dict[str, Value] = {"tenant": str(rows[0][3]), "key": storage_key(str(rows[0][12])), "id": settled.id, "scope": HOLD["queued"]}
    taken = yield Call("hold_key", key | {"window_us": None})
    holder = str(taken[0][0])
    if holder == settled.id:
        return settled
    return settled._replace(state="cancelled", reason=f"superseded by {holder}", delay_us=0)


def free_key(dialect: Dialect, job_id: str) -> Op[None]:
    """Give a job's unique key back, or hand it to the job that waits for it."""
    rows = yield Call("key_of", {"id": job_id})
    for tenant, key, following in rows:
        if following is None:
            yield Call("release_key", {"id": job_id})
            continue
        named: dict[str, Value] = {"tenant": str(tenant), "key": str(key), "next_id": str(following)}
        yield Call("pass_key", named)
        taken = yield from take_unstarted(dialect, str(following))
        if taken is not None:
            back: dict[str, Value] = {"id": str(following), "token": taken[0], "attempt": taken[1], "hold": taken[3]}
            yield Call("requeue", back | {"horizon": DEFAULT_HORIZON_US})


def already_settled(pairs: Sequence[tuple[str, int]]) -> Op[set[str]]:
    """Say which of these runs are on record: what a retry after a lost reply needs to know."""
    found: set[str] = set()
    for job_id, token in pairs:
        if (yield Call("settled_before", {"id": job_id, "token": token})):
            found.add(job_id)
    return found


def renew(dialect: Dialect, pairs: Sequence[tuple[str, int]], lease_us: int) -> Op[dict[str, bool]]:
    """Extend leases by (id, token). Returns those that still hold, and whether each was asked to stop."""
    params: dict[str, Value] = {"lease_us": lease_us}
    if dialect is Dialect.POSTGRES:
        params |= {"ids": [pair[0] for pair in pairs], "tokens": [pair[1] for pair in pairs]}
    else:
        params["batch"] = json.dumps(pairs)
    rows = yield Call("renew", params)
    return {str(row[0]): row[1] is not None for row in rows}


def lapsed(*, lease_us: int, n: int) -> Op[list[Lapsed]]:
    """Find runs whose lease or deadline has passed."""
    rows = yield Call("lapsed", {"lease_us": lease_us, "n": n})
    return [Lapsed._make(row) for row in rows]  # type: ignore[arg-type]


def held_by_dead(worker_id: str, n: int) -> Op[list[Lapsed]]:
    """Find the runs of a worker that is known to be gone."""
    rows = yield Call("held_by_dead", {"worker_id": worker_id, "n": n})
    return [Lapsed._make(row) for row in rows]  # type: ignore[arg-type]


def park(dialect: Dialect, *, job_id: str, token: int, reason: str, detail: str, mark: str) -> Op[bool]:
    """Set a claimed job aside with the reason, no attempt counted. Returns whether the token still held."""
    params: dict[str, Value] = {"id": job_id, "token": token, "reason": reason, "detail": detail, "mark": mark}
    if dialect is Dialect.POSTGRES:
        return bool((yield Call("park", params)))
    rows = yield Call("park_held", params)
    if rows:
        yield Call("leave_running_one", params)
    return bool(rows)
