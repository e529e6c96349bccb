"""What is looked at: turns how things stand into readings, one rule after another. No I/O."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from duly.alerts.settings import AlertSettings
from duly.domain.alerts import Reading
from duly.domain.durations import human
from duly.domain.records import WorkerRecord
from duly.store.ops_observe import Group, Key, Ran, Standing


class Sizes(NamedTuple):
    """What the database takes up, in bytes; None where that cannot be told."""

    free: int | None
    log: int | None
    database: int | None


class Look(NamedTuple):
    """Everything that rules look at, as of one moment."""

    standing: Standing
    ran: Mapping[Key, Ran]
    """What ran in the last 15 minutes."""
    workers: Sequence[WorkerRecord]
    """Those that live."""
    paused: frozenset[tuple[str, str]]
    """(scope, name) of what is paused."""
    poison: Mapping[str, tuple[int, str]]
    sizes: Sizes


def readings(look: Look, settings: AlertSettings) -> list[Reading]:
    """How everything stands that a rule is about."""
    return [reading for rule in (
        _depth, _failed_rate, _running, _schedule_late, _no_worker, _oldest_waiting, _poison, _sizes
    ) for reading in rule(look, settings)]  # fmt: skip


def _depth(look: Look, settings: AlertSettings) -> Iterator[Reading]:
    by_queue: dict[str, int] = defaultdict(int)
    by_task: dict[str, int] = defaultdict(int)
    for key, waiting in look.standing.waiting.items():
        by_queue[key.queue] += waiting.jobs
        by_task[key.task] += waiting.jobs
    for queue, n in by_queue.items():
        limit = settings.limit("depth", queue=queue)
        if limit is not None:
            yield Reading(
                "depth", f"queue {queue}", n, limit, f"{_jobs(n, 'waits', 'wait')} in queue {queue}", queue=queue
            )
    for task, n in by_task.items():
        own = settings.tasks.get(task, {}).get("depth")
        if own is not None:
            yield Reading(
                "depth",
                f"task {task}",
                n,
                own,
                f"{_jobs(n, 'of')} task {task} {'waits' if n == 1 else 'wait'}",
                task=task,
            )


def _failed_rate(look: Look, settings: AlertSettings) -> Iterator[Reading]:
    by_task: dict[tuple[str, str], Ran] = defaultdict(Ran)
    for key, ran in look.ran.items():
        by_task[key.queue, key.task] = by_task[key.queue, key.task].plus(ran)
    for (queue, task), ran in by_task.items():
        limit = settings.limit("failed_rate", queue=queue, task=task)
        if limit is None or ran.runs < settings.failed_runs:
            continue
        failed = ran.failed + ran.crashed
        text = f"{failed:,} of {ran.runs:,} runs of task {task} failed in 15 min ({ran.failed_ratio:.0%})"
        details = {"runs": ran.runs, "failed": ran.failed, "crashed": ran.crashed}
        yield Reading("failed_rate", f"task {task} in {queue}", ran.failed_ratio, limit, text, queue, task, details)


class _Oldest(NamedTuple):
    jobs: int
    since: int
    queue: str
    tenant: str


def _by_task(groups: Iterator[tuple[Key, Group]]) -> dict[str, _Oldest]:
    """All lanes of a task together, with the one that has the oldest."""
    found: dict[str, _Oldest] = {}
    for key, group in groups:
        before = found.get(key.task)
        if before is None:
            found[key.task] = _Oldest(group.jobs, group.since, key.queue, key.tenant)
        elif group.since < before.since:
            found[key.task] = _Oldest(before.jobs + group.jobs, group.since, key.queue, key.tenant)
        else:
            found[key.task] = before._replace(jobs=before.jobs + group.jobs)
    return found


def _running(look: Look, settings: AlertSettings) -> Iterator[Reading]:
    now = look.standing.now
    for task, oldest in _by_task(iter(look.standing.running.items())).items():
        limit = settings.limit("running", queue=oldest.queue, task=task)
        if limit is not None:
            seconds = _since(now, oldest.since)
            text = f"a job of task {task} has been running for {_span(seconds)}"
            details = {"tenant": oldest.tenant, "running": oldest.jobs}
            yield Reading("running", f"task {task}", seconds, limit, text, oldest.queue, task, details)


def _late(look: Look) -> Iterator[tuple[Key, Group]]:
    for key, waiting in look.standing.waiting.items():
        if waiting.oldest_recurring_at is not None:
            yield key, Group(waiting.recurring, waiting.oldest_recurring_at)
    yield from look.standing.overdue.items()


def _schedule_late(look: Look, settings: AlertSettings) -> Iterator[Reading]:
    now = look.standing.now
    for task, oldest in _by_task(_late(look)).items():
        limit = settings.limit("schedule_late", queue=oldest.queue, task=task)
        if limit is not None and not _is_paused(look, oldest.queue, task):
            seconds = _since(now, oldest.since)
            text = f"a recurring job of task {task} should have started {_span(seconds)} ago"
            details = {"tenant": oldest.tenant, "due": oldest.jobs}
            yield Reading("schedule_late", f"task {task}", seconds, limit, text, oldest.queue, task, details)


def _no_worker(look: Look, settings: AlertSettings) -> Iterator[Reading]:
    able = [(set(json.loads(each.queues)), set(json.loads(each.tasks))) for each in look.workers]
    waiting: dict[tuple[str, str], Group] = {}
    for key, lane in look.standing.waiting.items():
        before = waiting.get((key.queue, key.task), Group(0, lane.oldest_at))
        waiting[key.queue, key.task] = Group(before.jobs + lane.jobs, min(before.since, lane.oldest_at))
    for (queue, task), group in waiting.items():
        limit = settings.limit("no_worker", queue=queue, task=task)
        if limit is None or _is_paused(look, queue, task):
            continue
        if any(queue in queues and task in tasks for queues, tasks in able):
            continue
        text = f"no live worker on queue {queue} can run task {task}: {_jobs(group.jobs, 'waits', 'wait')}"
        seconds = _since(look.standing.now, group.since)
        yield Reading("no_worker", f"task {task} in {queue}", seconds, limit, text, queue, task, {"jobs": group.jobs})


def _oldest_waiting(look: Look, settings: AlertSettings) -> Iterator[Reading]:
    oldest: dict[tuple[str, str], int] = {}
    for key, lane in look.standing.waiting.items():
        if _is_paused(look, key.queue, key.task) or ("tenant", key.tenant) in look.paused:
            continue
        own = "oldest_waiting" in settings.tasks.get(key.task, ())
        subject = ("task", key.task) if own else ("queue", key.queue)
        oldest[subject] = min(oldest.get(subject, lane.oldest_at), lane.oldest_at)
    for (scope, name), at in oldest.items():
        queue, task = (name, None) if scope == "queue" else (None, name)
        limit = settings.limit("oldest_waiting", queue=queue, task=task)
        if limit is not None:
            seconds = _since(look.standing.now, at)
            text = f"a job of {scope} {name} has been waiting for {_span(seconds)}"
            yield Reading("oldest_waiting", f"{scope} {name}", seconds, limit, text, queue, task)


def _poison(look: Look, settings: AlertSettings) -> Iterator[Reading]:
    for task, (n, job_id) in look.poison.items():
        if settings.limit("poison", task=task) is not None:
            text = f"{_jobs(n, 'of')} task {task} took workers along and will not run again: duly jobs show {job_id}"
            yield Reading("poison", f"task {task}", n, 0, text, task=task, details={"jobs": n, "job": job_id})


def _sizes(look: Look, settings: AlertSettings) -> Iterator[Reading]:
    for rule, subject, value, text in (
        ("disk_free", "disk", look.sizes.free, "only {} are free on the disk of the database"),
        ("wal_size", "wal", look.sizes.log, "the write-ahead log has grown to {}"),
        ("database_size", "database", look.sizes.database, "the database has grown to {}"),
    ):
        limit = settings.limit(rule)
        if limit is not None and value is not None:
            yield Reading(rule, subject, value, limit, text.format(_bytes(value)))


def _jobs(n: int, one: str, many: str | None = None) -> str:
    return f"1 job {one}" if n == 1 else f"{n:,} jobs {many or one}"


def _is_paused(look: Look, queue: str, task: str) -> bool:
    return ("queue", queue) in look.paused or ("task", task) in look.paused


def _since(now: int, at: int) -> float:
    return max(0.0, (now - at) / 1e6)


def _span(seconds: float) -> str:
    return human(timedelta(seconds=round(seconds) if seconds >= 10 else round(seconds, 1)))


def _bytes(n: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"
