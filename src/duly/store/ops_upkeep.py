"""Upkeep: promote what is due, prune what is old, add up old counts. Any worker may do it; each step guards itself."""

from __future__ import annotations

import json

from duly.domain.audit import Actor
from duly.domain.rank import DEFAULT_HORIZON_US
from duly.domain.states import State
from duly.store import ops_audit, ops_keys
from duly.store.call import Call, Dialect, Op, Value

DAY_US = 86_400_000_000


def promote(dialect: Dialect, n: int) -> Op[list[tuple[str, str, str, int, int]]]:
    """Put jobs whose time has come into their lanes. Returns (queue, tenant, task, lowest rank, how many) for each."""
    params: dict[str, Value] = {"n": n, "horizon": DEFAULT_HORIZON_US}
    if dialect is Dialect.POSTGRES:
        rows = yield Call("promote", params)
    else:
        due = yield Call("due_scheduled", params)
        ids = str(due[0][0])
        if ids == "[]":
            return []
        params["ids"] = ids
        rows = yield Call("promote_lanes", params)
        yield Call("promote_waiting", params)
        yield Call("promote_aside", params)
        yield Call("leave_scheduled", params)
    return [(str(r[0]), str(r[1]), str(r[2]), int(str(r[3])), int(str(r[4]))) for r in rows]


def next_due() -> Op[int | None]:
    """Microseconds until the next scheduled job is due; None if there is none."""
    rows = yield Call("next_due")
    return None if rows[0][0] is None else int(str(rows[0][0]))


def next_lapse() -> Op[int | None]:
    """Microseconds until the next lease or deadline could pass; None if nothing runs."""
    rows = yield Call("next_lapse")
    times = [int(str(value)) for value in rows[0] if value is not None]
    return min(times, default=None)


def prune_jobs(dialect: Dialect, state: State, keep_us: int, n: int, *, actor: Actor | None = None) -> Op[int]:
    """Forget up to `n` finished jobs of one state older than `keep_us`. Returns how many went."""
    gone = yield from _prune_jobs(dialect, state, keep_us, n)
    yield from ops_audit.keep_prune(actor, f"{state} jobs", gone, keep_us)
    return gone


def _prune_jobs(dialect: Dialect, state: State, keep_us: int, n: int) -> Op[int]:
    rows = yield Call("old_ended", {"state": state, "keep_us": keep_us, "n": n})
    ids = [str(row[0]) for row in rows]
    if not ids:
        return 0
    if dialect is Dialect.POSTGRES:
        gone = yield Call("prune_jobs", {"ids": ids, "state": state})
        return int(str(gone[0][0]))
    batch: dict[str, Value] = {"ids": json.dumps(ids)}
    for statement in ("prune_runs", "prune_what", "prune_ended"):
        yield Call(statement, batch)
    return len(ids)


def prune_rest(dialect: Dialect, keep_rollups_us: int) -> Op[None]:
    """Forget unique keys whose window is over, keys of limits that say nothing, counts too old, workers long gone."""
    yield Call("prune_keys")
    yield from ops_keys.prune(dialect)
    yield Call("prune_rollups", {"keep_us": keep_rollups_us})
    yield Call("forget_workers", {"silent_us": DAY_US})


def add_up_hour(dialect: Dialect, keep_minutes_us: int) -> Op[bool]:
    """Turn the oldest hour of counts by the minute into one row each. Returns whether there was one."""
    rows = yield Call("old_minutes", {"keep_us": keep_minutes_us})
    if rows[0][0] is None:
        return False
    hour: dict[str, Value] = {"hour_at": int(str(rows[0][0]))}
    yield Call("add_hour", hour)
    if dialect is Dialect.SQLITE:
        yield Call("delete_minutes", hour)
    return True
