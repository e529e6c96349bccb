"""Settles runs in batches: whatever ended while the last batch was written goes into the next."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from duly.domain.errors import DatabaseUnavailable
from duly.domain.outcome import unrecordable
from duly.domain.records import HOLD, Settled
from duly.domain.states import TERMINAL
from duly.store.database import Hint
from duly.store.store import Store
from duly.worker.context import Run
from duly.worker.executor import Concluded
from duly.worker.registry import Kind

log = logging.getLogger("duly.worker")

LINGER = 0.003
BATCH = 500
KEYED = (HOLD["queued"], HOLD["live"])


def _frees_others(run: Run, state: str) -> bool:
    """Whether sleeping workers may now have something to claim: a limit's slot, a job given back, one behind a key."""
    return run.definition.concurrency is not None or state == "queued" or run.job.hold == HOLD["live"]


class Finisher:
    """Takes concluded runs from any thread; `step` writes them."""

    def __init__(
        self,
        store: Store,
        held: dict[str, Run],
        ended: Callable[[Counter[tuple[Kind, str]]], None],
        *,
        finished: Callable[[list[tuple[str, str]]], None],
        due_in: Callable[[float], None],
    ) -> None:
        self._store = store
        self._held = held
        self._ended = ended
        self._finished = finished
        self._due_in = due_in
        self._queue: deque[Concluded] = deque()
        self._batch: list[Concluded] = []
        self._asleep = threading.Event()
        self.wake: Callable[[], None] = lambda: None
        self._repeated = False
        """Whether the last write failed, so that what it wrote may be on record already."""
        self.settled = 0
        self.refused = 0

    def conclude(self, concluded: Concluded) -> None:
        """Take a run that ended. Called by the runners, for every job."""
        self._queue.append(concluded)
        if self._asleep.is_set():
            self._asleep.clear()
            self.wake()

    def step(self) -> float:
        """Write a batch. Returns how long to wait if there is nothing."""
        self._collect()
        if not self._batch:
            self._asleep.set()
            return 0.0 if self._queue else 1.0
        if len(self._batch) < BATCH and len(self._batch) < len(self._held):
            time.sleep(LINGER)  # others are about to end: one write for all
            self._collect()
        self.flush()
        return 0.0

    def _collect(self) -> None:
        queue, batch = self._queue, self._batch
        counts: Counter[tuple[Kind, str]] = Counter()
        while queue and len(batch) < BATCH:
            concluded = queue.popleft()
            batch.append(concluded)
            run = concluded[0]
            counts[run.definition.kind, run.job.queue] += 1
        if counts:
            self._ended(counts)

    def flush(self) -> None:
        """Write what has been collected; on an error what is not yet written stays for the next try."""
        batch, now = self._batch, time.monotonic_ns()
        plain: list[Concluded] = []
        special: list[Concluded] = []
        for concluded in batch:
            run, settled = concluded[0], concluded[2]
            keyed = settled.state == "parked" or run.job.hold in KEYED
            (special if keyed and not run.lost else plain).append(concluded)
        aged = [each[2]._replace(age_us=(now - each[1]) // 1_000) for each in plain if not each[0].lost]
        repeated, self._repeated = self._repeated, True
        self._done(plain, self._settle_plain(aged, repeated=repeated) if aged else set())
        self._batch = special
        for concluded in special:
            run, ended_ns, settled = concluded
            settled = settled._replace(age_us=(now - ended_ns) // 1_000)
            self._done([concluded], {settled.id} if self._settle_special(run, settled) else set())
            self._batch = self._batch[1:]
        self._repeated = False

    def _settle_plain(self, batch: list[Settled], *, repeated: bool) -> set[str]:
        """Settle together; where the database refuses that, one by one, so that one keeps no other from it."""
        try:
            return self._store.settle(batch, repeated=repeated)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            if len(batch) == 1:
                log.error("job %s: its run could not be recorded as it was: %s", batch[0].id, error)
                return self._store.settle([unrecordable(batch[0])], repeated=True)
        accepted: set[str] = set()
        for settled in batch:
            accepted |= self._settle_plain([settled], repeated=True)
        return accepted

    def _settle_special(self, run: Run, settled: Settled) -> bool:
        try:
            return self._settle_keyed(run, settled)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            log.error("job %s: its run could not be recorded as it was: %s", settled.id, error)
            return self._settle_keyed(run, unrecordable(settled))

    def _settle_keyed(self, run: Run, settled: Settled) -> bool:
        if settled.state == "parked":
            log.warning("job %s (%s) parked: %s", settled.id, run.job.task, settled.error)
            return self._store.park(
                settled.id,
                settled.token,
                reason="arguments",
                detail=settled.error or "",
                mark=run.definition.signature.fingerprint,
            )
        return self._store.settle_keyed(settled, run.job.hold)

    def _done(self, batch: list[Concluded], accepted: set[str]) -> None:
        others = False
        over: list[tuple[str, str]] = []
        for run, _, settled in batch:
            if settled.id in accepted:
                self.settled += 1
                others = others or _frees_others(run, settled.state)
                if settled.state in TERMINAL:
                    over.append((settled.id, settled.state))
                elif settled.state == "scheduled":
                    self._due_in(settled.delay_us / 1e6)
            else:
                self.refused += 1
                log.warning(
                    "job %s (%s): this run had lost its lease; what it did was not recorded", settled.id, run.job.task
                )
            if self._held.get(settled.id) is run:
                del self._held[settled.id]
        self._finished(over)
        if others:
            self._store.poke(Hint("look"))

    @property
    def idle(self) -> bool:
        """Whether everything that ended has been written."""
        return not self._queue and not self._batch
