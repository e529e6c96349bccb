"""The table of routes: every endpoint is a row here. To add one: write its verb in `duly.web.service`, add a row.

The rows under "the paths of the admin API" and `/api/jobs/tick` are promised (C9 and B8 of the requirements): their
paths and bodies stay as they are.
"""

from __future__ import annotations

from typing import Any, Final

from duly.audit import ACTIONS
from duly.domain.alerts import RULES
from duly.domain.states import State
from duly.web.api.schema import BOOLEAN, ID, OBJECT, Schema, array, choice, maybe, obj, text, whole
from duly.web.api.table import Row
from duly.web.principal import Scope
from duly.web.service import alerts, bulk, enqueue, jobs, limits, places, schedules, system, tokens
from duly.web.service.filters import MOST_OFFSET, MOST_PAGE, Wanted

STATUS: Final = choice(*State, "pending", "waiting", "crawling", "processing", "success", "completed", "canceled")
NAME: Final = text(128, 1, pattern=r"^[A-Za-z0-9_.:\-]{1,128}$")
TENANT: Final = text(255)
TENANT_PATH: Final = text(255, 1)
PRIORITY: Final = whole(0, 100)
DURATION: Final[Schema] = {"type": ["string", "number"], "minLength": 1, "maxLength": 100, "minimum": 0}
LIMIT: Final = whole(1, MOST_PAGE, default=100)
OFFSET: Final = whole(0, MOST_OFFSET, default=0)
WHEN: Final = text(100)
TOKEN_NUMBER: Final = whole(0, 2**63 - 1)

FILTER: Final[dict[str, Schema]] = {
    "state": STATUS,
    "task": text(128),
    "queue": text(128),
    "tenant": TENANT,
    "tag": text(128),
    "text": text(1_000),
    "since": WHEN,
    "until": WHEN,
}
LIST: Final[dict[str, Schema]] = {
    "status": STATUS,
    **FILTER,
    "limit": LIMIT,
    "offset": OFFSET,
    "cursor": text(100),
}
RUNS: Final[dict[str, Schema]] = {"limit": whole(1, 100, default=20), "before": TOKEN_NUMBER}
IDS: Final[dict[str, Schema]] = {
    "job_ids": array(ID, 10_000, 1),
    "filter": obj(**FILTER),
    "dry_run": BOOLEAN,
}
SCHEDULE: Final[dict[str, Schema]] = {
    "name": maybe(text(512)),
    "description": maybe(text(2_000)),
    "cron_expression": maybe(text(200)),
    "rules": maybe(array(text(200), 20)),
    "every": maybe(DURATION),
    "timezone": maybe(text(100)),
    "start_at": maybe(text(100)),
    "until": maybe(text(100)),
    "exclude": array(text(10), 1_000),
    "jitter": DURATION,
    "dst_gap": choice("next", "skip"),
    "dst_overlap": choice("first", "twice"),
    "enabled": BOOLEAN,
    "priority": PRIORITY,
    "queue": NAME,
    "args": OBJECT,
    "misfire": choice("once", "skip", "all"),
    "grace": DURATION,
    "cap": whole(1, 1_000_000),
    "overlap": choice("skip", "queue", "allow"),
    "failure": choice("backoff", "advance"),
    "pause_after": maybe(whole(1, 1_000_000)),
}
GATE: Final[dict[str, Schema]] = {
    "scope": choice("queue", "task", "tenant", "key", "keys"),
    "name": text(700, 1),
}
SILENCE: Final[dict[str, Schema]] = {"rule": maybe(choice(*RULES)), "subject": maybe(text(400, 1))}
CLOSED: Final = {**GATE, "scope": choice("queue", "task", "tenant", "key")}
PAUSE: Final = obj(reason=text(1_000), duration=DURATION, until=text(100))


def _wanted(given: dict[str, Any]) -> dict[str, Any]:
    """A list's filter. `status` is what the document calls the state."""
    status = given.pop("status", None)
    fields = {name: given.pop(name) for name in FILTER if name in given}
    if status:
        fields["state"] = status
    return {**given, "wanted": Wanted(**fields)}


def _many(given: dict[str, Any]) -> dict[str, Any]:
    """The jobs of a bulk verb: by ids, or by a filter."""
    fields = given.pop("filter", None)
    return {**given, "wanted": None if fields is None else Wanted(**fields)}


JOB: Final = {"id": ID}
JOBS, SCHEDULED = "/api/admin/jobs", "/api/admin/scheduled-jobs"

PROMISED: Final = (
    # The paths of the admin API.
    Row("GET", f"{JOBS}/stats", jobs.stats, "Stats"),
    Row("GET", JOBS, jobs.list_jobs, "JobPage", query=LIST, gather=_wanted),
    Row("PUT", f"{JOBS}/bulk/status", bulk.set_status, "Bulk", body=obj("status", status=STATUS, **IDS), gather=_many),
    Row("POST", f"{JOBS}/bulk/retry", bulk.retry, "Bulk", body=obj(**IDS), gather=_many),
    Row("PUT", f"{JOBS}/{{id}}/status", jobs.set_status, "Job", body=obj("status", status=STATUS)),
    Row("PUT", f"{JOBS}/{{id}}/priority", jobs.set_priority, "Job", body=obj("priority", priority=PRIORITY)),
    Row("POST", f"{JOBS}/{{id}}/boost", jobs.boost, "Job", body=obj(boost=whole(1, 100)), needs_body=False),
    Row("POST", f"{JOBS}/{{id}}/retry", jobs.retry, "Job"),
    Row(
        "GET",
        SCHEDULED,
        schedules.list_schedules,
        "SchedulePage",
        query={
            "limit": LIMIT,
            "offset": OFFSET,
            "cursor": text(100),
            "task": text(128),
            "tenant": TENANT,
            "enabled": BOOLEAN,
        },
    ),
    Row(
        "POST",
        SCHEDULED,
        schedules.create,
        "ScheduleWithTimes",
        body=obj("task", task=NAME, tenant=maybe(TENANT), key=text(512), **SCHEDULE),
        status=201,
    ),
    Row("GET", f"{SCHEDULED}/{{id}}", schedules.get, "ScheduleWithTimes", query={"times": whole(1, 100, default=5)}),
    Row("PUT", f"{SCHEDULED}/{{id}}", schedules.edit, "ScheduleWithTimes", body=obj(**SCHEDULE)),
    Row("DELETE", f"{SCHEDULED}/{{id}}", schedules.delete, "Deleted"),
    Row(
        "POST",
        f"{SCHEDULED}/{{id}}/toggle",
        schedules.toggle,
        "ScheduleWithTimes",
        body=obj("enabled", enabled=BOOLEAN, reason=text(1_000)),
    ),
    Row(
        "POST",
        "/api/jobs/tick",
        system.tick,
        "Ticked",
        body=obj(max=whole(1, 1_000), queues=array(NAME, 100)),
        needs_body=False,
    ),
)

BEYOND: Final = (
    # Jobs
    Row(
        "POST",
        "/api/jobs",
        enqueue.enqueue,
        "Enqueued",
        body=obj(
            "task",
            task=NAME,
            args=OBJECT,
            tenant=maybe(TENANT),
            queue=NAME,
            priority=PRIORITY,
            delay=DURATION,
            run_at=text(100),
            max_attempts=whole(1, 1_000),
            timeout=DURATION,
            expires=DURATION,
            unique={"type": ["string", "boolean"], "minLength": 1, "maxLength": 1_000},
            tags=array(text(128, 1), 20),
        ),
        status=201,
    ),
    Row("GET", f"{JOBS}/{{id}}", jobs.get, "Job"),
    Row("DELETE", f"{JOBS}/{{id}}", jobs.delete, "Deleted"),
    Row("POST", f"{JOBS}/{{id}}/cancel", jobs.cancel, "Cancelled", body=obj(reason=text(1_000)), needs_body=False),
    Row("POST", f"{JOBS}/{{id}}/copy", enqueue.copy, "Enqueued", status=201),
    Row("PUT", f"{JOBS}/{{id}}/run-at", jobs.reschedule, "Job", body=obj(delay=DURATION, run_at=text(100))),
    Row("GET", f"{JOBS}/{{id}}/runs", jobs.runs, "RunPage", query=RUNS),
    Row("GET", f"{JOBS}/{{id}}/why", jobs.why, "Why"),
    Row("GET", "/api/admin/why", jobs.why_waiting, "WhyWaiting", query={"queue": text(128, 1)}),
    Row("POST", f"{JOBS}/bulk/cancel", bulk.cancel, "Bulk", body=obj(reason=text(1_000), **IDS), gather=_many),
    Row("POST", f"{JOBS}/bulk/delete", bulk.delete, "Bulk", body=obj(**IDS), gather=_many),
    Row(
        "PUT",
        f"{JOBS}/bulk/priority",
        bulk.set_priority,
        "Bulk",
        body=obj("priority", priority=PRIORITY, **IDS),
        gather=_many,
    ),
    Row(
        "GET",
        "/api/admin/runs",
        jobs.recent_runs,
        "RecentRuns",
        query={"task": text(128), "tenant": TENANT, "limit": LIMIT},
    ),
    # Recurring jobs
    Row(
        "GET",
        f"{SCHEDULED}/preview",
        schedules.preview,
        "Preview",
        query={
            "expression": array(text(200), 20, 1),
            "timezone": text(100),
            "start_at": text(100),
            "until": text(100),
            "exclude": array(text(10), 1_000),
            "jitter": text(100, 1),
            "dst_gap": choice("next", "skip"),
            "dst_overlap": choice("first", "twice"),
            "of": ID,
            "task": text(128),
            "key": text(512),
            "tenant": TENANT,
            "n": whole(1, 100, default=5),
        },
    ),
    Row("GET", f"{SCHEDULED}/load", schedules.load, "Load", query={"hours": whole(1, 168, default=24)}),
    Row("GET", f"{SCHEDULED}/{{id}}/runs", schedules.history, "RunPage", query=RUNS),
    Row("POST", f"{SCHEDULED}/{{id}}/run", schedules.run_now, "ScheduleWithTimes"),
    # Queues, tasks, tenants
    Row("GET", "/api/admin/queues", places.queues, "Queues"),
    Row("GET", "/api/admin/queues/{name}", places.queue, "Queue", path_schemas={"name": NAME}),
    Row(
        "PUT",
        "/api/admin/queues/{name}",
        places.edit_queue,
        "Queue",
        body=obj(fair=BOOLEAN, aging=DURATION),
        path_schemas={"name": NAME},
    ),
    Row("GET", "/api/admin/tasks", places.tasks, "Tasks"),
    Row("GET", "/api/admin/tenants", places.tenants, "Tenants", query={"limit": LIMIT, "offset": OFFSET}),
    Row("GET", "/api/admin/tenants/{name}", places.tenant, "Tenant", path_schemas={"name": TENANT_PATH}),
    Row(
        "PUT",
        "/api/admin/tenants/{name}",
        places.edit_tenant,
        "Tenant",
        body=obj("weight", weight={"type": "number", "minimum": 0.001, "maximum": 1_000}),
        path_schemas={"name": TENANT_PATH},
    ),
    Row("GET", "/api/admin/paused", places.paused, "Paused"),
    Row(
        "PUT",
        "/api/admin/paused",
        places.pause,
        "Closed",
        body=obj("scope", "name", **CLOSED, **PAUSE["properties"]),
    ),
    Row("DELETE", "/api/admin/paused", places.resume, "Opened", body=obj("scope", "name", **CLOSED)),
    *(
        row
        for scope, schema in (("queue", NAME), ("task", NAME), ("tenant", TENANT_PATH))
        for row in (
            Row(
                "POST",
                f"/api/admin/{scope}s/{{name}}/pause",
                places.pause,
                "Closed",
                body=PAUSE,
                needs_body=False,
                fixed=(scope,),
                path_schemas={"name": schema},
            ),
            Row(
                "POST",
                f"/api/admin/{scope}s/{{name}}/resume",
                places.resume,
                "Opened",
                fixed=(scope,),
                path_schemas={"name": schema},
            ),
        )
    ),
    # Limits and quotas
    Row("GET", "/api/admin/limits", limits.limits, "Limits"),
    Row(
        "PUT",
        "/api/admin/limits",
        limits.set_limit,
        "LimitSaid",
        body=obj(
            "scope",
            "name",
            **GATE,
            concurrency=maybe(whole(0, 1_000_000)),
            rate=maybe(text(100, 1)),
            burst=maybe(whole(1, 1_000_000)),
            most_waiting=maybe(whole(0, 1_000_000_000)),
        ),
    ),
    Row("DELETE", "/api/admin/limits", limits.unset_limit, "LimitSaid", body=obj("scope", "name", **GATE)),
    Row("GET", "/api/admin/tenants/{name}/quota", limits.quota, "Quota", path_schemas={"name": TENANT_PATH}),
    Row(
        "PUT",
        "/api/admin/tenants/{name}/quota",
        limits.set_quota,
        "Quota",
        body=obj(
            waiting=maybe(whole(0, 1_000_000_000)),
            running=maybe(whole(0, 1_000_000_000)),
            per_minute=maybe(whole(1, 1_000_000_000)),
            per_day=maybe(whole(1, 1_000_000_000)),
            over=choice("refuse", "wait"),
        ),
        path_schemas={"name": TENANT_PATH},
    ),
    # The installation
    Row("GET", "/api/admin/me", system.me, "Me"),
    Row("GET", "/api/admin/workers", system.workers, "Workers"),
    Row(
        "GET",
        "/api/admin/usage",
        system.usage,
        "Usage",
        query={
            "since": WHEN,
            "until": WHEN,
            "by": text(100),
            "period": choice("hour", "day", "month"),
            "tenant": TENANT,
            "task": text(128),
            "timezone": text(100, 1),
        },
    ),
    Row(
        "GET",
        "/api/admin/audit",
        system.audit,
        "Audit",
        query={
            "job": ID,
            "by": text(255),
            "action": choice(*ACTIONS),
            "tenant": TENANT,
            "since": WHEN,
            "until": WHEN,
            "before": TOKEN_NUMBER,
            "limit": LIMIT,
        },
    ),
    Row("GET", "/api/admin/alerts", alerts.alerts, "Alerts", query={"ended": BOOLEAN, "limit": LIMIT}),
    Row("POST", "/api/admin/alerts/check", alerts.check, "Alerts"),
    Row("GET", "/api/admin/alerts/silences", alerts.silences, "Silences"),
    Row(
        "POST",
        "/api/admin/alerts/silences",
        alerts.silence,
        "Silenced",
        body=obj(**SILENCE, duration=DURATION, reason=text(1_000)),
        status=201,
    ),
    Row("DELETE", "/api/admin/alerts/silences", alerts.unsilence, "Unsilenced", body=obj(**SILENCE), needs_body=False),
    Row("GET", "/api/admin/alerts/{id}", alerts.alert, "AlertTold"),
    Row("POST", "/api/admin/alerts/{id}/acknowledge", alerts.acknowledge, "Acknowledged"),
    Row("GET", "/api/admin/doctor", system.doctor, "Doctor"),
    Row(
        "POST",
        "/api/admin/doctor/fix",
        system.mend,
        "Doctor",
        body=obj(area=text(100, 1), check=text(100, 1)),
        needs_body=False,
    ),
    Row("POST", "/api/admin/prune", system.prune, "Pruned"),
    Row("GET", "/api/admin/tokens", tokens.list_tokens, "Tokens"),
    Row(
        "POST",
        "/api/admin/tokens",
        tokens.create,
        "NewToken",
        body=obj(
            "name",
            name=text(255, 1),
            scopes=array(choice(*Scope), 4, 1),
            tenant=maybe(text(255, 1)),
            expires=maybe(DURATION),
        ),
        status=201,
    ),
    Row("DELETE", "/api/admin/tokens/{id}", tokens.revoke, "Revoked"),
)

ROWS: Final[tuple[Row, ...]] = (*PROMISED, *BEYOND)
