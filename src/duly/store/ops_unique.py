"""A unique key that changes hands: locked, taken again, passed on to the job that waits for it.

A caller's transaction may hold a key for as long as it likes. Whoever ends runs for many goes round such a key, and
comes again: nobody else shall wait for that caller.
"""

from __future__ import annotations

from enum import Enum, auto

from duly.domain.records import HOLD
from duly.store.call import Call, Dialect, Foreign, Op, Rows, Value, gave_up_waiting
from duly.store.ops_enqueue import Held, hold_key, key_of, requeue, take_unstarted
from duly.store.statements import load


class Patience(Enum):
    """How long to wait for a unique key that somebody else holds: who may be a caller, whose transaction stays open.

    On SQLite whoever writes is alone, and holds every key.
    """

    NONE = auto()
    """Go round it."""
    LITTLE = auto()
    """Stand in the queue for a moment: others may hold it one after the other without a gap."""
    ENDLESS = auto()
    """Until it is free."""


def retake_key(dialect: Dialect, job_id: str, scope: int) -> Op[Held]:
    """A job that goes back to the queue needs its key again. Returns who holds it: if a newer job, that one stands."""
    return (yield from hold_key(dialect, (yield from _wanted(job_id, scope))))


def _wanted(job_id: str, scope: int) -> Op[dict[str, Value]]:
    rows = yield Call("wanted_key", {"id": job_id})
    return key_of(str(rows[0][0]), str(rows[0][1]), job_id, scope)


def may_take_key(dialect: Dialect, job_id: str, patience: Patience) -> Op[bool]:
    """Take a key that was seen to be free. False: somebody is about to, by a row that is not committed yet."""
    if dialect is Dialect.SQLITE or patience is Patience.ENDLESS:
        return True
    key = yield from _wanted(job_id, HOLD["queued"])
    return (yield from _for_a_moment(Call("hold_key", key), patience)) is not None


def lock_key_of(dialect: Dialect, job_id: str) -> Op[Rows]:
    """Lock the key that a job was enqueued with, whoever holds it now. Returns it if that is this job."""
    return (yield from try_lock_key_of(dialect, job_id, Patience.ENDLESS)) or ()


def try_lock_key_of(dialect: Dialect, job_id: str, patience: Patience) -> Op[Rows | None]:
    """The same, but None if somebody else has it locked for longer than we have patience."""
    rows = yield Call("wanted_key", {"id": job_id})
    if not rows or rows[0][1] is None:
        return []
    key = key_of(str(rows[0][0]), str(rows[0][1]), job_id, HOLD["none"])
    found = yield from lock_key(dialect, Call("lock_key", key), patience)
    return None if found is None else [row[:3] for row in found if str(row[3]) == job_id]


def lock_key(dialect: Dialect, call: Call, patience: Patience) -> Op[Rows | None]:
    """Lock a key by one of the statements that do. None: somebody else has, and is not waited for any longer."""
    if dialect is Dialect.SQLITE or patience is Patience.ENDLESS:
        return (yield call)
    if patience is Patience.LITTLE:
        return (yield from _for_a_moment(call, patience))
    rows = yield call._replace(name=f"{call.name}_if_free")
    if not rows and (yield call._replace(name=f"{call.name}_exists")):
        return None
    return rows


def _for_a_moment(call: Call, patience: Patience) -> Op[Rows | None]:
    """Run a statement that may have to wait for somebody, but only for a moment. None: that was not enough."""
    yield Call("save_here")
    yield Call("wait_in_queue" if patience is Patience.LITTLE else "wait_little")
    rows = yield Foreign(load(Dialect.POSTGRES)[call.name], call.params, caught=True)
    if gave_up_waiting(rows):
        yield Call("back_to_here")
        yield Call("past_here")
        return None
    yield Call("past_here")
    yield Call("wait_again")
    return rows


def pass_on(dialect: Dialect, job_id: str, keys: Rows) -> Op[None]:
    """Give a job's unique key back, or hand it to the job that waits for it, if that one still waits."""
    for tenant, key, following in keys:
        taken = None if following is None else (yield from take_unstarted(dialect, str(following)))
        if taken is None:
            yield Call("release_key", {"id": job_id})
        else:
            yield Call("pass_key", {"tenant": str(tenant), "key": str(key), "next_id": taken.id})
            yield from requeue(taken)
