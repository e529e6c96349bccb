"""Keeps the number of time series bounded: which tenants and lanes are shown by name, and which as "other"."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from duly.store.ops_observe import Key

OTHER = "other"
MOST_LANES = 500
MUCH_MORE = 2
"""So many times as active must one be to take the name of another."""

T = TypeVar("T")


class Labels(NamedTuple):
    """By which names something is shown. The order is that of the labels."""

    queue: str
    task: str
    tenant: str


ALL_OTHERS = Labels(OTHER, OTHER, OTHER)


class Names:
    """Gives names to the most active. Who has one keeps it until another is much more active."""

    def __init__(self, tenants: int, lanes: int = MOST_LANES) -> None:
        self._tenants: Chosen[str] = Chosen(tenants)
        self._lanes: Chosen[Labels] = Chosen(lanes)

    def choose(self, activity: Mapping[Key, int]) -> set[Labels]:
        """Choose anew, by how active each lane is. Returns the labels that are given up."""
        by_tenant: dict[str, int] = defaultdict(int)
        for key, n in activity.items():
            if key.tenant:
                by_tenant[key.tenant] += n
        self._tenants.choose(by_tenant)
        by_lane: dict[Labels, int] = defaultdict(int)
        for key, n in activity.items():
            by_lane[self._folded(key)] += n
        before = self._lanes.names
        self._lanes.choose(by_lane)
        return set(before - self._lanes.names)

    @property
    def lanes(self) -> frozenset[Labels]:
        """All that are shown by name."""
        return self._lanes.names

    def of(self, key: Key) -> Labels:
        """By which names a lane is shown."""
        labels = self._folded(key)
        return labels if labels in self._lanes.names else ALL_OTHERS

    def _folded(self, key: Key) -> Labels:
        known = not key.tenant or key.tenant in self._tenants.names
        return Labels(key.queue, key.task, key.tenant if known else OTHER)


class Chosen(Generic[T]):
    """The few of many that are known by name."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.names: frozenset[T] = frozenset()

    def choose(self, activity: Mapping[T, int]) -> None:
        """Keep those who have a name, add the most active, and replace those who are much less active than others."""
        names = set(self.names)
        waiting = sorted((name for name in activity if name not in names), key=lambda name: -activity[name])
        by_least = sorted(names, key=lambda name: activity.get(name, 0))
        for name in waiting:
            if len(names) < self._most:
                names.add(name)
            elif by_least and activity[name] > MUCH_MORE * activity.get(by_least[0], 0):
                names.discard(by_least.pop(0))
                names.add(name)
            else:
                break
        self.names = frozenset(names)
