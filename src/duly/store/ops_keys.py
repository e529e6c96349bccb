"""Keys: jobs with one key share its slots and its rate; each is let into its lane only while there is room.

Whatever ends such a run lets the next in, in the same transaction, holding the key. Counts come from where jobs stand,
never from a counter, so that a crash leaks nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from duly.domain.audit import Actor
from duly.domain.breaker import BreakerState, after_run
from duly.domain.limits import Rate, Says
from duly.domain.records import Pause
from duly.store.call import Call, Dialect, Op, Value
from duly.store.ops_audit import keep

R = TypeVar("R")
MOST = 1_000
"""How many jobs of one key are let in at a time."""
PAGE = 500
OLD_US = 3_600_000_000
Lanes = list[tuple[str, str, str, int, int]]
"""Where jobs went: queue, tenant, task, lowest rank, how many."""


@dataclass(slots=True)
class Freed:
    """The keys of runs that end together, which of these runs their breakers count, and where the next jobs went."""

    keys: Collection[str]
    ended: Sequence[tuple[str, str, bool]] = ()
    """The runs whose keys have a breaker: the job, its key, and whether the run failed."""
    lanes: Lanes = field(default_factory=list)


def group_of(key: str) -> str:
    """Whose key it is: a task's, or a group that several share."""
    return key.partition("/")[0].partition("@")[0]


def lock(dialect: Dialect, keys: Collection[str]) -> Op[None]:
    """Hold some keys until this transaction ends: before any place is touched."""
    if keys and dialect is Dialect.POSTGRES:
        yield Call("lock_keys", {"keys": sorted(keys)})


def freeing(
    dialect: Dialect, freed: Freed | None, op: Op[R], accepted: Callable[[R], Container[str]] | None = None
) -> Op[R]:
    """Do what may free slots of some keys, and let the next jobs in.

    `accepted` tells from what was done which runs it ended: one that had lost its lease, or was ended before, is not
    counted again. Without it all were ended elsewhere, and this is only to let others in.
    """
    if freed is None or not freed.keys:
        return (yield from op)
    yield from lock(dialect, freed.keys)
    result = yield from op
    ended = None if accepted is None else accepted(result)
    counted = [(key, failed) for job_id, key, failed in freed.ended if ended is None or job_id in ended]
    if counted:
        yield from _hold_rows(dialect, freed.keys)
    for key, failed in counted:
        yield from count_run(dialect, key, failed=failed)
    freed.lanes = yield from admit(dialect, freed.keys)
    return result


def _hold_rows(dialect: Dialect, keys: Collection[str]) -> Op[None]:
    if dialect is Dialect.POSTGRES:
        yield Call("hold_key_rows", {"keys": sorted(keys)})


def keys_of(dialect: Dialect, ids: Sequence[str]) -> Op[set[str]]:
    """The keys of some jobs."""
    rows = yield Call("limit_keys_of", {"ids": list(ids) if dialect is Dialect.POSTGRES else json.dumps(list(ids))})
    return {str(row[0]) for row in rows}


def admit(dialect: Dialect, keys: Iterable[str]) -> Op[Lanes]:
    """Have the first jobs of these keys, which are held, stand in their lanes: as many as each has room for.

    Others that have not started go back; so do all where a key is closed.
    """
    keys = sorted(set(keys))
    if dialect is Dialect.POSTGRES:
        rows = yield Call("admit", {"keys": keys, "most": MOST})
        return [(str(r[0]), str(r[1]), str(r[2]), int(str(r[3])), int(str(r[4]))) for r in rows]
    moved: Lanes = []
    for key in keys:
        moved += yield from _admit_sqlite(key)
    return moved


def _admit_sqlite(key: str) -> Op[Lanes]:
    yield Call("drop_admitted", {"key": key})
    rows = yield Call("key_now", {"key": key, "group": group_of(key)})
    slots, rate_n, rate_us, burst, worst, best = (
        None if value is None else int(str(value)) for value in (*rows[0][:4], *rows[0][10:])
    )
    spent_until, probing, shut, now, waits, runs = (int(str(value)) for value in rows[0][4:10])
    yield Call("looked_at_key", {"key": key})
    rate = None if rate_n is None or rate_us is None else Rate(rate_n, rate_us, burst)
    tokens = MOST if rate is None else rate.room(spent_until, 0, now)
    may = min(MOST, tokens, MOST if slots is None else slots - runs, 1 - runs if probing else MOST)
    may = 0 if shut else max(0, may)
    kept = waits
    if waits > may or (worst is not None and best is not None and best < worst):
        kept -= yield from _evict_sqlite(key, may)
    taken: Lanes = []
    if may > kept and best is not None:
        taken = yield from _take_in_sqlite(key, may - kept)
    if rate is not None and not shut:
        kept += sum(lane[4] for lane in taken)
        [[left]] = yield Call("parked_by_key", {"key": key, "n": 1})
        opens_at = None
        if tokens <= kept and left != "[]":
            over = kept + 1 - rate.at_once
            opens_at = max(now + 1_000, max(spent_until, now) + over * rate.per_us // rate.n)
        metered = {"rate_n": rate.n, "rate_us": rate.per_us, "burst": rate.burst}
        yield Call("meter_key", {"key": key, "opens_at": opens_at, **metered})
    return taken


def _evict_sqlite(key: str, may: int) -> Op[int]:
    """Those in lanes that are not among the first `may` go back. Returns how many."""
    [[ids]] = yield Call("spare", {"key": key, "may": may})
    if ids == "[]":
        return 0
    some: dict[str, Value] = {"key": key, "ids": str(ids)}
    for statement in ("evict_park", "evict_note", "evict_leave"):
        yield Call(statement, some)
    return len(json.loads(str(ids)))


def _take_in_sqlite(key: str, n: int) -> Op[Lanes]:
    [[ids]] = yield Call("parked_by_key", {"key": key, "n": n})
    some: dict[str, Value] = {"key": key, "ids": str(ids)}
    rows = yield Call("admit_lanes", some)
    for statement in ("admit_waiting", "admit_note", "admit_leave"):
        yield Call(statement, some)
    return [(str(r[0]), str(r[1]), str(r[2]), int(str(r[3])), int(str(r[4]))) for r in rows]


def arrive(dialect: Dialect, n: int) -> Op[Lanes]:
    """Let in the jobs with keys that have just come, where there is room, and those of keys that open now."""
    rows = yield Call("arrived", {"n": n})
    moved: Lanes = []
    if rows:
        keys = {str(row[1]) for row in rows}
        ids = sorted(str(row[0]) for row in rows)
        yield from lock(dialect, keys)
        moved += yield from admit(dialect, keys)
        yield Call("settle_in", {"ids": ids if dialect is Dialect.POSTGRES else json.dumps(ids)})
    return moved


def reopen(dialect: Dialect, n: int = PAGE) -> Op[Lanes]:
    """Let in jobs of keys whose time has come: a rate, a pause that is over, a breaker that tries, a word left."""
    found = {str(row[0]) for row in (yield Call("opening_keys", {"n": n}))}
    keys = sorted(found | {str(row[0]) for row in (yield Call("keys_to_look_at", {"n": n}))})
    if not keys:
        return []
    yield from lock(dialect, keys)
    yield Call("open_keys", _some(dialect, keys))
    moved = yield from admit(dialect, keys)
    yield Call("forget_keys", _some(dialect, keys))
    return moved


def sweep(dialect: Dialect, after: str, n: int = PAGE) -> Op[str]:
    """See whether the next keys that jobs wait for have room. Returns where to go on.

    What ends or leaves lets the next in; this is for what none of them could: a job that a caller held at that moment.
    """
    rows = yield Call("waiting_keys", {"after": after, "before": "\U0010ffff", "n": n})
    keys = [str(row[0]) for row in rows]
    if keys:
        yield from lock(dialect, keys)
        yield from admit(dialect, keys)
    return keys[-1] if len(keys) == n else ""


def prune(dialect: Dialect, n: int = PAGE) -> Op[int]:
    """Forget keys that say nothing any more."""
    keys = sorted(str(row[0]) for row in (yield Call("old_keys", {"n": n, "old_us": OLD_US})))
    if keys:
        yield from _hold_rows(dialect, keys)
        yield Call("forget_counts", _some(dialect, keys) | {"old_us": OLD_US})
        yield Call("forget_keys", _some(dialect, keys))
    return len(keys)


def _some(dialect: Dialect, keys: list[str]) -> dict[str, Value]:
    return {"keys": keys if dialect is Dialect.POSTGRES else json.dumps(keys)}


# -- closing and opening --------------------------------------------------------------------------------------


def pause(
    dialect: Dialect,
    key: str,
    *,
    by: str | None,
    reason: str | None,
    until: int | None,
    for_us: int | None,
    actor: Actor | None,
) -> Op[None]:
    """Close a key: what was let in and has not started waits again."""
    yield from lock(dialect, [key])
    yield Call("pause_key", {"name": key, "by": by, "reason": reason, "until": until, "for_us": for_us})
    yield from admit(dialect, [key])
    if actor is not None:
        yield from keep(
            actor, "pause", subject=f"key {key}", reason=reason, after={"until_us": until, "for_us": for_us}
        )


def resume(key: str, *, actor: Actor | None) -> Op[bool]:
    """Open a key. Returns whether it was closed."""
    was = bool((yield Call("resume_key", {"name": key})))
    if was and actor is not None:
        yield from keep(actor, "resume", subject=f"key {key}")
    return was


def paused() -> Op[list[Pause]]:
    """Which keys are paused."""
    return [Pause._make(row) for row in (yield Call("paused_keys"))]


def block(dialect: Dialect, key: str, for_us: int, reason: str) -> Op[None]:
    """Keep a key closed for a while because what is behind it asked for it."""
    yield from lock(dialect, [key])
    yield Call("block_key", {"key": key, "for_us": for_us, "reason": reason})
    yield from admit(dialect, [key])


def count_run(dialect: Dialect, key: str, *, failed: bool) -> Op[None]:
    """A run of a key, which is held, has ended: its breaker may open or close."""
    rows = yield Call("breaker_of", {"key": key, "group": group_of(key)})
    if not rows:
        return
    breaker, state, opened, since, tries, failures, now = rows[0]
    before = BreakerState(
        None if state is None else str(state),
        int(str(opened)),
        None if since is None else int(str(since)),
        int(str(tries)),
        int(str(failures)),
    )
    after = after_run(str(breaker), before, failed=failed, now=int(str(now)))
    if after == before:
        return
    yield Call(
        "set_breaker",
        {
            "key": key,
            "state": after.state,
            "opened": after.opened,
            "since": after.since,
            "tries": after.tries,
            "failures": after.failures,
            "until": after.until,
            "reason": after.reason,
        },
    )


# -- what a key or a group says -------------------------------------------------------------------------------


def set_limit(dialect: Dialect, key: str, says: Says, *, actor: Actor | None) -> Op[None]:
    """State what holds for one key, whatever its group says; nothing: its group's word holds again."""
    yield from lock(dialect, [key])
    yield Call(
        "set_key_limit",
        {
            "key": key,
            "slots": says.slots,
            "own_rate": says.rate_n is not None,
            "rate_n": says.rate_n,
            "rate_us": says.rate_us,
            "burst": says.burst,
        },
    )
    yield from admit(dialect, [key])
    if actor is not None:
        after = {name: value for name, value in says._asdict().items() if value not in (None, False)}
        yield from keep(actor, "set_limit", subject=f"key {key}", after=after)


def rearrange(dialect: Dialect, group: str, after: str) -> Op[str | None]:
    """What a group says has changed: let in anew the next of its keys. Returns where to go on; None at the end."""
    span: dict[str, Value] = {"after": after, "before": f"{group}A", "n": PAGE}  # '/' and '@' sort before 'A'
    busy, waiting = (yield Call("busy_keys", span)), (yield Call("waiting_keys", span))
    pages = [[str(row[0]) for row in page] for page in (busy, waiting)]
    end = min((page[-1] for page in pages if len(page) == PAGE), default=None)
    found = {key for page in pages for key in page if end is None or key <= end}
    keys = sorted(key for key in found if group_of(key) == group)
    if keys:
        yield from lock(dialect, keys)
        yield from admit(dialect, keys)
    return end
