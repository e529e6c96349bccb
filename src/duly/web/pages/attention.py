"""What somebody should look at, found in a snapshot."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from duly.domain.records import WorkerRecord
from duly.store.ops_pages import Snapshot
from duly.web.pages import words
from duly.web.pages.figures import failing, for_good, oldest, total

MOST: Final = 5
LATE: Final = 300.0
"""A job that waits longer than these seconds is worth a look."""


def attention(snapshot: Snapshot, living: Sequence[WorkerRecord]) -> list[dict[str, Any]]:
    """What somebody should look at, worst first. Each: how bad, what, why, and where to look."""
    found: list[dict[str, Any]] = []

    def note(level: str, text: str, detail: str, path: str, **query: object) -> None:
        found.append({"level": level, "text": text, "detail": detail, "path": path, "query": query})

    for alert in snapshot.alerts[:MOST]:
        seen = f"; {alert.acked_by} looks after it" if alert.acked_by else ""
        note("bad", alert.message, f"alert {alert.rule}{seen}", "/alerts")
    waiting = total(snapshot.waiting)
    if waiting and not living:
        note(
            "bad",
            "No worker is running",
            f"{words.plural(waiting, 'job')} wait. Start one: duly worker app.py",
            "/workers",
        )
    elif living:
        for queue, task, n in _unknown(snapshot, living):
            detail = f"{words.plural(n, 'job')} wait for a worker that takes from this queue and has this code"
            note(
                "bad",
                f"No live worker takes {task} from {queue}",
                detail,
                "/jobs",
                state="queued",
                task=task,
                queue=queue,
            )
    for lost in failing(snapshot)[:MOST]:
        text = f"{lost.task} failed {words.number(for_good(lost))}×"
        detail = f"for good; {words.plural(lost.failed + lost.crashed, 'run')} failed in the last hour"
        note("bad", text, detail, "/jobs", state="failed", task=lost.task)
    for job in snapshot.troubled:
        state = "" if job.enabled else " and was disabled"
        text = f"Schedule {job.name or job.key or job.task} failed {job.failures}× in a row{state}"
        note("bad", text, words.cut(job.disabled_reason or job.last_error), f"/schedules/{job.id}")
    for reason, n in sorted(snapshot.parked.items()):
        note("warn", f"{words.plural(n, 'job')} parked", f"held back: {reason}", "/jobs", state="queued")
    late = oldest(snapshot)
    if living and late is not None and late > LATE:
        note(
            "warn",
            f"The oldest job has waited {words.span(late)}",
            "more arrives than is run, or it is held back",
            "/queues",
        )
    for pause in snapshot.paused:
        if snapshot.tenant is None or (pause.scope == "tenant" and pause.name == snapshot.tenant):
            by = f"by {pause.by}" if pause.by else ""
            detail = ", ".join(each for each in (by, pause.reason or "") if each) or "until somebody resumes it"
            path = {"queue": "/queues", "tenant": "/tenants"}.get(pause.scope, "/queues")
            note("warn", f"{pause.scope.capitalize()} {pause.name} is paused", detail, path)
    return found


def _unknown(snapshot: Snapshot, living: Sequence[WorkerRecord]) -> list[tuple[str, str, int]]:
    """The queues and tasks of jobs that wait while no live worker could run them."""
    pairs = [(set(json.loads(each.queues)), set(json.loads(each.tasks))) for each in living]
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for queue, _, task, n, _ in snapshot.waiting:
        if not any(queue in queues and task in tasks for queues, tasks in pairs):
            counts[queue, task] += n
    return [(queue, task, n) for (queue, task), n in sorted(counts.items())[:5]]
