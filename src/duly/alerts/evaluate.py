"""Looks, decides and writes down: whichever process finds the turn free does it for all."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Collection, Sequence

from duly.alerts.deliver import Callback, Deliverer
from duly.alerts.rules import Look, Sizes, readings
from duly.alerts.settings import AlertSettings
from duly.domain.alerts import Reading, decide
from duly.domain.durations import micros
from duly.domain.errors import DatabaseError, DatabaseUnavailable
from duly.metrics.observe import MINUTE_US, PATIENCE, WINDOW_US, recent, take_standing
from duly.store import filesystem, ops_alerts, ops_observe
from duly.store.call import Dialect
from duly.store.ops_observe import Standing
from duly.store.store import Store
from duly.worker.hooks import RunCoroutine
from duly.worker.identity import is_alive

log = logging.getLogger("duly.alerts")

UNSERVED_US = 3_600_000_000
"""How long a notice waits for a process that serves its channel."""
FORGET_EVERY = 600.0
DELIVER_EVERY = 2.0
SHORTEST_PAUSE = 0.05


class Evaluator:
    """Evaluates the rules when it is this process's turn, and delivers what any process found."""

    def __init__(
        self,
        store: Store,
        settings: Callable[[], AlertSettings],
        callbacks: Sequence[Callback] = (),
        *,
        on: Callable[[], RunCoroutine | None] = lambda: None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._callbacks = callbacks
        self._on = on
        self._holder = f"{platform.node()} {os.getpid()}"
        self._next_forget = 0.0
        self._quiet = False
        """Whether there was nothing to see when this process looked last."""

    def step(self, *, stopping: Callable[[], bool] = lambda: False) -> float:
        """Evaluate if it is time, deliver what is due. Returns how many seconds until the next step."""
        settings = self._settings()
        if not settings.enabled:
            return settings.interval.total_seconds()
        channels = self._deliverer(settings).served
        due = self._store.database.read(lambda: ops_alerts.due(channels))
        if due.look_us <= 0:
            self.evaluate()
            if self._quiet:
                due = due._replace(look_us=micros(settings.interval))
            else:
                due = self._store.database.read(lambda: ops_alerts.due(channels))
        if due.tell_us is not None and due.tell_us <= 0:
            self.deliver(stopping=stopping)
        return self._pause(due, settings, channels)

    def _pause(self, due: ops_alerts.Due, settings: AlertSettings, channels: Collection[str]) -> float:
        """Until the next look, or somebody is to be told; who serves more than the log may be the only one who does."""
        pause = min(settings.interval.total_seconds(), max(SHORTEST_PAUSE, due.look_us / 1e6))
        if due.tell_us is not None or len(channels) > 1:
            pause = min(pause, DELIVER_EVERY)
        return pause

    def deliver(self, *, stopping: Callable[[], bool] = lambda: False) -> int:
        """Tell whoever is still to be told. Returns how many notices went out."""
        return self._deliverer(self._settings()).step(stopping=stopping)

    def _deliverer(self, settings: AlertSettings) -> Deliverer:
        return Deliverer(self._store, settings, self._callbacks, on=self._on)

    def evaluate(self, *, now_please: bool = False) -> bool:
        """Take the turn, look and write down. Returns whether it was this process's turn, to the end."""
        store, settings = self._store, self._settings()
        interval = micros(settings.interval)
        turn = store.database.write(
            lambda: ops_alerts.take_turn(self._holder, interval, now_please=now_please), atomic=False
        )
        if turn is None:
            return False
        self._forget(settings)
        self._quiet = self._nothing_to_see(settings)
        if self._quiet:
            return True
        begun = time.monotonic()
        look = self._look(settings)
        active = store.database.read(ops_alerts.active)
        silences = store.database.read(ops_alerts.silences)
        found = [self._named(reading) for reading in readings(look, settings)]
        clear_after = micros(settings.clear_after)
        decisions = decide(active, found, silences, now=store.now_us(), clear_after_us=clear_after)
        done = store.run(lambda: ops_alerts.write_down(turn, decisions))
        self._rest(turn, time.monotonic() - begun, settings)
        return done

    def _nothing_to_see(self, settings: AlertSettings) -> bool:
        """Whether no rule can hold and no alert is active, by a glance: where nothing happens that is all."""
        poison = settings.overall.poison
        now, found = self._store.database.read(
            lambda: ops_alerts.anything_to_see(
                window_us=WINDOW_US + MINUTE_US,  # the look counts whole minutes
                poison_us=int((poison or 0) * 1e6),
            )
        )
        if found:
            return False
        empty = Look(Standing(now, {}, {}, {}, {}, {}), {}, [], frozenset(), {}, self._sizes())
        return not any(reading.holds for reading in readings(empty, settings))

    def _look(self, settings: AlertSettings) -> Look:
        store = self._store
        standing = take_standing(store, scheduled=False)
        window = settings.overall.poison
        since = standing.now - int(window * 1e6) if window is not None else standing.now
        return Look(
            standing,
            recent(store, standing.now),
            [worker for worker in store.workers() if is_alive(worker)],
            frozenset((pause.scope, pause.name) for pause in store.gates.paused()),
            {} if window is None else store.database.read(lambda: ops_observe.poison(since)),
            self._sizes(),
        )

    def _named(self, reading: Reading) -> Reading:
        """With the jobs that run too long, so that nobody has to look for them."""
        if reading.rule != "running" or not reading.holds or reading.task is None:
            return reading
        task = reading.task
        jobs = [job_id for job_id, _ in self._store.database.read(lambda: ops_observe.longest(task))]
        return reading._replace(details={**reading.details, "jobs": jobs})

    def _sizes(self) -> Sizes:
        database = self._store.database
        if self._store.dialect is Dialect.SQLITE:
            from duly.store.sqlite import SqliteDatabase  # here: a worker on PostgreSQL does without

            assert isinstance(database, SqliteDatabase)
            wal = database.path.with_name(f"{database.path.name}-wal")
            sizes = [each.stat().st_size if each.exists() else 0 for each in (wal, database.path)]
            return Sizes(filesystem.free_bytes(database.path.parent), *sizes)
        try:
            found = database.read(ops_observe.postgres_size)
        except DatabaseUnavailable:
            raise
        except DatabaseError as error:  # this user may not see it; the other rules hold all the same
            log.debug("the size of the database cannot be told: %s", error)
            found = None
        return Sizes(None, None, None) if found is None else Sizes(None, found[1], found[0])

    def _rest(self, turn: int, took: float, settings: AlertSettings) -> None:
        """After a look that took long nobody looks for a while: it must not become the work."""
        rest = took * PATIENCE
        if rest > settings.interval.total_seconds():
            self._store.run(lambda: ops_alerts.rest(turn, int(rest * 1e6)))

    def _forget(self, settings: AlertSettings) -> None:
        if time.monotonic() >= self._next_forget:
            self._next_forget = time.monotonic() + FORGET_EVERY
            keep = micros(settings.keep)
            self._store.run(lambda: ops_alerts.forget(unserved_us=UNSERVED_US, keep_us=keep))
