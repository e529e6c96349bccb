"""Upkeep: what is due goes into its lane, what is old goes away, and counts are added up without losing any."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from duly.domain.rank import DEFAULT_HORIZON_US
from duly.domain.states import State
from duly.store.store import Store
from duly.testing import TestClock
from tests.clock import us
from tests.store.factory import Factory, succeeded
from tests.store.raw import Raw

pytestmark = pytest.mark.everywhere

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
STEP = DEFAULT_HORIZON_US // 100


# -- promote ------------------------------------------------------------------------------------------------------


def test_promote_says_into_which_lanes_jobs_went(make: Factory, store: Store, clock: TestClock) -> None:
    start = clock.now_us()
    make.enqueue("a", delay_us=10, priority=20)
    make.enqueue("a", delay_us=20)
    make.enqueue("b", delay_us=30, queue="q", tenant="acme")
    make.enqueue("late", delay_us=us(5))
    assert store.promote() == []
    clock.advance(1)
    assert sorted(store.promote()) == [
        ("default", "", "a", start + 10 - 20 * STEP, 2),
        ("q", "acme", "b", start + 30, 1),
    ]
    assert store.promote() == []


def test_a_promoted_job_keeps_its_time_and_all_that_it_carries(make: Factory, store: Store, clock: TestClock) -> None:
    job = make.running(priority=40)
    make.retry_later(job, 10, crashes=1)
    due = clock.now_us() + us(10)
    clock.advance(25)
    store.promote()
    found = make.get(job.id)
    assert (found.state, found.run_at, found.token, found.attempt, found.crashes) == (State.QUEUED, due, 1, 1, 1)
    assert make.take().rank == due - 40 * STEP


def test_promote_takes_the_longest_due_first_and_no_more_than_asked(
    make: Factory, store: Store, clock: TestClock
) -> None:
    ids = [make.enqueue(delay_us=n) for n in (30, 10, 20)]
    clock.advance(1)
    assert sum(lane[4] for lane in store.promote(2)) == 2
    assert [make.state(job_id) for job_id in ids] == ["scheduled", "queued", "queued"]


def test_several_who_promote_at_once_put_each_job_into_its_lane_once(
    make: Factory, store: Store, raw: Raw, clock: TestClock
) -> None:
    make.many(300, delay_us=1)
    clock.advance(1)

    def promote_all(_: int) -> int:
        moved = 0
        while n := sum(lane[4] for lane in store.promote(7)):
            moved += n
        return moved

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(promote_all, range(4))) == 300
    assert (raw.count("scheduled"), raw.count("waiting")) == (0, 300)


def test_when_the_next_job_is_due_is_known(make: Factory, store: Store, clock: TestClock) -> None:
    assert store.next_due_us() is None
    make.enqueue(delay_us=us(9))
    make.enqueue(delay_us=us(4))
    assert store.next_due_us() == us(4)
    clock.advance(6)
    assert store.next_due_us() == -us(2)


# -- prune --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELLED])
def test_old_jobs_of_one_state_go_with_their_runs_and_the_rest_stays(
    make: Factory, store: Store, raw: Raw, clock: TestClock, state: State
) -> None:
    others = [make.ended(each.value) for each in (State.SUCCEEDED, State.FAILED, State.CANCELLED) if each is not state]
    old = make.ended(state.value)
    clock.advance(HOUR)
    young = make.ended(state.value)
    waiting = make.enqueue()
    assert store.prune_jobs(state, us(HOUR) - 1) == 1
    assert store.get(old) is None
    assert store.runs_of(old) == []
    assert {row[0] for row in raw.rows("SELECT id FROM duly.jobs")} == {*others, young, waiting}
    assert raw.count("runs") == 3


def test_pruning_goes_in_steps_oldest_first(make: Factory, store: Store, clock: TestClock) -> None:
    ids = []
    for _ in range(5):
        ids.append(make.ended())
        clock.advance(1)
    clock.advance(HOUR)
    assert [store.prune_jobs(State.SUCCEEDED, us(HOUR) - 1, 2) for _ in range(4)] == [2, 2, 1, 0]


def test_pruning_leaves_a_job_that_was_retried_meanwhile(make: Factory, store: Store, clock: TestClock) -> None:
    old = make.ended("failed")
    clock.advance(HOUR)
    store.retry(old)
    assert store.prune_jobs(State.FAILED, 1) == 0
    assert make.take().id == old


def test_several_who_prune_at_once_count_each_job_once(make: Factory, store: Store, clock: TestClock) -> None:
    make.many(200)
    make.settle(*[succeeded(job) for job in make.claim(200)])
    clock.advance(HOUR)

    def prune(_: int) -> int:
        gone = 0
        while n := store.prune_jobs(State.SUCCEEDED, 1, 10):
            gone += n
        return gone

    with ThreadPoolExecutor(4) as pool:
        total = sum(pool.map(prune, range(4)))
    assert total + store.prune_jobs(State.SUCCEEDED, 1) == 200
    assert store.counts().ended == {}


def test_spent_keys_are_forgotten(make: Factory, store: Store, raw: Raw, clock: TestClock) -> None:
    make.unique("a", scope="window", unique_window_us=us(HOUR))
    make.unique("b", scope="window", unique_window_us=us(2 * HOUR))
    make.unique("c")
    clock.advance(HOUR)
    store.prune_rest(us(DAY))
    assert sorted(row[0] for row in raw.rows("SELECT key FROM duly.unique_keys")) == ["b", "c"]


# -- counts -------------------------------------------------------------------------------------------------------


def test_old_counts_are_forgotten(make: Factory, store: Store, clock: TestClock) -> None:
    start = clock.now_us()
    make.ended()
    clock.advance(DAY)
    make.ended()
    store.prune_rest(us(HOUR))
    assert [row[3] for row in store.usage(0, clock.now_us() + 1)] == [1]
    assert store.usage(0, start + 1) == []


@pytest.mark.requirement("B9")
def test_adding_up_hours_changes_no_total(make: Factory, store: Store, raw: Raw, clock: TestClock) -> None:
    start = clock.now_us()
    for n in range(8):
        make.ended(task="ab"[n % 2], tenant="acme" if n < 3 else "")
        make.ended("failed", task="a")
        clock.advance(timedelta(minutes=20))
    before = store.usage(start, clock.now_us())
    minutes = raw.count("rollups")
    clock.advance(2 * HOUR)
    hours = 0
    while store.add_up_hour(us(HOUR)):
        hours += 1
    assert hours == 3
    assert raw.count("rollups") < minutes
    assert raw.rows("SELECT count(*) FROM duly.rollups WHERE period_us = 60000000") == [(0,)]
    assert store.usage(start, clock.now_us()) == before


def test_an_hour_not_yet_old_stays_by_the_minute(make: Factory, store: Store, clock: TestClock) -> None:
    make.ended()
    clock.advance(2 * HOUR)
    assert store.add_up_hour(us(HOUR)) is False
    clock.advance(1)
    assert store.add_up_hour(us(HOUR)) is True
    assert store.add_up_hour(us(HOUR)) is False


def test_a_count_that_comes_after_its_hour_was_added_up_is_added_too(
    make: Factory, store: Store, clock: TestClock
) -> None:
    """A worker that was cut off reports late."""
    start = clock.now_us()
    make.ended()
    late = make.running()
    clock.advance(5 * HOUR)
    assert store.add_up_hour(us(HOUR))
    make.settle(succeeded(late, age_us=us(5 * HOUR)))
    assert store.add_up_hour(us(HOUR))
    assert [row[3] for row in store.usage(start, start + us(HOUR))] == [2]


def test_several_who_add_up_at_once_add_up_once(make: Factory, store: Store, clock: TestClock) -> None:
    start = clock.now_us()
    for _ in range(30):
        make.ended()
        clock.advance(60)
    clock.advance(5 * HOUR)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: store.add_up_hour(us(HOUR)), range(8)))
    assert [row[3] for row in store.usage(start, clock.now_us())] == [30]
