"""Stores a job again as a new one: checked by its task where this process has its code, as it is where it has none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from duly.domain.audit import current_actor
from duly.domain.errors import ArgumentError, ArgumentsDoNotFit
from duly.domain.ids import uuid7
from duly.domain.json import decode
from duly.domain.records import JobRecord, NewJob
from duly.domain.signature import Signature
from duly.job import Job

if TYPE_CHECKING:
    from duly.app import Duly


def copy_of(app: Duly, record: JobRecord) -> Job[Any]:
    """Store a new job with the task, arguments, queue, tenant, priority and tags of another, due at once."""
    by = current_actor().who
    if record.task not in app.registry.tasks:
        return _as_it_is(app, record, by)
    task = app[record.task].using(
        queue=record.queue,
        tenant=record.tenant or None,
        priority=record.priority,
        tags=json.loads(record.tags or "[]"),
        enqueued_by=by,
    )
    positional, named = call_of(task.definition.signature, decode(record.args))
    return task.enqueue(*positional, **named)


def call_of(signature: Signature, values: dict[str, Any]) -> tuple[list[object], dict[str, object]]:
    """The call that JSON values make, or ArgumentError."""
    try:
        return signature.split(signature.load(values))
    except ArgumentsDoNotFit as misfit:
        raise ArgumentError(f"{misfit.reason} It is called as {signature}", path=misfit.path) from misfit


def _as_it_is(app: Duly, record: JobRecord, by: str | None) -> Job[Any]:
    stored = app.store.enqueue(
        NewJob(
            id=uuid7(),
            task=record.task,
            args=record.args,
            queue=record.queue,
            tenant=record.tenant,
            priority=record.priority,
            max_attempts=record.max_attempts,
            retry=record.retry,
            timeout_us=record.timeout_us,
            enqueued_by=by,
            tags=record.tags,
        )
    )
    return Job(app, stored.id, created=stored.created)
