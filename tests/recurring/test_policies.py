"""Ticks that were missed, ticks that overlap, and that each tick is run by one worker only."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from duly import Conflict, Duly, State, current_job
from duly.store import ops_recurring_runs
from duly.testing import TestClock, drain
from tests.clock import set_wall_clock
from tests.guards.racing import interrupted
from tests.helpers import eventually, opened
from tests.store import invariants
from tests.store.raw import Raw

START = datetime(2100, 1, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def ticking(jobs: Duly, clock: TestClock | None = None, takes: timedelta | None = None) -> tuple[Any, list[Any]]:
    """A task that notes its ticks, and takes its time."""
    ticks: list[Any] = []

    @jobs.task
    def fetch() -> None:
        ticks.append(current_job().tick)
        if clock is not None and takes is not None:
            clock.advance(takes)

    return fetch, ticks


# -- missed -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("E6")
def test_after_four_days_of_downtime_there_is_one_late_run(timed: Duly, clock: TestClock) -> None:
    """F26: not four mails at once."""
    fetch, ticks = ticking(timed)
    job = fetch.recur("f", cron="@daily")
    clock.advance("4d6h")
    assert drain(timed).succeeded == 1
    assert ticks == [START + 4 * DAY]
    assert job.refresh().next_run_at == START + 5 * DAY


@pytest.mark.requirement("E6")
def test_misfire_skip_leaves_out_what_is_later_than_the_grace(timed: Duly, clock: TestClock) -> None:
    fetch, ticks = ticking(timed)
    job = fetch.recur("f", cron="@hourly", misfire="skip")
    clock.advance("1h59s")
    drain(timed)
    assert ticks == [START + HOUR]
    clock.move_to(START + 4 * HOUR + timedelta(seconds=61))
    drain(timed)
    job.refresh()
    assert ticks == [START + HOUR]
    assert (job.next_run_at, job.last_outcome, job.consecutive_failures) == (START + 5 * HOUR, "expired", 0)
    assert job.last_error is not None
    assert job.last_error.startswith("Missed: not run: ")
    clock.move_to(START + 5 * HOUR)
    drain(timed)
    assert ticks == [START + HOUR, START + 5 * HOUR]
    assert job.refresh().last_error is None


@pytest.mark.requirement("E6")
def test_misfire_skip_has_a_grace_of_its_own_and_spares_runs_by_hand(timed: Duly, clock: TestClock) -> None:
    fetch, ticks = ticking(timed)
    job = fetch.recur("f", cron="@hourly", misfire="skip", grace="10m")
    clock.move_to(START + HOUR + timedelta(minutes=9))
    drain(timed)
    assert len(ticks) == 1
    job.run_now()
    clock.advance("30m")
    drain(timed)
    assert len(ticks) == 2


@pytest.mark.requirement("E6")
def test_misfire_all_runs_every_missed_tick_in_order(timed: Duly, clock: TestClock) -> None:
    fetch, ticks = ticking(timed)
    job = fetch.recur("f", cron="@hourly", misfire="all")
    clock.advance("6h10m")
    drain(timed)
    assert ticks == [START + n * HOUR for n in range(1, 7)]
    assert job.refresh().next_run_at == START + 7 * HOUR


@pytest.mark.requirement("E6")
@pytest.mark.parametrize("overlap", ["queue", "allow"])
def test_misfire_all_is_capped(timed: Duly, clock: TestClock, overlap: str) -> None:
    fetch, ticks = ticking(timed)
    job = fetch.recur("f", cron="@hourly", misfire="all", cap=3, overlap=overlap)
    clock.advance("10h10m")
    drain(timed)
    late = [START + n * HOUR for n in (8, 9, 10)]
    # The one job of "queue" waits in its lane from its first tick on; the cap is about the others.
    assert ticks == (late if overlap == "allow" else [START + HOUR, *late])
    assert job.refresh().next_run_at == START + 11 * HOUR


@pytest.mark.requirement("E6")
@pytest.mark.parametrize(
    "cap, late", [(1, [5]), (2, [4, 5]), (4, [2, 3, 4, 5]), (5, [1, 2, 3, 4, 5]), (6, [1, 2, 3, 4, 5])]
)
def test_a_job_per_tick_for_as_many_as_the_cap_allows(timed: Duly, clock: TestClock, cap: int, late: list[int]) -> None:
    fetch, ticks = ticking(timed)
    fetch.recur("f", cron="@hourly", misfire="all", cap=cap, overlap="allow")
    clock.advance("5h10m")
    drain(timed)
    assert ticks == [START + n * HOUR for n in late]


@pytest.mark.requirement("E6")
def test_a_job_per_tick_also_for_more_ticks_than_are_made_at_once(timed: Duly, clock: TestClock, raw: Raw) -> None:
    @timed.task
    def fetch() -> None: ...

    job = fetch.recur("f", every="1s", start_at=START, misfire="all", cap=2_500, overlap="allow")
    clock.advance("40m")
    eventually(lambda: not timed.store.spawn(), 60)
    assert raw.count("waiting") == 2_401, "the one at the start, and one each second"
    assert job.refresh().next_run_at == clock.now() + timedelta(seconds=1)


def test_the_job_of_a_tick_has_a_place_though_the_clock_is_set_back_meanwhile(
    timed: Duly, clock: TestClock, raw: Raw
) -> None:
    @timed.task(concurrency_key=lambda args: "one")
    def fetch() -> None: ...

    fetch.recur("f", cron="@hourly", overlap="allow")
    clock.advance("1h")
    op = ops_recurring_runs.spawn(timed.store.recurring, 10)
    timed.store.run(lambda: interrupted(op, "spawn_place", lambda: set_wall_clock(clock, -HOUR)))
    assert raw.count("parked") == 1


@pytest.mark.requirement("E6")
def test_misfire_once_and_skip_with_a_job_per_tick(timed: Duly, clock: TestClock) -> None:
    fetch, ticks = ticking(timed)
    once = fetch.recur("once", cron="@hourly", overlap="allow")
    skip = fetch.recur("skip", cron="@hourly", overlap="allow", misfire="skip")
    clock.advance("5h10m")
    drain(timed)
    assert ticks == [START + 5 * HOUR]
    assert once.refresh().next_run_at == skip.refresh().next_run_at == START + 6 * HOUR
    clock.move_to(START + 6 * HOUR + timedelta(seconds=30))
    drain(timed)
    assert ticks == [START + 5 * HOUR, START + 6 * HOUR, START + 6 * HOUR]


@pytest.mark.requirement("A3", "E6")
def test_a_job_per_tick_comes_when_somebody_said_though_that_is_on_no_tick(timed: Duly, clock: TestClock) -> None:
    fetch, ticks = ticking(timed)
    job = fetch.recur("k", cron="@hourly", overlap="allow", misfire="skip")
    said = START + timedelta(minutes=10)
    job.reschedule(said)
    clock.move_to(said + timedelta(seconds=30))
    drain(timed)
    assert ticks == [said]
    job.disable()
    clock.advance("2h")
    job.enable()
    enabled = clock.now()
    drain(timed)
    assert ticks == [said, enabled], "its time had passed, so it runs at once"
    job.refresh().reschedule(enabled + timedelta(minutes=10))
    clock.advance("20m")
    drain(timed)
    assert ticks == [said, enabled], "later than its grace"


def test_a_rule_that_cannot_be_read_keeps_no_other_schedule_from_its_ticks(
    timed: Duly, clock: TestClock, raw: Raw
) -> None:
    fetch, ticks = ticking(timed)
    lost = fetch.recur("lost", cron="@hourly", timezone="Europe/Berlin", overlap="allow")
    fetch.recur("other", cron="@hourly", overlap="allow")
    raw.rows(f"UPDATE duly.schedules SET rule = replace(rule, 'Berlin', 'Nowhere') WHERE id = '{lost.id}'")
    clock.advance("1h")
    drain(timed)
    assert ticks == [START + HOUR]
    shown = timed.store.recurring_job(lost.id)
    assert shown is not None
    assert (shown.enabled, shown.disabled_by) == (False, "duly")
    assert "its rule could not be read" in (shown.disabled_reason or "")
    assert raw.count("scheduled") == 1


@pytest.mark.requirement("E6")
def test_missed_ticks_are_passed_after_an_error_too(timed: Duly, clock: TestClock) -> None:
    @timed.task
    def fetch() -> None:
        clock.advance("3h")
        raise ValueError("oops")

    job = fetch.recur("f", every="1h", start_at=START + HOUR, failure="advance")
    clock.advance("1h")
    drain(timed)
    assert job.refresh().next_run_at == START + 5 * HOUR


# -- overlap ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("E6")
@pytest.mark.parametrize("overlap, expected", [("skip", [1, 4]), ("queue", [1, 3])])
def test_ticks_that_come_while_it_runs(timed: Duly, clock: TestClock, overlap: str, expected: list[int]) -> None:
    """Skipped, or one more run for the last of them, at once."""
    ticks: list[datetime | None] = []

    @timed.task
    def fetch() -> None:
        ticks.append(current_job().tick)
        if len(ticks) == 1:
            clock.advance("2h30m")

    fetch.recur("f", cron="@hourly", overlap=overlap)
    clock.advance("1h")
    drain(timed)
    clock.move_to(START + 4 * HOUR)
    if len(ticks) == 1:
        drain(timed)
    assert ticks == [START + n * HOUR for n in expected]


@pytest.mark.requirement("E6")
def test_overlap_allow_runs_a_job_per_tick_beside_each_other(jobs: Duly) -> None:
    at_once: list[int] = []
    running, lock = Counter[str](), threading.Lock()

    @jobs.task
    def fetch() -> None:
        with lock:
            running["now"] += 1
            at_once.append(running["now"])
        time.sleep(0.5)
        with lock:
            running["now"] -= 1

    job = fetch.recur("f", every="100ms", overlap="allow")
    with jobs.worker():
        eventually(lambda: max(at_once, default=0) >= 3, 10)
        job.disable()
        eventually(lambda: running["now"] == 0)


@pytest.mark.requirement("E5")
def test_of_many_workers_one_makes_the_job_of_a_tick(jobs: Duly, raw: Raw) -> None:
    """F24: several schedulers at once, and no tick twice or missing."""
    with ExitStack() as stack:
        apps = [stack.enter_context(opened(jobs.settings.url)) for _ in range(4)]
        ticks: list[datetime | None] = []
        for app in apps:

            @app.task(name="fetch")
            def fetch() -> None:
                ticks.append(current_job().tick)

        job = apps[0]["fetch"].recur("f", every="50ms", overlap="allow", misfire="all", cap=1_000)
        for app in apps:
            stack.enter_context(app.worker(poll=0.05))
        eventually(lambda: len(ticks) >= 40, 30)
        job.disable()
        eventually(lambda: raw.count("waiting") + raw.count("running") == 0)
    found = sorted(tick for tick in ticks if tick is not None)
    assert len(found) == len(ticks) == len(set(ticks))
    assert {after - before for before, after in pairwise(found)} == {timedelta(milliseconds=50)}


@pytest.mark.requirement("E5")
def test_of_many_workers_one_runs_an_occurrence(jobs: Duly) -> None:
    with ExitStack() as stack:
        apps = [stack.enter_context(opened(jobs.settings.url)) for _ in range(4)]
        ticks: list[datetime | None] = []
        for app in apps:

            @app.task(name="fetch")
            def fetch() -> None:
                ticks.append(current_job().tick)

        job = apps[0]["fetch"].recur("f", every="50ms")
        for app in apps:
            stack.enter_context(app.worker(poll=0.05))
        eventually(lambda: len(ticks) >= 20, 30)
        job.disable()
    assert len(ticks) == len(set(ticks))
    assert ticks == sorted(ticks, key=str)


@pytest.mark.requirement("E5")
def test_a_tick_has_one_job_ever_also_after_that_was_pruned(timed: Duly, clock: TestClock, raw: Raw) -> None:
    @timed.task
    def fetch() -> None: ...

    job = fetch.recur("f", cron="@hourly", overlap="allow")
    clock.advance("1h")
    drain(timed)
    assert raw.count("ended") == 1
    (made,) = (each for each in timed.list(task="fetch") if each.id != job.id)
    timed.delete(made.id)
    clock.move_to(START + timedelta(minutes=59))  # somebody set the machine's clock back
    job.disable()
    job.enable()
    job.reschedule(START + HOUR)
    clock.move_to(START + HOUR)
    assert drain(timed).runs == ()
    assert job.refresh().next_run_at == START + 2 * HOUR


@pytest.mark.requirement("E6")
def test_what_a_job_per_tick_is_like(timed: Duly, clock: TestClock) -> None:
    @timed.task
    def fetch(n: int) -> int:
        return n

    job = fetch.using(max_attempts=2).recur("f", cron="@hourly", overlap="allow", args={"n": 7}, priority=5)
    clock.advance("1h")
    drain(timed)
    (made,) = (each for each in timed.list(task="fetch") if each.id != job.id)
    assert made.state is State.SUCCEEDED
    assert (made.priority, made.max_attempts, made.enqueued_by) == (5, 2, "schedule fetch f")
    job.refresh()
    assert (job.last_outcome, job.last_run_at, job.next_run_at) == ("enqueued", clock.now(), START + 2 * HOUR)
    with pytest.raises(Conflict, match="makes a job per tick"):
        job.run_now()


def test_an_edit_leaves_the_attempts_of_jobs_per_tick_alone(timed: Duly, clock: TestClock) -> None:
    @timed.task
    def fetch() -> None: ...

    job = fetch.using(max_attempts=2).recur("f", cron="@hourly", overlap="allow")
    job.edit(priority=9)
    clock.advance("1h")
    drain(timed)
    (made,) = (each for each in timed.list(task="fetch") if each.id != job.id)
    assert (made.priority, made.max_attempts) == (9, 2)


@pytest.mark.requirement("E6")
def test_a_schedule_that_ends_disables_itself_and_says_so(timed: Duly, clock: TestClock, raw: Raw) -> None:
    fetch, ticks = ticking(timed)
    until = START + timedelta(hours=2, minutes=30)
    each = [
        fetch.recur(overlap, cron="@hourly", until=until, overlap=overlap) for overlap in ("skip", "queue", "allow")
    ]
    for _ in range(4):
        clock.advance("1h")
        drain(timed)
    assert sorted(ticks) == sorted([START + HOUR, START + 2 * HOUR] * 3)
    for job in each:
        job.refresh()
        assert (job.enabled, job.next_run_at, job.disabled_reason) == (False, None, "its schedule has ended")
        with pytest.raises(Conflict, match=r"its schedule has ended\. Edit it first"):
            job.enable()
        job.edit(until=None)
        assert job.enable() == START + 5 * HOUR
    invariants.check(raw)


def test_the_way_of_overlap_may_change(timed: Duly, clock: TestClock) -> None:
    fetch, ticks = ticking(timed)
    job = fetch.recur("f", cron="@hourly")
    for hour, overlap in enumerate(("allow", "queue", "allow", "skip"), start=1):
        job.edit(overlap=overlap)
        assert job.next_run_at == START + hour * HOUR
        clock.advance("1h")
        drain(timed)
    assert ticks == [START + hour * HOUR for hour in range(1, 5)]


@pytest.mark.requirement("B8", "E6")
def test_a_tick_of_a_process_that_does_not_stay_is_enough(jobs: Duly) -> None:
    ran: list[object] = []

    @jobs.task
    def fetch() -> None:
        ran.append(current_job().tick)

    @jobs.recurring(every="1h")
    def renew() -> None:
        ran.append("renewed")

    fetch.recur("one", every="1h")
    fetch.recur("per tick", every="1h", overlap="allow")
    ticked = jobs.tick(10)
    assert len(ran) == 3, ticked
    assert ran.count("renewed") == 1
    jobs.tick(10)
    assert len(ran) == 3
