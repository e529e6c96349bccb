"""Forgets what is older than people want to keep, in small steps; adds old counts up to hours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from duly.domain.durations import micros
from duly.domain.states import State
from duly.store.store import Store

STEP = 1_000
MINUTES_KEPT = timedelta(days=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long things are kept. None keeps them for ever."""

    succeeded: timedelta | None = timedelta(days=7)
    failed: timedelta | None = timedelta(days=30)
    cancelled: timedelta | None = timedelta(days=7)
    rollups: timedelta | None = timedelta(days=400)

    def of(self, state: State) -> timedelta | None:
        """How long jobs that ended in `state` are kept."""
        return {State.SUCCEEDED: self.succeeded, State.FAILED: self.failed, State.CANCELLED: self.cancelled}[state]


def prune_some(store: Store, retention: Retention, *, steps: int = 10) -> int:
    """Forget up to `steps` batches of each state. Returns how many jobs went."""
    gone = 0
    for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED):
        keep = retention.of(state)
        if keep is None:
            continue
        for _ in range(steps):
            n = store.prune_jobs(state, micros(keep), STEP)
            gone += n
            if n < STEP:
                break
    if retention.rollups is not None:
        store.prune_rest(micros(retention.rollups))
    for _ in range(steps):
        if not store.add_up_hour(micros(MINUTES_KEPT)):
            break
    return gone
