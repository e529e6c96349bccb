"""What a snapshot means to somebody who looks at a page: figures, charts, and what needs attention. Pure, no database."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from duly.admin import SILENCE_US
from duly.domain.records import MINUTE_US, WorkerRecord
from duly.store.ops_pages import Minute, Snapshot
from duly.web.pages import charts, waits, words
from duly.web.pages.charts import Bar, Series
from duly.web.pages.live import LOOK_BACK, Sample
from duly.web.pages.shell import templates
from duly.worker.identity import is_gone

SHOWN_RUNNING = 8
LATE = 300.0
"""A job that waits longer than these seconds is worth a look."""


def live_parts(page: str, prefix: str, snapshot: Snapshot, samples: Sequence[Sample]) -> dict[str, Any]:
    """What changes on a page, by the name of the place: texts, and pieces of markup."""
    texts = {f"state.{state}": words.about(n) for state, n in states(snapshot).items() if n is not None}
    html: dict[str, str] = {}
    if page == "overview":
        known = overview(snapshot, samples)
        for name in ("tiles", "attention", "charts", "running"):
            html[name] = piece(f"_{name}.html", prefix, known)
    elif page == "queues":
        for line in queue_lines(snapshot).values():
            key = f"queue.{line['name']}"
            texts |= {f"{key}.{place}": words.number(line[place]) for place in ("waiting", "running", "scheduled")}
            texts |= {f"{key}.oldest": words.span(line["oldest"]), f"{key}.rate": rate_text(line["rate"])}
            html[f"{key}.spark"] = str(charts.spark(line["minutes"], f"runs per minute of {line['name']}"))
    elif page == "workers":
        html["workers"] = piece("_workers.html", prefix, {"workers": worker_lines(snapshot)})
    elif page == "tenants":
        for name, counts in grouped(snapshot, 1).items():
            texts |= {f"tenant.{name}.{place}": words.number(n) for place, n in counts.items()}
    return {"texts": texts, "html": html}


def piece(template: str, prefix: str, values: dict[str, Any]) -> str:
    """A part of a page, the same for everybody who sees it."""

    def link(path: str, /, **query: object) -> str:
        return f"{prefix}{path}{words.query(**query)}"

    return templates.get_template(template).render(prefix=prefix, link=link, **values)


# -- figures ----------------------------------------------------------------------------------------------------------


def total(rows: Sequence[tuple[str, str, str, int, int]]) -> int:
    """How many jobs these are."""
    return sum(row[3] for row in rows)


def states(snapshot: Snapshot) -> dict[str, int | None]:
    """How many jobs are in each state; of those that ended up to a bound, and for one tenant unknown."""
    return {
        "scheduled": total(snapshot.scheduled),
        "queued": total(snapshot.waiting) + sum(snapshot.parked.values()),
        "running": total(snapshot.running),
        **{state: snapshot.ended.get(state) for state in ("succeeded", "failed", "cancelled")},
    }


def alive(worker: WorkerRecord) -> bool:
    """Whether a worker lives, as far as can be told from here."""
    return worker.silent_us <= worker.lease_us + SILENCE_US and not is_gone(worker.process)


def grouped(snapshot: Snapshot, column: int) -> dict[str, dict[str, int]]:
    """How many jobs wait, run and are scheduled, by queue (0), tenant (1) or task (2)."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: {"waiting": 0, "running": 0, "scheduled": 0})
    for place in ("waiting", "running", "scheduled"):
        for row in getattr(snapshot, place):
            found[str(row[column])][place] += row[3]
    return dict(found)


def oldest(snapshot: Snapshot, queue: str | None = None) -> float | None:
    """How many seconds the job waits that waits longest."""
    due = [row[4] for row in snapshot.waiting if queue is None or row[0] == queue]
    return max(0.0, (snapshot.now - min(due)) / 1e6) if due else None


def whole_hour(snapshot: Snapshot) -> list[Minute]:
    """The last minutes, with those in which nothing ran."""
    known = {minute.at: minute for minute in snapshot.minutes}
    last = snapshot.now // MINUTE_US * MINUTE_US
    nothing = (0,) * len(waits.STEPS)
    starts = range(last - (LOOK_BACK - 1) * MINUTE_US, last + 1, MINUTE_US)
    return [known.get(at) or Minute(at, 0, 0, 0, 0, 0, nothing) for at in starts]


def rate_text(per_minute: float) -> str:
    """How many a minute."""
    return f"{per_minute:,.1f}/min" if 0 < per_minute < 10 else f"{per_minute:,.0f}/min"


def rate(counts: Sequence[int], now: int) -> float:
    """Runs a minute, from the minute under way and the two before it."""
    part = (now % MINUTE_US) / MINUTE_US
    return sum(counts[-3:]) / (2 + part) if counts else 0.0


# -- overview ---------------------------------------------------------------------------------------------------------


def overview(snapshot: Snapshot, samples: Sequence[Sample]) -> dict[str, Any]:
    """Everything of the first page."""
    minutes = whole_hour(snapshot)
    living = [worker for worker in snapshot.workers if alive(worker)]
    lost = sum(minute.failed + minute.crashed for minute in minutes)
    return {
        "tiles": {
            "waiting": total(snapshot.waiting),
            "oldest": oldest(snapshot),
            "parked": sum(snapshot.parked.values()),
            "running": total(snapshot.running),
            "slots": sum(worker.slots for worker in living),
            "scheduled": total(snapshot.scheduled),
            "next_due": min((row[4] for row in snapshot.scheduled), default=None),
            "failed_hour": sum(minute.failed for minute in minutes),
            "failed": snapshot.ended.get("failed"),
            "workers": len(living),
            "rate": rate_text(rate([minute.runs for minute in minutes], snapshot.now)),
            "ran": sum(minute.runs for minute in minutes),
            "lost": lost,
        },
        "attention": attention(snapshot, living),
        "charts": [_throughput(minutes, snapshot), _depth(samples, snapshot), _failed(minutes), _waits(minutes)],
        "busy": snapshot.busy[:SHOWN_RUNNING],
        "more_busy": max(0, total(snapshot.running) - SHOWN_RUNNING),
        "now": snapshot.now,
        "empty": not any((snapshot.waiting, snapshot.scheduled, snapshot.running, any(snapshot.ended.values()), snapshot.minutes)),
        "only_tenant": snapshot.tenant,
    }


def _clock(at: int) -> str:
    return words.instant(at).strftime("%H:%M UTC")


def _throughput(minutes: Sequence[Minute], snapshot: Snapshot) -> dict[str, Any]:
    data = [
        Bar(
            (("succeeded", each.succeeded), ("other", max(0, each.runs - each.succeeded - each.failed)), ("failed", each.failed)),
            f"{_clock(each.at)}: {each.runs:,} runs, {each.failed:,} failed",
        )
        for each in minutes
    ]
    now, ran = rate([each.runs for each in minutes], snapshot.now), sum(each.runs for each in minutes)
    top = charts.nice(max(bar.total for bar in data))
    return {
        "title": "Throughput",
        "value": rate_text(now),
        "note": f"{words.number(ran)} runs in the last hour",
        "svg": charts.bars(data, f"Runs in each of the last 60 minutes: {ran:,} in all, now {rate_text(now)}", top=top),
        "top": words.number(top),
        "key": (("succeeded", "succeeded"), ("other", "retried or other"), ("failed", "failed")),
    }


def _failed(minutes: Sequence[Minute]) -> dict[str, Any]:
    data = [
        Bar(
            (("failed", each.failed), ("retried", each.retried)),
            f"{_clock(each.at)}: {each.failed:,} failed for good, {each.retried:,} to be retried",
        )
        for each in minutes
    ]
    failed, runs = sum(each.failed for each in minutes), sum(each.runs for each in minutes)
    retried = sum(each.retried for each in minutes)
    top = charts.nice(max(bar.total for bar in data))
    share = f"{failed / runs:.1%} of runs; " if runs else ""
    return {
        "title": "Failed",
        "value": words.number(failed),
        "note": f"{share}{words.number(retried)} retried in the last hour",
        "svg": charts.bars(data, f"Failures in each of the last 60 minutes: {failed:,} for good, {retried:,} retried", top=top),
        "top": words.number(top),
        "key": (("failed", "failed for good"), ("retried", "retried")),
    }


def _waits(minutes: Sequence[Minute]) -> dict[str, Any]:
    whole = waits.added([each.waits for each in minutes])
    p50, p99 = waits.percentile(whole, 0.5), waits.percentile(whole, 0.99)
    series = []
    for name, share in (("p99", 0.99), ("p50", 0.5)):
        points = [
            (n / (len(minutes) - 1), waits.height(waits.percentile(each.waits, share)))
            for n, each in enumerate(minutes)
        ]
        series.append(Series(name, points))
    label = f"Time from due to start in each of the last 60 minutes: half within {words.span(p50)}, 99 % within {words.span(p99)}"
    return {
        "title": "Wait before start",
        "value": words.span(p50),
        "note": f"half waited no longer; 99 % no longer than {words.span(p99)}",
        "svg": charts.lines(series, label),
        "top": "1d",
        "key": (("p50", "p50"), ("p99", "p99")),
        "scale": "log scale from 1 ms",
    }


def _depth(samples: Sequence[Sample], snapshot: Snapshot) -> dict[str, Any]:
    begin = snapshot.now - LOOK_BACK * MINUTE_US
    top = charts.nice(max((max(each.waiting, each.running) for each in samples), default=1))
    series = []
    for name in ("waiting", "running"):
        points: list[tuple[float, float | None]] = []
        for n, each in enumerate(samples):
            if n and each.at - samples[n - 1].at > 2 * MINUTE_US:
                points.append((0.0, None))
            points.append(((each.at - begin) / (LOOK_BACK * MINUTE_US), getattr(each, name) / top))
        series.append(Series(name, points, filled=name == "waiting"))
    waiting, running = total(snapshot.waiting), total(snapshot.running)
    return {
        "title": "Waiting and running",
        "value": f"{words.number(waiting)} / {words.number(running)}",
        "note": "waiting / running, while somebody looked",
        "svg": charts.lines(series, f"Jobs that wait and run in the last 60 minutes: now {waiting:,} wait, {running:,} run"),
        "top": words.number(top),
        "key": (("waiting", "waiting"), ("running", "running")),
    }


# -- what needs attention ---------------------------------------------------------------------------------------------


def attention(snapshot: Snapshot, living: Sequence[WorkerRecord]) -> list[dict[str, Any]]:
    """What somebody should look at, worst first. Each: how bad, what, why, and where to look."""
    found: list[dict[str, Any]] = []

    def note(level: str, text: str, detail: str, path: str, **query: object) -> None:
        found.append({"level": level, "text": text, "detail": detail, "path": path, "query": query})

    waiting = total(snapshot.waiting)
    if waiting and not living:
        note("bad", "No worker is running", f"{words.plural(waiting, 'job')} wait. Start one: duly worker app.py", "/workers")
    elif living:
        for queue, task, n in _unknown(snapshot, living):
            detail = f"{words.plural(n, 'job')} in queue {queue} wait for a worker that has this code"
            note("bad", f"No live worker knows {task}", detail, "/jobs", state="queued", task=task, queue=queue)
    for failing in snapshot.failing:
        detail = f"of {words.plural(failing.runs, 'run')} in the last hour"
        note("bad", f"{failing.task} failed {words.number(failing.failed)}×", detail, "/jobs", state="failed", task=failing.task)
    for job in snapshot.troubled:
        state = "" if job.enabled else " and was disabled"
        text = f"Schedule {job.name or job.key or job.task} failed {job.failures}× in a row{state}"
        note("bad", text, words.cut(job.disabled_reason or job.last_error), f"/schedules/{job.id}")
    for reason, n in sorted(snapshot.parked.items()):
        note("warn", f"{words.plural(n, 'job')} parked", f"held back: {reason}", "/jobs", state="queued")
    late = oldest(snapshot)
    if living and late is not None and late > LATE:
        note("warn", f"The oldest job has waited {words.span(late)}", "more arrives than is run, or it is held back", "/queues")
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


# -- queues and workers -----------------------------------------------------------------------------------------------


def queue_lines(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """How each queue stands that has jobs, or had some in the last hour."""
    counts = grouped(snapshot, 0)
    last = snapshot.now // MINUTE_US * MINUTE_US
    runs: dict[str, list[int]] = defaultdict(lambda: [0] * LOOK_BACK)
    failed: dict[str, int] = defaultdict(int)
    for queue, at, ran, lost in snapshot.queue_minutes:
        place = LOOK_BACK - 1 - (last - at) // MINUTE_US
        if 0 <= place < LOOK_BACK:
            runs[queue][place] = ran
        failed[queue] += lost
    return {
        name: {
            "name": name,
            **counts.get(name, {"waiting": 0, "running": 0, "scheduled": 0}),
            "oldest": oldest(snapshot, name),
            "minutes": runs[name],
            "rate": rate(runs[name], snapshot.now),
            "failed": failed[name],
        }
        for name in sorted({*counts, *runs})
    }


def worker_lines(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Every worker, those that live first, with what they run."""
    lines = []
    for worker in snapshot.workers:
        held = snapshot.held.get(worker.id, 0)
        lines.append(
            {
                "id": worker.id,
                "name": f"{worker.process.host}:{worker.process.pid}",
                "alive": alive(worker),
                "state": worker.state,
                "slots": worker.slots,
                "held": held,
                "meter": charts.meter(held / worker.slots if worker.slots else 0),
                "queues": json.loads(worker.queues),
                "tasks": json.loads(worker.tasks),
                "started_at": worker.started_at,
                "seen_at": worker.seen_at,
                "silent": worker.silent_us / 1e6,
                "version": worker.version,
                "busy": [each for each in snapshot.busy if each.worker_id == worker.id][:SHOWN_RUNNING],
            }
        )
    return sorted(lines, key=lambda line: (not line["alive"], line["name"]))

