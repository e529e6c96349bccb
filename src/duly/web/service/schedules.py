"""Recurring jobs: list, make, edit, enable, run now, delete; what a rule means; how many ticks are to come."""

from __future__ import annotations

from typing import Any, Final

from duly.copying import call_of
from duly.domain.errors import Conflict, RecurringJobNotFound
from duly.domain.names import check_tenant
from duly.recurring import RecurringJob
from duly.recurring_options import make_schedule
from duly.schedule.plan import shift_key
from duly.web.desk import Desk, verb
from duly.web.errors import invalid, missing
from duly.web.principal import Scope
from duly.web.service import jobs as on_jobs
from duly.web.service import shown
from duly.web.service.enqueue import whose

NEXT_TIMES: Final = 5


@verb(Scope.READ)
def list_schedules(
    desk: Desk,
    *,
    limit: int = 100,
    offset: int = 0,
    cursor: str | None = None,
    task: str | None = None,
    tenant: str | None = None,
    enabled: bool | None = None,
) -> dict[str, Any]:
    """Recurring jobs by tenant, task and key."""
    if desk.tenant is not None and tenant not in (None, "", desk.tenant):
        return {"items": [], "next_cursor": None}
    after = find(desk, cursor) if cursor else None
    found = desk.jobs.recurring_jobs(
        task=task or None,
        tenant=desk.tenant if desk.tenant is not None else tenant or None,
        enabled=enabled,
        after=after,
        limit=limit,
        offset=offset,
    )
    following = found[-1].id if len(found) == limit else None
    return {"items": [shown.schedule(job, desk.redaction) for job in found], "next_cursor": following}


def find(desk: Desk, job_id: str) -> RecurringJob:
    """One recurring job, if there is such a one and they may see it; else the answer is the same."""
    try:
        job = desk.jobs.recurring_by_id(job_id)
    except RecurringJobNotFound:
        job = None
    if job is None or not desk.sees(job.tenant):
        raise missing(f"there is no scheduled job {job_id[:100]!r}")
    return job


@verb(Scope.READ)
def get(desk: Desk, job_id: str, *, times: int = NEXT_TIMES) -> dict[str, Any]:
    """One recurring job, with its next times."""
    return shown.schedule(find(desk, job_id), desk.redaction, times=times)


@verb(Scope.READ)
def history(desk: Desk, job_id: str, *, limit: int = 20, before: int | None = None) -> dict[str, Any]:
    """The runs of a recurring job that are kept, newest first."""
    return on_jobs.runs(desk, find(desk, job_id).id, limit=limit, before=before)


@verb(Scope.READ)
def preview(
    desk: Desk,
    /,
    *,
    expression: list[str],
    n: int = NEXT_TIMES,
    of: str | None = None,
    task: str = "",
    key: str = "",
    tenant: str | None = None,
    **given: Any,
) -> dict[str, Any]:
    """What rules mean, and the next times that they name. Nothing is stored.

    Which job it is (`of`, or `task`, `key` and `tenant` of one to be) decides by how much jitter shifts it.
    """
    when = {name: each for name, each in _options(given).items() if name in _WHEN and each not in (None, "")}
    schedule = make_schedule(rule=expression, **when)
    now = desk.jobs.store.now_us()
    if of is None:
        anchor, shifted = now, shift_key(whose(desk, tenant), task, key)
    else:
        job = find(desk, of).record
        anchor, shifted = job.anchor_at, shift_key(job.tenant, job.task, job.key)
    return {
        "rules": list(schedule.rules),
        "timezone": schedule.timezone,
        "text": schedule.describe(),
        "times": [shown.time(tick) for tick in schedule.ticks(now, n, anchor_us=anchor, key=shifted)],
    }


@verb(Scope.READ)
def load(desk: Desk, *, hours: int = 24) -> dict[str, Any]:
    """How many ticks of enabled schedules fall into each of the next hours; of the first 1,000 schedules."""
    return desk.jobs.planned(hours, tenant=desk.tenant).to_dict()


# -- act --------------------------------------------------------------------------------------------------------------

_RULES = ("cron_expression", "rules", "every")
_WHEN = ("timezone", "start_at", "until", "exclude", "jitter", "dst_gap", "dst_overlap")
_OPTIONS = (
    "name", "description", "priority", "queue", "timezone", "misfire", "grace", "cap", "overlap", "failure",
    "pause_after", "jitter", "dst_gap", "dst_overlap", "exclude",
)  # fmt: skip


def _rule(given: dict[str, Any]) -> dict[str, Any]:
    """When it recurs, as the library takes it: one cron text, several rules, or an interval."""
    named = [name for name in _RULES if given.get(name) is not None]
    if len(named) > 1:
        raise invalid(f"give {' or '.join(named)}, not both")
    if not named:
        return {}
    value = given[named[0]]
    if named[0] == "every":
        return {"every": value}
    return {"rule": [value] if isinstance(value, str) else list(value)}


def _options(given: dict[str, Any]) -> dict[str, Any]:
    options = {name: given[name] for name in _OPTIONS if name in given}
    for name in ("start_at", "until"):
        if name in given:
            options[name] = None if given[name] is None else on_jobs.read_time(name, given[name])
    return options | _rule(given)


@verb(Scope.OPERATE)
def create(desk: Desk, /, *, task: str, args: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    """Make a task recur. Its key is the name unless another is given: one recurring job per tenant, task and key."""
    options = {name: value for name, value in _options(given).items() if value is not None}
    if not any(name in options for name in ("rule", "every")):
        raise invalid("when? Give cron_expression", "for instance @daily, @every 1h30m or 0 9 * * mon-fri")
    tenant, key = whose(desk, given.get("tenant")), str(given.get("key") or given.get("name") or "")
    found = desk.jobs[task].using(queue=options.pop("queue", None))
    call_of(found.definition.signature, args or {})
    _refuse_another(desk, task, key, tenant)
    job = found.recur(
        key,
        args=args or {},
        tenant=tenant,
        enabled=bool(given.get("enabled", True)),
        created_by=desk.principal.name,
        **options,
    )
    return shown.schedule(job.refresh(), desk.redaction, times=NEXT_TIMES)


def _refuse_another(desk: Desk, task: str, key: str, tenant: str) -> None:
    try:
        job = desk.jobs.recurring_job(task, key, tenant=check_tenant(tenant))
    except RecurringJobNotFound:
        return
    raise Conflict(f"there is a scheduled job of task {task} with the key {key!r} already: {job.id}")


@verb(Scope.OPERATE)
def edit(desk: Desk, /, job_id: str, **given: Any) -> dict[str, Any]:
    """Change a recurring job: what is not named stays. Its next run moves only if the schedule does."""
    job = find(desk, job_id)
    changes = _options(given)
    if "args" in given:
        changes["args"] = desk.redaction.restored(given["args"] or {}, job.args)
        known = desk.jobs.registry.tasks.get(job.task)
        if known is not None:
            call_of(known.signature, changes["args"])
    if changes:
        job.edit(**changes)
    enabled = given.get("enabled")
    if enabled is not None and enabled != find(desk, job_id).enabled:
        _switch(job, enabled)
    return shown.schedule(job.refresh(), desk.redaction, times=NEXT_TIMES)


@verb(Scope.OPERATE)
def toggle(desk: Desk, job_id: str, *, enabled: bool, reason: str = "") -> dict[str, Any]:
    """Enable or disable a recurring job. A run under way ends normally."""
    job = find(desk, job_id)
    _switch(job, enabled, reason)
    return shown.schedule(job.refresh(), desk.redaction, times=NEXT_TIMES)


def _switch(job: RecurringJob, enabled: bool, reason: str = "") -> None:
    if enabled:
        job.enable()
    else:
        job.disable(reason or "disabled")


@verb(Scope.OPERATE)
def run_now(desk: Desk, job_id: str) -> dict[str, Any]:
    """Run a recurring job once now, beside its schedule."""
    job = find(desk, job_id)
    job.run_now()
    return shown.schedule(job.refresh(), desk.redaction, times=NEXT_TIMES)


@verb(Scope.OPERATE)
def delete(desk: Desk, job_id: str) -> dict[str, Any]:
    """Forget a recurring job and its history."""
    find(desk, job_id).delete()
    return {"id": job_id, "deleted": True}
