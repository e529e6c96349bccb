"""Jobs, runs and the rest as plain data, with what is hidden masked. Times are ISO 8601 in UTC."""

from __future__ import annotations

import json
from typing import Any

from duly.domain.clock import from_us
from duly.domain.json import decode
from duly.domain.rank import DEFAULT_HORIZON_US, STRICT_HORIZON_US, effective_priority
from duly.domain.records import JobRecord, Pause, RunRecord, WorkerRecord
from duly.domain.recurring import ENDLESS
from duly.domain.states import State
from duly.recurring import RecurringJob
from duly.web.desk import Desk
from duly.web.redact import Redaction


def time(us: int | None) -> str | None:
    """A moment as text."""
    return None if us is None else from_us(us).isoformat()


class Horizons:
    """How fast queues age, and what time it is: what it takes to tell how far a job has risen by waiting."""

    def __init__(self, desk: Desk) -> None:
        self.now = desk.jobs.store.now_us()
        self._of = {name: us for name, (us, _) in desk.jobs.store.queue_options().items()}

    def effective(self, job: JobRecord) -> int:
        """The priority that a job has reached."""
        if job.state is not State.QUEUED or job.run_at is None:
            return job.priority
        us = self._of.get(job.queue)
        horizon = DEFAULT_HORIZON_US if us is None else None if us >= STRICT_HORIZON_US else us
        return effective_priority(self.now, job.run_at, job.priority, horizon)


def job(record: JobRecord, last: RunRecord | None, horizons: Horizons, redaction: Redaction) -> dict[str, Any]:
    """A job with what its last run left."""
    recurs = record.max_attempts >= ENDLESS
    args = decode(record.args)
    secrets = redaction.secrets(args)
    waits_again = record.state is State.SCHEDULED and record.attempt > 0 and not recurs
    known = [record.created_at, record.claimed_at, record.finished_at, None if last is None else last.finished_at]
    return {
        "id": record.id,
        "task": record.task,
        "queue": record.queue,
        "tenant": record.tenant or None,
        "state": str(record.state),
        "args": redaction.value(args),
        "priority": record.priority,
        "effective_priority": horizons.effective(record),
        "attempts": record.attempt,
        "max_attempts": None if recurs else record.max_attempts,
        "retry_count": max(0, record.attempt - 1),
        "max_retries": None if recurs else record.max_attempts - 1,
        "next_retry_at": time(record.run_at) if waits_again else None,
        "created_at": time(record.created_at),
        "updated_at": time(max(each for each in known if each is not None)),
        "run_at": time(record.run_at),
        "started_at": time(record.claimed_at if last is None or record.claimed_at else last.started_at),
        "finished_at": time(record.finished_at),
        "last_attempt_at": time(record.claimed_at or (None if last is None else last.started_at)),
        "last_outcome": None if last is None else last.outcome,
        "last_error": None if last is None else redaction.text(_error(last), secrets),
        "duration_ms": None if last is None else (last.finished_at - last.started_at) / 1_000,
        "timeout_seconds": None if record.timeout_us is None else record.timeout_us / 1e6,
        "expires_at": time(record.expires_at),
        "enqueued_by": record.enqueued_by,
        "tags": json.loads(record.tags) if record.tags else [],
        "unique_key": redaction.text(record.unique_key, secrets),
        "progress": record.progress,
        "progress_text": redaction.text(record.progress_text, secrets),
        "reason": redaction.text(_reason(record), secrets),
        "cancel_asked_at": time(record.cancel_at),
        "worker_id": record.worker_id,
        "recurring": recurs,
    }


def _reason(record: JobRecord) -> str | None:
    return f"{record.reason}: {record.detail}" if record.detail else record.reason


def _error(last: RunRecord) -> str | None:
    if last.error is None:
        return None
    return f"{last.error_kind}: {last.error}" if last.error_kind else last.error


def without_secrets(value: Any, redaction: Redaction, secrets: list[str]) -> Any:
    """A value whose texts tell nothing that is hidden."""
    if isinstance(value, dict):
        return {name: without_secrets(each, redaction, secrets) for name, each in value.items()}
    if isinstance(value, list):
        return [without_secrets(each, redaction, secrets) for each in value]
    return redaction.text(value, secrets) if isinstance(value, str) else value


def run(record: RunRecord, redaction: Redaction, secrets: list[str], *, whole: bool) -> dict[str, Any]:
    """One run; `whole` with its traceback, result and log, which may be long."""
    shown = {
        "job_id": record.job_id,
        "token": record.token,
        "attempt": record.attempt,
        "outcome": record.outcome,
        "started_at": time(record.started_at),
        "finished_at": time(record.finished_at),
        "duration_ms": (record.finished_at - record.started_at) / 1_000,
        "worker_id": record.worker_id,
        "error_kind": record.error_kind,
        "error": redaction.text(record.error, secrets),
    }
    if whole:
        result = None if record.result is None else decode(record.result)
        log = redaction.text(record.log, secrets)
        shown["traceback"] = redaction.text(record.traceback, secrets)
        shown["result"] = _without(redaction.value(result), redaction, secrets)
        shown["log"] = log.split("\n") if log else []
    return shown


def _without(value: Any, redaction: Redaction, secrets: list[str]) -> Any:
    """A result without the secrets of the arguments, wherever they stand in it."""
    if not secrets:
        return value
    if isinstance(value, str):
        return redaction.text(value, secrets)
    if isinstance(value, dict):
        return {redaction.text(key, secrets): _without(each, redaction, secrets) for key, each in value.items()}
    if isinstance(value, list):
        return [_without(each, redaction, secrets) for each in value]
    return value


def schedule(job: RecurringJob, redaction: Redaction, *, times: int = 0) -> dict[str, Any]:
    """A recurring job; with its next times if asked."""
    secrets = redaction.secrets(job.args)
    rules = list(job.schedule.rules)
    shown = job.to_dict()
    del shown["expression"]
    shown |= {
        "tenant": job.tenant or None,
        "cron_expression": "; ".join(rules) or None,
        "rules": rules,
        "args": redaction.value(job.args),
        "last_error": redaction.text(job.last_error, secrets),
        "disabled_reason": redaction.text(job.disabled_reason, secrets),
        "declared": job.record.declared_in is not None,
    }
    if times:
        shown["next_times"] = [each.isoformat() for each in job.next_times(times)]
    return shown


def pause(each: Pause) -> dict[str, Any]:
    """Something that is paused."""
    return {**each._asdict(), "since": time(each.since), "until": time(each.until)}


def worker(record: WorkerRecord, *, alive: bool) -> dict[str, Any]:
    """A worker, and whether it lives as far as can be told from here."""
    return {
        "id": record.id,
        "host": record.process.host,
        "pid": record.process.pid,
        "alive": alive,
        "state": record.state,
        "started_at": time(record.started_at),
        "seen_at": time(record.seen_at),
        "silent_seconds": record.silent_us / 1e6,
        "lease_seconds": record.lease_us / 1e6,
        "queues": json.loads(record.queues),
        "tasks": json.loads(record.tasks),
        "slots": record.slots,
        "idle": record.idle,
        "version": record.version,
        "memory_bytes": record.memory_bytes,
    }
