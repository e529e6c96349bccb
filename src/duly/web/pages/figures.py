"""Plain figures out of a snapshot: how many, how old, how fast."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from duly.domain.records import MINUTE_US, Counts
from duly.store.ops_pages import Minute, Snapshot
from duly.web.pages import waits
from duly.web.pages.live import LOOK_BACK


def counts(snapshot: Snapshot) -> Counts:
    """How many jobs stand where, but for those that ended."""
    return Counts(waiting=snapshot.waiting, scheduled=snapshot.scheduled, running=snapshot.running)


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
    parts: dict[int, list[Minute]] = defaultdict(list)
    for minute in snapshot.minutes:
        parts[minute.at].append(minute)
    last = snapshot.now // MINUTE_US * MINUTE_US
    starts = range(last - (LOOK_BACK - 1) * MINUTE_US, last + 1, MINUTE_US)
    return [together(at, parts[at]) for at in starts]


def together(at: int, parts: Sequence[Minute], task: str = "") -> Minute:
    """Several counts as one."""
    return Minute(
        at=at,
        queue="",
        task=task,
        runs=sum(each.runs for each in parts),
        succeeded=sum(each.succeeded for each in parts),
        failed=sum(each.failed for each in parts),
        retried=sum(each.retried for each in parts),
        crashed=sum(each.crashed for each in parts),
        waits=tuple(waits.added([each.waits for each in parts])),
    )


def failing(snapshot: Snapshot) -> list[Minute]:
    """The tasks of which jobs failed for good in the last hour, most first."""
    parts: dict[str, list[Minute]] = defaultdict(list)
    for minute in snapshot.minutes:
        if minute.failed or minute.crashed:
            parts[minute.task].append(minute)
    tasks = [together(0, found, task) for task, found in parts.items()]
    return sorted((each for each in tasks if for_good(each)), key=lambda each: (-for_good(each), each.task))


def for_good(minute: Minute) -> int:
    """How many jobs failed for good: failures that no other run followed."""
    return max(0, minute.failed + minute.crashed - minute.retried)


def rate_text(per_minute: float) -> str:
    """How many a minute."""
    return f"{per_minute:,.1f}/min" if 0 < per_minute < 10 else f"{per_minute:,.0f}/min"


def rate(counts: Sequence[int], now: int) -> float:
    """Runs a minute, from the minute under way and the two before it."""
    part = (now % MINUTE_US) / MINUTE_US
    return sum(counts[-3:]) / (2 + part) if counts else 0.0
