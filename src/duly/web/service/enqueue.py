"""Storing jobs: checked by the task's signature where this process has its code, as they are where it has none."""

from __future__ import annotations

import json
from typing import Any

from duly.copying import call_of
from duly.domain.clock import to_us
from duly.domain.durations import micros, to_timedelta
from duly.domain.errors import UnknownTask
from duly.domain.ids import uuid7
from duly.domain.json import encode_args
from duly.domain.names import check_queue_name, check_tag, check_task_name, check_tenant, suggest
from duly.domain.rank import check_priority
from duly.domain.records import NewJob
from duly.domain.unique import Unique
from duly.job import Job
from duly.task import Task
from duly.web.desk import Desk, verb
from duly.web.errors import forbidden, invalid
from duly.web.principal import Scope
from duly.web.service import jobs as on_jobs


@verb(Scope.ENQUEUE)
def enqueue(desk: Desk, /, *, task: str, args: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """Store a job."""
    job = _store(desk, task, args or {}, options)
    return _answer(desk, job)


@verb(Scope.OPERATE)
def copy(desk: Desk, job_id: str) -> dict[str, Any]:
    """Store a new job with the task, arguments, queue, priority and tags of another. Its unique key is not taken."""
    on_jobs.find(desk, job_id)
    return _answer(desk, desk.jobs.copy(job_id))


def _answer(desk: Desk, job: Job[Any]) -> dict[str, Any]:
    """Who may only enqueue is told of the job that they stored, and no more of one that was there already."""
    if desk.principal.may(Scope.READ):
        return {**on_jobs.shown_jobs(desk, [job.record])[0], "created": job.created}
    return {"id": job.id, "created": job.created}


def _store(desk: Desk, task: str, args: dict[str, Any], given: dict[str, Any]) -> Job[Any]:
    options = {name: value for name, value in given.items() if value is not None}
    options["tenant"] = whose(desk, options.get("tenant"))
    if "run_at" in options:
        options["run_at"] = on_jobs.read_time("run_at", options["run_at"])
    if "run_at" in options and "delay" in options:
        raise invalid("give run_at or delay, not both")
    options["enqueued_by"] = desk.principal.name
    known = desk.jobs.registry.tasks
    if task in known:
        return _checked(desk.jobs[task], args, options)
    if known:
        names = ", ".join(sorted(known)[:10])
        raise UnknownTask(f"there is no task {task[:128]!r}.{suggest(task, known)} Known here: {names}")
    return _unchecked(desk, task, args, options)


def whose(desk: Desk, tenant: str | None) -> str:
    """The tenant that something new is for."""
    if desk.tenant is None:
        return check_tenant(tenant or "")
    if tenant not in (None, "", desk.tenant):
        raise forbidden("you are bound to one tenant, and this is for another")
    return desk.tenant


def _checked(task: Task[..., Any], args: dict[str, Any], options: dict[str, Any]) -> Job[Any]:
    positional, named = call_of(task.definition.signature, args)
    return task.using(**options).enqueue(*positional, **named)


def _unchecked(desk: Desk, task: str, args: dict[str, Any], options: dict[str, Any]) -> Job[Any]:
    """Store a job of a task that this process has no code for: `duly web` without an app."""
    unique = Unique.of(options["unique"]) if options.get("unique") else None
    if unique is not None and unique.key is None:
        raise invalid("unique must be a key here: this server has no code of the task to make one from its arguments")
    run_at, attempts = options.get("run_at"), options.get("max_attempts", 5)
    job = NewJob(
        id=uuid7(),
        task=check_task_name(task),
        args=encode_args(args, max_bytes=desk.jobs.settings.max_payload),
        queue=check_queue_name(options.get("queue", "default")),
        tenant=options["tenant"],
        priority=check_priority(options.get("priority", 0)),
        max_attempts=attempts,
        run_at=None if run_at is None else to_us(run_at, "run_at"),
        delay_us=micros(to_timedelta(options["delay"], "delay")) if "delay" in options else 0,
        enqueued_by=options["enqueued_by"],
        tags=json.dumps([check_tag(tag) for tag in options["tags"]], ensure_ascii=False)
        if options.get("tags")
        else None,
        unique_key=None if unique is None else f"{task}::{unique.key}",
        unique_mode="none" if unique is None else unique.mode,
        unique_scope="none" if unique is None else unique.scope,
    )
    stored = desk.jobs.store.enqueue(job)
    return Job(desk.jobs, stored.id, created=stored.created)
