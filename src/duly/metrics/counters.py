"""Counts what ran since this process began to count, from the rollups: never falls, whatever is pruned or renamed."""

from __future__ import annotations

from collections.abc import Mapping

from duly.metrics.names import Labels, Names
from duly.metrics.observe import first_minute
from duly.store import ops_observe
from duly.store.ops_observe import Key, Ran
from duly.store.store import Store


class Counters:
    """What ran, by the names that lanes are shown by.

    The minutes of the last quarter of an hour are read again each time, since runs may be recorded late. What left
    that window since the last time is asked for once more, and then stays as it is.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._window: Mapping[Key, Ran] | None = None
        self._from = 0
        self.totals: dict[Labels, Ran] = {}

    def update(self, ran: Mapping[Key, Ran], now: int, names: Names) -> None:
        """Add what ran since the last time. The first time sets where counting begins."""
        since, before = first_minute(now), self._window
        left = self._left(self._from, since) if before is not None and since > self._from else {}
        for key in {*ran, *left, *(before or {})}:
            labels = names.of(key)
            if before is None:
                self.totals.setdefault(labels, Ran())
                continue
            gained = ran.get(key, Ran()).plus(left.get(key, Ran())).plus(before.get(key, Ran()), -1)
            if gained.runs > 0:
                self.totals[labels] = self.totals.get(labels, Ran()).plus(gained)
        self._window, self._from = ran, since

    def _left(self, since: int, until: int) -> dict[Key, Ran]:
        return self._store.database.read(lambda: ops_observe.sum_minutes(since, until))

    def forget(self, labels: set[Labels]) -> None:
        """Names that were given up are shown no more."""
        for each in labels:
            self.totals.pop(each, None)
