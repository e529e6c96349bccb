"""When a recurring job runs first, and when it runs again after a run. Values in, values out.

`tick` is an occurrence by the rule; the run of it may be later. A job's key shifts its ticks if the rule has jitter.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Protocol

from duly.domain.records import Settled
from duly.domain.recurring import Ending, Next, Spawning
from duly.schedule.schedule import Schedule

JUST_PASSED_US = 10_000_000
MOST_TICKS = 1_000
"""So many jobs at most are made at once for the ticks of one schedule that were missed."""


class Ruled(Protocol):
    """Whatever has a rule."""

    @property
    def tenant(self) -> str: ...

    @property
    def task(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def rule(self) -> str: ...

    @property
    def anchor_at(self) -> int: ...


class Ticks:
    """The ticks of one job."""

    def __init__(self, job: Ruled) -> None:
        self.schedule = Schedule.from_json(job.rule)
        self._anchor = job.anchor_at
        self._key = shift_key(job.tenant, job.task, job.key)

    def after(self, at: int) -> int | None:
        """The first tick after `at`."""
        return self.schedule.next_after(at, anchor_us=self._anchor, key=self._key)

    def latest(self, at: int) -> int | None:
        """The last tick not after `at`."""
        return self.schedule.latest_at(at, anchor_us=self._anchor, key=self._key)


def shift_key(tenant: str, task: str, key: str) -> str:
    """What decides by how much of the jitter the ticks of a job are shifted."""
    return f"{tenant}/{task}/{key}"


def first_run(job: Ruled, now: int) -> int | None:
    """When a new job runs first: an interval at once, a wall time at its next tick, `start` then; never in the past.

    A start that has just passed was meant to be now: `start_at=datetime.now(UTC)` takes a moment to get here.
    """
    ticks = Ticks(job)
    schedule = ticks.schedule
    if not schedule.rules:
        return max(now, schedule.start_us or now)
    if schedule.start_us is not None and now - JUST_PASSED_US <= schedule.start_us <= now:
        return now if ticks.after(schedule.start_us - 1) == schedule.start_us else ticks.after(now)
    at_once = schedule.start_us is None and any(rule.startswith("@every") for rule in schedule.rules)
    return ticks.after(now - 1 if at_once else now)


def after_run(job: Ending, run: Settled) -> Next:
    """Say what becomes of a recurring job whose run ended like this."""
    match run.outcome:
        case "released":
            return _same(job, "queued", None)
        case "snoozed":
            return _same(job, "recurs", job.now + run.delay_us)
        case "crashed" if run.state == "failed":
            return _disabled(_regular(job, job.failures + 1), run.reason or "its runs took their workers with them")
        case "crashed":
            place_at = None if run.state == "queued" else job.now + run.delay_us
            crashed = _same(job, "queued" if place_at is None else "recurs", place_at, failures=job.failures + 1)
            return _paused(job, crashed, run)
        case "failed":
            return _paused(job, _after_failure(job, run), run)
        case "cancelled" if job.cancel_at is None:
            return _disabled(_regular(job, job.failures), f"its handler cancelled it: {run.reason}")
        case "cancelled" | "expired":
            return _regular(job, job.failures)
        case _:
            return _after_success(job, run)


def _same(job: Ending, state: str, place_at: int | None, *, failures: int | None = None) -> Next:
    """The same occurrence again."""
    at = job.next_run_at if job.tick_at is None or place_at is None else place_at
    kept = job.failures if failures is None else failures
    return Next(state, place_at, at, job.tick_at, kept, fresh=False)


def _after_success(job: Ending, run: Settled) -> Next:
    if run.again_at is not None:
        at = max(run.again_at, job.now)
        return Next("recurs", at, at, at, 0)
    return _regular(job, 0)


def _after_failure(job: Ending, run: Settled) -> Next:
    if run.again_at is not None:  # the handler had said when, before something else failed
        return _after_success(job, run)._replace(failures=job.failures + 1)
    by_hand = job.tick_at is None
    may_back_off = run.state == "scheduled" and not (by_hand and job.next_run_at is not None)
    if may_back_off and (job.failure == "backoff" or not Schedule.from_json(job.rule).rules):
        return _same(job, "recurs", job.now + run.delay_us, failures=job.failures + 1)
    return _regular(job, job.failures + 1)


def _paused(job: Ending, then: Next, run: Settled) -> Next:
    """Disable it if it has failed so many times in a row that somebody should look first."""
    if job.pause_after is None or then.failures < job.pause_after or not then.enabled:
        return then
    return _disabled(then, f"{then.failures} failures in a row; the last: {run.error_kind}: {run.error}"[:1_000])


def _disabled(then: Next, reason: str) -> Next:
    return then._replace(state="idle", place_at=None, enabled=False, reason=reason, fresh=True)


def _regular(job: Ending, failures: int) -> Next:
    """By the rule."""
    at = following(job)
    if at is not None:
        return Next("recurs", at, at, at, failures)
    ended = Schedule.from_json(job.rule).rules
    why = "its schedule has ended" if ended else "its handler named no next run, and it has no rule"
    return Next("idle", None, None, None, failures, enabled=False, reason=why)


def following(job: Ending) -> int | None:
    """The next tick to run after this run, by the job's policies."""
    ticks = Ticks(job)
    if job.tick_at is None and job.next_run_at is not None:  # a run by hand: the tick to come is still to come
        if job.next_run_at > job.now or not ticks.schedule.rules:
            return job.next_run_at
        done = job.next_run_at - 1
    else:
        done = job.now if job.tick_at is None else job.tick_at
    coming = ticks.after(done)
    if coming is None or coming > job.now:
        return coming
    if job.misfire == "all":
        if job.overlap == "skip" and coming > job.claimed_at:
            return ticks.after(job.now)
        return _capped(ticks, coming, job.now, job.cap)
    if job.overlap == "queue":
        latest = ticks.latest(job.now)
        if latest is not None and latest > max(job.claimed_at, done):
            return latest
    return ticks.after(job.now)


def _capped(ticks: Ticks, coming: int, now: int, cap: int) -> int:
    """The first of the missed ticks that is still to be run: the last `cap` of them are."""
    at: int | None = coming
    for _ in range(cap):
        at = None if at is None else ticks.after(at)
        if at is None or at > now:
            return coming
    kept = now + 1
    for _ in range(cap):
        earlier = ticks.latest(kept - 1)
        if earlier is None or earlier < coming:
            break
        kept = earlier
    return kept


def due_ticks(job: Spawning) -> tuple[list[int], int | None]:
    """Which ticks get a job of their own now, and which tick comes next."""
    ticks = Ticks(job)
    first = job.run_at if job.tick_at is None else job.tick_at
    match job.misfire:
        case "once":
            latest = ticks.latest(job.now)
            due = [first if latest is None else max(first, latest)]
        case "skip":
            early = job.now - job.grace_us
            due = _all_due(ticks, max(first, early), job.now)
            if first >= early and first not in due[:1]:  # somebody said when: that is on no tick
                due.insert(0, first)
        case _:
            due = _last_due(ticks, first, job.now, job.cap)
    last = job.last_tick_at
    following_ = ticks.after(job.now if len(due) < MOST_TICKS else due[-1])  # the others come with the next look
    return [tick for tick in due if last is None or tick > last], following_


def _last_due(ticks: Ticks, first: int, now: int, cap: int) -> list[int]:
    """The last `cap` of the ticks from `first` on that are due."""
    coming = ticks.after(first)
    if coming is None or coming > now:
        return [first]
    start = _capped(ticks, coming, now, cap)
    due = _all_due(ticks, start, now)
    if start == coming and len(due) < cap:
        due.insert(0, first)
    return due[:MOST_TICKS]


def _all_due(ticks: Ticks, first: int, now: int) -> list[int]:
    def walk() -> Iterator[int]:
        at = ticks.after(first - 1)
        while at is not None:
            yield at
            at = ticks.after(at)

    return list(islice(takewhile(lambda tick: tick <= now, walk()), MOST_TICKS))


def tick_of_run(tick_at: int | None, run_at: int, started: int, job: Ruled, misfire: str) -> int:
    """The occurrence that a run stands for. One run for several missed ticks stands for the last of them."""
    if tick_at is None:
        return run_at
    if misfire == "all":
        return tick_at
    latest = Ticks(job).latest(started)
    return tick_at if latest is None else max(tick_at, latest)
