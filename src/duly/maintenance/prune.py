"""Forgets what is older than people want to keep, in small steps; adds old counts up to hours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from weakref import WeakKeyDictionary

from duly.domain.audit import Actor
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
    audit: timedelta | None = timedelta(days=400)

    def of(self, state: State) -> timedelta | None:
        """How long jobs that ended in `state` are kept."""
        return {State.SUCCEEDED: self.succeeded, State.FAILED: self.failed, State.CANCELLED: self.cancelled}[state]


def prune_some(
    store: Store, retention: Retention, *, steps: int = 10, whole: bool = False, actor: Actor | None = None
) -> int:
    """Forget up to `steps` batches of each state; `whole`: look at every recurring job. Returns how much went.

    `actor`: who does it by hand.
    """
    gone = 0
    for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED):
        keep = retention.of(state)
        if keep is None:
            continue
        for _ in range(steps):
            n = store.prune_jobs(state, micros(keep), STEP, actor=actor)
            gone += n
            if n < STEP:
                break
    if retention.succeeded is not None:
        gone += _prune_recurring(store, micros(retention.succeeded), steps=None if whole else steps, actor=actor)
    if retention.rollups is not None:
        store.prune_rest(micros(retention.rollups))
    if retention.audit is not None:
        store.prune_audit(micros(retention.audit))
    for _ in range(steps):
        if not store.add_up_hour(micros(MINUTES_KEPT)):
            break
    return gone


_FIRST = "00000000-0000-0000-0000-000000000000"
_places: WeakKeyDictionary[Store, str] = WeakKeyDictionary()
"""How far each repository has come: a million recurring jobs are not looked at all at once."""


def _prune_recurring(store: Store, keep_us: int, *, steps: int | None, actor: Actor | None) -> int:
    """Forget old runs of recurring jobs, which never end: some jobs at a time, in turn; without `steps`, of all."""
    gone = 0
    after: str | None = _FIRST if steps is None else _places.get(store, _FIRST)
    for _ in count() if steps is None else range(steps):
        after, n = store.prune_recurring(after or _FIRST, keep_us, actor=actor)
        gone += n
        if after is None:
            break
    _places[store] = after or _FIRST
    return gone
