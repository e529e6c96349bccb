"""Whether somebody is there to run what waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from duly.__about__ import __version__
from duly.doctor.finding import Area, Finding
from duly.doctor.words import counted, some, span
from duly.domain.records import Counts, Skew, WorkerRecord

if TYPE_CHECKING:
    from duly.app import Duly

AREA = Area("workers")
CHECK = "duly doctor"
MOST_SKEW_US = 1_000_000
FAR_OFF_US = 60_000_000
"""A host's clock that is further off than this is broken."""


def check(app: Duly, to_run: Callable[[], Counts]) -> Iterator[Finding]:
    """Look at the workers on record, and at what waits for them. `to_run`: counts it."""
    counts, live = to_run(), app.live_workers()
    yield alive(live, counts)
    yield from silent(app.workers(), {worker.id for worker in live})
    yield from versions(live)
    yield from clocks(live)
    if live:
        yield from unserved(counts, live, app.unknown_tasks(counts))


def alive(live: Sequence[WorkerRecord], counts: Counts) -> Finding:
    """Whether any worker lives."""
    left = sum(n for group in (counts.waiting, counts.scheduled) for *_, n, _ in group)
    if not live and left:
        return AREA.warning(
            "alive",
            f"no worker is running, and {counted(left, 'job is', 'jobs are')} to run",
            "start one: duly worker app:jobs",
            workers=0,
            jobs=left,
        )
    if not live:
        return AREA.info("alive", "no worker is running, and nothing waits for one", workers=0, jobs=0)
    slots = sum(worker.slots for worker in live)
    return AREA.ok("alive", f"{counted(len(live), 'worker')} with {counted(slots, 'slot')}", workers=len(live))


def silent(workers: Sequence[WorkerRecord], live: set[str]) -> Iterator[Finding]:
    """Workers that have ended without a word, or hang."""
    for worker in workers:
        if worker.id not in live:
            process = worker.process
            seen, lease = span(worker.silent_us), span(worker.lease_us)
            over = worker.silent_us > worker.lease_us
            how = (
                f"has been silent for {seen}; its lease is {lease}" if over else f"has ended without a word, {seen} ago"
            )
            yield AREA.warning(
                "silent",
                f"worker {worker.id} (pid {process.pid} on {process.host}) {how}",
                "see whether it hangs or was killed; a living worker takes its jobs over and strikes it off",
                worker=worker.id,
                host=process.host,
                pid=process.pid,
                silent_seconds=worker.silent_us // 1_000_000,
                lease_seconds=worker.lease_us / 1_000_000,
            )


def versions(live: Sequence[WorkerRecord]) -> Iterator[Finding]:
    """Workers of another version than this one: a roll-out that was not finished."""
    others: dict[str, list[WorkerRecord]] = {}
    for worker in live:
        if worker.version != __version__:
            others.setdefault(worker.version, []).append(worker)
    for version, group in sorted(others.items()):
        hosts = sorted({worker.process.host for worker in group})
        yield AREA.warning(
            "versions",
            f"{counted(len(group), 'worker')} of version {version} beside this one, {__version__} (on {some(hosts)})",
            "finish the roll-out: upgrade and restart them",
            version=version,
            workers=[worker.id for worker in group],
        )


def clocks(live: Sequence[WorkerRecord]) -> Iterator[Finding]:
    """Hosts of workers whose clocks do not agree with the database's, as they themselves measured it."""
    hosts: dict[str, list[WorkerRecord]] = {}
    for worker in live:
        if worker.skew is not None:
            hosts.setdefault(worker.process.host, []).append(worker)
    measured = {host: max(map(_skew, group), key=_certain) for host, group in hosts.items()}
    wrong = [host for host, skew in sorted(measured.items()) if _certain(skew) > MOST_SKEW_US]
    for host in wrong:
        skew = measured[host]
        side = "ahead of" if skew.ahead_us > 0 else "behind"
        report = AREA.error if _certain(skew) > FAR_OFF_US else AREA.warning
        yield report(
            "clocks",
            f"the clock of {host} ({counted(len(hosts[host]), 'worker')}) is {span(abs(skew.ahead_us))} {side} the "
            "database's: what code there reckons from it, as run_at, is off by as much",
            f"synchronise the clock of {host} (timedatectl set-ntp true, or chrony), then look again: {CHECK}",
            host=host,
            ahead_seconds=round(skew.ahead_us / 1e6, 3),
            precision_seconds=round(skew.doubt_us / 1e6, 3),
            workers=[worker.id for worker in hosts[host]],
        )
    if measured and not wrong:
        most = span(max(1_000, *(abs(skew.ahead_us) + skew.doubt_us for skew in measured.values())))
        yield AREA.ok(
            "clocks",
            f"the clocks of {counted(len(measured), 'host')} with workers agree with the database's to {most}",
            ahead_seconds={host: round(skew.ahead_us / 1e6, 3) for host, skew in sorted(measured.items())},
        )


def _skew(worker: WorkerRecord) -> Skew:
    return worker.skew or Skew(0, 0)


def _certain(skew: Skew) -> int:
    """How much of it cannot be the way to the database and back."""
    return abs(skew.ahead_us) - skew.doubt_us


def unserved(counts: Counts, live: Sequence[WorkerRecord], unknown: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    """Queues that no live worker takes from, and tasks that none knows."""
    taken = {queue for worker in live for queue in json.loads(worker.queues)}
    jobs: dict[tuple[str, str], int] = {}
    for queue, _, task, n, _ in (*counts.waiting, *counts.scheduled):
        jobs[queue, task] = jobs.get((queue, task), 0) + n
    for queue in sorted({queue for queue, _ in unknown} - taken):
        n = sum(count for (name, _), count in jobs.items() if name == queue)
        yield AREA.warning(
            "queues",
            f"no live worker takes from queue {queue!r}, where {counted(n, 'job is', 'jobs are')} to run",
            f"start one that does: duly worker app:jobs --queue {queue}",
            queue=queue,
            jobs=n,
        )
    for queue, task in unknown:
        if queue in taken:
            n = jobs.get((queue, task), 0)
            yield AREA.warning(
                "tasks",
                f"no live worker on queue {queue!r} knows task {task!r}: {counted(n, 'job is', 'jobs are')} to run",
                f"deploy the code that declares it, or cancel them: duly jobs cancel --task {task}",
                queue=queue,
                task=task,
                jobs=n,
            )
    if not unknown:
        yield AREA.ok("tasks", "every task that waits is known to a live worker")
