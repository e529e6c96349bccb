"""How often: a bucket per name that fills by itself. In memory, of a bounded number of names."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

from duly.web.errors import WebError

MOST_NAMES: Final = 10_000


class Rates:
    """Counts what each name spends, and refuses more than it may."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, name: str, now: float) -> None:
        """Take one, or raise 429 with when to come again."""
        wait = self.wait(name, now)
        if wait > 0:
            raise too_many(wait)
        left, _ = self._left[name]
        self._left[name] = (left - 1, now)

    def wait(self, name: str, now: float) -> float:
        """Return after how many seconds there is one to take; 0: now."""
        left, at = self._left.pop(name, (self._burst, now))
        left = min(self._burst, left + max(0.0, now - at) * self._rate)
        self._left[name] = (left, now)
        while len(self._left) > MOST_NAMES:
            self._left.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / self._rate


def too_many(wait: float) -> WebError:
    """Come again later."""
    seconds = math.ceil(wait)
    return WebError(
        429, "too_many", "too many requests", f"come again in {seconds} s", headers={"retry-after": str(seconds)}
    )
