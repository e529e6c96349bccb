"""How many jobs may be claimed now: free slots, plus what is expected to start within a tenth of a second."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from duly.domain.limits import Bound
from duly.worker.registry import Kind

AHEAD_SECONDS = 0.05
MOST_AHEAD = 2_000
BATCH = 500
JobsEnded = Counter[tuple[Kind, str, Bound]]
"""How many jobs ended: of which kind, from which queue, under which limits."""


@dataclass(slots=True)
class Pool:
    """The slots of one kind of runner and how fast they have been turning over."""

    slots: int
    out: int = 0
    """Jobs claimed for this kind and not yet ended."""
    rate: float = 0.0
    _ended: int = 0
    _since: float = field(default_factory=time.monotonic)

    def ended(self, n: int) -> None:
        """Note jobs that ended; measure how many end in a second while there is work."""
        self.out -= n
        self._ended += n
        now = time.monotonic()
        elapsed = now - self._since
        if elapsed >= 0.02:
            fresh = self._ended / elapsed
            self.rate = fresh if elapsed > 1 else 0.7 * fresh + 0.3 * self.rate
            self._ended, self._since = 0, now

    @property
    def target(self) -> int:
        """How many jobs this process should hold: every slot full, and a short supply for slots that turn over fast."""
        return max(self.slots, min(int(self.rate * AHEAD_SECONDS), MOST_AHEAD))

    def room(self) -> int:
        """How many to claim now. 0 while there is no free slot and the supply is more than half full."""
        missing = self.target - self.out
        if missing <= 0 or (self.out >= self.slots and missing < self.target // 2):
            return 0
        return min(missing, BATCH)

    @property
    def free(self) -> int:
        """Slots with nothing in them."""
        return max(0, self.slots - self.out)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueShare:
    """How much of a worker a queue may have: a fixed number of slots, or a weight among those without."""

    name: str
    slots: int | None = None
    weight: int = 1


class Slots:
    """The slots of one worker, by kind of runner and by queue."""

    def __init__(self, pools: dict[Kind, Pool], shares: list[QueueShare]) -> None:
        self.pools = pools
        self.shares = shares
        self.by_queue: dict[str, int] = {share.name: 0 for share in shares}
        self._by_bound: Counter[Bound] = Counter()
        self._lock = threading.Lock()  # the claimer takes, the finisher gives back: once per batch each

    def left(self, kind: Kind, share: QueueShare) -> int:
        """How many more jobs of this kind this process should hold, and this queue may have."""
        pool = self.pools[kind]
        left = pool.target - pool.out
        if share.slots is not None:
            left = min(left, share.slots - self.by_queue[share.name])
        return max(0, left)

    def under(self, bound: Bound) -> int:
        """Jobs this worker holds that were claimed under these limits."""
        return self._by_bound[bound]

    def taken(self, kind: Kind, queue: str, bound: Bound, n: int) -> None:
        """Jobs were claimed, under these limits."""
        with self._lock:
            self.pools[kind].out += n
            self.by_queue[queue] += n
            if bound:
                self._by_bound[bound] += n

    def ended(self, counts: JobsEnded) -> None:
        """Jobs ended."""
        with self._lock:
            for (kind, queue, bound), n in counts.items():
                self.pools[kind].ended(n)
                self.by_queue[queue] -= n
                if bound:
                    self._by_bound[bound] -= n
                    if not self._by_bound[bound]:
                        del self._by_bound[bound]

    @property
    def out(self) -> int:
        """Jobs this worker holds."""
        return sum(pool.out for pool in self.pools.values())
