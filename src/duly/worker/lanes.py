"""What this worker believes about the lanes of one queue: which have jobs, and where to start in each.

Only a belief: hints and claims change it, a look at the database corrects it. A lane's cursor lets a claim skip rows
that were deleted but not yet vacuumed, as many as a long transaction keeps. It is used only while walking from the
start is slow. What stands before it is found by the look, which walks from the start, and by hints that say their rank.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from duly.domain.records import Claimed, Lane

SLOW_SECONDS = 0.003
START_EVERY = 10.0
MOST_ENDS = 10_000
MOST_LANES = 64
MOST_SHARED = 512
"""How many lanes one claim names at most where tenants share: each has its turn."""


class Lanes:
    """The lanes of one queue."""

    def __init__(self, queue: str, knows: Callable[[str, str], bool]) -> None:
        self.queue = queue
        self.heads: dict[tuple[str, str], int] = {}
        self.after: Lane | None = None
        """Where the next look goes on: there may be more lanes than one look can see."""
        self._knows = knows
        self._found: dict[tuple[str, str], int] = {}
        self._hinted: set[tuple[str, str]] = set()
        self.suspects: dict[tuple[str, str], int] = {}
        self.look_wanted = False
        """Whether something stands before a cursor, by a hint."""
        self.look_due = False
        """Whether something may stand before a cursor that nobody told us of."""
        self._cursors: dict[tuple[str, str], Lane] = {}
        self._ends: dict[tuple[str, str], Lane] = {}
        """The last job claimed of each lane."""
        self._walked_from_start = 0.0

    def hint(self, tenant: str, task: str, rank: int | None) -> None:
        """Somebody says that a job came."""
        if not self._knows(tenant, task):
            return
        key = (tenant, task)
        if self.after is not None:
            self._hinted.add(key)
        known = self.heads.get(key)
        low = rank if rank is not None else int(time.time() * 1e6)
        self.heads[key] = low if known is None else min(known, low)
        if rank is None:
            self.look_wanted = self.look_wanted or key in self._cursors
        else:
            self._go_back(key, rank, new=True)

    def _go_back(self, key: tuple[str, str], rank: int, *, new: bool = False) -> None:
        """There is a job of this rank: no cursor beyond it. A new one may stand before others of the same rank."""
        cursor = self._cursors.get(key)
        if cursor is not None and (rank <= cursor.from_rank if new else rank < cursor.from_rank):
            self._cursors[key] = Lane(*key, rank)

    def seen(
        self,
        normal: list[tuple[Lane, int]],
        suspects: Iterable[tuple[Lane, int]],
        *,
        full: bool,
        seconds: float,
    ) -> None:
        """A look at the database says which lanes have jobs, from `after` on; all of them, unless it was full."""
        self.look_wanted = self.look_due = False
        if seconds < SLOW_SECONDS:
            self._cursors.clear()
        found = {(lane.tenant, lane.task): rank for lane, rank in normal if self._knows(*lane[:2])}
        if full:
            self.heads |= found
            self._found |= found
            if self.after is None:
                self._hinted.clear()
            self.after = normal[-1][0]
        elif self.after is not None:
            later = {key: self.heads[key] for key in self._hinted if key in self.heads}
            self.heads, self._found, self.after = later | self._found | found, {}, None
        else:
            self.heads = found
        self.suspects = {(lane.tenant, lane.task): rank for lane, rank in suspects}
        if self._cursors:
            for key, rank in found.items():
                self._go_back(key, rank)

    def pick(self, keys: Iterable[tuple[str, str]], most: int = MOST_LANES) -> list[Lane]:
        """Of these lanes the ones whose heads come first, where to start in each."""
        heads = self.heads
        first = heapq.nsmallest(most, ((heads[key], key) for key in keys))
        return [self._cursors.get(key, Lane(*key)) for _, key in first]

    def claimed(
        self,
        lanes: list[Lane],
        jobs: list[Claimed],
        seconds: float,
        *,
        asked: int,
        shares: Mapping[str, int] | None,
        limited: bool = False,
    ) -> None:
        """Learn from a claim: lanes that gave fewer than asked are empty from there on; a slow walk earns a cursor.

        `limited`: the claim was under a limit, which may have been full, so that it says nothing of the lanes.
        """
        now = time.monotonic()
        last: dict[str, int] = {}
        got: Counter[str] = Counter()
        for job in jobs:
            tenant = "" if shares is None else job.tenant
            got[tenant] += 1
            last[tenant] = job.rank
        for lane in lanes:
            key, tenant = (lane.tenant, lane.task), "" if shares is None else lane.tenant
            if got[tenant] and got[tenant] >= (asked if shares is None else shares.get(tenant, 0)):
                # what came before the last one claimed is gone from all of the tenant's lanes
                self.heads[key] = max(self.heads.get(key, last[tenant]), last[tenant])
            elif not limited:
                self.heads.pop(key, None)
                self.look_due = self.look_due or key in self._cursors
        self._learn_pace(lanes, jobs, now, slow=seconds > SLOW_SECONDS + 0.00002 * asked)

    def _learn_pace(self, lanes: list[Lane], jobs: list[Claimed], now: float, *, slow: bool) -> None:
        """After a slow walk start the next one where this one ended; from the start all the same, now and then."""
        if len(self._ends) > MOST_ENDS:
            self._ends.clear()
        for job in jobs:
            self._ends[job.tenant, job.task] = Lane(job.tenant, job.task, job.rank, job.id)
        keys = [(lane.tenant, lane.task) for lane in lanes]
        from_start = all(key not in self._cursors for key in keys)
        if from_start:
            self._walked_from_start = now
        if not slow and from_start:
            return
        if now - self._walked_from_start > START_EVERY:
            self._cursors.clear()
            return
        self._cursors |= {key: self._ends[key] for key in keys if key in self._ends}
