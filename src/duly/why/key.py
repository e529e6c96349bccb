"""Why a job waits for its key: paused, told to wait, broken, too fast, or full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from duly.store.ops_why import GateFacts, WorkerFacts
from duly.why import advice
from duly.why.answer import Blocker, Reason, at
from duly.why.lane import at_gate, holder


def blockers(
    key: GateFacts, now: int, workers: Mapping[str, WorkerFacts], *, task: str, ahead: int = 0
) -> list[Blocker]:
    """Everything that holds the jobs of a key back at this moment. `ahead`: how many with the same key come before."""
    unstarted = sum(each.place == "waiting" for each in key.holders)
    spent = key._replace(rate=None, breaker_state=None)
    if key.breaker_state == "open":
        spent = spent._replace(blocked_until=None)
    found = [*_breaker(key, workers, task), *_rate(key, now, unstarted)]
    for blocker in at_gate(spent, now, workers):
        if blocker.reason is Reason.LIMIT_FULL and key.breaker_state == "probing":
            continue
        found.append(_behind(blocker, key, ahead) if blocker.reason is Reason.LIMIT_FULL else blocker)
    return found


def _behind(full: Blocker, key: GateFacts, ahead: int) -> Blocker:
    return Blocker(
        reason=Reason.LIMIT_FULL,
        scope="key",
        name=key.name,
        holders=full.holders,
        next=advice.raise_slots(key),
        details={**full.details, "ahead": ahead},
    )


def _rate(key: GateFacts, now: int, unstarted: int) -> Iterator[Blocker]:
    """What was let in and has not started is spent too."""
    if key.rate is None or key.rate.room(key.spent_until, key.used, now) - unstarted > 0:
        return
    opens = key.opens_at if key.opens_at is not None and key.opens_at > now else None
    yield Blocker(
        reason=Reason.RATE_USED_UP,
        scope="key",
        name=key.name,
        until=at(opens or max(now, key.rate.opens_at(key.spent_until, key.used, now))),
        next=advice.raise_rate(key),
        details={"rate": str(key.rate), "burst": key.rate.burst},
    )


def _breaker(key: GateFacts, workers: Mapping[str, WorkerFacts], task: str) -> Iterator[Blocker]:
    if key.breaker_state == "open":
        yield Blocker(
            reason=Reason.BREAKER_OPEN,
            scope="key",
            name=key.name,
            until=at(key.blocked_until),
            because=key.blocked_reason,
            next=advice.look_at_errors(task),
        )
    elif key.breaker_state == "probing":
        yield Blocker(
            reason=Reason.BREAKER_PROBING,
            scope="key",
            name=key.name,
            holders=tuple(holder(each, workers) for each in key.holders),
            next=advice.look_at_errors(task),
        )
