"""How long jobs waited before they began: percentiles, from the steps in which the rollups count them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

STEPS: Final = (0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0)
"""The upper ends, in seconds. The last step has none: a day stands for it."""


def percentile(counts: Sequence[int], share: float) -> float | None:
    """The wait in seconds that `share` of the jobs did not exceed, as exactly as the steps allow."""
    total = sum(counts)
    if total == 0:
        return None
    wanted, below = share * total, 0
    for n, count in enumerate(counts):
        if count and below + count >= wanted:
            low = STEPS[n - 1] if n else 0.0
            return low + (STEPS[n] - low) * (wanted - below) / count
        below += count
    return STEPS[-1]


def height(seconds: float | None) -> float | None:
    """Where a wait stands in a chart, from 0 to 1: by its logarithm, from a millisecond to a day."""
    if seconds is None:
        return None
    low, high = math.log10(0.001), math.log10(STEPS[-1])
    return (math.log10(max(0.001, seconds)) - low) / (high - low)


def added(rows: Sequence[Sequence[int]]) -> list[int]:
    """The counts of several minutes together."""
    return [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * len(STEPS)
