"""How many jobs may be claimed now: free slots, plus what is expected to start within a twentieth of a second."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from duly.domain.limits import Bound
from duly.worker.registry import Kind

AHEAD_SECONDS = 0.05
MOST_AHEAD = 2_000
BATCH = 500
MEASURE_NS, MEASURE_JOBS, FORGET_NS = 20_000_000, 50, 1_000_000_000
"""After so much work, or so many jobs, the rate is worked out anew; what it was before so long ago is forgotten."""
JobsEnded = Counter[tuple[Kind, str, Bound]]
"""How many jobs ended: of which kind, from which queue, under which limits."""


class Spell(NamedTuple):
    """Jobs that came to this process together and ended one after the other."""

    kind: Kind
    n: int
    came_ns: int
    ended_ns: int
    """When the last of them ended."""


@dataclass(slots=True)
class Pool:
    """The slots of one kind of runner and how fast they have been turning over."""

    slots: int
    out: int = 0
    """Jobs claimed for this kind and not yet ended."""
    rate: float = 0.0
    """How many end in a second while there are jobs here: not less where it takes long to fetch more."""
    _ended: int = 0
    _worked_ns: int = 0
    _last_ns: int = 0
    _measured_ns: int = 0

    def worked(self, spell: Spell) -> None:
        """Measure how many jobs end in a second. The time in which there was none here does not count."""
        self._worked_ns += max(0, spell.ended_ns - max(spell.came_ns, self._last_ns))
        self._last_ns = max(self._last_ns, spell.ended_ns)
        self._ended += spell.n
        since = self._last_ns - self._measured_ns
        if self._worked_ns >= MEASURE_NS or self._ended >= MEASURE_JOBS:
            fresh = self._ended * 1e9 / max(1, self._worked_ns)
            self.rate = fresh if since > FORGET_NS else 0.7 * fresh + 0.3 * self.rate
            self._ended = self._worked_ns = 0
            self._measured_ns = self._last_ns

    def stuck(self) -> None:
        """What was claimed ahead did not get a turn: no supply until the slots are seen to turn over again."""
        self.rate, self._ended, self._worked_ns = 0.0, 0, 0

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

    def ended(self, counts: JobsEnded, spells: Iterable[Spell] = ()) -> None:
        """Jobs ended; `spells` says when, of those that had a turn."""
        with self._lock:
            for spell in spells:
                self.pools[spell.kind].worked(spell)
            for (kind, queue, bound), n in counts.items():
                self.pools[kind].out -= n
                self.by_queue[queue] -= n
                if bound:
                    self._by_bound[bound] -= n
                    if not self._by_bound[bound]:
                        del self._by_bound[bound]

    @property
    def ahead(self) -> bool:
        """Whether there are more jobs here than slots for them."""
        return any(pool.out > pool.slots for pool in self.pools.values())

    def stuck(self, kind: Kind) -> None:
        """What was claimed ahead for these slots had to go back."""
        with self._lock:
            self.pools[kind].stuck()

    @property
    def out(self) -> int:
        """Jobs this worker holds."""
        return sum(pool.out for pool in self.pools.values())
