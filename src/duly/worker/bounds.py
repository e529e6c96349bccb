"""What this worker believes about limits, weights and fairness: only a belief, by which it asks for what it may get.

Each claim is checked by the database against what holds at that moment; a worker that is behind claims too little,
never too much. What is known here is read again when somebody says so, when a claim gave nothing, and now and then.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from duly.domain.limits import Bound, Gate, Limit
from duly.domain.records import Lane
from duly.store.gates import Gates
from duly.worker.slots import Pool

TIGHT = 1.0
"""How long after a claim that got less than asked a limit is taken to be full: only free slots are claimed for."""
FULL = 1.0
"""How long a full limit is left alone if nobody says that something under it has ended."""


SLICE, YIELD = 0.1, 0.03
"""How long a worker takes slots again as soon as it frees them though others want them; how long it then holds back."""
WANT_EVERY = 0.1
PIECES = 4
"""In how many parts the slots of a full limit are taken, at least: those of the first run while the next is claimed."""


class Bounds:
    """Limits, weights and fairness as last read."""

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self._limits: dict[Gate, Limit] = {}
        self._bound: dict[tuple[str, str, str], Bound] = {}
        self._tight: dict[Bound, float] = {}
        self._opens: dict[Bound, float] = {}
        """When, on the monotonic clock, to try again where a rate was used up or a limit was full."""
        self._full: set[Bound] = set()
        self._was_full: set[Bound] = set()
        """Limits that were full when last asked, and of which nobody has said that they have room."""
        self._wanted_at: float | None = None
        self._yields_until = self._next_want = 0.0
        self._told = False
        """Whether another worker has freed a slot since the last claim that got nothing."""
        self._metered: set[str] = set()
        self._stale = True
        self._doubted: set[tuple[str, str]] = set()
        self.weights: dict[str, float] = {}
        self._unfair: set[str] = set()
        self.rank_alone = False
        """Whether tenants take no turns, whatever the queues say."""

    def forget(self) -> None:
        """Something may have changed: read again before the next claim."""
        self._stale = True
        self._doubted.clear()
        self._opens.clear()
        self._full.clear()
        self._was_full.clear()

    def freed(self, *, here: bool) -> None:
        """Something that ran under a limit has ended, here or elsewhere: limits that were full may have room.

        Who frees a slot is the first to know, and could keep it for ever. If others want it, it is theirs for a moment,
        now and then.
        """
        now = time.monotonic()
        if here and self._wanted_at is not None and now - self._wanted_at >= SLICE:
            self._wanted_at, self._yields_until = None, now + YIELD
        self._told = self._told or not here
        if here and now < self._yields_until:
            for bound in self._full:
                self._opens[bound] = self._yields_until
            return
        for bound in self._full:
            self._opens.pop(bound, None)
        self._full.clear()
        self._was_full.clear()

    def wanted(self) -> None:
        """Another worker found a limit full."""
        if self._wanted_at is None:
            self._wanted_at = time.monotonic()

    def wants(self, bound: Bound, *, busy: bool) -> bool:
        """After a claim that got nothing: whether to tell others that a slot is wanted here.

        Not where nothing has been freed: then nobody could give one. A busy worker is not told of that, and asks now
        and then. Whoever asks tries again at the time at which others hold back.
        """
        now = time.monotonic()
        told, self._told = self._told, False
        if not (told or busy) or now < self._next_want:
            return False
        self._next_want = now + (WANT_EVERY if told else FULL)
        self._opens[bound] = now + SLICE + YIELD * 2 / 3
        return True

    def doubt(self, lanes: Iterable[Lane]) -> bool:
        """A claim found nothing where there should have been something: read again, once for each lane until told."""
        new = {(lane.tenant, lane.task) for lane in lanes} - self._doubted
        self._doubted |= new
        self._stale = self._stale or bool(new)
        return bool(new)

    def refresh(self) -> bool:
        """Read if what we know may be out of date. Returns whether it was read."""
        if not self._stale:
            return False
        self._stale = False
        self.weights, self._unfair = self._gates.weights(), self._gates.unfair_queues()
        found = self._gates.limits()
        self._limits = {limit.gate: limit for limit in found if limit.binds_claims}
        self._metered = {limit.name for limit in found if limit.scope == "keys" and limit.says.meters_keys}
        self._bound = {}
        self._tight = {}
        return True

    def meter_keys(self, groups: Mapping[str, str]) -> None:
        """Where a rate was set by hand for keys that several tasks share, only who knows the tasks can say which.

        `groups`: whose keys the jobs of each task have.
        """
        for group in self._metered:
            tasks = [task for task, its in groups.items() if its == group]
            said = [self._limits.get(("task", task)) for task in tasks]
            if not all(limit is not None and limit.says.meters_keys for limit in said):
                self._gates.meter_keys(group, tasks)
                self._stale = True

    def shared(self, queue: str) -> bool:
        """Whether tenants take turns in a queue."""
        return not self.rank_alone and queue not in self._unfair

    def of(self, queue: str, tenant: str, task: str) -> Bound:
        """The limits that bind a lane."""
        if not self._limits:
            return ()
        key = (queue, tenant, task)
        bound = self._bound.get(key)
        if bound is None:
            gates = (("day", tenant), ("minute", tenant), ("queue", queue), ("task", task), ("tenant", tenant))
            bound = self._bound[key] = tuple(gate for gate in gates if gate in self._limits)
        return bound

    def most(self, bound: Bound, pool: Pool, held: int, room: int) -> int:
        """How many to ask for: no more than the limits ever allow; with a rate or a full limit, no supply ahead.

        `held`: how many jobs claimed under these limits this worker has. A supply is counted under the limit too, so
        that it takes no more than half of it; not in small pieces. Where others keep all slots busy, and it has none,
        one: it must get in line with them.
        """
        slots = self._slots(bound)
        free = max(pool.free, 0 if held else 1)
        if self.rated(bound) or self.tight(bound):
            room = min(room, free, room if slots is None else -(-slots // PIECES))
        elif slots is not None:
            ahead = slots // 2 - held
            room = min(room, max(free, ahead if ahead >= slots // 4 else 0))
        return room if slots is None else min(room, slots)

    def _slots(self, bound: Bound) -> int | None:
        """How many may run at once under all of these limits."""
        says = [self._limits[gate].says for gate in bound if gate in self._limits]
        return min((each.slots for each in says if each.slots is not None), default=None)

    def tight(self, bound: Bound) -> bool:
        """Whether a claim under these limits has lately got less than it asked for."""
        return time.monotonic() < self._tight.get(bound, 0.0)

    def rated(self, bound: Bound) -> bool:
        """Whether a rate is among these limits, or one for the keys of their jobs."""
        says = [self._limits[gate].says for gate in bound if gate in self._limits]
        return any(each.rate_n is not None or each.meters_keys for each in says)

    def metered(self, bound: Bound) -> bool:
        """Whether starts under these limits are counted by the moment, not by the minute or day."""
        says = [self._limits[gate].says for gate in bound if gate in self._limits]
        return any(each.burst is not None or each.meters_keys for each in says)

    def gave(self, bound: Bound, asked: int, got: int, held: int) -> None:
        """Learn from a claim. One that got less than it asked for may have met a full limit, or a rate used up.

        `held`: how many this worker has now. If that is all there may be, nobody needs to ask for more.
        """
        slots = self._slots(bound)
        if got >= asked and (slots is None or held < slots):
            return
        now = time.monotonic()
        self._tight[bound] = now + TIGHT
        says = [self._limits[gate].says for gate in bound if gate in self._limits]
        if any(each.rate_n is not None for each in says):
            wait = self._gates.opens_in_us(bound)
            if wait is not None:
                self._opens[bound] = now + wait / 1e6
                return
        if slots is not None:
            self._opens[bound] = now + FULL
            self._full.add(bound)
            self._was_full.add(bound)

    def shut(self, bound: Bound) -> bool:
        """Whether a rate is known to be used up, or a limit to be full, at this moment."""
        return bound in self._opens

    @property
    def unstamped(self) -> bool:
        """Whether a limit is so new that the runs under it are not all marked."""
        return any(not limit.stamped and limit.says.slots is not None for limit in self._limits.values())

    def likely_full(self, bound: Bound) -> bool:
        """Whether nothing is to be expected: a limit was full, and is only asked again in case nobody could say."""
        return bound in self._was_full

    def reopen(self, now: float) -> None:
        """Where a rate was used up or a limit was full it may be time to try again."""
        for bound in [bound for bound, opens in self._opens.items() if opens <= now]:
            del self._opens[bound]
            self._full.discard(bound)

    @property
    def opens_at(self) -> float:
        """When, on the monotonic clock, it is time to try again where a rate was used up or a limit was full."""
        return min(self._opens.values(), default=float("inf"))
