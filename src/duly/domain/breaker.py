"""Decides when a circuit breaker opens, tries and closes. Values in, values out; the store makes it true."""

from __future__ import annotations

import json
from typing import NamedTuple

LONGEST_US = 3_600_000_000


class BreakerState(NamedTuple):
    """How the breaker of a key stands."""

    state: str | None = None
    """None while it lets jobs through, "open", or "probing": one job is tried."""
    opened: int = 0
    """How often it has opened without closing in between."""
    since: int | None = None
    """Since when runs are counted."""
    tries: int = 0
    failures: int = 0
    until: int | None = None
    """Until when it stays open, if it opens now."""
    reason: str | None = None


def after_run(breaker: str, before: BreakerState, *, failed: bool, now: int) -> BreakerState:
    """How it stands after one more run has ended. `breaker` is what `Breaker.to_data` wrote."""
    rate, least, window_us, cooldown_us = json.loads(breaker)
    if before.state == "open":  # a run from before it opened: it changes nothing
        return before
    if before.state == "probing":
        if not failed:
            return BreakerState()
        return _open(before.opened, cooldown_us, now, "the job that was tried failed")
    if before.since is None or now - before.since >= window_us:
        before = BreakerState(since=now)
    after = before._replace(tries=before.tries + 1, failures=before.failures + failed)
    if after.tries >= least and after.failures >= rate * after.tries:
        return _open(0, cooldown_us, now, f"{after.failures} of {after.tries} runs failed")
    return after


def _open(opened: int, cooldown_us: int, now: int, why: str) -> BreakerState:
    pause = min(LONGEST_US, cooldown_us * 2 ** min(opened, 20))
    return BreakerState("open", opened + 1, None, 0, 0, now + max(pause, cooldown_us), f"circuit breaker: {why}")
