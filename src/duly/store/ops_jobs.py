"""What people do to one job (cancel, retry, delete, reprioritise, reschedule) and how they look at jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from duly.domain.audit import Actor
from duly.domain.ids import is_job_id
from duly.domain.rank import DEFAULT_HORIZON_US
from duly.domain.records import HOLD, Counts, Filter, JobRecord, QueueRecord, RunRecord, Standing
from duly.domain.states import State
from duly.domain.unique import storage_key
from duly.store import ops_audit
from duly.store.call import Call, Dialect, Op, Row, Rows, Value
from duly.store.ops_enqueue import MOVES, Unstarted, move_to, requeue, take_unstarted
from duly.store.ops_settle import end_unstarted
from duly.store.ops_unique import retake_key

R = TypeVar("R")
END_OF_TIME = 2**40  # in seconds
LONGEST_SPAN = 4**11  # seconds: beyond these 48 days all the rest is looked at at once


def job_record(row: Row) -> JobRecord:
    """Make a record of one row of the `get_job` or list statement."""
    values = list(row)
    values[15] = State(str(row[15])) if row[15] is not None else State.CANCELLED
    return JobRecord(**dict(zip(JobRecord.__dataclass_fields__, values, strict=True)))  # type: ignore[arg-type]


def get(job_id: str, tenant: str | None = None) -> Op[JobRecord | None]:
    """Find one job; with a tenant, only that tenant's. What is no id at all names none."""
    if not is_job_id(job_id):
        return None
    rows = yield Call("get_job" if tenant is None else "get_job_of", {"id": job_id, "tenant": tenant})
    return job_record(rows[0]) if rows else None


def within(tenant: str, job_id: str, do: Callable[[], Op[R]], otherwise: R) -> Op[R]:
    """Do something to a job if it is this tenant's. Whose a job is never changes, so to ask once is enough.

    One that is another's, or never was, gets the answer `otherwise` after the same one probe.
    """
    if not (yield Call("is_of_tenant", {"id": job_id, "tenant": tenant})):
        return otherwise
    return (yield from do())


def each_of(dialect: Dialect, job_ids: Sequence[str], do: Callable[[str], Op[R]]) -> Op[dict[str, R]]:
    """Do something to each of some jobs, one after the other; where rows are locked, in one order by all."""
    answers: dict[str, R] = {}
    for job_id in (yield from _in_order(job_ids)) if dialect is Dialect.POSTGRES else job_ids:
        answers[job_id] = yield from do(job_id)
    return {job_id: answers[job_id] for job_id in job_ids}


def _in_order(job_ids: Sequence[str]) -> Op[list[str]]:
    """Jobs in the order in which all lock: those without a unique key, then by key, as a bulk enqueue takes them."""
    rows = yield Call("wanted_keys", {"ids": [job_id for job_id in job_ids if is_job_id(job_id)]})
    keys = {str(job_id): (str(tenant), storage_key(str(key))) for job_id, tenant, key in rows}
    return sorted(job_ids, key=lambda job_id: (*keys.get(job_id, ("", "")), job_id))


def runs_of(job_id: str) -> Op[list[RunRecord]]:
    """Every run of a job, first to last."""
    rows = yield Call("runs_of", {"id": job_id})
    return [RunRecord._make(row) for row in rows]


def recent_runs(
    dialect: Dialect, task: str | None, tenant: str | None, n: int, look: int | None = None
) -> Op[list[RunRecord]]:
    """The runs that ended last, newest first. `look`: SQLite looks for those of a task or tenant among so many.

    Those of a tenant are found through its jobs. For the rest PostgreSQL knows only by a summary which pages hold runs
    of some time: there we go back in ever longer spans, and leap over times in which nothing ended.
    """
    params: dict[str, Value] = {"task": task, "tenant": tenant, "n": n, "look": look}
    if tenant:
        return [RunRecord._make(row) for row in (yield Call("recent_runs_of", params))]
    if dialect is Dialect.SQLITE:
        return [RunRecord._make(row) for row in (yield Call("recent_runs", params))]
    clock = yield Call("clock", {"queue": "", "horizon": 0})
    found: list[RunRecord] = []
    newest, until, span = int(str(clock[0][0])) // 1_000_000 + 1, END_OF_TIME, 1
    while True:
        activity = yield Call("last_activity", params | {"until_second": until})
        if activity[0][0] is not None:
            newest = min(newest, int(str(activity[0][0])))
        since = newest - span if span <= LONGEST_SPAN else 0
        within: dict[str, Value] = {"from_second": since, "until_second": until, "n": n - len(found)}
        found += [RunRecord._make(row) for row in (yield Call("recent_runs", params | within))]
        if len(found) >= n or since <= 0:
            return found
        newest, until, span = since, since, span * 4


def cancel(
    dialect: Dialect, job_id: str, reason: str, *, actor: Actor | None = None, action: str = "cancel"
) -> Op[tuple[str, str | None]]:
    """End a job that has not started, or ask its worker to stop it.

    Returns ("cancelled", None), ("asked", worker id), or ("ended" or "unknown", None). A recurring job has no end: only
    its run is asked to stop; without one the answer is ("recurring", None).
    """
    op = _cancel(dialect, job_id, reason)
    return (yield from ops_audit.keep_job(get, actor, action, job_id, op, reason=reason))


def _cancel(dialect: Dialect, job_id: str, reason: str) -> Op[tuple[str, str | None]]:
    if (yield Call("is_recurring", {"id": job_id})):
        rows = yield Call("request_cancel", {"id": job_id, "reason": reason})
        return ("asked", str(rows[0][0])) if rows else ("recurring", None)
    for _ in range(MOVES):  # a run may end and its job go back to its lane between one look and the next
        if (yield from end_unstarted(dialect, job_id, State.CANCELLED, reason)):
            return "cancelled", None
        rows = yield Call("request_cancel", {"id": job_id, "reason": reason})
        if rows:
            return "asked", str(rows[0][0])
        job = yield from get(job_id)
        if job is None:
            return "unknown", None
        if job.state.terminal:
            break
    return "ended", None


def retry(
    dialect: Dialect, job_id: str, *, actor: Actor | None = None, action: str = "retry"
) -> Op[tuple[str, str | None]]:
    """Put a finished, scheduled or parked job back into its lane, due now, its attempts at 0.

    Returns ("queued", None), ("held", id of the job that holds its unique key), ("running", None), ("unknown", None) or
    ("recurring", None): that one's schedule goes on beside it.
    """
    op = _retry(dialect, job_id)
    return (yield from ops_audit.keep_job(get, actor, action, job_id, op))


def _retry(dialect: Dialect, job_id: str) -> Op[tuple[str, str | None]]:
    if (yield Call("is_recurring", {"id": job_id})):
        return "recurring", None
    for _ in range(MOVES):  # its run may end between one look and the next
        if ended := (yield Call("lock_ended", {"id": job_id})):
            return (yield from _retry_ended(dialect, job_id, token=int(str(ended[0][0])), hold=int(str(ended[0][1]))))
        if behind := (yield Call("parked_behind", {"id": job_id})):
            return "held", str(behind[0][0])
        if (taken := (yield from take_unstarted(dialect, job_id))) is not None:
            yield from requeue(taken._replace(attempt=0, crashes=0))
            return "queued", None
        if (yield Call("is_running", {"id": job_id})):
            return "running", None
        if (yield from get(job_id)) is None:
            break
    return "unknown", None


def _retry_ended(dialect: Dialect, job_id: str, *, token: int, hold: int) -> Op[tuple[str, str | None]]:
    if hold != HOLD["none"]:
        # Within its window the key is still its own; after that it is live, as how long the window was is not known.
        held = yield from retake_key(dialect, job_id, HOLD["queued"] if hold == HOLD["queued"] else HOLD["live"])
        if held.holder != job_id:
            return "held", held.holder
        hold = held.scope
    yield Call("take_ended", {"id": job_id})
    yield from requeue(Unstarted(job_id, token, 0, 0, hold))
    return "queued", None


def end_by_hand(dialect: Dialect, job_id: str, state: State, reason: str, *, actor: Actor | None = None) -> Op[str]:
    """End a waiting job by hand. Returns "ended", "running", "unknown", or "recurring": such a job has no end."""
    op = _end_by_hand(dialect, job_id, state, reason)
    return (yield from ops_audit.keep_job(get, actor, "set_state", job_id, op))


def _end_by_hand(dialect: Dialect, job_id: str, state: State, reason: str) -> Op[str]:
    if (yield Call("is_recurring", {"id": job_id})):
        return "recurring"
    if (yield from end_unstarted(dialect, job_id, state, reason)):
        return "ended"
    return "running" if (yield Call("is_running", {"id": job_id})) else "unknown"


def delete(dialect: Dialect, job_id: str, *, actor: Actor | None = None) -> Op[str]:
    """Forget a job that does not run, and its history. Returns "deleted", "running", "unknown" or "recurring"."""
    op = _delete(dialect, job_id)
    return (yield from ops_audit.keep_job(get, actor, "delete", job_id, op))


def _delete(dialect: Dialect, job_id: str) -> Op[str]:
    if (yield Call("is_recurring", {"id": job_id})):
        return "recurring"
    for _ in range(MOVES):  # its run may end between one look and the next
        if (yield Call("take_ended", {"id": job_id})):
            for forget in ("forget_key", "delete_runs", "delete_job"):
                yield Call(forget, {"id": job_id})
            return "deleted"
        if not (yield from end_unstarted(dialect, job_id, State.CANCELLED, None)):
            if (yield from get(job_id)) is None:
                return "unknown"
            if (yield Call("is_running", {"id": job_id})):
                break
    return "running"


def set_priority(job_id: str, priority: int, *, actor: Actor | None = None, action: str = "set_priority") -> Op[bool]:
    """Change a job's priority and, if it waits, its place. Returns whether it may still make a difference."""
    op = _set_priority(job_id, priority)
    return (yield from ops_audit.keep_job(get, actor, action, job_id, op))


def _set_priority(job_id: str, priority: int) -> Op[bool]:
    params: dict[str, Value] = {"id": job_id, "priority": priority, "horizon": DEFAULT_HORIZON_US}
    for _ in range(MOVES):  # it may go to another place between one look and the next
        job = yield from get(job_id)
        if job is None or job.state not in (State.SCHEDULED, State.QUEUED):
            break
        # Its place before its row, as all others lock them; the schedule first, as from there jobs go to the lanes.
        for place in ("reprioritise_scheduled", "rerank", "rerank_parked"):
            if (yield Call(place, params)):
                yield Call("look_at_key_of", params)
                yield Call("set_priority", params)
                return True
    return False


def reschedule(
    dialect: Dialect, job_id: str, *, run_at: int | None, delay_us: int, actor: Actor | None = None
) -> Op[bool]:
    """Give a job that has not started another time. One that waits for another with its unique key has none.

    Nor is this for a recurring job, whose schedule must know of it.
    """
    op = _reschedule(dialect, job_id, run_at=run_at, delay_us=delay_us)
    return (yield from ops_audit.keep_job(get, actor, "reschedule", job_id, op))


def _reschedule(dialect: Dialect, job_id: str, *, run_at: int | None, delay_us: int) -> Op[bool]:
    if (yield Call("parked_behind", {"id": job_id})) or (yield Call("is_recurring", {"id": job_id})):
        return False
    return (yield from move_to(dialect, job_id, run_at=run_at, delay_us=delay_us))


def counts(tenant: str | None = None) -> Op[Counts]:
    """Count the jobs in every place; with a tenant, only that tenant's."""
    of, params = ("", {}) if tenant is None else ("_of", {"tenant": tenant})

    def grouped(rows: object) -> list[tuple[str, str, str, int, int]]:
        return [tuple(row) for row in rows]  # type: ignore[attr-defined]

    if tenant is None:
        waiting = yield Call("count_waiting")
    else:
        waiting = yield from by_queue("count_waiting_of", {"tenant": tenant})
    scheduled = yield Call(f"count_scheduled{of}", params)
    running = yield Call(f"count_running{of}", params)
    parked = yield Call(f"count_parked{of}", params)
    ended = yield Call(f"count_ended{of}", params)
    return Counts(
        waiting=grouped(waiting),
        scheduled=grouped(scheduled),
        running=grouped(running),
        parked={str(reason): int(str(n)) for reason, n in parked},
        ended={str(state): int(str(n)) for state, n in ended},
    )


def by_queue(name: str, params: Mapping[str, Value]) -> Op[Rows]:
    """Ask something about a tenant's waiting jobs in one queue after the other: its lanes are found by queue."""
    found: list[Row] = []
    for row in (yield Call("queues_with_jobs")):
        found += yield Call(name, {**params, "in_queue": str(row[0])})
    return found


def queues() -> Op[list[QueueRecord]]:
    """The queues in which anything waits, or of which something was said, by name."""
    said = {str(name): (horizon, bool(fair)) for name, horizon, fair in (yield Call("queue_settings"))}
    names = {str(row[0]) for row in (yield Call("queues_with_jobs"))} | set(said)
    found = []
    for name in sorted(names):
        horizon, fair = said.get(name, (None, True))
        found.append(QueueRecord(name, None if horizon is None else int(str(horizon)), fair))
    return found


def standing(tenant: str, most: int) -> Op[Standing]:
    """How a tenant stands; of each kind of job no more than so many are counted."""
    [(weight, running, parked, paused_at)] = yield Call("tenant_standing", {"tenant": tenant, "most": most})
    waiting = yield from by_queue("some_waiting_of", {"tenant": tenant, "most": most})
    return Standing(
        weight=float(str(weight)),
        waiting=min(most, sum(int(str(row[0])) for row in waiting)),
        running=int(str(running)),
        parked=int(str(parked)),
        paused_at=None if paused_at is None else int(str(paused_at)),
    )


def tenant_names(after: str, n: int) -> Op[list[str]]:
    """The next tenants by name."""
    names: list[str] = []
    while len(names) < n:
        rows = yield Call("next_tenant_name", {"after": names[-1] if names else after})
        if rows[0][0] is None:
            break
        names.append(str(rows[0][0]))
    return names


def release_parked(dialect: Dialect, task: str, fingerprint: str, n: int) -> Op[int]:
    """Give jobs whose arguments did not fit another version of the code another chance with this one."""
    rows = yield Call("stale_parked", {"task": task, "mark": fingerprint, "n": n})
    for row in rows:
        taken = yield from take_unstarted(dialect, str(row[0]))
        if taken is not None:
            yield from requeue(taken)
    return len(rows)


_LISTS = {
    None: "list_jobs_of",
    State.SCHEDULED: "list_scheduled_of",
    State.RUNNING: "list_running_of",
    State.DISABLED: "list_disabled_of",
}


def find_of(dialect: Dialect, wanted: Filter) -> Op[list[JobRecord]]:
    """List one tenant's jobs, newest first, by when they were enqueued: through the indexes that tenants have."""
    ids = yield from _page_of(wanted)
    if not ids:
        return []
    rows = yield Call("jobs_of", {"ids": ids if dialect is Dialect.POSTGRES else json.dumps(ids)})
    found = {record.id: record for record in map(job_record, rows)}  # one may have moved on since its page was found
    return [found[each] for each in ids if each in found and wanted.state in (None, found[each].state)]


def _page_of(wanted: Filter) -> Op[list[str]]:
    """Which of a tenant's jobs are on a page of a list."""
    params: dict[str, Value] = {
        "state": wanted.state,
        "task": wanted.task,
        "queue": wanted.queue,
        "tenant": wanted.tenant,
        "tag": None if wanted.tag is None else json.dumps(wanted.tag, ensure_ascii=False),
        "text": wanted.text,
        "before_id": wanted.before_id,
        "limit": wanted.limit,
        "offset": wanted.offset,
    }
    if wanted.state is not State.QUEUED:
        return [str(row[0]) for row in (yield Call(_LISTS.get(wanted.state, "list_ended_of"), params))]
    page = params | {"limit": wanted.limit + wanted.offset, "offset": 0}
    found = [*(yield from by_queue("list_waiting_of", page)), *(yield Call("list_parked_of", page))]
    newest = sorted((str(row[0]) for row in found), reverse=True)
    return newest[wanted.offset : wanted.offset + wanted.limit]
