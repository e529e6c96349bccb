"""Jobs: list, look, enqueue, and what can be done to one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from duly.domain.clock import to_us
from duly.domain.durations import to_timedelta
from duly.domain.errors import Conflict
from duly.domain.json import decode
from duly.domain.records import Filter, JobRecord
from duly.domain.states import TERMINAL, State
from duly.web.desk import Desk, verb
from duly.web.errors import invalid, missing
from duly.web.principal import Scope
from duly.web.service import shown
from duly.web.service.filters import LOOK, LOOK_TO_COUNT, Wanted, write_cursor

# -- look -------------------------------------------------------------------------------------------------------------


@verb(Scope.READ)
def list_jobs(
    desk: Desk, wanted: Wanted, *, limit: int = 100, offset: int = 0, cursor: str | None = None
) -> dict[str, Any]:
    """A page of jobs, newest first (those that ended by when they did).

    Where few match, it looks at 20,000 jobs and no more; for a text, at the newest 50,000 that fit the other filters,
    passing 100,000 at most to find them (500,000 in any state). If that was not all, `complete` is false and
    `next_cursor` looks further; `looked_at` says at how many it looked.
    """
    query = wanted.filter(desk, limit=limit, offset=offset, cursor=cursor)
    if query is None:
        return {"items": [], "next_cursor": None, "complete": True, "looked_at": None}
    page = desk.jobs.store.page(query)
    records = [each for each in page.jobs if shows_text(desk, each, query.text)]
    return {
        "items": shown_jobs(desk, records),
        "next_cursor": write_cursor(page.following),
        "complete": not page.gave_up,
        "looked_at": page.looked,
    }


def shown_jobs(desk: Desk, records: list[JobRecord]) -> list[dict[str, Any]]:
    """Jobs with what their last runs left."""
    if not records:
        return []
    horizons = shown.Horizons(desk)
    last = desk.jobs.store.last_runs([each.id for each in records])
    return [shown.job(each, last.get(each.id), horizons, desk.redaction) for each in records]


def shows_text(desk: Desk, record: JobRecord, text: str | None) -> bool:
    """Whether a text that was found stands where it may be seen: a search must not tell what is hidden."""
    return not text or desk.redaction.shows(text, record.args)


@verb(Scope.READ)
def stats(desk: Desk) -> dict[str, Any]:
    """How many jobs stand where."""
    counts = desk.jobs.counts()

    def summed(rows: list[tuple[str, str, str, int, int]]) -> int:
        return sum(n for _, tenant, _, n, _ in rows if desk.sees(tenant))

    parked = sum(counts.parked.values()) if desk.tenant is None else desk.jobs.store.count_parked(desk.tenant)
    ended = {str(state): counts.ended.get(str(state), 0) for state in TERMINAL}
    complete = True
    if desk.tenant is not None:
        for state in TERMINAL:
            wanted = Filter(state=state, tenant=desk.tenant, look=LOOK_TO_COUNT)
            ended[str(state)], whole = desk.jobs.store.count_ended(wanted)
            complete = complete and whole
    return {
        "scheduled": summed(counts.scheduled),
        "queued": summed(counts.waiting) + parked,
        "running": summed(counts.running),
        "succeeded": ended["succeeded"],
        "completed": ended["succeeded"],
        "failed": ended["failed"],
        "cancelled": ended["cancelled"],
        "parked": parked,
        "complete": complete,
    }


def find(desk: Desk, job_id: str) -> JobRecord:
    """One job, if there is such a job and they may see it; else the answer is the same."""
    record = desk.jobs.store.get(job_id)
    if record is None or not desk.sees(record.tenant):
        raise missing(f"there is no job {job_id[:100]!r}: it was deleted or pruned, or the id is wrong")
    return record


@verb(Scope.READ)
def get(desk: Desk, job_id: str) -> dict[str, Any]:
    """One job."""
    return shown_jobs(desk, [find(desk, job_id)])[0]


@verb(Scope.READ)
def runs(desk: Desk, job_id: str, *, limit: int = 20, before: int | None = None) -> dict[str, Any]:
    """The runs of a job, newest first, with error, traceback, result and log."""
    record = find(desk, job_id)
    found = desk.jobs.store.newest_runs_of(record.id, before_token=before, n=limit)
    secrets = desk.redaction.secrets(decode(record.args))
    return {
        "items": [shown.run(each, desk.redaction, secrets, whole=True) for each in found],
        "next_before": found[-1].token if len(found) == limit else None,
    }


@verb(Scope.READ)
def why(desk: Desk, job_id: str) -> dict[str, Any]:
    """Why a job does not run, or how it stands: the reason, all that holds it, and what to do next."""
    record = find(desk, job_id)
    found = desk.jobs.why(record.id, tenant=desk.tenant).to_dict()
    hidden: dict[str, Any] = shown.without_secrets(found, desk.redaction, desk.redaction.secrets(decode(record.args)))
    return hidden


@verb(Scope.READ)
def why_waiting(desk: Desk, *, queue: str | None = None) -> dict[str, Any]:
    """What holds all that waits, in a queue or in all of them, grouped by reason."""
    return {"items": [each.to_dict() for each in desk.jobs.why_waiting(queue=queue, tenant=desk.tenant)]}


@verb(Scope.READ)
def recent_runs(desk: Desk, *, task: str | None = None, tenant: str | None = None, limit: int = 100) -> dict[str, Any]:
    """The runs that ended last, of all jobs, newest first; of one task or tenant, among the last 50,000."""
    if desk.tenant is not None and tenant not in (None, "", desk.tenant):
        return {"items": []}
    whose = desk.tenant if desk.tenant is not None else tenant or None
    found = desk.jobs.store.recent_runs(task=task or None, tenant=whose, n=limit, look=LOOK)
    records = desk.jobs.store.jobs_of(sorted({each.job_id for each in found}))
    items = []
    for each in found:
        record = records.get(each.job_id)
        secrets = [] if record is None else desk.redaction.secrets(decode(record.args))
        item = shown.run(each, desk.redaction, secrets, whole=False)
        item["task"] = None if record is None else record.task
        items.append(item)
    return {"items": items}


# -- act --------------------------------------------------------------------------------------------------------------


@verb(Scope.OPERATE)
def cancel(desk: Desk, job_id: str, *, reason: str = "cancelled") -> dict[str, Any]:
    """Cancel a job. One that runs is asked to stop."""
    find(desk, job_id)
    outcome = desk.jobs.cancel(job_id, reason or "cancelled")
    return {**_as_it_is(desk, job_id), "outcome": outcome}


@verb(Scope.OPERATE)
def retry(desk: Desk, job_id: str) -> dict[str, Any]:
    """Run a job again now, its attempts at 0."""
    find(desk, job_id)
    desk.jobs.retry(job_id)
    return _as_it_is(desk, job_id)


@verb(Scope.OPERATE)
def delete(desk: Desk, job_id: str) -> dict[str, Any]:
    """Forget a job and its history."""
    find(desk, job_id)
    desk.jobs.delete(job_id)
    return {"id": job_id, "deleted": True}


@verb(Scope.OPERATE)
def set_status(desk: Desk, job_id: str, *, status: str) -> dict[str, Any]:
    """Set a job's state by hand: queued runs it again, success and failed end one that waits."""
    record, wanted = find(desk, job_id), State.parse(status)
    if wanted is State.QUEUED and record.state is State.RUNNING:
        raise Conflict(f"job {job_id} is running. Cancel it first, or wait for it to end")
    desk.jobs.set_state(job_id, wanted)
    return _as_it_is(desk, job_id)


@verb(Scope.OPERATE)
def set_priority(desk: Desk, job_id: str, *, priority: int) -> dict[str, Any]:
    """Set the priority of a job that has not started."""
    find(desk, job_id)
    desk.jobs.set_priority(job_id, priority)
    return _as_it_is(desk, job_id)


@verb(Scope.OPERATE)
def boost(desk: Desk, job_id: str, *, boost: int = 10) -> dict[str, Any]:
    """Raise the priority of a job that has not started, to 100 at most."""
    find(desk, job_id)
    desk.jobs.boost(job_id, boost)
    return _as_it_is(desk, job_id)


@verb(Scope.OPERATE)
def reschedule(
    desk: Desk, job_id: str, *, delay: str | float | None = None, run_at: str | None = None
) -> dict[str, Any]:
    """Give a job that has not started another time: a delay from now, or a moment."""
    find(desk, job_id)
    if (delay is None) == (run_at is None):
        raise invalid("give delay or run_at")
    wait: timedelta | None = None
    if run_at is not None:
        at = to_us(read_time("run_at", run_at), "run_at")
        wait = timedelta(microseconds=max(0, at - desk.jobs.store.now_us()))
    desk.jobs.reschedule(job_id, delay=wait if wait is not None else to_timedelta(delay or 0, "delay"))
    return _as_it_is(desk, job_id)


def _as_it_is(desk: Desk, job_id: str) -> dict[str, Any]:
    """A job after something was done to it; little of it where they may not read, or where it is gone."""
    record = desk.jobs.store.get(job_id)
    if record is None:
        return {"id": job_id, "deleted": True}
    return shown_jobs(desk, [record])[0]


def read_time(name: str, text: str) -> datetime:
    """Read an ISO 8601 time with a time zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise invalid(
            f"{name} must be a time with a time zone, like 2030-01-31T08:00:00Z, not {text[:100]!r}", option=name
        )
    return at
