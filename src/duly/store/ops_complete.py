"""Complete: end a run as succeeded in the transaction of its own handler; and look, afterwards, whether that committed.

Unlike a settle, which leaves out what it cannot have, this raises: the handler must not commit its transaction then.
Nothing is locked here that others wait for while they write about other jobs: not the limit of a key, which is only
marked to be looked at; not a row of counts, since every open transaction counts in a shard of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from duly.domain.errors import JobCancelled, MirrorFailed, StaleRun
from duly.domain.records import HOLD, Claimed, Settled
from duly.store.call import Call, Dialect, Op
from duly.store.ops_settle import params_of_pairs, settle
from duly.store.ops_unique import pass_on

if TYPE_CHECKING:
    from duly.store.ops_recurring import Recurring

Pairs = Sequence[tuple[str, int]]
KEYED = (HOLD["queued"], HOLD["live"])


class Next(NamedTuple):
    """When a recurring job runs next (None: not by time), and what the clock of the database said."""

    place_at: int | None = None
    now_us: int = 0


class Looked(NamedTuple):
    """What became of runs that were completed in transactions of their handlers."""

    recorded: set[str]
    """Committed: they have succeeded."""
    undone: set[str]
    """Not committed, and never will be."""
    open: set[str]
    """The transaction has not ended yet."""


def check_held(job: Claimed) -> Op[None]:
    """Raise if a run has lost its job, or was asked to stop. Locks nothing."""
    rows = yield Call("run_held", {"id": job.id, "token": job.token})
    _check(job, rows)


def _check(job: Claimed, rows: Sequence[Sequence[object]]) -> None:
    if not rows:
        raise StaleRun(
            f"job {job.id} ({job.task}) is no longer this run's (fence {job.token}): its lease lapsed and it was given "
            "to another worker, or it was deleted. Do not commit: let this exception pass, so that all is rolled back"
        )
    cancel_at, reason = rows[0]
    if cancel_at is not None:
        reason = str(reason or "cancelled")
        raise JobCancelled(
            f"job {job.id} ({job.task}) was cancelled while it ran: {reason}. Do not commit: let this exception pass",
            job_id=job.id,
            reason=reason,
        )


def complete(recurring: Recurring, job: Claimed, settled: Settled, *, shard: int) -> Op[Next]:
    """End a run as succeeded, or raise. Whatever it locks, it locks in the order in which a settle does."""
    dialect, following = recurring.dialect, Next()
    keys = (yield Call("key_of", {"id": job.id})) if job.hold in KEYED else ()
    if job.hold == HOLD["recurs"]:
        yield Call("lock_recurring", {"id": job.id})
    _check(job, (yield Call("lock_run", {"id": job.id, "token": job.token, "only_expired": False})))
    if job.hold == HOLD["recurs"]:
        following = yield from _complete_recurring(recurring, settled, shard)
    else:
        yield from settle(dialect, [settled], shard=shard)
        yield from pass_on(dialect, job.id, keys)
    if job.limit_key is not None:
        yield Call("look_at_key_of", {"id": job.id})
    return following


def _complete_recurring(recurring: Recurring, settled: Settled, shard: int) -> Op[Next]:
    from duly.store.ops_recurring_runs import end_runs

    ended = yield from end_runs(recurring, [settled], shard=shard, patient=True)
    then = ended.accepted.get(settled.id)
    if then is None:
        wrong = ended.failed.get(settled.id) or ended.hookless.get(settled.id) or "somebody else holds what it writes"
        raise MirrorFailed(f"what must happen beside the end of recurring job {settled.id} failed: {wrong}")
    return Next(then.place_at, ended.now_us)


def look(dialect: Dialect, pairs: Pairs) -> Op[tuple[set[str], set[str]]]:
    """Which runs have succeeded, and which still run as far as is committed."""
    rows = yield Call("completed_runs", params_of_pairs(dialect, pairs))
    return {str(row[0]) for row in rows if row[2] == "succeeded"}, {str(row[0]) for row in rows if row[1]}


def let_go(dialect: Dialect, pairs: Pairs) -> Op[set[str]]:
    """Which of these runs no open transaction is about to end."""
    rows = yield Call("runs_let_go", params_of_pairs(dialect, pairs))
    return {str(row[0]) for row in rows}
