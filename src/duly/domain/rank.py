"""One number orders a queue: priority is a head start in time.

`rank = run_at - priority x (horizon / 100)`, in integer microseconds, lowest first, fixed when the job
becomes due. Waiting jobs all age alike, so no row is rewritten: a job of priority 0 that has waited a whole
horizon is level with a job of priority 100 that is due now, and ahead of every later one.

The step per priority, `horizon // 100`, is computed before it is multiplied, here and in SQL alike, so that
nothing overflows 64 bits.
"""

from __future__ import annotations

from typing import Final

from duly.domain.errors import InvalidOption
from duly.domain.text import safe_repr

HIGHEST_PRIORITY: Final = 100

DEFAULT_HORIZON_US: Final = 110 * 60 * 1_000_000
"""1 h 50 min: the longest that priority 0 waits for the top in the design that duly's aging comes from."""

STRICT_HORIZON_US: Final = 9 * 10**18
"""Strict priority: one step is 2,800 years, so waiting never makes up for it, and for any date that Python
can write (years 1 to 9999) the rank is within a signed 64-bit integer."""


def rank(run_at_us: int, priority: int, horizon_us: int | None) -> int:
    """Return the place in its queue of a job due at `run_at_us`; lower is first. No horizon means strict."""
    if horizon_us is None or horizon_us > STRICT_HORIZON_US:
        horizon_us = STRICT_HORIZON_US
    return run_at_us - priority * (horizon_us // 100)


def effective_priority(now_us: int, run_at_us: int, priority: int, horizon_us: int | None) -> int:
    """Return the priority that a job has reached by waiting: 0 to 100, for people to read."""
    waited = now_us - run_at_us
    if waited <= 0 or horizon_us is None:
        return priority
    if waited >= horizon_us:
        return HIGHEST_PRIORITY
    return min(HIGHEST_PRIORITY, priority + waited * 100 // horizon_us)


def check_priority(priority: int) -> int:
    """Return `priority` if it is a whole number from 0 to 100."""
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise InvalidOption(
            f"priority must be a whole number from 0 to 100, not {safe_repr(priority)}.", option="priority"
        )
    if not 0 <= priority <= HIGHEST_PRIORITY:
        raise InvalidOption(
            f"priority must be from 0 (last) to 100 (first), not {safe_repr(priority)}.", option="priority"
        )
    return priority
