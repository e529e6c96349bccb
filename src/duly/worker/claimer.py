"""Keeps the slots full: promotes what is due, claims from the lanes that have jobs, sleeps until there may be more.

Never walks over what it cannot take: it names the lanes of tasks it knows and has room for. Sleeps on hints; looks by
itself now and then, since hints may be lost.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping

from duly.domain.limits import Bound
from duly.domain.records import HOLD, Claimed, Lane
from duly.store.database import Hint
from duly.store.ops_claim import MAX_LANES
from duly.store.ops_limits import bits
from duly.store.store import Store
from duly.worker.bounds import Bounds
from duly.worker.context import Run, lease_time
from duly.worker.lanes import MOST_SHARED, Lanes
from duly.worker.over import Over
from duly.worker.registry import Kind, Registry
from duly.worker.shares import Shares
from duly.worker.slots import BATCH, QueueShare, Slots

RECURS = HOLD["recurs"]
LOOK_WHILE_BUSY = 1.0
LOOK_FOR_LANES, LOOK_COST, WANTED_LOOK_COST = 0.05, 30.0, 4.0
"""How often a busy worker looks for lanes that nobody told it of, or that somebody did; less where looks take long."""
PROMOTE = 1_000
BREATH = 0.002
"""How long jobs that become due are let come together before the next are put into their lanes."""
OTHERS_AT_IT = 0.05
FEW_HINTS = 16
SUSPECT_PATIENCE = 5.0
SUSPECT_AT_LAST = 30.0
UNTIL_SETTLED = 0.003
"""How soon to look again where nothing runs, and all that is missing is that what has ended is on record."""
STALE_AFTER = 0.5
SWEEP_EVERY = 0.05
"""How soon the next part is looked at where a queue has more lanes than one look can see."""


class Claimer:
    """Claims for one worker. `step` is called in a loop by one thread; hints come from others."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        slots: Slots,
        *,
        worker_id: str,
        lease_us: int,
        dispatch: Callable[[Kind, list[Run]], None],
        take_back: Callable[[], None],
        held: Mapping[str, Run],
        poll: Callable[[], float],
        over: Over,
        most: int | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._slots = slots
        self._worker_id = worker_id
        self._lease_us = lease_us
        self._dispatch = dispatch
        self._take_back = take_back
        self._held = held
        self._poll = poll
        self._over = over
        self._most = most
        self._lanes = {share.name: Lanes(share.name, registry.knows) for share in slots.shares}
        self._queues: defaultdict[Kind, Shares[str]] = defaultdict(Shares)
        self._tenants: defaultdict[tuple[Kind, str, Bound], Shares[str]] = defaultdict(Shares)
        self.bounds = Bounds(store.gates)
        self._gathered: list[list[Run]] = []
        self._hints: list[Hint] = []
        self._came_in: list[tuple[str, str, str, int, int]] = []
        self._freed = False
        self._look = True
        self._next_look = self._looked_at = self._look_took = 0.0
        self._next_due = 0.0
        self._dues: deque[float] = deque()
        self._more_due = False
        """Whether the last time we asked, something was due: then there may be more."""
        self._idle_on_record = True
        self._busy_since: float | None = None
        self._suspect_since: float | None = None
        self._unsettled_since: float | None = None
        self._alone: Run | None = None
        self._dispatched_at = 0.0
        self.paused = False
        self.claimed = 0
        self._found_nothing = False
        """Whether the last look found nothing to do."""

    # -- hints ------------------------------------------------------------------------------------------------

    def hint(self, hints: list[Hint]) -> None:
        """Take hints from the listener."""
        if not self.is_done:
            self._hints += hints

    def freed(self) -> None:
        """Something that ran here under a limit has ended."""
        self._freed = True

    def let_in(self, lanes: list[tuple[str, str, str, int, int]]) -> None:
        """Jobs came in where others with their keys have ended."""
        self._came_in += lanes

    def due_in(self, seconds: float) -> None:
        """Something this worker settled becomes due soon. Noted aside: the claimer may be asking for the next one."""
        if not self.is_done:
            self._dues.append(time.monotonic() + seconds)

    def _take_hints(self) -> None:
        while self._dues:
            self._next_due = min(self._next_due, self._dues.popleft())
        if self._came_in:
            self._found_nothing = False  # first: who asks whether we are idle must see the one or the other
            came_in, self._came_in = self._came_in, []
            self._learn_of(came_in)
        hints, self._hints = self._hints, []
        if self._freed:
            self._freed = False
            self.bounds.freed(here=True)
        for hint in hints:
            if hint.sender == self._worker_id:
                continue
            if hint.kind in ("room", "look"):
                self.bounds.freed(here=False)
            elif hint.kind == "wanted":
                self.bounds.wanted()
            lanes = self._lanes.get(hint.queue)
            if hint.kind == "jobs" and lanes is not None and hint.task:
                lanes.hint(hint.tenant, hint.task, hint.rank)
            elif hint.kind == "gates":
                self.bounds.forget()
                self._look, self._next_due = True, 0.0
            elif hint.kind in ("look", "jobs", "due") or (hint.kind == "changed" and self._busy_since is None):
                self._look, self._next_due = True, 0.0

    @property
    def empty(self) -> bool:
        """Whether the last look found nothing to do, and nothing has come in since from jobs that ended here."""
        return not self._came_in and self._found_nothing

    @property
    def used_up(self) -> bool:
        """Whether it has claimed as many jobs as it ever may."""
        return self._most is not None and self.claimed >= self._most

    @property
    def is_done(self) -> bool:
        """Whether it never claims again: then nobody takes what others still tell it."""
        return self.paused or self.used_up

    def retire(self) -> None:
        """Claim no more, ever."""
        self._most = 0

    # -- one step ---------------------------------------------------------------------------------------------

    def step(self) -> float:
        """Promote, claim, dispatch. Returns how long to sleep."""
        if self.is_done:
            return 1.0
        self._take_hints()
        if self.bounds.refresh():
            self.bounds.meter_keys(self._registry.key_groups())
        now = time.monotonic()
        self.bounds.reopen(now)
        self._next_look = min(self._next_look, self._wanted_look())
        if now >= self._next_look:
            self._look = True
        promoted = self._promote(now)
        if self._look:
            self._look_around(now)
        if self._hold_for_suspect(now):
            return 0.05 if self._slots.out else UNTIL_SETTLED
        got, wanted_more = self._claim_all()
        if got:
            self._found_nothing = False
            self._note_busy(now)
            return 0.0
        if promoted:  # what became due stands elsewhere: in the lane of suspects, or behind a limit
            self._look = True
            return 0.0
        ahead = self._slots.ahead
        if ahead:
            self._give_back_stale(now)
        if wanted_more or not any(pool.slots for pool in self._slots.pools.values()):
            return min(self._sleep(now), STALE_AFTER if ahead else math.inf)
        return 0.2

    def _wanted_look(self) -> float:
        """When to look because something may stand before a cursor: looks are slow then, and hold up claims."""
        if any(lanes.look_wanted for lanes in self._lanes.values()):
            return self._looked_at + max(LOOK_FOR_LANES, WANTED_LOOK_COST * self._look_took)
        if any(lanes.look_due for lanes in self._lanes.values()):
            return self._looked_at + max(LOOK_FOR_LANES, LOOK_COST * self._look_took)
        return math.inf

    def _promote(self, now: float) -> bool:
        """Put jobs whose time has come into their lanes, ask when the next is due. Returns whether there were any.

        One batch at a time, and then a breath: where jobs become due all the time there is always one more.
        """
        if now < self._next_due:
            return False
        due = self._store.next_due_us()
        self._more_due = due is not None and due <= 0
        if not self._more_due:
            self._next_due = now + (3600.0 if due is None else due / 1e6)
            return False
        opened = self._store.gates.reopen()
        moved = self._store.spawn() + self._store.promote(PROMOTE) + self._store.gates.admit(PROMOTE)
        self._learn_of(moved)
        if not moved and not opened:
            self._next_due = now + OTHERS_AT_IT
            return False
        self._next_due = now + BREATH
        return True

    def _learn_of(self, moved: list[tuple[str, str, str, int, int]]) -> None:
        """Jobs were put into lanes by this worker."""
        for queue, tenant, task, rank, _ in moved:
            if queue in self._lanes:
                self._lanes[queue].hint(tenant, task, rank)
        self._tell_others(moved)

    def _tell_others(self, moved: list[tuple[str, str, str, int, int]]) -> None:
        """Wake others for what this worker has put into lanes and cannot take: it does not know it, or has no room."""
        room = {kind: pool.room() for kind, pool in self._slots.pools.items()}
        beyond: list[Hint] = []
        for queue, tenant, task, rank, n in moved:
            known = self._registry.find(tenant, task) if queue in self._lanes else None
            if known is not None and known.kind in room:
                room[known.kind] -= n
                if room[known.kind] >= 0:
                    continue
            beyond.append(Hint("jobs", queue, tenant, task, rank))
        for hint in beyond if len(beyond) <= FEW_HINTS else [Hint("look")]:
            self._store.poke(hint)

    def _look_around(self, now: float) -> None:
        """See which lanes have jobs."""
        self._look = False
        self._next_look = now + self._poll()
        began = time.monotonic()
        for name, lanes in self._lanes.items():
            asked = time.monotonic()
            found = self._store.look(name, after=lanes.after)
            took = time.monotonic() - asked
            lanes.seen(found.lanes, found.suspects, full=len(found.lanes) >= MAX_LANES, seconds=took)
            if lanes.after is not None:
                self._next_look = now + SWEEP_EVERY
        self._looked_at = time.monotonic()
        self._look_took = self._looked_at - began

    def _claim_all(self) -> tuple[int, bool]:
        """Claim from every queue in turn. Returns how many, and whether there was room for more."""
        got, wanted_more = 0, False
        for kind in self._slots.pools:
            for share, part in self._parts(kind):
                room = min(part, self._slots.left(kind, share))
                if self._most is not None:
                    room = min(room, self._most - self.claimed - sum(map(len, self._gathered)))
                if room <= 0:
                    continue
                try:
                    claimed = self._claim(share, kind, room)
                except BaseException:
                    self._send_off(kind)  # what was claimed before is ours, and known to be
                    raise
                got += claimed
                wanted_more = wanted_more or claimed < room
                if share.slots is None:
                    self._queues[kind].took(share.name, claimed, wanted_more=claimed >= room)
            self._send_off(kind)
        return got, wanted_more

    def _parts(self, kind: Kind) -> list[tuple[QueueShare, int]]:
        """What each queue may claim now: those that have jobs by weight, with credit for what they missed before."""
        shares, room = self._slots.shares, self._slots.pools[kind].room()
        if len(shares) == 1 or room == 0:
            return [(share, room) for share in shares]
        sharing = {share.name: share for share in shares if share.slots is None and self._lanes[share.name].heads}
        parts = self._queues[kind].divide(room, {share.name: share.weight for share in sharing.values()})
        fixed = [(share, room) for share in shares if share.name not in sharing]
        return fixed + [(sharing[name], part) for name, part in parts.items()]

    def _claim(self, share: QueueShare, kind: Kind, room: int) -> int:
        lanes = self._lanes[share.name]
        got = 0
        for keys, bound in self._groups(lanes, kind):
            if got >= room:
                break
            n, held = room - got, self._slots.under(bound)
            if bound:
                n = 0 if self.bounds.shut(bound) else self.bounds.most(bound, self._slots.pools[kind], held, n)
            n = min(n, BATCH)
            if n <= 0:
                continue
            if self.bounds.shared(lanes.queue) and len({tenant for tenant, _ in keys}) > 1:
                claimed = self._claim_fairly(lanes, keys, kind, n, bound)
            else:
                claimed = self._claim_from(lanes, lanes.pick(keys), kind, n, bound).total()
            if bound:
                self.bounds.gave(bound, n, claimed, held + claimed)
                if (
                    not claimed
                    and self.bounds.shut(bound)
                    and self.bounds.wants(bound, busy=self._busy_since is not None)
                ):
                    self._store.poke(Hint("wanted", lanes.queue, sender=self._worker_id))
            got += claimed
        return got

    def _claim_fairly(self, lanes: Lanes, keys: list[tuple[str, str]], kind: Kind, n: int, bound: Bound) -> int:
        """Tenants take turns by weight; what one has no use for goes to the others."""
        turns = self._tenants[kind, lanes.queue, bound]
        got = 0
        while got < n and keys:
            weights = {tenant: self.bounds.weights.get(tenant, 1.0) for tenant, _ in keys}
            shares = turns.divide(n - got, weights)
            picked = lanes.pick((key for key in keys if key[0] in shares), MOST_SHARED)
            claimed = self._claim_from(lanes, picked, kind, n - got, bound, shares=shares)
            got += claimed.total()
            for tenant, share in shares.items():
                turns.took(tenant, claimed[tenant], wanted_more=claimed[tenant] >= share)
            left = [key for key in keys if key in lanes.heads]
            if bound or (len(left) == len(keys) and not claimed):  # the limit is full, or others are at it
                break
            keys = left
        return got

    def _groups(self, lanes: Lanes, kind: Kind) -> list[tuple[list[tuple[str, str]], Bound]]:
        """What one statement can claim: the lanes that no limit binds, and those that the same limits bind.

        Only lanes that have jobs, however many tasks this process knows; first the group whose head is first, last what
        most likely gives nothing.
        """
        groups: dict[Bound, list[tuple[str, str]]] = {}
        for key in lanes.heads:
            task = self._registry.find(*key)
            if task is not None and task.kind is kind:
                groups.setdefault(self.bounds.of(lanes.queue, *key), []).append(key)
        if len(groups) <= 1:
            return [(keys, bound) for bound, keys in groups.items()]
        return sorted(
            ((keys, bound) for bound, keys in groups.items()),
            key=lambda group: (self.bounds.likely_full(group[1]), min(lanes.heads[key] for key in group[0])),
        )

    def _claim_from(
        self,
        lanes: Lanes,
        picked: list[Lane],
        kind: Kind,
        n: int,
        bound: Bound,
        *,
        shares: Mapping[str, int] | None = None,
    ) -> Counter[str]:
        """Claim from some lanes. Returns how many of each tenant there were."""
        asked, leased_at = time.monotonic(), lease_time()
        jobs = self._store.claim(
            lanes.queue,
            picked,
            n,
            worker_id=self._worker_id,
            lease_us=self._lease_us,
            gates=bound,
            ended=self._over.under(bound),
            shares=shares,
        )
        if not jobs and self.bounds.doubt(picked):
            self._next_look = 0.0
        took = time.monotonic() - asked
        lanes.claimed(picked, jobs, took, asked=n, shares=shares, limited=bool(bound))
        self._start(kind, lanes.queue, jobs, leased_at, bound, mixed=shares is not None)
        return Counter(job.tenant for job in jobs)

    def _start(
        self,
        kind: Kind,
        queue: str,
        jobs: list[Claimed],
        leased_at: float,
        bound: Bound,
        *,
        mixed: bool = False,
    ) -> None:
        """Make runs of jobs, to be sent off. Asks the database first: a slot that is taken must come to be a run."""
        if not jobs:
            return
        find = self._registry.find
        runs = [Run(job, task, leased_at) for job in jobs if (task := find(job.tenant, job.task)) is not None]
        if bound:
            limited, rated = bool(bits(bound)), self.bounds.metered(bound)
            hurried = limited and self.bounds.tight(bound)
            for run in runs:
                run.bound, run.limited, run.rated, run.hurried = bound, limited, rated, hurried
                if rated:
                    run.came_at = lease_time()
        if len(runs) < len(jobs):  # unregistered in this very moment: nobody here can run them
            held = {run.job.id for run in runs}
            self._store.give_back([(job.id, job.token) for job in jobs if job.id not in held])
        recurring = [run for run in runs if run.job.hold == RECURS]
        if recurring:
            found = self._store.occurrences([run.job.id for run in recurring])
            for run in recurring:
                run.occurrence = found.get(run.job.id)
        self._slots.taken(kind, queue, bound, len(runs))
        self._gathered += _by_tenant(runs) if mixed else [runs]

    def _send_off(self, kind: Kind) -> None:
        """Hand what was gathered to the runner: jobs of several queues and tenants mixed, so that none waits long."""
        batches, self._gathered = self._gathered, []
        if not batches:
            return
        runs = batches[0]
        if len(batches) > 1:
            places = [((i + 0.5) / len(batch), j, i) for j, batch in enumerate(batches) for i in range(len(batch))]
            runs = [batches[j][i] for _, j, i in sorted(places)]
        self._dispatched_at = time.monotonic()
        try:
            self._dispatch(kind, runs)
        finally:
            self.claimed += len(runs)  # not before they are held: who has claimed all it may and holds none is idle

    # -- sleeping ---------------------------------------------------------------------------------------------

    def _note_busy(self, now: float) -> None:
        """After a second of steady work say that nobody needs to wake us; look for new lanes meanwhile."""
        if self._busy_since is None:
            self._busy_since = now
        elif now - self._looked_at > max(LOOK_FOR_LANES, LOOK_COST * self._look_took):
            self._look = True
        if now - self._busy_since > LOOK_WHILE_BUSY:
            if self._idle_on_record:
                self._store.set_idle(self._worker_id, False)
                self._idle_on_record = False
            self._busy_since, self._look, self._next_due = now, True, 0.0

    def _sleep(self, now: float) -> float:
        """Nothing to claim. Before sleeping say that we can be woken, and look once more: only then is none missed."""
        self._busy_since = None
        if not self._idle_on_record:
            self._store.set_idle(self._worker_id, True)
            self._idle_on_record, self._look = True, True
        if self._look:
            return 0.0
        unseen = self._more_due or any(lanes.after is not None for lanes in self._lanes.values())
        self._found_nothing = not unseen and not self._suspects()
        return max(0.0, min(self._next_look, self._next_due, self.bounds.opens_at) - now)

    def _give_back_stale(self, now: float) -> None:
        """Jobs claimed ahead that have not started for long go back to where others can take them.

        Also where there are no more to claim: a few that wait behind slots that are stuck would wait there for ever.
        """
        if now - self._dispatched_at > STALE_AFTER:
            self._take_back()

    # -- suspects ---------------------------------------------------------------------------------------------

    def _hold_for_suspect(self, now: float) -> bool:
        """A job that took two workers with it runs alone. Returns whether to wait for that.

        Alone also beside what has ended and is not on record: whoever died now would take that with it, and for a
        suspect that is the third time.
        """
        if self._alone is not None:
            if self._held.get(self._alone.job.id) is self._alone and (
                self._alone.phase != 2 or not self._on_record(now, SUSPECT_AT_LAST)
            ):
                return True
            self._alone, self._unsettled_since, self._look = None, None, True
            return False
        found = self._suspects()
        if not found:
            self._suspect_since = self._unsettled_since = None
            return False
        if self._suspect_since is None:
            self._suspect_since = now
        waited = now - self._suspect_since
        if self._slots.out:
            self._unsettled_since = None
            if waited < SUSPECT_AT_LAST:
                return waited > SUSPECT_PATIENCE
        elif not self._on_record(now, SUSPECT_PATIENCE):
            return True
        self._start_suspect(*found[0])
        return self._alone is not None

    def _suspects(self) -> list[tuple[Lanes, tuple[str, str]]]:
        """The lanes of suspects that this worker knows."""
        return [(lanes, key) for lanes in self._lanes.values() for key in lanes.suspects if self._registry.knows(*key)]

    def _on_record(self, now: float, within: float) -> bool:
        """Whether all that ended here is settled, or has not been for so long: a caller may hold a recurring job."""
        if not self._held:
            self._unsettled_since = None
            return True
        if self._unsettled_since is None:
            self._unsettled_since = now
        return now - self._unsettled_since >= within

    def _start_suspect(self, lanes: Lanes, key: tuple[str, str]) -> None:
        task = self._registry.find(*key)
        if task is None:
            return
        leased_at = lease_time()
        bound = self.bounds.of(lanes.queue, *key)
        jobs = self._store.claim(
            lanes.queue,
            [Lane(*key)],
            1,
            worker_id=self._worker_id,
            lease_us=self._lease_us,
            suspect=True,
            gates=bound,
            ended=self._over.under(bound),
        )
        self._suspect_since = self._unsettled_since = None
        if jobs:
            self._start(task.kind, lanes.queue, jobs, leased_at, bound)
            self._alone = next((run for runs in self._gathered for run in runs), None)
            self._found_nothing = False
            self._send_off(task.kind)
        else:
            lanes.suspects.pop(key, None)


def _by_tenant(runs: list[Run]) -> list[list[Run]]:
    """The same runs, a list for each tenant."""
    if len({run.job.tenant for run in runs}) <= 1:
        return [runs]
    parts: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        parts[run.job.tenant].append(run)
    return list(parts.values())
