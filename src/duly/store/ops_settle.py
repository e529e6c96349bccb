"""Settle: end runs, fenced. Each run leaves `running` only if its token still holds; else nothing changes.

Also here: renewing leases, progress, cancel requests and the search for runs whose worker is gone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby

from duly.domain.rank import DEFAULT_HORIZON_US
from duly.domain.records import HOLD, Lapsed, Settled
from duly.domain.states import TERMINAL, State
from duly.store.call import Call, Dialect, Op, Value
from duly.store.ops_enqueue import take_unstarted
from duly.store.ops_keys import Freed, freeing, keys_of
from duly.store.ops_unique import Patience, lock_key, lock_key_of, may_take_key, pass_on, retake_key, try_lock_key_of

_STATES = frozenset({"succeeded", "failed", "cancelled", "scheduled", "queued", "recurs", "idle"})
RUNS_KEPT = 100
"""Of a job that has not ended, at least so many of the last runs are kept, and fewer than twice as many."""
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
    "agains",
)


_PLAIN: dict[str, Value] = {
    "states": "succeeded",
    "outcomes": "succeeded",
    "delays": 0,
    "uncounted": 0,
    "crashes": 0,
    "reasons": None,
    "error_kinds": None,
    "errors": None,
    "tracebacks": None,
    "logs": None,
    "agains": None,
}
"""What the columns hold of runs that succeeded and have nothing to say but their result, as most do."""
_OF_PLAIN = tuple(name for name in _COLUMNS if name not in _PLAIN)


def settle(
    dialect: Dialect,
    batch: Sequence[Settled],
    *,
    ages: Sequence[int] | None = None,
    shard: int = 0,
    only_expired: bool = False,
    own: bool = False,
) -> Op[set[str]]:
    """End runs whose jobs hold no unique key. Returns the ids that were accepted.

    Whatever the run came to, a job that was asked to stop does not go back to its queue. `ages`: how long ago each
    ended, instead of what it says itself. `own`: the connection is ours, with the tables that SQLite lays out runs in.
    """
    if not batch:
        return set()
    if ages is None:
        ages = [each.age_us for each in batch]
    params: dict[str, Value] = {"only_expired": only_expired, "shard": shard, "horizon": DEFAULT_HORIZON_US}
    if dialect is Dialect.POSTGRES:
        accepted = yield from _settle_postgres(batch, ages, params)
    else:
        _check_states(batch)
        plain: list[tuple[Settled, int]] = []
        others: list[Settled] = []
        for each, age in zip(batch, ages, strict=True):
            if own and not only_expired and is_plain(each):
                plain.append((each, age))
            else:
                others.append(each.aged(age))
        accepted = (yield from _settle_plain(plain, params)) if plain else set()
        if others:
            accepted |= yield from _settle_sqlite(others, params)
    for each in worn(batch):
        if each.id in accepted:
            yield Call("forget_runs", {"id": each.id, "before": each.token - RUNS_KEPT})
    return accepted


def _settle_postgres(batch: Sequence[Settled], ages: Sequence[int], params: dict[str, Value]) -> Op[set[str]]:
    columns: dict[str, Sequence[str | int | None]] = dict(zip(_COLUMNS, zip(*batch, strict=True), strict=False))
    columns["ages"] = ages
    is_usual = not params["only_expired"] and all(
        columns[each].count(value) == len(batch) for each, value in _PLAIN.items()
    )
    if not is_usual:
        _check_states(batch)
    ids = [each[0] for each in batch]
    places = None  # rows are locked in one order by all, so that none deadlock; mostly they are in it already
    if ids != sorted(ids):
        places = sorted(range(len(ids)), key=ids.__getitem__)
    sent: dict[str, Value] = {
        name: list(columns[name]) if places is None else [columns[name][place] for place in places]
        for name in (_OF_PLAIN if is_usual else _COLUMNS)
    }
    rows = yield Call("settle_plain" if is_usual else "settle", params | sent)
    accepted = rows[0][0]
    return set(ids) if accepted is None else set(str(accepted).split())


def worn(batch: Sequence[Settled]) -> list[Settled]:
    """Runs after which a job that goes on and on, by snoozing, forgets its first: they go with it, and it stays."""
    return [each for each in batch if each[2] in ("scheduled", "queued") and each.token % RUNS_KEPT == 0]


_AS_PLAIN = tuple(_PLAIN.values())


def is_plain(settled: Settled) -> bool:
    """Whether a run succeeded and has nothing to say but its result, as most do."""
    return settled[2:7] + settled[9:13] + settled[14:16] == _AS_PLAIN


def _settle_plain(batch: Sequence[tuple[Settled, int]], params: dict[str, Value]) -> Op[set[str]]:
    """The same for runs that succeeded, with their ages, on SQLite: less is said of each, and it is looked up once."""
    rows = [f"{each[0]}{each[1]:019d}{each[7]:019d}{age:019d}{each[13] or ''}" for each, age in batch]
    yield Call("settle_lay_out", {"batch": json.dumps(rows)})
    yield Call("settle_laid_runs")
    yield Call("settle_laid_ended")
    yield Call("settle_laid_rollups", params)
    yield Call("settle_laid_done")
    laid = yield Call("settle_laid")
    yield Call("settle_clear")
    return set(json.loads(str(laid[0][0])))


def _check_states(batch: Sequence[Settled]) -> None:
    """Refuse a state that is no place to go: the job would be nowhere."""
    strange = {each.state for each in batch} - _STATES
    if strange:
        known = ", ".join(sorted(_STATES))
        raise ValueError(f"after a run a job cannot be {', '.join(sorted(strange))}; it is one of {known}")


def _settle_sqlite(batch: Sequence[Settled], params: dict[str, Value]) -> Op[set[str]]:
    rows = yield Call("settle_held", params | {"batch": json.dumps([(each.id, each.token) for each in batch])})
    held = set(json.loads(str(rows[0][0])))
    stopped: dict[str, str | None] = dict(json.loads(str(rows[0][1])))
    batch = list({(each.id, each.token): each for each in batch if each.id in held}.values())
    if not batch:
        return set()
    if stopped:
        batch = [_stop(each, stopped[each.id]) if each.id in stopped else each for each in batch]
    params["batch"] = json.dumps(batch)
    yield Call("settle_runs", params)
    for place, some in groupby(sorted(batch, key=_place), key=_place):
        if place:
            yield Call(place, params | {"batch": json.dumps(list(some))})
    yield Call("settle_rollups", params)
    yield Call("settle_done", {"ids": json.dumps([each.id for each in batch])})
    return held


def _stop(settled: Settled, reason: str | None) -> Settled:
    """A job that was asked to stop ends, where it would have gone back to its queue."""
    return settled if settled.state in TERMINAL else settled._replace(state="cancelled", reason=reason)


_PLACES = {"scheduled": "settle_scheduled", "recurs": "settle_scheduled", "queued": "settle_queued", "idle": ""}


def _place(settled: Settled) -> str:
    return _PLACES.get(settled.state, "settle_ended")


def settle_keyed(
    dialect: Dialect,
    settled: Settled,
    hold: int,
    *,
    shard: int = 0,
    only_expired: bool = False,
    patience: Patience = Patience.ENDLESS,
) -> Op[set[str] | None]:
    """End one run whose job holds a unique key: pass the key on, give it back, or find it taken.

    None: somebody else holds the key, and nothing was done.
    """
    if settled.state in TERMINAL or hold == HOLD["live"]:
        keys = yield from lock_key(dialect, Call("key_of", {"id": settled.id}), patience)
    else:
        keys = yield from try_lock_key_of(dialect, settled.id, patience)
    if keys is None:
        return None
    run = yield Call("lock_run", {"id": settled.id, "token": settled.token, "only_expired": only_expired})
    if not run:
        return set()
    cancel_at, cancel_reason = run[0]
    if cancel_at is not None:
        settled = _stop(settled, None if cancel_reason is None else str(cancel_reason))
    if hold == HOLD["queued"] and settled.state not in TERMINAL:
        if not keys and not (yield from may_take_key(dialect, settled.id, patience)):
            return None
        holder = (yield from retake_key(dialect, settled.id, hold)).holder
        if holder != settled.id:
            settled = settled._replace(state="cancelled", reason=f"superseded by {holder}", delay_us=0)
    accepted = yield from settle(dialect, [settled], shard=shard, only_expired=only_expired)
    if accepted and settled.state in TERMINAL:
        yield from pass_on(dialect, settled.id, keys)
    return accepted


def give_back(dialect: Dialect, pairs: Sequence[tuple[str, int]], *, shard: int = 0) -> Op[set[str]]:
    """Release runs that never started, by (id, token): no attempt is counted. Returns the ids that held.

    A recurring job or a unique key that somebody else holds is left to its lease: nobody shall wait here for a caller's
    transaction.
    """
    if not pairs:
        return set()
    keys = yield from keys_of(dialect, [pair[0] for pair in pairs])
    return (yield from freeing(dialect, Freed(keys), _give_back(dialect, pairs, shard)))


def _give_back(dialect: Dialect, pairs: Sequence[tuple[str, int]], shard: int) -> Op[set[str]]:
    rows = yield Call("held_pairs", params_of_pairs(dialect, pairs))
    given: set[str] = set()
    plain: list[Settled] = []
    for job_id, token, hold, crashes in rows:
        released = Settled(str(job_id), int(str(token)), "queued", "released", uncounted=1, crashes=int(str(crashes)))
        if hold in (HOLD["queued"], HOLD["live"]):  # one that was asked to stop ends, and its key goes on
            keyed = settle_keyed(dialect, released, int(str(hold)), shard=shard, patience=Patience.NONE)
            given |= (yield from keyed) or set()
        elif hold == HOLD["recurs"]:
            if not (yield from _hold_recurring(dialect, released.id)):
                continue
            if not (yield from _may_recur(released.id)):
                released = released._replace(state="idle")
                yield Call("keep_token", {"id": released.id, "token": released.token})
            given |= yield from _release_recurring(dialect, released, shard)
        else:
            plain.append(released)
    return given | (yield from settle(dialect, plain, shard=shard))


def _release_recurring(dialect: Dialect, released: Settled, shard: int) -> Op[set[str]]:
    """Give a recurring job back that is held; if it was edited meanwhile, to where it belongs now."""
    edited = yield Call("edited_run", {"id": released.id})
    if not edited or released.state == "idle":
        return (yield from settle(dialect, [released], shard=shard))
    due = released._replace(state="recurs", again_at=int(str(edited[0][0])))
    given = yield from settle(dialect, [due], shard=shard)
    if given:
        yield Call("move_recurring", {"id": released.id})
    return given


def _hold_recurring(dialect: Dialect, job_id: str) -> Op[bool]:
    """Hold a recurring job unless somebody else does. Returns whether it is held."""
    if dialect is Dialect.SQLITE:
        return True
    rows = yield Call("lock_ending", {"ids": [job_id]})
    return bool(rows)


def _may_recur(job_id: str) -> Op[bool]:
    """Hold a recurring job, and say whether it may go back to its lane: not if it is disabled."""
    yield Call("lock_recurring", {"id": job_id})
    rows = yield Call("is_enabled", {"id": job_id})
    return bool(rows)


def already_settled(batch: Sequence[Settled]) -> Op[set[str]]:
    """Say which of these runs are on record, with the same outcome: what a retry after a lost reply needs to know."""
    found: set[str] = set()
    for each in batch:
        if (yield Call("settled_before", {"id": each.id, "token": each.token, "outcome": each.outcome})):
            found.add(each.id)
    return found


def renew(
    dialect: Dialect, pairs: Sequence[tuple[str, int]], lease_us: int, not_running: Sequence[str] = ()
) -> Op[dict[str, bool | None]]:
    """Extend leases by (id, token). Returns those that still hold, and whether each was asked to stop.

    None instead: it holds, but somebody is about to write it, and it was not extended. `not_running`: the jobs whose
    handlers have not begun or have ended, so that their deadlines are put off: a timeout is for what a handler takes.
    """
    if not pairs:
        return {}
    held: dict[str, bool | None] = {}
    late: Value = list(not_running) if dialect is Dialect.POSTGRES else json.dumps(list(not_running))
    rows = yield Call("renew", params_of_pairs(dialect, pairs) | {"lease_us": lease_us, "not_running": late})
    if dialect is Dialect.POSTGRES and len(rows) < len(pairs):
        held = {str(row[0]): None for row in (yield Call("still_held", params_of_pairs(dialect, pairs)))}
    return held | {str(row[0]): row[1] is not None for row in rows}


def params_of_pairs(dialect: Dialect, pairs: Sequence[tuple[str, int]]) -> dict[str, Value]:
    """(id, token) pairs as parameters, in the order in which all lock them."""
    pairs = sorted(pairs)
    if dialect is Dialect.POSTGRES:
        return {"ids": [pair[0] for pair in pairs], "tokens": [pair[1] for pair in pairs]}
    return {"batch": json.dumps(pairs)}


def lapsed(*, lease_us: int, n: int) -> Op[list[Lapsed]]:
    """Find runs whose lease or deadline has passed."""
    rows = yield Call("lapsed", {"lease_us": lease_us, "n": n})
    return [Lapsed._make(row) for row in rows]


def held_by_dead(worker_id: str, n: int) -> Op[list[Lapsed]]:
    """Find the runs of a worker that is known to be gone."""
    rows = yield Call("held_by_dead", {"worker_id": worker_id, "n": n})
    return [Lapsed._make(row) for row in rows]


def held_before_boot(dialect: Dialect, *, lease_us: int, n: int) -> Op[list[Lapsed]]:
    """Find the runs that an earlier boot of this machine left, their leases far ahead on a clock that began anew."""
    if dialect is Dialect.POSTGRES:  # its leases are by the server's wall clock, and its workers on many machines
        return []
    rows = yield Call("held_before_boot", {"lease_us": lease_us, "n": n})
    return [Lapsed._make(row) for row in rows]


def park(
    dialect: Dialect,
    *,
    job_id: str,
    token: int,
    reason: str,
    detail: str,
    mark: str,
    patience: Patience = Patience.ENDLESS,
) -> Op[bool | None]:
    """Set a claimed job aside with the reason, no attempt counted. Returns whether the token still held.

    It ends instead if it was asked to stop, or if a newer job has taken the unique key that it let go when claimed.
    None: somebody else holds its unique key, and nothing was done.
    """
    params: dict[str, Value] = {"id": job_id, "token": token, "reason": reason, "detail": detail, "mark": mark}
    keys = yield from try_lock_key_of(dialect, job_id, patience)
    if keys is None:
        return None
    may_recur = yield from _may_recur(job_id)
    if dialect is Dialect.POSTGRES and not keys:
        yield Call("save_here")
    if dialect is Dialect.SQLITE:
        yield Call("park_held", params)
    rows = yield Call("park" if dialect is Dialect.POSTGRES else "leave_running_one", params)
    if not rows:
        return False
    hold, cancel_at, cancel_reason = rows[0]
    if hold == HOLD["recurs"]:
        if not may_recur:
            yield from take_unstarted(dialect, job_id)
            yield Call("keep_token", {"id": job_id, "token": token})
    elif cancel_at is not None:
        stopped = None if cancel_reason is None else str(cancel_reason)
        yield from end_unstarted(dialect, job_id, State.CANCELLED, stopped)
    elif hold == HOLD["queued"]:
        if not keys and not (yield from may_take_key(dialect, job_id, patience)):
            yield Call("back_to_here")
            return None
        holder = (yield from retake_key(dialect, job_id, HOLD["queued"])).holder
        if holder != job_id:
            yield from end_unstarted(dialect, job_id, State.CANCELLED, f"superseded by {holder}")
    return True


def end_unstarted(dialect: Dialect, job_id: str, state: State, reason: str | None) -> Op[bool]:
    """End a job that has not started, and give its unique key back. Returns whether there was one."""
    keys = yield from lock_key_of(dialect, job_id)
    taken = yield from take_unstarted(dialect, job_id)
    if taken is None:
        return False
    yield Call("insert_ended", taken._asdict() | {"state": state, "reason": reason})
    yield from pass_on(dialect, job_id, keys)
    return True
