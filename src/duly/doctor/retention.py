"""Whether what is older than people want to keep is forgotten in time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from duly.doctor.finding import Area, Finding
from duly.doctor.words import counted, span
from duly.domain.durations import micros
from duly.domain.states import State
from duly.store import ops_doctor

if TYPE_CHECKING:
    from duly.app import Duly

AREA = Area("retention")
HOUR_US, DAY_US = 3_600_000_000, 86_400_000_000
"""How far pruning may be behind: as long again as a job is kept, but not less than an hour or more than a day."""
COUNTED = 100_000


def check(app: Duly) -> Iterator[Finding]:
    """Look for what should be gone."""
    database, retention = app.store.database, app.retention
    late = 0
    for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED):
        keep = retention.of(state)
        if keep is None:
            continue
        keep_us = micros(keep)
        after_us = keep_us + min(DAY_US, max(HOUR_US, keep_us))
        found = database.read(lambda state=state, after_us=after_us: ops_doctor.overdue(state, after_us, COUNTED))  # type: ignore[misc]
        for finding in overdue(state, *found, keep_us):
            late += 1
            yield finding
    if retention.rollups is not None:
        after_us = micros(retention.rollups) + DAY_US
        for finding in rollups(database.read(lambda: ops_doctor.old_rollups(after_us))):
            late += 1
            yield finding
    if not late:
        yield AREA.ok("prune", "what is older than the retention is forgotten in time")


def overdue(state: str, n: int, oldest_us: int, keep_us: int) -> Iterator[Finding]:
    """Finished jobs that should be gone."""
    if n:
        yield AREA.warning(
            "prune",
            f"{counted(n, f'{state} job', most=COUNTED)} should have been forgotten after {span(keep_us)}; the oldest "
            f"ended {span(oldest_us)} ago",
            "run duly prune. Workers prune by themselves: see whether any lives, and for errors in its log",
            state=state,
            jobs=n,
            oldest_seconds=oldest_us // 1_000_000,
            keep_seconds=keep_us // 1_000_000,
        )


def rollups(n: int) -> Iterator[Finding]:
    """Counts that should be gone."""
    if n:
        yield AREA.warning("rollups", f"{counted(n, 'count')} are older than their retention", "run duly prune", rows=n)
