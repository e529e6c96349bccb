"""Enqueue: one job, one with a unique key, many at once."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import NamedTuple

from duly.domain.rank import DEFAULT_HORIZON_US
from duly.domain.records import HOLD, Enqueued, NewJob
from duly.domain.unique import storage_key
from duly.store.call import Call, Dialect, Op, Rows, Value
from duly.store.fresh import Fresh, Plan, limit_key, plan_of
from duly.store.ops_copy import copy_jobs

CHUNK = 5_000
MOVES = 100
"""How often to look again for a job that moved on while we waited for it: each time somebody got something done."""

WHILE_QUEUED = (HOLD["queued"],)
_NO_EXTRAS = (None,) * 4


def enqueue(dialect: Dialect, job: NewJob) -> Op[Enqueued]:
    """Store one job, unless a unique key says that another stands for it."""
    if job.unique_key is None or job.unique_mode == "none":
        yield from _insert(dialect, job, hold=HOLD["none"])
        return Enqueued(job.id, created=True)
    return (yield from _enqueue_unique(dialect, job))


def _params(job: NewJob, hold: int) -> dict[str, Value]:
    return {
        "id": job.id,
        "task": job.task,
        "args": job.args,
        "queue": job.queue,
        "tenant": job.tenant,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "retry": job.retry,
        "timeout_us": job.timeout_us,
        "run_at": job.run_at,
        "delay_us": job.delay_us,
        "expires_at": job.expires_at,
        "expires_us": job.expires_us,
        "enqueued_by": job.enqueued_by,
        "unique_key": job.unique_key,
        "tags": job.tags,
        "headers": job.headers,
        "limit_key": job.limit_key,
        "hold": hold,
        "horizon": DEFAULT_HORIZON_US,
    }


def is_plain(job: NewJob) -> bool:
    """Whether a job is due now and has nothing beside its arguments: most are so, and can be stored more quickly."""
    return (
        job.run_at is None
        and job.delay_us == 0
        and job.unique_mode == "none"
        and (job.retry, job.timeout_us, job.expires_at, job.expires_us) == _NO_EXTRAS
        and (job.enqueued_by, job.tags, job.headers, job.unique_key) == _NO_EXTRAS
        and job.limit_key is None
    )


def store_plain(job: NewJob, channel: str | None, payload: str) -> Op[Enqueued]:
    """Store one plain job and wake a worker in one round trip. PostgreSQL, on a connection without a transaction."""
    yield Call(
        "store_job",
        {
            "id": job.id,
            "task": job.task,
            "queue": job.queue,
            "tenant": job.tenant,
            "args": job.args,
            "priority": job.priority,
            "max_attempts": job.max_attempts,
            "horizon": DEFAULT_HORIZON_US,
            "channel": channel,
            "payload": payload,
        },
    )
    return Enqueued(job.id, created=True)


def _insert(dialect: Dialect, job: NewJob, *, hold: int) -> Op[bool]:
    """Store a job and its place. Returns whether it is new: an enqueue may be repeated with the same id."""
    due = job.run_at is None and job.delay_us == 0
    params = _params(job, hold)
    if dialect is Dialect.POSTGRES:
        return bool((yield Call("enqueue_due" if due and job.limit_key is None else "enqueue_at", params)))
    new = bool((yield Call("insert_job", params)))
    if new:
        yield Call("insert_waiting" if job.limit_key is None else "insert_arrived", params)
        if not due:
            yield Call("insert_scheduled", params)
    return new


def _enqueue_unique(dialect: Dialect, job: NewJob) -> Op[Enqueued]:
    scope = HOLD[job.unique_scope]
    key = key_of(job.tenant, job.unique_key or "", job.id, scope, job.unique_window_us)
    # Who holds a key for a time never hands it on, and is not waited for.
    lets_go = (HOLD["queued"], HOLD["window"]) if job.unique_mode == "keep_latest" else WHILE_QUEUED
    holder, _, following, waits = yield from hold_key(dialect, key, look=job.unique_mode != "skip", lets_go=lets_go)
    if holder == job.id:
        if not (yield from _insert(dialect, job, hold=scope)):
            yield Call("drop_stale_key", {"id": job.id})
        return Enqueued(job.id, created=True)
    if (yield from _known(dialect, [(job.id, job.args, job.unique_key)])):
        return Enqueued(job.id, created=True)  # a repetition: this job was stored, and another has its key by now
    match job.unique_mode:
        case "replace" | "debounce" if waits:
            return (yield from _replace(dialect, job, holder))
        case "keep_latest":
            return (yield from _keep_latest(dialect, job, holder, following, waits=waits))
        case _:
            return Enqueued(holder, created=False)


def key_of(tenant: str, key: str, job_id: str, scope: int, window_us: int | None = None) -> dict[str, Value]:
    """A unique key that a job wants, as parameters."""
    return {"tenant": tenant, "key": storage_key(key), "id": job_id, "scope": scope, "window_us": window_us}


class Held(NamedTuple):
    """Who holds a key in which scope, which job follows, and whether the holder is known to wait and locked."""

    holder: str
    scope: int
    following: str | None
    waits: bool


def hold_key(
    dialect: Dialect, key: dict[str, Value], *, look: bool = False, lets_go: Collection[int] = WHILE_QUEUED
) -> Op[Held]:
    """Take a key, or learn who holds it. Held only while queued, it is free once that job has started.

    With `look`, a holder that has not started is kept from starting until we are done. `lets_go`: the scopes in which
    a holder that has started is passed over.
    """
    rows = yield Call("hold_key", key)
    holder, following, scope = str(rows[0][0]), rows[0][1], rows[0][2]
    waits = False
    if holder != key["id"] and (look or scope in lets_go):
        waits = yield from _lock_unstarted(dialect, holder)
        if not waits and scope in lets_go:
            yield Call("take_key", key)
            return Held(str(key["id"]), int(str(key["scope"])), None, waits=False)
    return Held(holder, int(str(scope)), None if following is None else str(following), waits)


def _lock_unstarted(dialect: Dialect, job_id: str) -> Op[bool]:
    """Keep a job that has not started from starting until we are done. Returns whether there is one."""
    if dialect is Dialect.POSTGRES:
        for _ in range(MOVES):
            if (yield Call("lock_unstarted", {"id": job_id})):
                return True
            if not (yield Call("is_unstarted", {"id": job_id})):
                return False
    return bool((yield Call("is_unstarted", {"id": job_id})))


def _replace(dialect: Dialect, job: NewJob, holder: str) -> Op[Enqueued]:
    """Give a job that waits our arguments, and with debounce our time too."""
    rows = yield Call("replace_args", {"id": holder, "args": job.args, "enqueued_by": job.enqueued_by})
    limit_key, aside = rows[0]
    if limit_key != job.limit_key or aside == "arguments":
        yield from _move_for_args(dialect, holder, job.limit_key, aside)
    if job.unique_mode == "debounce":
        yield from move_to(dialect, holder, run_at=job.run_at, delay_us=job.delay_us)
    return Enqueued(holder, created=False)


def _move_for_args(dialect: Dialect, job_id: str, limit_key: str | None, aside: object) -> Op[None]:
    """Have a job that waits stand where its new arguments want it: at their key, no longer aside for the old."""
    key: dict[str, Value] = {"id": job_id, "limit_key": limit_key}
    if aside == "unique":  # behind another job: when that ends it goes to its key
        yield Call("set_limit_key", key)
        return
    (due_at, later), *_ = yield Call("due_at", {"id": job_id})
    due = None if aside == "arguments" else int(str(due_at))
    taken = yield from take_unstarted(dialect, job_id)  # while its key is the old one, which has room then
    yield Call("set_limit_key", key)
    if taken is not None and later:
        yield Call("reschedule", taken._asdict() | {"run_at": due, "delay_us": 0})
    elif taken is not None:
        yield from requeue(taken, due)


def _keep_latest(dialect: Dialect, job: NewJob, holder: str, following: str | None, *, waits: bool) -> Op[Enqueued]:
    """While one runs, keep exactly one more that runs after it with the newest arguments."""
    if following is not None and (yield from _lock_unstarted(dialect, following)):
        return (yield from _replace(dialect, job, following))
    if waits:
        return (yield from _replace(dialect, job, holder))
    yield from _insert_parked(dialect, job, holder)
    key = storage_key(job.unique_key or "")
    yield Call("set_key_next", {"tenant": job.tenant, "key": key, "next_id": job.id})
    return Enqueued(job.id, created=True)


def _insert_parked(dialect: Dialect, job: NewJob, holder: str) -> Op[None]:
    yield from _insert(dialect, job._replace(delay_us=0, run_at=None), hold=HOLD[job.unique_scope])
    yield from take_unstarted(dialect, job.id)
    yield Call(
        "park_new",
        {
            "id": job.id,
            "queue": job.queue,
            "tenant": job.tenant,
            "task": job.task,
            "priority": job.priority,
            "hold": HOLD[job.unique_scope],
            "reason": "unique",
            "detail": f"runs after job {holder}, which has the same unique key",
            "mark": holder,
        },
    )


class Unstarted(NamedTuple):
    """What a job that has not started takes along when it moves."""

    id: str
    token: int
    attempt: int
    crashes: int
    hold: int


def take_unstarted(dialect: Dialect, job_id: str) -> Op[Unstarted | None]:
    """Take a job that has not started out of its place."""
    rows: Rows = ()
    if dialect is Dialect.SQLITE:
        rows = yield Call("find_unstarted", {"id": job_id})
        if rows:
            for place in ("scheduled", "waiting", "parked"):
                yield Call(f"leave_{place}_one", {"id": job_id})
    else:
        for _ in range(MOVES):  # it may move from one place to the next while we wait for it
            rows = yield Call("take_unstarted", {"id": job_id})
            if rows or not (yield Call("is_unstarted", {"id": job_id})):
                break
    if rows:
        yield Call("look_at_key_of", {"id": job_id})
    return Unstarted._make(rows[0]) if rows else None


def requeue(job: Unstarted, run_at: int | None = None) -> Op[None]:
    """Put a job that was taken out of its place into its lane, due now; one with a key aside until there is room.

    `run_at`: it was due before, and keeps its turn.
    """
    params = job._asdict() | {"horizon": DEFAULT_HORIZON_US, "run_at": run_at}
    if not (yield Call("requeue", params)):
        yield Call("requeue_keyed", params)


def move_to(dialect: Dialect, job_id: str, *, run_at: int | None, delay_us: int) -> Op[bool]:
    """Give a job that has not started another time. Returns whether there was one."""
    taken = yield from take_unstarted(dialect, job_id)
    if taken is None:
        return False
    if run_at is None and delay_us == 0:
        yield from requeue(taken)
    else:
        yield Call("reschedule", taken._asdict() | {"run_at": run_at, "delay_us": delay_us})
    return True


class Many(NamedTuple):
    """What became of many jobs, and the rank that all of them have, if it is one and known."""

    answers: list[Enqueued]
    rank: int | None = None


def enqueue_many(dialect: Dialect, model: NewJob, rows: Sequence[Fresh], *, copy: bool) -> Op[Many]:
    """Store many jobs that differ only in id, arguments and unique key; `model` says the rest. May be repeated."""
    if not rows:
        return Many([])
    if model.unique_mode != "none":
        return Many((yield from _enqueue_many_unique(dialect, model, rows)))
    rank = yield from _insert_new(dialect, model, rows, copy=copy)
    return Many([Enqueued(row[0], created=True) for row in rows], rank)


def _insert_new(dialect: Dialect, model: NewJob, rows: Sequence[Fresh], *, copy: bool) -> Op[int | None]:
    """Store jobs without unique keys. All were stored together, so the first tells whether this is a repetition.

    Returns their rank; after a repetition nobody knows it.
    """
    new = rows
    if (yield from _known(dialect, rows[:1])):
        known = yield from _known(dialect, rows)
        new = [row for row in rows if row[0] not in known]
    plan = plan_of(model, (yield Call("clock", {"queue": model.queue, "horizon": DEFAULT_HORIZON_US})))
    if copy:
        yield from copy_jobs(model, new, plan)
    else:
        yield from _insert_many(dialect, model, new, plan=plan, hold=HOLD["none"])
    return plan.rank if new is rows else None


def _known(dialect: Dialect, rows: Sequence[Fresh]) -> Op[set[str]]:
    """Which of these jobs are stored already."""
    ids = [row[0] for row in rows]
    found = yield Call("known_jobs", {"ids": ids if dialect is Dialect.POSTGRES else json.dumps(ids)})
    return {str(row[0]) for row in found}


def _insert_many(dialect: Dialect, model: NewJob, rows: Sequence[Fresh], *, plan: Plan, hold: int) -> Op[None]:
    params = _params(model, hold)
    params |= {"run_at": plan.run_at, "expires_at": plan.expires_at, "created_at": plan.now, "rank": plan.rank}
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        if dialect is Dialect.POSTGRES:
            params["ids"] = [row[0] for row in chunk]
            params["argses"] = [row[1] for row in chunk]
            params["unique_keys"] = [row[2] for row in chunk]
            params["limit_keys"] = [limit_key(row) for row in chunk]
        else:
            params["batch"] = json.dumps(chunk)
        yield Call("insert_jobs", params)
        if plan.run_at > plan.now:
            yield Call("insert_scheduled_many", params)
            continue
        plain = [row for row in chunk if limit_key(row) is None]
        if plain:
            yield Call("insert_waiting_many", params | _ids(dialect, plain))
        keyed = [row for row in chunk if limit_key(row) is not None]
        if keyed:
            yield Call("insert_arrived_many", params | _ids(dialect, keyed))


def _ids(dialect: Dialect, rows: Sequence[Fresh]) -> dict[str, Value]:
    if dialect is Dialect.SQLITE:
        return {"batch": json.dumps(rows)}
    return {"ids": [row[0] for row in rows], "limit_keys": [limit_key(row) for row in rows]}


def _enqueue_many_unique(dialect: Dialect, model: NewJob, rows: Sequence[Fresh]) -> Op[list[Enqueued]]:
    """Store many jobs with unique keys. Keys are taken in key order, so that two bulk calls cannot deadlock."""
    plain = [row for row in rows if row[2] is None]
    if plain:
        yield from _insert_new(dialect, model, plain, copy=False)
    answers = {row[0]: Enqueued(row[0], created=True) for row in plain}
    keyed = sorted([(storage_key(row[2]), row) for row in rows if row[2] is not None], key=itemgetter(0))
    for start in range(0, len(keyed), CHUNK):
        answers |= yield from _enqueue_some_unique(dialect, model, keyed[start : start + CHUNK])
    return [answers[row[0]] for row in rows]


def _enqueue_some_unique(
    dialect: Dialect, model: NewJob, keyed: Sequence[tuple[str, Fresh]]
) -> Op[dict[str, Enqueued]]:
    """Take the keys that are free all at once, and do the rest one by one. What is known already is a repetition."""
    known = yield from _known(dialect, [row for _, row in keyed])
    answers = {job_id: Enqueued(job_id, created=True) for job_id in known}
    keyed = [(key, row) for key, row in keyed if row[0] not in known]
    first: dict[str, str] = {}
    for key, row in keyed:
        first.setdefault(key, row[0])
    holders = yield from _hold_keys(dialect, model, first)
    fresh = [row for key, row in keyed if holders[key][0] == row[0]]
    if fresh:
        plan = plan_of(model, (yield Call("clock", {"queue": model.queue, "horizon": DEFAULT_HORIZON_US})))
        yield from _insert_many(dialect, model, fresh, plan=plan, hold=HOLD[model.unique_scope])
    answers |= {row[0]: Enqueued(row[0], created=True) for row in fresh}
    for key, row in keyed:
        job_id, (holder, scope) = row[0], holders[key]
        if job_id in answers:
            continue
        if model.unique_mode == "skip" and (scope != HOLD["queued"] or holder in answers):
            answers[job_id] = Enqueued(holder, created=False)
        else:
            one = model._replace(id=job_id, args=row[1], unique_key=row[2], limit_key=limit_key(row))
            answers[job_id] = yield from _enqueue_unique(dialect, one)
    return answers


def _hold_keys(dialect: Dialect, model: NewJob, wanted: dict[str, str]) -> Op[dict[str, tuple[str, int]]]:
    """Take many keys at once. Returns who holds each, and in which scope."""
    if not wanted:
        return {}
    keys = list(wanted)
    params: dict[str, Value] = {
        "tenant": model.tenant,
        "scope": HOLD[model.unique_scope],
        "window_us": model.unique_window_us,
    }
    if dialect is Dialect.POSTGRES:
        params |= {"keys": keys, "ids": [wanted[key] for key in keys]}
    else:
        params["batch"] = json.dumps([(key, wanted[key]) for key in keys])
    rows = yield Call("hold_keys", params)
    return {str(key): (str(holder), int(str(scope))) for key, holder, scope in rows}
