"""What people do to one job (cancel, retry, delete, reprioritise, reschedule) and how they look at jobs."""

from __future__ import annotations

from duly.domain.rank import DEFAULT_HORIZON_US
from duly.domain.records import HOLD, Counts, Filter, JobRecord, RunRecord
from duly.domain.states import State
from duly.domain.unique import storage_key
from duly.store.call import Call, Dialect, Op, Row, Value
from duly.store.ops_enqueue import move_to, take_unstarted
from duly.store.ops_settle import free_key


def job_record(row: Row) -> JobRecord:
    """Make a record of one row of the `get_job` or list statement."""
    values = list(row)
    values[15] = State(str(row[15])) if row[15] is not None else State.CANCELLED
    return JobRecord(**dict(zip(JobRecord.__dataclass_fields__, values, strict=True)))  # type: ignore[arg-type]


def get(job_id: str) -> Op[JobRecord | None]:
    """Find one job."""
    rows = yield Call("get_job", {"id": job_id})
    return job_record(rows[0]) if rows else None


def runs_of(job_id: str) -> Op[list[RunRecord]]:
    """Every run of a job, first to last."""
    rows = yield Call("runs_of", {"id": job_id})
    return [RunRecord._make(row) for row in rows]  # type: ignore[arg-type]


def recent_runs(task: str | None, tenant: str | None, n: int) -> Op[list[RunRecord]]:
    """The newest runs."""
    rows = yield Call("recent_runs", {"task": task, "tenant": tenant, "n": n})
    return [RunRecord._make(row) for row in rows]  # type: ignore[arg-type]


def cancel(dialect: Dialect, job_id: str, reason: str) -> Op[tuple[str, str | None]]:
    """End a job that has not started, or ask its worker to stop it.

    Returns ("cancelled", None), ("asked", worker id), or ("ended" or "unknown", None).
    """
    taken = yield from take_unstarted(dialect, job_id)
    if taken is not None:
        token, attempt, crashes, hold = taken
        end: dict[str, Value] = {"id": job_id, "state": "cancelled", "token": token, "attempt": attempt}
        yield Call("insert_ended", end | {"crashes": crashes, "reason": reason})
        if hold in (HOLD["queued"], HOLD["live"]):
            yield from free_key(dialect, job_id)
        return "cancelled", None
    rows = yield Call("request_cancel", {"id": job_id, "reason": reason})
    if rows:
        return "asked", str(rows[0][0])
    known = yield Call("get_job", {"id": job_id})
    return ("ended" if known else "unknown"), None


def retry(dialect: Dialect, job_id: str) -> Op[tuple[str, str | None]]:
    """Put a finished, scheduled or parked job back into its lane, due now, its attempts at 0.

    Returns ("queued", None), ("held", id of the job that holds its unique key), ("running", None) or ("unknown", None).
    """
    rows = yield Call("get_job", {"id": job_id})
    if not rows:
        return "unknown", None
    job = job_record(rows[0])
    if job.state is State.RUNNING:
        return "running", None
    hold = 0
    if job.state in (State.SUCCEEDED, State.FAILED, State.CANCELLED):
        if job.unique_key is not None:
            holder = yield from _retake(job)
            if holder != job_id:
                return "held", holder
            hold = HOLD["live"]
        if not (yield Call("take_ended", {"id": job_id})):
            return "unknown", None
    else:
        taken = yield from take_unstarted(dialect, job_id)
        if taken is None:
            return "unknown", None
        hold = taken[3]
    back: dict[str, Value] = {"id": job_id, "token": job.token, "attempt": 0, "hold": hold}
    yield Call("requeue", back | {"horizon": DEFAULT_HORIZON_US})
    return "queued", None


def _retake(job: JobRecord) -> Op[str]:
    key: dict[str, Value] = {"tenant": job.tenant, "key": storage_key(job.unique_key or ""), "id": job.id}
    rows = yield Call("hold_key", key | {"scope": HOLD["live"], "window_us": None})
    return str(rows[0][0])


def end_by_hand(dialect: Dialect, job_id: str, state: State, reason: str) -> Op[str]:
    """End a waiting job as succeeded or failed because a person says so. Returns "ended", "running" or "unknown"."""
    taken = yield from take_unstarted(dialect, job_id)
    if taken is None:
        return "running" if (yield Call("is_running", {"id": job_id})) else "unknown"
    end: dict[str, Value] = {"id": job_id, "state": state, "token": taken[0], "attempt": taken[1]}
    yield Call("insert_ended", end | {"crashes": taken[2], "reason": reason})
    if taken[3] in (HOLD["queued"], HOLD["live"]):
        yield from free_key(dialect, job_id)
    return "ended"


def delete(dialect: Dialect, job_id: str) -> Op[str]:
    """Forget a job that does not run. Returns "deleted", "running" or "unknown"."""
    if (yield Call("is_running", {"id": job_id})):
        return "running"
    taken = yield from take_unstarted(dialect, job_id)
    ended = [] if taken is not None else (yield Call("take_ended", {"id": job_id}))
    if taken is None and not ended:
        return "unknown"
    yield from free_key(dialect, job_id)
    yield Call("delete_runs", {"id": job_id})
    yield Call("delete_job", {"id": job_id})
    return "deleted"


def set_priority(job_id: str, priority: int) -> Op[bool]:
    """Change a job's priority and, if it waits, its place. Returns whether it may still make a difference."""
    params: dict[str, Value] = {"id": job_id, "priority": priority, "horizon": DEFAULT_HORIZON_US}
    rows = yield Call("get_job", {"id": job_id})
    if not rows or job_record(rows[0]).state not in (State.SCHEDULED, State.QUEUED):
        return False
    yield Call("set_priority", params)
    yield Call("rerank", params)
    yield Call("reprioritise_scheduled", params)
    return True


def reschedule(dialect: Dialect, job_id: str, *, run_at: int | None, delay_us: int) -> Op[bool]:
    """Give a job that has not started another time."""
    found = yield Call("lock_unstarted", {"id": job_id})
    if found:
        yield from move_to(dialect, job_id, run_at=run_at, delay_us=delay_us)
    return bool(found)


def counts() -> Op[Counts]:
    """Count the jobs in every place."""

    def grouped(rows: object) -> list[tuple[str, str, str, int, int]]:
        return [tuple(row) for row in rows]  # type: ignore[attr-defined]

    waiting = yield Call("count_waiting")
    scheduled = yield Call("count_scheduled")
    running = yield Call("count_running")
    parked = yield Call("count_parked")
    ended = yield Call("count_ended")
    return Counts(
        waiting=grouped(waiting),
        scheduled=grouped(scheduled),
        running=grouped(running),
        parked={str(reason): int(str(n)) for reason, n in parked},
        ended={str(state): int(str(n)) for state, n in ended},
    )


def release_parked(dialect: Dialect, task: str, fingerprint: str, n: int) -> Op[int]:
    """Give jobs whose arguments did not fit another version of the code another chance with this one."""
    rows = yield Call("stale_parked", {"task": task, "mark": fingerprint, "n": n})
    for row in rows:
        job_id = str(row[0])
        taken = yield from take_unstarted(dialect, job_id)
        if taken is not None:
            back: dict[str, Value] = {"id": job_id, "token": taken[0], "attempt": taken[1], "hold": taken[3]}
            yield Call("requeue", back | {"horizon": DEFAULT_HORIZON_US})
    return len(rows)


_LISTS = {
    State.SCHEDULED: ("list_scheduled",),
    State.QUEUED: ("list_waiting", "list_parked"),
    State.RUNNING: ("list_running",),
}


def find(wanted: Filter) -> Op[list[JobRecord]]:
    """List jobs, newest first (finished ones by when they finished)."""
    params: dict[str, Value] = {
        "state": wanted.state,
        "task": wanted.task,
        "queue": wanted.queue,
        "tenant": wanted.tenant,
        "tag": None if wanted.tag is None else f'%"{wanted.tag}"%',
        "text": None if wanted.text is None else f"%{wanted.text}%",
        "before_id": wanted.before_id,
        "limit": wanted.limit,
        "offset": wanted.offset,
    }
    names = ("list_jobs",) if wanted.state is None else _LISTS.get(wanted.state, ("list_ended",))
    found: list[JobRecord] = []
    for name in names:
        rows = yield Call(name, params | {"limit": wanted.limit - len(found)})
        found += [job_record(row) for row in rows]
    return found
