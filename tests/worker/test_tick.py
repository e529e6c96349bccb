"""A tick (B8): at most so many due jobs, here and now; and the upkeep, since there may be no worker at all."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from duly import Backoff, Duly, State
from duly.domain.ids import uuid7
from duly.domain.records import Lane
from tests.helpers import Ledger, eventually, opened, worker_process
from tests.worker.tasks import declare


@pytest.mark.requirement("B8")
def test_a_tick_runs_at_most_so_many_due_jobs_in_this_process(jobs: Duly) -> None:
    ran: list[int] = []

    @jobs.task
    def work(n: int) -> None:
        ran.append(n)

    work.enqueue_many([{"n": n} for n in range(10)])
    done = jobs.tick(4)
    assert (done.claimed, done.settled) == (4, 4)
    assert sorted(ran) == [0, 1, 2, 3]
    assert jobs.counts().ended == {"succeeded": 4}
    assert jobs.tick(100).settled == 6
    assert sorted(ran) == list(range(10))
    assert jobs.workers() == []


@pytest.mark.requirement("B8")
def test_a_tick_with_nothing_to_do_returns_soon(jobs: Duly) -> None:
    @jobs.task
    def work() -> None: ...

    work.using(delay=60).enqueue()
    started = time.monotonic()
    done = jobs.tick()
    assert time.monotonic() - started < 2
    assert (done.claimed, done.settled) == (0, 0)


@pytest.mark.requirement("B8", "B4")
@pytest.mark.everywhere
def test_a_tick_applies_success_failure_and_backoff(jobs: Duly) -> None:
    @jobs.task(retry=Backoff.fixed(60))
    def fails() -> None:
        raise ValueError("no")

    @jobs.task
    async def works() -> int:
        return 7

    bad, good = fails.enqueue(), works.enqueue()
    assert jobs.tick().settled == 2
    assert (good.refresh().state, good.result()) == (State.SUCCEEDED, 7)
    assert (bad.refresh().state, bad.attempts, bad.last_error) == (State.SCHEDULED, 1, "no")
    assert jobs.tick().claimed == 0


@pytest.mark.requirement("B8", "C5")
def test_a_tick_promotes_what_is_due(jobs: Duly) -> None:
    ran: list[int] = []

    @jobs.task
    def work(n: int) -> None:
        ran.append(n)

    soon = work.using(delay=0.2).enqueue(1)
    work.using(delay=60).enqueue(2)
    eventually(lambda: time.time() > soon.created_at.timestamp() + 0.25)
    assert jobs.tick().settled == 1
    assert ran == [1]


@pytest.mark.requirement("B8")
def test_a_tick_waits_for_what_it_began(jobs: Duly) -> None:
    @jobs.task
    def slow() -> int:
        time.sleep(0.5)
        return 1

    job = slow.enqueue()
    assert jobs.tick().settled == 1
    assert job.refresh().state is State.SUCCEEDED


@pytest.mark.requirement("B8")
def test_a_tick_rescues_what_a_worker_of_another_host_left_behind(database_url: str) -> None:
    """Each tick in a process of its own, as serverless functions are: none of them lives for a whole lease."""
    with opened(database_url) as jobs:

        @jobs.task
        def work() -> int:
            return 1

        job = work.enqueue()
        assert jobs.store.claim("default", [Lane("", "work")], 1, worker_id=uuid7(), lease_us=1)
        eventually(lambda: jobs.store.lapsed(4_000_000))  # PostgreSQL: not within a lease of the server's own start
        with opened(database_url, lease=4) as fresh:
            fresh.task(name="work")(lambda: 2)
            started = time.monotonic()
            fresh.tick()
            assert time.monotonic() - started < 4
            fresh.tick()
        assert job.refresh().state is State.SUCCEEDED
        assert [run.outcome for run in job.runs] == ["crashed", "succeeded"]


@pytest.mark.requirement("B8")
def test_a_tick_does_not_rob_a_worker_that_lives(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger, worker={"lease": 1.0}):
        job = tasks.hold.enqueue("one", 2.0)
        eventually(lambda: ledger.count("start"))
        for _ in range(3):
            jobs.tick()
        job.wait(10)
    assert ledger.count("start") == 1


@pytest.mark.requirement("B8")
def test_a_tick_prunes(database_url: str) -> None:
    with opened(database_url, retention_succeeded=0) as jobs:

        @jobs.task
        def work() -> None: ...

        work.enqueue_many([{}] * 5)
        jobs.tick()
        jobs.tick()
        assert jobs.list() == []


def test_a_tick_leaves_what_it_does_not_know_and_other_queues_alone(jobs: Duly, database_url: str) -> None:
    @jobs.task
    def work(n: int) -> None: ...

    with opened(database_url) as stranger:
        work.enqueue(1)
        assert stranger.tick().claimed == 0
    work.using(queue="other").enqueue(2)
    assert jobs.tick(queues=["default"]).claimed == 1
    assert jobs.tick(queues=["other"]).claimed == 1


def test_ticks_side_by_side_run_each_job_once(jobs: Duly, database_url: str) -> None:
    ran: list[int] = []

    @jobs.task
    def work(n: int) -> None:
        ran.append(n)

    work.enqueue_many([{"n": n} for n in range(40)])
    with ThreadPoolExecutor(4) as pool:
        ticks = [pool.submit(jobs.tick, 20) for _ in range(4)]
        assert sum(tick.result(30).settled for tick in ticks) == 40
    assert sorted(ran) == list(range(40))


@pytest.mark.parametrize("most", [1, 2])
def test_a_small_tick_never_returns_before_it_has_run_what_it_claimed(jobs: Duly, most: int) -> None:
    @jobs.task
    def work(n: int) -> int:
        return n

    work.enqueue_many([{"n": n} for n in range(20)])
    for _ in range(10):
        done = jobs.tick(most)
        assert (done.claimed, done.settled) == (most, most)
    assert jobs.counts().ended == {"succeeded": 10 * most}


def test_a_worker_is_not_idle_while_it_has_not_seen_what_its_last_job_let_in(jobs: Duly) -> None:
    """Else a tick ends between a job and the next one with the same key."""
    with jobs.worker() as worker:
        eventually(lambda: worker.idle)
        worker._claimer.paused = True
        worker._claimer.let_in([("default", "", "send", 0, 1)])
        assert not worker.idle
        worker._claimer.paused = False
        worker._claim_service.wake()
        eventually(lambda: worker.idle)
