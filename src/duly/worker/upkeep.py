"""What one worker does beside running jobs: says that it lives, rescues what others left, forgets what is old."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from duly.domain.records import Lapsed, ProcessIdentity, Skew, WorkerRecord
from duly.maintenance.prune import prune_some
from duly.maintenance.rescue import Deaths, in_touch_us, rescue_dead, rescue_lapsed
from duly.store.call import Dialect
from duly.store.database import Hint
from duly.store.migrate import SchemaVersion, fits, newest, too_new
from duly.store.store import Store
from duly.worker import identity
from duly.worker.claimer import Claimer
from duly.worker.context import Run, lease_time
from duly.worker.keeper import Keeper
from duly.worker.recycle import resident_bytes

if TYPE_CHECKING:
    from duly.worker.settings import WorkerSettings

log = logging.getLogger("duly.worker")

PEERS_EVERY = 1.0
SEE_EVERY = 10.0
COUNT_EVERY = 60.0
"""How often a worker has tables counted at most: what is nearly all dead rows may seem empty again at once."""
NOTHING_RUNS = 60.0
"""How often leases are looked at where there are none."""
NOTHING_TO_FORGET = 5
"""How many times as long it is until the next time, when nothing was old enough to be forgotten."""
SILENCE = 1.0
"""An answer that takes longer than this, or than a fifth of the lease, was held up on the way, as others' may be."""


class Upkeep:
    """Keeps the record of one worker, and the house. `step` is called in a loop by one thread."""

    def __init__(
        self,
        store: Store,
        worker_id: str,
        settings: WorkerSettings,
        *,
        held: dict[str, Run],
        claimer: Claimer,
        keeper: Keeper,
        state: Callable[[], str],
        write_down: Callable[[], None],
        wake_claimer: Callable[[], None],
        retire: Callable[[], None],
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._settings = settings
        self._held = held
        self._claimer = claimer
        self._keeper = keeper
        self._state = state
        self._write_down = write_down
        self._wake_claimer = wake_claimer
        self._retire = retire
        self._peers: list[WorkerRecord] = []
        self._deaths = Deaths(store)
        self._next_peers = self._next_see = self._next_prune = self._next_sweep = 0.0
        self._next_lapse = self._next_count = 0.0
        self._upkept_at = self._awake_since = self._answered_at = lease_time()
        self._slow = False
        """Whether the last answer was late."""
        self._others_hold = False
        """Whether others hold leases, as far as is known: then it matters whether the database always answers."""
        self._swept = ""
        """How far the keys that jobs wait for have been looked at."""
        self.refresh_peers = True
        """Whether workers came or went."""
        self.known_changed = False
        """Whether what this worker can run has changed since it was written down."""
        self.rescued = 0
        self.left_behind: str | None = None
        """What is to be said of tables that were migrated past this code; None while it may work on them."""
        self.skew: Skew | None = None
        """How the host's clock went beside the database's when last asked; told the next time we say that we live."""
        self.clock_offset = 0
        """How far the database's clock is ahead of this host's, in microseconds."""

    @property
    def alone(self) -> bool:
        """Whether no other worker is known, and none has said that it came."""
        return not self._peers and not self.refresh_peers

    def compare_clocks(self) -> None:
        """See what time the database says it is."""
        before, asked = self._store.database.clock.now_us(), time.time_ns() // 1_000
        self._compare(before, asked, self._store.now_us())

    def _compare(self, before: int, asked: int, there: int) -> None:
        self.clock_offset = there - (asked + time.time_ns() // 1_000) // 2
        self.skew = Skew.between(before, there, self._store.database.clock.now_us())

    def step(self) -> float:
        """Do what is due. Returns how long to sleep."""
        now = time.monotonic()
        self._note_awake()
        self._watch_peers(now)  # first: what comes after may fail where connections are cut again and again
        if now >= self._next_see:
            self._see(now)
        elif self._others_hold:
            self._listen_for_silence()
        if self._held:
            self._next_lapse = min(self._next_lapse, now + self._settings.lease)
        if now >= self._next_lapse:
            self._rescue_lapsed(now)
        if now >= self._next_prune:
            self._forget_some(now)
        if now >= self._next_sweep:
            self._next_sweep = now + self._settings.maintenance_interval
            self._swept = self._store.gates.sweep(self._swept)
        return PEERS_EVERY

    def _forget_some(self, now: float) -> None:
        """Forget what is old; look less often where nothing was."""
        interval = self._settings.maintenance_interval
        self._next_prune = now + interval
        if not prune_some(self._store, self._settings.retention):
            self._next_prune = now + NOTHING_TO_FORGET * interval

    def _see(self, now: float) -> None:
        """Say that we live; learn when something may be due or lapse."""
        self._next_see = now + min(SEE_EVERY, self._settings.lease)
        before, asked = self._store.database.clock.now_us(), time.time_ns() // 1_000
        sent = lease_time()
        seen = self._store.see_worker(self._worker_id, self._state(), self.skew, resident_bytes())
        self._note_answer(sent)
        self._others_hold = seen.lapse_us is not None
        if seen.now_us is not None:
            self._compare(before, asked, seen.now_us)
        if seen.schema is not None and self.left_behind is None:
            self._check_schema(seen.schema)
        if not seen.known or self.known_changed:
            self.known_changed = False
            self._write_down()
        if seen.due_us is not None:
            self._claimer.due_in(seen.due_us / 1e6)
        if self._claimer.bounds.unstamped and self._store.gates.stamp():
            self._claimer.bounds.forget()
        if seen.lapse_us is not None:
            self._next_lapse = min(self._next_lapse, now + max(0.0, seen.lapse_us / 1e6))
        if seen.miscounted and now >= self._next_count:
            self._next_count = now + COUNT_EVERY
            self._store.count_anew()

    def _check_schema(self, found: SchemaVersion) -> None:
        """Take no more jobs if the tables were migrated past this code: it may no longer know what it does to them."""
        dialect = self._store.dialect
        if found.version > newest(dialect) and not fits(found, dialect):
            self.left_behind = too_new("the database", found, newest(dialect))
            log.error("no new jobs, this worker has become too old: %s", self.left_behind)
            self._retire()

    def _note_awake(self) -> None:
        """If this process stood still or the machine slept, so may others: give them time to renew their leases."""
        now, before = lease_time(), self._upkept_at
        self._upkept_at = now
        if now - before > max(10.0, self._settings.lease / 2):
            self._awake_since = now

    def _listen_for_silence(self) -> None:
        """Ask the database something."""
        sent = lease_time()
        self._store.now_us()
        self._note_answer(sent)

    def _note_answer(self, sent: float) -> None:
        """If a network swallowed everything for a while, then others' renewals too: give them time to be heard.

        One late answer after prompt ones. Where all are late, the database is slow, and rescue must not wait for ever.
        """
        silent = self._silent(sent)
        self._answered_at = lease_time()
        if silent and not self._slow:
            self._awake_since = self._answered_at
        self._slow = silent

    def _silent(self, since: float) -> bool:
        """Whether nothing has been heard for long. On SQLite there is no way on which anything could be lost."""
        over_network = self._store.dialect is Dialect.POSTGRES
        return over_network and lease_time() - since > max(SILENCE, self._settings.lease / 5)

    def _rescue_lapsed(self, now: float) -> None:
        """Rescue what has lapsed. Leases only ever grow, so nothing can lapse before the earliest one."""
        self._next_lapse = now + self._settings.lease
        lease_us = int(self._settings.lease * 1e6)
        self._listen_for_silence()
        awake_since = lease_time() if self._keeper.late else max(self._awake_since, self._keeper.thawed_at)
        unbroken = min(in_touch_us(self._store, lease_us), int((lease_time() - awake_since) * 1e6))
        if unbroken < lease_us:
            self._next_lapse = now + max(0.2, (lease_us - unbroken) / 1e6)
            return
        limit = self._settings.crash_limit
        self.rescued += rescue_lapsed(self._store, lease_us=lease_us, crash_limit=limit, is_ours=self._spares)
        lapse = self._store.next_lapse_us()
        self._others_hold = self._others_hold or lapse is not None
        if lapse is not None:
            self._next_lapse = now + min(self._settings.lease, max(0.2, lapse / 1e6))
        else:  # nothing runs anywhere; what others start we hear of when we say that we live
            self._next_lapse = now + max(self._settings.lease, NOTHING_RUNS)

    def _spares(self, lapsed: Lapsed) -> bool:
        """Whether this worker is at a run at this moment, or has just learnt of it after a silence."""
        run = self._held.get(lapsed.id)
        held = run is not None and run.job.token == lapsed.token
        return held or (self._silent(self._answered_at) and not self._slow)

    def _watch_peers(self, now: float) -> None:
        """Once a second see whether a worker process on this host has ended."""
        if self.refresh_peers or now >= self._next_peers:
            self.refresh_peers, self._next_peers = False, now  # before it is asked: who comes meanwhile says so
            self._peers = [worker for worker in self._store.workers() if worker.id != self._worker_id]
            self._next_peers = now + 60.0
            self._claimer.bounds.forget()
        before = self.rescued
        if self._rescue_dead():
            self.refresh_peers = True
        if self.rescued > before:
            self._claimer.hint([Hint("look")])
            self._wake_claimer()

    def strike_off(self) -> None:
        """Forget those that are gone now, however lately: this worker does not come again."""
        self._deaths.linger = 0.0
        self._rescue_dead()

    def _rescue_dead(self) -> bool:
        """Rescue the runs of others on this host that have ended. Returns whether there are any."""
        dead = [worker for worker in self._peers if self._is_gone(worker.process)]
        if dead:
            limit = self._settings.crash_limit
            self.rescued += rescue_dead(self._store, dead, self._is_gone, crash_limit=limit, deaths=self._deaths)
        return bool(dead)

    def _is_gone(self, process: ProcessIdentity) -> bool:
        return identity.is_gone(process, one_host=self._store.dialect is Dialect.SQLITE)
