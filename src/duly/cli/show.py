"""`duly jobs show`: everything about one job, readable."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from duly.app import Duly
from duly.cli.output import bold, coloured
from duly.cli.text import clean, clean_lines, local, tail, when
from duly.domain.clock import from_us
from duly.domain.durations import human
from duly.domain.recurring import ENDLESS
from duly.domain.states import State
from duly.job import Job, Run

LONGEST_VALUE = 2_000


class Event(NamedTuple):
    """A line of a job's story."""

    at: datetime
    text: str


def as_dict(app: Duly, job: Job[Any]) -> dict[str, Any]:
    """Return it as plain values, for JSON."""
    return {**job.to_dict(), "result": _result(app, job), "runs": [run.to_dict() for run in job.runs]}


def _result(app: Duly, job: Job[Any]) -> Any:
    last = app.store.last_run(job.id) if job.state is State.SUCCEEDED else None
    return None if last is None or last.result is None else json.loads(last.result)


def as_text(app: Duly, job: Job[Any], *, utc: bool) -> str:
    """Return it for people."""
    now = datetime.now(UTC)
    runs = job.runs
    workers = {worker.id: f"{worker.process.host}:{worker.process.pid}" for worker in app.workers()}
    lines = [f"{bold(clean(job.task))}  {job.id}  {coloured(str(job.state))}"]
    lines += [f"  {name:<10}{clean_lines(value)}" for name, value in _facts(app, job, now, utc=utc) if value]
    lines += ["", bold("Timeline")]
    lines += [
        f"  {local(event.at, utc=utc, now=now)}  {clean(event.text, 200)}" for event in _timeline(job, runs, workers)
    ]
    for run in runs:
        lines += _run_lines(run)
    return "\n".join(lines)


def _facts(app: Duly, job: Job[Any], now: datetime, *, utc: bool) -> list[tuple[str, str]]:
    record = job.record
    recurs = job.max_attempts >= ENDLESS
    progress = "" if job.progress is None else f"{job.progress:.0%} "
    value = json.dumps(_result(app, job), ensure_ascii=False) if job.state is State.SUCCEEDED else ""
    return [
        ("reason", clean(job.reason or "")),
        ("arguments", clean(record.args, LONGEST_VALUE)),
        ("result", clean(value, LONGEST_VALUE)),
        ("progress", clean(f"{progress}{job.progress_text or ''}")),
        ("queue", clean(job.queue)),
        ("tenant", clean(job.tenant or "")),
        ("priority", str(job.priority)),
        ("attempts", "" if recurs else f"{job.attempts} of {job.max_attempts}"),
        ("recurs", f"see: duly schedules show {job.id}" if recurs else ""),
        ("enqueued", when(job.created_at, now, utc=utc) + (f" by {clean(job.enqueued_by)}" if job.enqueued_by else "")),
        ("due", when(job.run_at, now, utc=utc) if job.state in (State.SCHEDULED, State.QUEUED) else ""),
        ("finished", when(job.finished_at, now, utc=utc) if job.finished_at else ""),
        ("timeout", "" if record.timeout_us is None else human(timedelta(microseconds=record.timeout_us))),
        ("expires", "" if record.expires_at is None else when(from_us(record.expires_at), now, utc=utc)),
        ("tags", ", ".join(clean(tag) for tag in job.tags)),
        ("unique", clean(job.unique_key or "")),
    ]


def _timeline(job: Job[Any], runs: list[Run], workers: dict[str, str]) -> list[Event]:
    events = [Event(job.created_at, "enqueued" + (f" by {job.enqueued_by}" if job.enqueued_by else ""))]
    for run in runs:
        where = workers.get(run.worker_id, tail(run.worker_id))
        error = f": {run.error_kind}: {run.error}" if run.error_kind else ""
        events.append(Event(run.started_at, f"run {run.attempt} started on {where}"))
        events.append(Event(run.finished_at, f"run {run.attempt} {run.outcome} after {human(run.duration)}{error}"))
    record = job.record
    if job.state is State.RUNNING and record.claimed_at is not None and record.worker_id is not None:
        where = workers.get(record.worker_id, tail(record.worker_id))
        events.append(Event(from_us(record.claimed_at), f"run {job.attempts} started on {where}"))
    if record.cancel_at is not None:
        events.append(Event(from_us(record.cancel_at), "asked to stop"))
    if job.state.terminal and job.finished_at is not None:
        events.append(Event(job.finished_at, f"{job.state}" + (f": {job.reason}" if job.reason else "")))
    events.sort(key=lambda event: event.at)
    if job.state is State.SCHEDULED and job.run_at is not None:
        events.append(Event(job.run_at, "due"))
    return events


def _run_lines(run: Run) -> list[str]:
    """Return what one run left: error, traceback, log."""
    if not run.error and not run.traceback and not run.log:
        return []
    lines = ["", f"{bold(f'Run {run.attempt}')}  {coloured(run.outcome)} after {human(run.duration)}"]
    if run.traceback:
        lines += [f"  {line}" for line in clean_lines(run.traceback).split("\n")]
    elif run.error:
        lines += [f"  {line}" for line in clean_lines(f"{run.error_kind}: {run.error}").split("\n")]
    if run.log:
        lines += ["  log:", *(f"    {clean(line)}" for line in run.log)]
    return lines
