"""Rescues runs whose worker is gone: at once where this host sees that the process ended, else when the lease lapses.

By time only after a whole lease of unbroken contact of our own, so that an outage robs no one who lives through it.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from functools import partial

from duly.domain.errors import DatabaseUnavailable, DulyError
from duly.domain.outcome import after_crash, mirror_failed
from duly.domain.records import HOLD, Lapsed, ProcessIdentity, Settled, WorkerRecord
from duly.store.call import Dialect
from duly.store.database import Hint
from duly.store.ops_keys import Freed
from duly.store.ops_unique import Patience
from duly.store.store import Store

log = logging.getLogger("duly.maintenance")
PAGE = 500
MIRROR_TRIES = 3
LINGER = 3.0
"""Seconds for which a worker that has ended stays on the list of those whose runs are looked for."""


def rescue_lapsed(
    store: Store, *, lease_us: int, crash_limit: int, is_ours: Callable[[Lapsed], bool] = lambda run: False
) -> int:
    """Settle the runs whose lease or deadline has passed. Returns how many were rescued.

    Never the leases of runs that whoever asks holds itself: if they have lapsed, it stood still until just now, perhaps
    in the middle of this, and is about to renew them.
    """
    rescued = rescue_after_boot(store, lease_us=lease_us, crash_limit=crash_limit)
    if in_touch_us(store, lease_us) < lease_us:
        return rescued

    def lapsed(n: int) -> list[Lapsed]:
        return [run for run in store.lapsed(lease_us, n) if run.why != "lease" or not is_ours(run)]

    return rescued + _settle_all(store, lapsed, crash_limit=crash_limit, only_expired=True)


def in_touch_us(store: Store, lease_us: int) -> int:
    """How long we have been in touch, but for breaks that are too short for anybody's lease to lapse in.

    Leases are renewed when a third of them is over. A connection that is lost now and then must not put rescue off.
    """
    return store.database.unbroken_us(lease_us // 5)


def rescue_after_boot(store: Store, *, lease_us: int, crash_limit: int) -> int:
    """Settle the runs that were under way when this machine was last switched off. Returns how many were rescued."""
    found = partial(store.held_before_boot, lease_us)
    return _settle_all(store, found, crash_limit=crash_limit, only_expired=False)


def rescue_silent(store: Store, silent: set[tuple[str, int]], *, lease_us: int, crash_limit: int) -> int:
    """Settle the runs that had lapsed at an earlier look and still are: for those who do not stay for a whole lease.

    A worker that lives through an outage renews as soon as the database answers, so it needs only a moment.
    """

    def find(n: int) -> list[Lapsed]:
        return [run for run in store.lapsed(lease_us, n) if (run.id, run.token) in silent]

    return _settle_all(store, find, crash_limit=crash_limit, only_expired=True)


class Deaths:
    """Since when workers are known to have ended.

    They are struck off only after a while: the database may still be at what one asked for last, and if that was a
    claim, its jobs would be held by somebody who is on no list, until their lease lapses.
    """

    def __init__(self, store: Store) -> None:
        self.linger = LINGER if store.dialect is Dialect.POSTGRES else 0.0  # on SQLite whoever has ended is at nothing
        self._since: dict[str, float] = {}

    def note(self, worker: WorkerRecord) -> None:
        """It has ended."""
        if worker.id not in self._since:
            log.warning("worker %s (pid %d on %s) is gone", worker.id, worker.process.pid, worker.process.host)
            self._since[worker.id] = time.monotonic()

    def is_past(self, worker: WorkerRecord) -> bool:
        """Whether nothing of it can be under way any more."""
        return time.monotonic() - self._since[worker.id] >= self.linger

    def keep(self, workers: list[WorkerRecord]) -> None:
        """Forget all but these."""
        ids = {worker.id for worker in workers}
        self._since = {each: since for each, since in self._since.items() if each in ids}


def rescue_dead(
    store: Store,
    workers: list[WorkerRecord],
    is_gone: Callable[[ProcessIdentity], bool],
    *,
    crash_limit: int,
    deaths: Deaths,
) -> int:
    """Settle the runs of workers that have certainly ended; strike off those that have for a while.

    Returns how many runs were rescued. Whoever asks keeps `deaths`, and comes again.
    """
    rescued = 0
    deaths.keep(workers)
    for worker in workers:
        if not is_gone(worker.process):
            continue
        deaths.note(worker)
        find, is_past = partial(store.held_by_dead, worker.id), deaths.is_past(worker)
        rescued += _settle_all(store, find, crash_limit=crash_limit, only_expired=False)
        if is_past and not find(1):
            store.remove_worker(worker.id)
    return rescued


def _settle_all(store: Store, find: Callable[[int], list[Lapsed]], *, crash_limit: int, only_expired: bool) -> int:
    """Settle page after page. One row that cannot be settled keeps no other from it."""
    rescued = 0
    left: set[tuple[str, int]] = set()
    while True:
        page = [run for run in find(PAGE + len(left)) if (run.id, run.token) not in left]
        if not page:
            break
        tried, done = _settle_plain(store, page, crash_limit=crash_limit, only_expired=only_expired)
        for run in page:
            if run.id not in tried and _settle_one(store, run, crash_limit=crash_limit, only_expired=only_expired):
                done.add(run.id)
        rescued += len(done)
        left |= {(run.id, run.token) for run in page if run.id not in done}
    if rescued:
        store.poke(Hint("look"))
    return rescued


def _settle_plain(
    store: Store, page: list[Lapsed], *, crash_limit: int, only_expired: bool
) -> tuple[set[str], set[str]]:
    """Settle the runs of jobs without keys all at once, for a worker may have held hundreds.

    Returns which were tried, none if that failed, and which were rescued.
    """
    plain = [run for run in page if run.hold == HOLD["none"] and run.limit_key is None]
    batch = [after_crash(run, crash_limit=crash_limit, random=random.random) for run in plain]
    if len(batch) < 2:
        return set(), set()
    try:
        done = store.settle(batch, only_expired=only_expired)
    except DatabaseUnavailable:
        raise
    except DulyError as error:
        log.warning("%d jobs could not be rescued at once: %s; one by one", len(batch), error)
        return set(), set()
    for settled in batch:
        if settled.id in done:
            _say_rescued(settled)
    return {run.id for run in plain}, done


def _settle_one(store: Store, run: Lapsed, *, crash_limit: int, only_expired: bool) -> bool:
    settled = after_crash(run, crash_limit=crash_limit, random=random.random)
    try:
        if run.hold == HOLD["recurs"]:
            done = _settle_recurring(store, settled, _freed(run), only_expired=only_expired)
        else:
            done = bool(  # a key that a caller holds is gone round: the next look finds its run again
                store.settle_keyed(
                    settled, run.hold, only_expired=only_expired, freed=_freed(run), patience=Patience.NONE
                )
            )
    except DatabaseUnavailable:
        raise
    except DulyError as error:
        log.error("job %s could not be rescued: %s; going on with the others", run.id, error)
        return False
    if done:
        _say_rescued(settled)
    return done


def _say_rescued(settled: Settled) -> None:
    log.warning("job %s rescued (%s): %s", settled.id, settled.state, settled.reason or settled.error)


def _freed(run: Lapsed) -> Freed | None:
    return None if run.limit_key is None else Freed([run.limit_key], [(run.id, run.limit_key, True)])


def _settle_recurring(store: Store, settled: Settled, freed: Freed | None, *, only_expired: bool) -> bool:
    """Settle with the mirror. One that goes on failing must not keep the job from ever running again."""
    error: str | None = None
    for _ in range(MIRROR_TRIES):
        ended = store.end_recurring([settled], only_expired=only_expired, freed=freed)
        error = ended.failed.get(settled.id)
        if error is None:
            if settled.id in ended.hookless:
                log.warning("job %s is left to a worker that has its hook: %s", settled.id, ended.hookless[settled.id])
            return settled.id in ended.accepted
    settled = mirror_failed(settled, error or "")
    return settled.id in store.end_recurring([settled], only_expired=only_expired, mirrored=False, freed=freed).accepted
