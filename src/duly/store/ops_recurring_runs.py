"""What follows from the runs of recurring jobs: the next place of each, and jobs of their own for ticks that are due.

A finish holds the rows of `recurring` that nobody else holds and leaves the others for later, so that a caller's open
transaction delays only its own job. Mirrors run under a savepoint: one that fails takes nobody else's run back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from duly.domain.errors import InvalidSchedule
from duly.domain.rank import DEFAULT_HORIZON_US
from duly.domain.records import Settled
from duly.domain.recurring import Change, Ending, Next, Occurrence, Spawning
from duly.schedule.plan import after_run, due_ticks
from duly.store.call import Call, Dialect, Foreign, Op, Value, gave_up_waiting
from duly.store.ops_mirrors import HOOK_MISSING
from duly.store.ops_recurring import Recurring
from duly.store.ops_settle import park, settle

_BUSY = {"55P03", "40P01", "40001"}
"""A lock that could not be had in time, or only by harming somebody else."""
RUNS_KEPT = 10
PAGE = 500
MOST_OLD = 1_000


Made = tuple[str, str, str, int, int]
"""Where a new job went: queue, tenant, task, rank, and how many."""


class Ended(NamedTuple):
    """What became of the runs that were to end."""

    accepted: dict[str, Next]
    """By id, with what follows; not the ones that had lost their lease."""
    held: set[str]
    """Those whose recurring job somebody else holds at the moment: try again."""
    failed: dict[str, str]
    """Those whose mirror failed, and how: they are not settled."""
    hookless: dict[str, str]
    """Those that a Python hook must see which this process has not loaded, in words: they are not settled."""
    now_us: int = 0
    """What time the database said it was."""


def end_runs(
    recurring: Recurring,
    batch: Sequence[Settled],
    *,
    shard: int,
    only_expired: bool = False,
    mirrored: bool = True,
    queueing: bool = False,
    patient: bool = False,
) -> Op[Ended]:
    """End runs of recurring jobs. Without `mirrored` no mirror is called: it has failed too often.

    With `queueing` wait a little in the queue for a job that others hold, one after the other without a gap. `patient`:
    this is somebody's own transaction, whose mirrors wait for locks as it does.

    One whose arguments do not fit is set aside: its state is "parked", and its reason the mark of the code.
    """
    dialect = recurring.dialect
    runs = {each.id: each for each in batch}
    free, busy = set(runs), set[str]()
    if dialect is Dialect.POSTGRES:
        free = yield from (_queue_for(sorted(runs)) if queueing else _lock_free(sorted(runs)))
        if len(free) < len(runs):  # what was deleted is not busy: its run has lost its job
            busy = {str(row[0]) for row in (yield Call("known_jobs", {"ids": sorted(set(runs) - free)}))}
    parked = yield from _park(dialect, [each for each in batch if each.state == "parked" and each.id in free])
    jobs = yield from _ending(dialect, [each for each in batch if each.state != "parked" and each.id in free])
    plain: list[Ending] = []
    beside: list[Ending] = []
    for job in jobs:  # a run that is given back changes nothing that a mirror shows
        has_mirror = mirrored and (job.mirror is not None or job.hook) and runs[job.id].outcome != "released"
        (beside if has_mirror else plain).append(job)
    accepted = yield from _end(dialect, plain, runs, shard=shard, only_expired=only_expired)
    ended = Ended(accepted | parked, busy, {}, {}, jobs[0].now if jobs else 0)
    if beside:
        if dialect is Dialect.POSTGRES and not patient:
            yield Call("wait_little")
        yield from _end_mirrored(recurring, beside, runs, ended, shard=shard, only_expired=only_expired)
        if dialect is Dialect.POSTGRES and not patient:
            yield Call("wait_again")
    return ended


def _park(dialect: Dialect, batch: Sequence[Settled]) -> Op[dict[str, Next]]:
    parked: dict[str, Next] = {}
    for each in batch:
        why, mark = each.error or "", each.reason or ""
        if (yield from park(dialect, job_id=each.id, token=each.token, reason="arguments", detail=why, mark=mark)):
            parked[each.id] = Next("parked", None, None, None, 0)
    return parked


def _lock_free(ids: list[str]) -> Op[set[str]]:
    """Hold those of these recurring jobs that nobody else holds."""
    rows = yield Call("lock_ending", {"ids": ids})
    return {str(row[0]) for row in rows}


def _queue_for(ids: list[str]) -> Op[set[str]]:
    """Hold these recurring jobs, waiting for each a little; none if that was not enough."""
    yield Call("save_here")
    yield Call("wait_in_queue")
    for job_id in ids:
        rows = yield Foreign(
            "SELECT id FROM duly.recurring WHERE id = :id::uuid FOR UPDATE", {"id": job_id}, caught=True
        )
        if gave_up_waiting(rows):
            yield Call("back_to_here")
            yield Call("past_here")
            return set()
    yield Call("past_here")
    yield Call("wait_again")
    return set(ids)


def _ending(dialect: Dialect, batch: Sequence[Settled]) -> Op[list[Ending]]:
    if not batch:
        return []
    if dialect is Dialect.POSTGRES:
        rows = yield Call("ending", {"ids": [each.id for each in batch], "tokens": [each.token for each in batch]})
    else:
        rows = yield Call("ending", {"batch": json.dumps([(each.id, each.token) for each in batch])})
    return [Ending._make(row) for row in rows]


def _end(
    dialect: Dialect, jobs: Sequence[Ending], runs: dict[str, Settled], *, shard: int, only_expired: bool
) -> Op[dict[str, Next]]:
    """Settle the runs of jobs that are held, and write down how the jobs stand."""
    if not jobs:
        return {}
    following = {job.id: _following(job, runs[job.id]) for job in jobs}
    settled = [_settled(job, runs[job.id], following[job.id]) for job in jobs]
    accepted = yield from settle(dialect, settled, shard=shard, only_expired=only_expired)
    ended = [job for job in jobs if job.id in accepted]
    for job in ended:
        if job.moved and following[job.id].enabled:
            yield Call("move_recurring", {"id": job.id})
    yield from _write_down(dialect, ended, runs, following)
    return {job.id: following[job.id] for job in ended}


def _following(job: Ending, run: Settled) -> Next:
    """What becomes of it. One that was disabled meanwhile keeps the time, and goes nowhere; one that was edited moves.

    A rule that cannot be read here (this machine lacks its time zone, say) must not keep the run from being recorded.
    """
    try:
        then = after_run(job, run)
    except InvalidSchedule as error:
        why = _unreadable(error)
        then = Next("idle", None, job.next_run_at, job.tick_at, job.failures, enabled=False, reason=why)
    if not job.enabled:
        return then._replace(state="idle", enabled=False, reason=None)
    if job.moved and then.state == "queued":  # by way of the schedule into its new lane
        return then._replace(state="recurs", place_at=job.run_at)
    return then


def _unreadable(error: InvalidSchedule) -> str:
    return f"its rule could not be read: {error}"[:1_000]


def _settled(job: Ending, run: Settled, then: Next) -> Settled:
    uncounted = job.attempt if then.fresh else run.uncounted
    return run._replace(state=then.state, again_at=then.place_at, uncounted=uncounted, reason=None)


def _write_down(
    dialect: Dialect, jobs: Sequence[Ending], runs: dict[str, Settled], following: dict[str, Next]
) -> Op[None]:
    rows: list[tuple[Value, ...]] = []
    for job in jobs:
        run, then = runs[job.id], following[job.id]
        told = run.outcome != "released"
        last = job.now - run.age_us if told and run.ran_us >= 0 else None
        rows.append(
            (
                job.id,
                then.enabled,
                then.next_run_at,
                then.tick_at,
                then.failures,
                job.token,
                last,
                run.outcome if told else None,
                _short(run) if told else None,
                then.reason,
            )
        )
    if not rows:
        return
    if dialect is Dialect.POSTGRES:
        names = ("ids", "enableds", "nexts", "ticks", "failureses", "tokens", "lasts", "outcomes", "errors", "reasons")
        yield Call(
            "update_ended", {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
        )
        return
    names = (
        "id", "enabled", "next_run_at", "tick_at", "failures", "token", "last_run_at", "last_outcome", "last_error",
        "disabled_reason",
    )  # fmt: skip
    for row in rows:
        yield Call("update_ended", dict(zip(names, row, strict=True)))


def _short(run: Settled) -> str | None:
    return None if run.error is None else f"{run.error_kind}: {run.error}"[:1_000]


# -- mirrors --------------------------------------------------------------------------------------------------


def _end_mirrored(
    recurring: Recurring,
    jobs: Sequence[Ending],
    runs: dict[str, Settled],
    ended: Ended,
    *,
    shard: int,
    only_expired: bool,
) -> Op[None]:
    """Settle together with their mirrors; should one fail, each by itself. Adds to what has ended."""
    groups = [list(jobs)] if len(jobs) > 1 else []
    together = False
    for group in groups:
        more, error = yield from _try(recurring, group, runs, shard=shard, only_expired=only_expired)
        together = error is None
        ended.accepted.update(more)
    if not together:
        for job in jobs:
            more, error = yield from _try(recurring, [job], runs, shard=shard, only_expired=only_expired)
            ended.accepted.update(more)
            if error is None:
                continue
            state, text = error
            if state in _BUSY:
                ended.held.add(job.id)
            else:
                (ended.hookless if state == HOOK_MISSING else ended.failed)[job.id] = text


def _try(
    recurring: Recurring, jobs: list[Ending], runs: dict[str, Settled], *, shard: int, only_expired: bool
) -> Op[tuple[dict[str, Next], tuple[str | None, str] | None]]:
    """Settle some jobs and call their mirrors, all or none. Returns what was settled, or what went wrong."""
    yield Call("save_here")
    accepted = yield from _end(recurring.dialect, jobs, runs, shard=shard, only_expired=only_expired)
    for job in jobs:
        if job.id in accepted:
            change = _change(job, runs[job.id], accepted[job.id])
            error = yield from recurring.mirror_with(change, job.mirror, job.hook)
            if error is not None:
                yield Call("back_to_here")
                yield Call("past_here")
                return {}, error
    yield Call("past_here")
    return accepted, None


def _change(job: Ending, run: Settled, then: Next) -> Change:
    shown = then.next_run_at if then.enabled else None
    last = job.now - run.age_us if run.ran_us >= 0 else None
    return Change(
        job.id, job.tenant, job.task, job.key, then.enabled, shown, run.outcome, run.error, then.failures, last
    )


# -- claims and ticks -----------------------------------------------------------------------------------------


def occurrences(dialect: Dialect, ids: Sequence[str]) -> Op[dict[str, Occurrence]]:
    """What a worker must know of the recurring jobs that it has claimed."""
    rows = yield Call("occurrences", {"ids": list(ids) if dialect is Dialect.POSTGRES else json.dumps(list(ids))})
    return {str(row[0]): Occurrence._make(row) for row in rows}


def spawn(recurring: Recurring, n: int) -> Op[list[Made]]:
    """Make the jobs of ticks that are due. Returns (queue, tenant, task, rank, 1) for each job made."""
    made: list[Made] = []
    for row in (yield Call("due_spawning", {"n": n})):
        for due in (yield Call("spawning", {"id": str(row[0])})):
            made += yield from _spawn_mirrored(recurring, Spawning._make(due))
    return made


def _spawn_mirrored(recurring: Recurring, job: Spawning) -> Op[list[Made]]:
    """Make the jobs together with the mirror; should that fail, without it, and say so."""
    mirror = yield Call("mirror_of", {"task": job.task})
    if not mirror:
        return (yield from _spawn(job))[0]
    yield Call("save_here")
    if recurring.dialect is Dialect.POSTGRES:
        yield Call("wait_little")
    made, change = yield from _spawn(job)
    error = yield from recurring.mirror_with(change, mirror[0][0], bool(mirror[0][1]))
    if error is not None:
        yield Call("back_to_here")
        made = []
        if error[0] not in (*_BUSY, HOOK_MISSING):  # those are for later, or for somebody else
            made, _ = yield from _spawn(job)
            yield Call("note_unmirrored", {"id": job.id, "error": f"MirrorFailed: {error[1]}"[:1_000]})
    yield Call("past_here")
    if recurring.dialect is Dialect.POSTGRES:
        yield Call("wait_again")
    return made


def _spawn(job: Spawning) -> Op[tuple[list[Made], Change]]:
    why = "its schedule has ended"
    try:
        ticks, following = due_ticks(job)
    except InvalidSchedule as error:  # as after a run: others must not miss their ticks for it
        ticks, following, why = [], None, _unreadable(error)
    made: list[Made] = []
    for tick in ticks:
        job_id = id_of_tick(job.id, tick)
        params: dict[str, Value] = {"id": job.id, "job_id": job_id, "tick_at": tick, "horizon": DEFAULT_HORIZON_US}
        params |= {
            "enqueued_by": f"schedule {job.task} {job.key}"[:255].strip(),
            "headers": json.dumps({"tick": tick, "schedule": job.id}),
        }
        if (yield Call("spawn_job", params)):
            placed = yield Call("spawn_place", params)
            if not placed:
                yield Call("spawn_aside", params)
            made += [(str(r[0]), str(r[1]), str(r[2]), int(str(r[3])), 1) for r in placed]
    if following is None:
        yield Call("leave_place", {"id": job.id})
        yield Call("end_spawning", {"id": job.id, "reason": why})
    else:
        yield Call("move_spawning", {"id": job.id, "next_run_at": following})
    yield Call("note_spawned", {"id": job.id, "next_run_at": following, "last_tick_at": max(ticks) if ticks else None})
    last = job.now if ticks else job.last_run_at
    on = following is not None
    change = Change(job.id, job.tenant, job.task, job.key, on, following, None, None, job.failures, last)
    return made, change


def id_of_tick(schedule_id: str, tick: int) -> str:
    """The id of the job of one tick: always the same, in the order of time as all ids are."""
    digest = hashlib.blake2b(f"{schedule_id}/{tick}".encode(), digest_size=10).digest()
    value = (tick // 1_000) << 80 | int.from_bytes(digest, "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    return str(UUID(int=value & ~(0x3 << 62) | 0x2 << 62))


def prune_runs(dialect: Dialect, after: str, keep_us: int) -> Op[tuple[str | None, int]]:
    """Forget old runs of the next recurring jobs by id. Returns where to go on, None at the end; and how many went."""
    rows = yield Call("recurring_page", {"after": after, "n": PAGE})
    if not rows:
        return None, 0
    params: dict[str, Value] = {"keep": RUNS_KEPT, "keep_us": keep_us, "most": MOST_OLD}
    gone = 0
    ids = [str(job_id) for job_id, token in rows if int(str(token)) > RUNS_KEPT]  # the others cannot have more
    if dialect is Dialect.POSTGRES:
        counted = yield Call("prune_recurring_runs", params | {"ids": ids})
        gone = int(str(counted[0][0]))
    else:
        for job_id in ids:
            gone += len((yield Call("prune_recurring_runs", params | {"id": job_id})))
    return (str(rows[-1][0]) if len(rows) == PAGE else None), gone
