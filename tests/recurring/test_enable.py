"""Enabled and disabled: what a disabled job keeps, when it runs again, and what happens to a run under way."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from duly import Backoff, Duly, RecurringJob, RecurringJobNotFound, State, current_job
from duly.testing import TestClock, drain
from tests.helpers import eventually, never
from tests.store import invariants
from tests.store.raw import Raw


@pytest.mark.requirement("A3")
def test_disabled_is_never_claimed_and_keeps_its_time(timed: Duly, clock: TestClock, raw: Raw) -> None:
    ran: list[datetime] = []

    @timed.task
    def fetch() -> None:
        ran.append(clock.now())

    job = fetch.recur("f", every="1h")
    drain(timed)
    at = clock.now() + timedelta(hours=1)
    job.disable("no subscribers", by="ada")
    assert (job.enabled, job.next_run_at, job.disabled_reason) == (False, at, "no subscribers")
    assert (job.record.disabled_by, job.record.disabled_at) == ("ada", clock.now_us())
    assert timed.get(job.id).state is State.DISABLED
    clock.advance("30m")
    assert job.enable() == at
    clock.advance("30m")
    assert drain(timed).succeeded == 1
    job.disable()
    clock.advance("10h")
    drain(timed)
    assert len(ran) == 2
    invariants.check(raw)


@pytest.mark.requirement("A3")
def test_enabled_after_its_time_it_runs_at_once(timed: Duly, clock: TestClock) -> None:
    @timed.task
    def fetch() -> None: ...

    job = fetch.recur("f", cron="@daily")
    job.disable()
    clock.advance("3d")
    assert job.enable() == clock.now()
    assert drain(timed).succeeded == 1
    assert job.refresh().next_run_at == clock.now() + timedelta(days=1)
    assert drain(timed).runs == ()


@pytest.mark.requirement("A3")
def test_enabling_what_is_enabled_and_disabling_what_is_disabled_change_nothing(timed: Duly, clock: TestClock) -> None:
    @timed.task
    def fetch() -> None: ...

    job = fetch.recur("f", every="1h", start_at=clock.now() + timedelta(hours=1))
    at = job.next_run_at
    clock.advance("1m")
    assert job.enable() == at
    job.disable("first", by="ada")
    clock.advance("1m")
    job.disable("second", by="bob")
    assert (job.disabled_reason, job.record.disabled_by) == ("first", "ada")


@pytest.mark.requirement("A3")
def test_its_fence_never_goes_back(timed: Duly, clock: TestClock) -> None:
    fences: list[int] = []

    @timed.task
    def fetch() -> None:
        fences.append(current_job().fence)

    job = fetch.recur("f", every="1h")
    for _ in range(5):
        drain(timed)
        job.disable()
        job.enable()
        clock.advance("1h")
    assert len(fences) == 5
    assert fences == sorted(set(fences))


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("fails", [False, True])
def test_disabled_while_it_runs_it_ends_normally_and_runs_no_more(timed: Duly, clock: TestClock, fails: bool) -> None:
    held: list[RecurringJob] = []

    @timed.task
    def fetch() -> str:
        held[0].disable("enough")
        assert held[0].refresh().running
        if fails:
            raise ValueError("oops")
        return "done"

    held.append(job := fetch.recur("f", every="1h", failure="advance"))
    drain(timed)
    job.refresh()
    assert (job.enabled, job.running, job.last_outcome) == (False, False, "failed" if fails else "succeeded")
    assert (job.last_run_at, job.next_run_at) == (clock.now(), clock.now() + timedelta(hours=1))
    assert (job.disabled_reason, job.consecutive_failures) == ("enough", int(fails))
    clock.advance("5h")
    assert drain(timed).runs == ()


@pytest.mark.requirement("A4")
def test_disabled_and_enabled_while_it_runs_it_goes_on(timed: Duly, clock: TestClock) -> None:
    held: list[RecurringJob] = []

    @timed.task
    def fetch() -> None:
        held[0].disable()
        held[0].enable()

    held.append(job := fetch.recur("f", every="1h"))
    assert drain(timed).succeeded == 1
    assert job.refresh().enabled
    clock.advance("1h")
    assert drain(timed).succeeded == 1


@pytest.mark.requirement("A3", "A4")
def test_a_worker_does_not_run_what_was_disabled_meanwhile(jobs: Duly) -> None:
    started, go_on = threading.Event(), threading.Event()
    ran: list[int] = []

    @jobs.task
    def fetch() -> None:
        ran.append(1)
        started.set()
        go_on.wait(20)

    job = fetch.recur("f", every="50ms")
    with jobs.worker():
        assert started.wait(20)
        job.disable()
        go_on.set()
        eventually(lambda: not job.refresh().running)
        count = len(ran)
        never(lambda: len(ran) > count, 0.3)
        job.enable()
        eventually(lambda: len(ran) > count)
        job.disable()


@pytest.mark.requirement("A3")
def test_enabling_wakes_a_sleeping_worker(jobs: Duly) -> None:
    ran = threading.Event()

    @jobs.task
    def fetch() -> None:
        ran.set()

    job = fetch.recur("f", cron="@yearly")
    job.disable()
    job.reschedule(datetime.now(UTC))
    with jobs.worker(poll=30.0):
        never(ran.is_set, 0.2)
        job.enable()
        assert ran.wait(3)


def test_a_run_by_hand_that_was_disabled_away_does_not_come_back(timed: Duly, clock: TestClock) -> None:
    """Nor does its tick run twice."""
    ticks: list[datetime] = []

    @timed.task
    def fetch() -> None:
        assert current_job().tick is not None
        ticks.append(clock.now())

    job = fetch.recur("f", cron="@hourly", misfire="all")
    at = job.next_run_at
    job.run_now()
    job.disable()
    job.enable()
    assert drain(timed).runs == ()
    assert at is not None
    clock.move_to(at)
    drain(timed)
    assert ticks == [at]
    assert job.refresh().next_run_at == at + timedelta(hours=1)


@pytest.mark.requirement("A3")
def test_disabled_and_enabled_while_it_backs_off_it_is_still_for_its_tick(timed: Duly, clock: TestClock) -> None:
    ticks: list[datetime | None] = []

    @timed.task(retry=Backoff.fixed(600))
    def fetch() -> None:
        ticks.append(current_job().tick)
        if len(ticks) == 1:
            raise ValueError("oops")

    job = fetch.recur("f", every="1h")
    tick = clock.now()
    drain(timed)
    job.disable()
    clock.advance("5m")
    assert job.enable() == tick + timedelta(minutes=10)
    clock.advance("5m")
    drain(timed)
    assert ticks == [tick, tick]
    assert job.refresh().next_run_at == tick + timedelta(hours=1)


@pytest.mark.requirement("A3")
def test_verbs_from_coroutines(timed: Duly, clock: TestClock) -> None:
    @timed.task
    async def fetch(n: int = 0) -> None: ...

    async def use() -> None:
        job = await fetch.arecur("f", cron="@hourly")
        assert job.created
        await job.adisable("enough")
        assert not await job.aset_enabled(False)
        assert await job.aenable() == clock.now() + timedelta(hours=1)
        assert not await job.aset_enabled(sql="1 = 0")
        assert await job.aset_enabled(sql="1 = :one", params={"one": 1})
        await job.aedit(args={"n": 2})
        await job.areschedule(clock.now() + timedelta(minutes=5))
        assert (job.args, job.next_run_at) == ({"n": 2}, clock.now() + timedelta(minutes=5))
        await job.arun_now()
        await job.adelete()

    asyncio.run(use())
    with pytest.raises(RecurringJobNotFound, match="there is no recurring job fetch 'f'"):
        timed.recurring_job("fetch", "f")
