"""Looks at the database for metrics, `duly top` and the dashboard: one thread at a time, and never more than it bears.

A count of what waits walks every row of it, in either database. So a look is kept for some seconds, longer if it took
long (at most a twentieth of one core goes into looking), and while the next one is taken the last one is given out.
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple
from weakref import WeakKeyDictionary

from duly.domain.records import WorkerRecord
from duly.store import ops_alerts, ops_observe
from duly.store.database import read_as_planned
from duly.store.ops_observe import Key, Ran, Standing
from duly.store.store import Store
from duly.worker.identity import is_alive

MINUTE_US = 60_000_000
WINDOW_US = 15 * MINUTE_US
"""Over how long rates and waits are taken; also how late a run may be recorded and still be counted."""
KEEP = 5.0
PATIENCE = 20.0
"""How many times as long as a look took it is kept at least."""
QUICK = 0.1
"""A look that takes no longer than this is waited for; else the one before is given out meanwhile."""


def take_standing(store: Store, *, scheduled: bool = True) -> Standing:
    """Count what has not ended, now."""
    return read_as_planned(store.database, lambda: ops_observe.standing(store.dialect, scheduled=scheduled))


class Observation(NamedTuple):
    """How things stood at one moment."""

    standing: Standing
    ran: dict[Key, Ran]
    """What ran in the last 15 minutes."""
    workers: list[WorkerRecord]
    """Those that live."""
    alerts: dict[str, int]
    """How many alerts are active, by rule."""
    taken: float
    """When, on the monotonic clock."""
    took: float

    @property
    def age(self) -> float:
        """How many seconds ago it was taken."""
        return max(0.0, time.monotonic() - self.taken)


class Observer:
    """Keeps the last look at one database."""

    def __init__(self, store: Store, *, keep: float = KEEP) -> None:
        self._store = store
        self._keep = keep
        self._last: Observation | None = None
        self._looking = threading.Lock()
        self._trouble: Exception | None = None
        """What went wrong at the last look, if that was taken meanwhile: what was seen before it no longer holds."""

    def observe(self, *, fresh: bool = False) -> Observation:
        """How things stand: as of some seconds ago, or with `fresh` as of now."""
        last = self._last
        if last is not None and not fresh:
            if self._is_new(last):
                return last
            if last.took > QUICK or self._looking.locked():
                trouble = self._trouble
                self._look_meanwhile()
                if trouble is not None:
                    raise trouble
                return last
        asked = time.monotonic()
        with self._looking:
            last = self._last
            if last is not None and (last.taken >= asked if fresh else self._is_new(last)):
                return last  # somebody else has just looked
            return self._look()

    def _is_new(self, seen: Observation) -> bool:
        return seen.age < max(self._keep, seen.took * PATIENCE)

    def _look_meanwhile(self) -> None:
        if self._looking.acquire(blocking=False):
            try:
                threading.Thread(target=self._look_and_release, name="duly-observe", daemon=True).start()
            except BaseException:
                self._looking.release()
                raise

    def _look_and_release(self) -> None:
        try:
            self._look()
        except Exception as error:
            self._trouble = error
        finally:
            self._looking.release()

    def _look(self) -> Observation:
        begun = time.monotonic()
        standing = take_standing(self._store)
        ran = recent(self._store, standing.now)
        workers = [worker for worker in self._store.workers() if is_alive(worker)]
        alerts = self._store.database.read(ops_alerts.count_active)
        self._trouble = None
        self._last = Observation(standing, ran, workers, alerts, begun, time.monotonic() - begun)
        return self._last


def recent(store: Store, now: int) -> dict[Key, Ran]:
    """What ran in the last 15 minutes, by lane."""
    return store.database.read(lambda: ops_observe.sum_minutes(first_minute(now), now + MINUTE_US))


def first_minute(now: int) -> int:
    """The first of the minutes that are looked at again each time."""
    return now - now % MINUTE_US - WINDOW_US


_observers: WeakKeyDictionary[Store, Observer] = WeakKeyDictionary()
_making = threading.Lock()


def observer_of(store: Store) -> Observer:
    """The one observer of a repository in this process."""
    with _making:
        observer = _observers.get(store)
        if observer is None:
            observer = _observers[store] = Observer(store)
        return observer
