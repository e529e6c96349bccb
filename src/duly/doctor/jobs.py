"""Whether every job is in exactly one place, and none is stuck there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from duly.doctor.finding import Area, Finding
from duly.doctor.words import counted, some, span
from duly.domain.durations import micros
from duly.domain.records import Counts
from duly.store import ops_doctor, ops_repair
from duly.store.call import Dialect
from duly.store.database import read_as_planned
from duly.store.ops_doctor import EVERYTHING, MOST, Parked

if TYPE_CHECKING:
    from duly.app import Duly

AREA = Area("jobs")
LOOKED_AT = 200_000
"""So many jobs, the newest, are looked for in all places unless all are asked for."""
LATE_US = 300_000_000
LONG_WAIT_US = 3_600_000_000
FIX = "duly doctor --fix"


def check(app: Duly, to_run: Callable[[], Counts], *, deep: bool) -> Iterator[Finding]:
    """Look for jobs that are lost, doubled or stuck. `to_run`: counts what waits."""
    database = app.store.database
    yield from places(app, deep=deep)
    yield from keys(app)
    lease_us = micros(app.settings.lease)
    yield lapsed(*database.read(lambda: ops_doctor.lapsed(2 * lease_us)))
    if before := app.store.held_before_boot(lease_us):
        yield AREA.warning(
            "leases",
            f"{counted(len(before), 'run')} were under way when this machine was last switched off",
            "start a worker: it takes them over",
            runs=len(before),
        )
    yield unpromoted(*database.read(lambda: ops_doctor.unpromoted(LATE_US)))
    yield from parked(database.read(ops_doctor.parked))
    yield from oldest(to_run(), app.store.now_us())


def places(app: Duly, *, deep: bool) -> Iterator[Finding]:
    """Whether every job is in one place."""
    store, most = app.store, EVERYTHING if deep else LOOKED_AT
    found = read_as_planned(store.database, lambda: ops_doctor.misplaced(store.dialect, most))
    yield from misplaced(store.dialect, found.nowhere, found.twice, found.jobless)
    if not (found.nowhere or found.twice or found.jobless):
        seen = counted(found.looked_at, "job") if found.is_all else f"the newest {LOOKED_AT:,} jobs (--deep: all)"
        yield AREA.ok("places", f"{seen} looked at, each in one place", looked_at=found.looked_at)


def misplaced(
    dialect: Dialect, nowhere: Sequence[str], twice: Sequence[str], jobless: Sequence[str]
) -> Iterator[Finding]:
    """Jobs that are not in one place, and what will be done about them."""
    if nowhere:
        yield AREA.error(
            "nowhere",
            f"{counted(len(nowhere), 'job is', 'jobs are', most=MOST)} in no place and will never run: {some(nowhere)}",
            f"{FIX}: one whose last run was its last has ended; the others go back to their lanes with a new fence",
            lambda: ops_repair.put_back(dialect, nowhere),
            jobs=list(nowhere),
        )
    if twice:
        yield AREA.error(
            "twice",
            f"{counted(len(twice), 'job is', 'jobs are', most=MOST)} in several places: {some(twice)}",
            f"{FIX}: each stays where its fence is highest; of equals its last run decides",
            lambda: ops_repair.leave_one_place(dialect, twice),
            jobs=list(twice),
        )
    if jobless:
        yield AREA.error(
            "jobless",
            f"{counted(len(jobless), 'place names', 'places name', most=MOST)} jobs that are not there: "
            f"{some(jobless)}",
            f"{FIX}: nobody knows what they were to run; the places are removed",
            lambda: ops_repair.drop_jobless(dialect, jobless),
            jobs=list(jobless),
        )


def keys(app: Duly) -> Iterator[Finding]:
    """Whether unique keys are held by jobs that there are, and will be handed on."""
    dialect = app.store.dialect
    dead = app.store.database.read(ops_doctor.dead_keys)
    keyless = app.store.database.read(lambda: ops_doctor.some_ids("doctor_keyless"))
    unheld = app.store.database.read(lambda: ops_doctor.some_ids("doctor_unheld"))
    if dead:
        yield AREA.error(
            "keys",
            f"{counted(len(dead), 'unique key is', 'unique keys are', most=MOST)} held by jobs that are gone: "
            f"{some([repr(key) for _, key in dead])}. Jobs with these keys are refused",
            f"{FIX}: they are handed to the job that waits for each, or given back",
            lambda: ops_repair.free_keys(dialect, dead),
            keys=[key for _, key in dead],
        )
    if keyless:
        yield AREA.error(
            "keyless",
            f"{counted(len(keyless), 'job waits', 'jobs wait', most=MOST)} for a unique key that nobody will hand on: "
            f"{some(keyless)}",
            f"{FIX}: each gets its key, or follows whoever holds it now",
            lambda: ops_repair.wait_again(dialect, keyless),
            jobs=list(keyless),
        )
    if unheld:
        yield AREA.error(
            "unheld",
            f"{counted(len(unheld), 'job has', 'jobs have', most=MOST)} lost a unique key: {some(unheld)}. Others with "
            "the same key are accepted",
            f"{FIX}: each gets its key again, or goes on without if another has it by now",
            lambda: ops_repair.hold_again(dialect, unheld),
            jobs=list(unheld),
        )
    if not (dead or keyless or unheld):
        yield AREA.ok("keys", "every unique key is held by a job that there is")


def lapsed(n: int, longest_us: int) -> Finding:
    """Whether runs of dead workers are taken over."""
    if n:
        return AREA.warning(
            "leases",
            f"{counted(n, 'run has', 'runs have')} had no sign of life for up to {span(longest_us)} past the lease, "
            "and nobody took them over",
            "start a worker, or run duly tick app.py: it takes them over",
            runs=n,
            longest_seconds=longest_us // 1_000_000,
        )
    return AREA.ok("leases", "no lease lapsed long ago")


def unpromoted(n: int, latest_us: int, recurring: int) -> Finding:
    """Whether jobs whose time has come get into their lanes."""
    if n:
        return AREA.warning(
            "due",
            f"{counted(n, 'job is', 'jobs are')} due for up to {span(latest_us)} and still scheduled "
            f"({recurring:,} of them recur): no worker puts them into their lanes",
            "start a worker, or run duly tick app.py",
            jobs=n,
            recurring=recurring,
            latest_seconds=latest_us // 1_000_000,
        )
    return AREA.ok("due", "no scheduled job is late")


def parked(found: Sequence[Parked]) -> Iterator[Finding]:
    """Jobs that are set aside, and why."""
    for each in found:
        evidence = {"reason": each.reason, "task": each.task, "jobs": each.jobs}
        jobs = counted(each.jobs, "job")
        if each.reason == "unique":
            what = f"{jobs} of {each.task} wait for another with the same unique key"
            yield AREA.info("parked", what, **evidence)
        else:
            yield AREA.warning(
                "parked",
                f"{jobs} of {each.task} are set aside, for up to {span(each.oldest_us)}: {each.reason}",
                "deploy code that their arguments fit, which releases them; or see duly jobs list --state queued "
                f"--task {each.task}",
                **evidence,
                oldest_seconds=each.oldest_us // 1_000_000,
            )
    if not found:
        yield AREA.ok("parked", "no job is set aside")


def oldest(counts: Counts, now_us: int) -> Iterator[Finding]:
    """How long the first job of each queue has waited."""
    queues: dict[str, tuple[int, int]] = {}
    for queue, _, _, n, first in counts.waiting:
        jobs, earliest = queues.get(queue, (0, first))
        queues[queue] = (jobs + n, min(earliest, first))
    for queue, (jobs, first) in sorted(queues.items()):
        waits = now_us - first
        what = f"queue {queue!r}: {counted(jobs, 'job')} waiting, the oldest for {span(waits)}"
        evidence = {"queue": queue, "jobs": jobs, "oldest_seconds": max(0, waits) // 1_000_000}
        if waits > LONG_WAIT_US:
            yield AREA.warning("waiting", what, "see duly stats; add workers or slots, or raise priorities", **evidence)
        else:
            yield AREA.ok("waiting", what, **evidence)
    if not queues:
        yield AREA.ok("waiting", "nothing waits")
