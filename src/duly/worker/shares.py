"""Divides room among those who want it, by weight: who got less than its due is owed the rest (deficit round robin)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Shares(Generic[K]):
    """What each is owed. Whoever wants nothing at the moment is owed nothing: its share goes to the others."""

    def __init__(self) -> None:
        self._owed: dict[K, float] = {}

    def divide(self, room: int, weights: Mapping[K, float]) -> dict[K, int]:
        """How many each may have now, `room` in all; those who may have some, the one that is owed most first."""
        total = sum(weights.values())
        if not total or room <= 0:
            return {}
        self._owed = {key: self._owed.get(key, 0.0) + room * weight / total for key, weight in weights.items()}
        order = sorted(self._owed, key=self._owed.__getitem__, reverse=True)
        parts: dict[K, int] = {}
        left = room
        for key in order:
            parts[key] = min(left, max(0, int(self._owed[key])))
            left -= parts[key]
        for key in sorted(order, key=lambda key: self._owed[key] - parts[key], reverse=True):
            if left <= 0:
                break
            parts[key] += 1
            left -= 1
        return {key: n for key, n in parts.items() if n > 0}

    def took(self, key: K, n: int, *, wanted_more: bool) -> None:
        """Note what one has had. One that had no more to give is owed nothing."""
        if key in self._owed:
            self._owed[key] = self._owed[key] - n if wanted_more else 0.0
