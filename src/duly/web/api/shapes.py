"""The shapes of answers, by name, for the OpenAPI document. Tests hold every answer against them."""

from __future__ import annotations

from typing import Final

from duly.domain.states import State
from duly.web.api.schema import ANYTHING, BOOLEAN, ID, NUMBER, OBJECT, TIME, Schema, answer, array, choice, maybe, ref

TEXT: Final[Schema] = {"type": "string"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
STATE: Final = choice(*State)
SECONDS: Final = maybe(NUMBER)

_PAUSE = answer(
    scope=choice("queue", "task", "tenant", "key"),
    name=TEXT,
    since=TIME,
    until=maybe(TIME),
    by=maybe(TEXT),
    reason=maybe(TEXT),
)
_DEPTH: dict[str, Schema] = {
    "scheduled": COUNT,
    "waiting": COUNT,
    "running": COUNT,
    "oldest_waiting_seconds": SECONDS,
}
_RUN: dict[str, Schema] = {
    "job_id": ID,
    "token": COUNT,
    "attempt": COUNT,
    "outcome": choice("succeeded", "failed", "cancelled", "snoozed", "released", "crashed", "expired"),
    "started_at": TIME,
    "finished_at": TIME,
    "duration_ms": NUMBER,
    "worker_id": TEXT,
    "error_kind": maybe(TEXT),
    "error": maybe(TEXT),
}

_BLOCKER: dict[str, Schema] = {
    "reason": TEXT,
    "text": TEXT,
    "scope": maybe(TEXT),
    "name": maybe(TEXT),
    "since": maybe(TIME),
    "until": maybe(TIME),
    "by": maybe(TEXT),
    "because": maybe(TEXT),
    "holders": array(
        answer(
            job_id=maybe(ID),
            place=TEXT,
            task=maybe(TEXT),
            worker_id=maybe(TEXT),
            host=maybe(TEXT),
            pid=maybe(COUNT),
            since=maybe(TIME),
            leased_for=SECONDS,
        )
    ),
    "next": maybe(TEXT),
    "details": OBJECT,
}

_ALERT: dict[str, Schema] = {
    "id": ID,
    "rule": TEXT,
    "subject": TEXT,
    "queue": maybe(TEXT),
    "task": maybe(TEXT),
    "value": NUMBER,
    "threshold": NUMBER,
    "message": TEXT,
    "details": OBJECT,
    "started_at": TIME,
    "ended_at": maybe(TIME),
    "silenced_until": maybe(TIME),
    "acked_at": maybe(TIME),
    "acked_by": maybe(TEXT),
}

SHAPES: Final[dict[str, Schema]] = {
    "Error": answer(
        error={
            "type": "object",
            "properties": {"code": TEXT, "message": TEXT, "hint": TEXT},
            "required": ["code", "message"],
            "additionalProperties": False,
        }
    ),
    "Job": answer(
        id=ID,
        task=TEXT,
        queue=TEXT,
        tenant=maybe(TEXT),
        state=STATE,
        args=OBJECT,
        priority=COUNT,
        effective_priority=COUNT,
        attempts=COUNT,
        max_attempts=maybe(COUNT),
        retry_count=COUNT,
        max_retries=maybe(COUNT),
        next_retry_at=maybe(TIME),
        created_at=TIME,
        updated_at=TIME,
        run_at=maybe(TIME),
        started_at=maybe(TIME),
        finished_at=maybe(TIME),
        last_attempt_at=maybe(TIME),
        last_outcome=maybe(TEXT),
        last_error=maybe(TEXT),
        duration_ms=maybe(NUMBER),
        timeout_seconds=SECONDS,
        expires_at=maybe(TIME),
        enqueued_by=maybe(TEXT),
        tags=array(TEXT),
        unique_key=maybe(TEXT),
        progress=maybe(NUMBER),
        progress_text=maybe(TEXT),
        reason=maybe(TEXT),
        cancel_asked_at=maybe(TIME),
        worker_id=maybe(TEXT),
        recurring=BOOLEAN,
    ),
    "JobPage": answer(items=array(ref("Job")), next_cursor=maybe(TEXT), complete=BOOLEAN, looked_at=maybe(COUNT)),
    "Deleted": answer(id=ID, deleted=BOOLEAN),
    "Cancelled": {"allOf": [ref("Job"), answer(outcome=choice("cancelled", "asked"))]},
    "Enqueued": answer(id=ID, created=BOOLEAN),
    "Stats": answer(
        scheduled=COUNT,
        queued=COUNT,
        running=COUNT,
        succeeded=COUNT,
        completed=COUNT,
        failed=COUNT,
        cancelled=COUNT,
        parked=COUNT,
        complete=BOOLEAN,
    ),
    "Bulk": answer(
        dry_run=BOOLEAN,
        count=COUNT,
        ids=array(ID),
        refused=array(answer(id=TEXT, why=TEXT)),
        more=BOOLEAN,
    ),
    "Run": answer(**_RUN, traceback=maybe(TEXT), result=ANYTHING, log=array(TEXT)),
    "RunPage": answer(items=array(ref("Run")), next_before=maybe(COUNT)),
    "Why": answer(
        job_id=ID,
        state=TEXT,
        task=TEXT,
        queue=TEXT,
        tenant=maybe(TEXT),
        **_BLOCKER,
        blockers=array(answer(**_BLOCKER)),
        at=TIME,
    ),
    "WhyWaiting": answer(
        items=array(
            answer(
                queue=TEXT,
                jobs=COUNT,
                at_least=BOOLEAN,
                example=maybe(ID),
                tasks=array(TEXT),
                tenants=array(TEXT),
                **_BLOCKER,
            )
        )
    ),
    "RecentRuns": answer(items=array(answer(**_RUN, task=maybe(TEXT)))),
    "Schedule": answer(
        id=ID,
        tenant=maybe(TEXT),
        task=TEXT,
        key=TEXT,
        name=maybe(TEXT),
        description=maybe(TEXT),
        cron_expression=maybe(TEXT),
        rules=array(TEXT),
        timezone=TEXT,
        text=TEXT,
        enabled=BOOLEAN,
        priority=COUNT,
        queue=TEXT,
        args=OBJECT,
        next_run_at=maybe(TIME),
        last_run_at=maybe(TIME),
        last_outcome=maybe(TEXT),
        last_error=maybe(TEXT),
        consecutive_failures=COUNT,
        running_since=maybe(TIME),
        misfire=TEXT,
        overlap=TEXT,
        failure=TEXT,
        pause_after=maybe(COUNT),
        created_by=maybe(TEXT),
        created_at=TIME,
        disabled_at=maybe(TIME),
        disabled_by=maybe(TEXT),
        disabled_reason=maybe(TEXT),
        declared=BOOLEAN,
    ),
    "ScheduleWithTimes": {"allOf": [ref("Schedule"), answer(next_times=array(TIME))]},
    "SchedulePage": answer(items=array(ref("Schedule")), next_cursor=maybe(ID)),
    "Preview": answer(rules=array(TEXT), timezone=TEXT, text=TEXT, times=array(TIME)),
    "Load": {
        "type": "object",
        "properties": {
            "from": TIME,
            "hours": array(answer(starts_at=TIME, ticks=COUNT)),
            "complete": BOOLEAN,
        },
        "required": ["from", "hours", "complete"],
    },
    "Pause": _PAUSE,
    "Paused": answer(items=array(ref("Pause"))),
    "Closed": answer(scope=TEXT, name=TEXT, paused=maybe(ref("Pause"))),
    "Opened": answer(scope=TEXT, name=TEXT, was_paused=BOOLEAN),
    "Queue": answer(
        name=TEXT,
        **_DEPTH,
        paused=maybe(ref("Pause")),
        fair=BOOLEAN,
        aging_seconds=SECONDS,
        aging=TEXT,
        workers=maybe(COUNT),
    ),
    "Queues": answer(items=array(ref("Queue"))),
    "Task": answer(
        name=TEXT,
        **_DEPTH,
        known=BOOLEAN,
        call=maybe(TEXT),
        queue=maybe(TEXT),
        priority=maybe(COUNT),
        max_attempts=maybe(COUNT),
        paused=maybe(ref("Pause")),
    ),
    "Tasks": answer(items=array(ref("Task"))),
    "Tenant": answer(
        name=TEXT,
        **_DEPTH,
        weight=NUMBER,
        paused=maybe(ref("Pause")),
        last_day=answer(runs=COUNT, succeeded=COUNT, failed=COUNT, ran_seconds=NUMBER, waited_seconds=NUMBER),
    ),
    "Tenants": answer(items=array(ref("Tenant")), total=COUNT),
    "Limits": answer(
        items=array(
            answer(
                scope=TEXT,
                name=TEXT,
                concurrency=maybe(COUNT),
                rate=maybe(TEXT),
                burst=maybe(COUNT),
                most_waiting=maybe(COUNT),
                refuses=BOOLEAN,
                by_hand=BOOLEAN,
                blocked_until=maybe(TIME),
                blocked_reason=maybe(TEXT),
            )
        )
    ),
    "LimitSaid": answer(
        scope=TEXT,
        name=TEXT,
        concurrency=maybe(COUNT),
        rate=maybe(TEXT),
        burst=maybe(COUNT),
        most_waiting=maybe(COUNT),
    ),
    "Quota": answer(
        tenant=TEXT,
        waiting=maybe(COUNT),
        running=maybe(COUNT),
        per_minute=maybe(COUNT),
        per_day=maybe(COUNT),
        over=choice("refuse", "wait"),
    ),
    "Worker": answer(
        id=ID,
        host=TEXT,
        pid=COUNT,
        alive=BOOLEAN,
        state=TEXT,
        started_at=TIME,
        seen_at=TIME,
        silent_seconds=NUMBER,
        lease_seconds=NUMBER,
        queues=array(TEXT),
        tasks=array(TEXT),
        slots=COUNT,
        idle=BOOLEAN,
        version=TEXT,
        memory_bytes=maybe(COUNT),
        busy=COUNT,
        running=array(answer(id=ID, task=TEXT, since=TIME)),
    ),
    "Workers": answer(items=array(ref("Worker"))),
    "Usage": answer(
        items=array(
            answer(
                starts_at=TIME,
                ends_at=TIME,
                tenant=maybe(TEXT),
                task=maybe(TEXT),
                queue=maybe(TEXT),
                runs=COUNT,
                succeeded=COUNT,
                failed=COUNT,
                retried=COUNT,
                cancelled=COUNT,
                crashed=COUNT,
                ran_seconds=NUMBER,
                waited_seconds=NUMBER,
            )
        )
    ),
    "Audit": answer(
        items=array(
            answer(
                id=COUNT,
                at=TIME,
                who=maybe(TEXT),
                via=TEXT,
                action=TEXT,
                job_id=maybe(ID),
                tenant=maybe(TEXT),
                task=maybe(TEXT),
                subject=maybe(TEXT),
                reason=maybe(TEXT),
                before=maybe(OBJECT),
                after=maybe(OBJECT),
            )
        ),
        next_before=maybe(COUNT),
    ),
    "Doctor": answer(
        severity=choice("ok", "info", "warning", "error"),
        items=array(
            answer(
                area=TEXT,
                check=TEXT,
                severity=TEXT,
                what=TEXT,
                evidence=OBJECT,
                next=maybe(TEXT),
                fixable=BOOLEAN,
                fixed=maybe(array(TEXT)),
                refused=maybe(TEXT),
            )
        ),
    ),
    "Alert": answer(**_ALERT),
    "Alerts": answer(items=array(ref("Alert"))),
    "AlertTold": answer(
        **_ALERT,
        told=array(
            answer(
                event=choice("started", "ended"),
                channel=TEXT,
                made_at=TIME,
                tries=COUNT,
                done_at=maybe(TIME),
                error=maybe(TEXT),
            )
        ),
    ),
    "Silences": answer(
        items=array(
            answer(rule=maybe(TEXT), subject=maybe(TEXT), since=TIME, until=TIME, by=maybe(TEXT), reason=maybe(TEXT))
        )
    ),
    "Silenced": answer(rule=maybe(TEXT), subject=maybe(TEXT), until=TIME),
    "Unsilenced": answer(ended=COUNT),
    "Acknowledged": answer(id=ID, news=BOOLEAN),
    "Pruned": answer(pruned=COUNT, more=BOOLEAN),
    "Ticked": answer(ok=BOOLEAN, claimed=COUNT, settled=COUNT),
    "Me": answer(name=TEXT, scopes=array(TEXT), tenant=maybe(TEXT), read_only=BOOLEAN),
    "Token": answer(
        id=ID,
        name=TEXT,
        kind=choice("token", "session"),
        scopes=array(TEXT),
        tenant=maybe(TEXT),
        created_at=TIME,
        created_by=maybe(TEXT),
        expires_at=maybe(TIME),
        last_used_at=maybe(TIME),
    ),
    "Tokens": answer(items=array(ref("Token"))),
    "NewToken": {"allOf": [ref("Token"), answer(token=TEXT)]},
    "Revoked": answer(id=ID, revoked=BOOLEAN),
}
