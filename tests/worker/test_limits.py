"""The limit of a task: never exceeded by all processes together, and no dead or stuck job holds a slot of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta

import pytest

from duly import Backoff, Duly, Snooze, State
from duly.domain.ids import uuid7
from duly.domain.limits import Says
from duly.domain.records import Lane
from tests.helpers import Ledger, WorkerProcess, eventually, never, opened, worker_process
from tests.store.raw import Raw
from tests.worker.tasks import declare


@contextmanager
def several(n: int, url: str, ledger: Ledger, **options: object) -> Iterator[list[WorkerProcess]]:
    """Worker processes that start side by side."""
    with ExitStack() as stack:
        processes = []
        for _ in range(n):
            process = WorkerProcess(url, ledger, **options)
            stack.callback(process.close)
            processes.append(process)
        for process in processes:
            process.ready()
        yield processes


@pytest.mark.requirement("D2", "D6")
def test_never_more_than_three_at_once_over_four_processes_with_many_slots(
    jobs: Duly, database_url: str, ledger: Ledger
) -> None:
    tasks = declare(jobs, ledger)
    with several(3, database_url, ledger, worker={"thread_slots": 20}), jobs.worker(thread_slots=20):
        stored = tasks.limited.enqueue_many([{"name": str(n), "seconds": 0.02} for n in range(60)])
        for n in range(60, 80):
            stored.append(tasks.limited.enqueue(str(n), 0.02))
        for job in stored:
            job.wait(30)
    assert ledger.count("end") == 80
    assert ledger.most_at_once() == 3, "never more, and all of them were used"
    assert len({entry.pid for entry in ledger.entries()}) >= 2


@pytest.mark.requirement("D6")
def test_a_limit_leaves_the_other_tasks_alone(jobs: Duly) -> None:
    over = threading.Event()

    @jobs.task(concurrency=1)
    def limited() -> None:
        over.wait(10)

    @jobs.task
    def open_task(n: int) -> int:
        return n

    with jobs.worker(thread_slots=4):
        held = limited.enqueue_many([{}] * 5)
        eventually(lambda: jobs.list(state="running"))
        assert [open_task.enqueue(n).wait(5) for n in range(20)] == list(range(20))
        assert len(jobs.list(state="running")) == 1
        over.set()
        for job in held:
            job.wait(10)


@pytest.mark.requirement("D6")
def test_a_free_slot_of_the_limit_is_taken_at_once_by_another_process(
    jobs: Duly, database_url: str, ledger: Ledger
) -> None:
    """The process that waits is woken when the other one's job ends, not by its poll."""
    tasks = declare(jobs, ledger, limit=1)
    with several(2, database_url, ledger, limit=1, worker={"thread_slots": 1}):
        started = time.monotonic()
        stored = [tasks.limited.enqueue(str(n), 0.05) for n in range(10)]
        for job in stored:
            job.wait(20)
        assert time.monotonic() - started < 6
    assert ledger.most_at_once() == 1


@pytest.mark.requirement("D6")
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_a_worker_that_frees_slots_all_the_time_leaves_some_to_others(
    jobs: Duly, database_url: str, busy: bool
) -> None:
    """Two programs share the limit of a queue, and neither knows the tasks of the other."""
    other = Duly(database_url)

    @jobs.task
    async def often() -> None:
        await asyncio.sleep(0.001)

    @other.task
    async def once() -> None: ...

    @other.task(queue="else")
    async def something_else() -> None:
        await asyncio.sleep(0.001)

    jobs.set_limit(queue="default", concurrency=2)
    often.enqueue_many([{}] * 20_000)
    if busy:
        something_else.enqueue_many([{}] * 60_000)
    with jobs.worker(queues=["default"]), other.worker(queues=["default", "else"], async_slots=4) as elsewhere:
        eventually(lambda: jobs.counts().ended)
        if busy:  # until it has said that it need not be woken
            idle = f"SELECT idle FROM duly.workers WHERE id = '{elsewhere.id}'"
            with closing(Raw(database_url)) as raw:
                eventually(lambda: not raw.one(idle), within=10, every=0.05)
        for _ in range(3):
            once.enqueue().wait(8)
        assert any(row[2] == "often" for row in jobs.counts().waiting), "there was much to do all the time"
    other.close()


@pytest.mark.requirement("D6", "D7")
def test_the_slot_of_a_killed_worker_is_free_again_though_the_limit_looked_full(
    jobs: Duly, database_url: str, ledger: Ledger
) -> None:
    tasks = declare(jobs, ledger, limit=1)
    with worker_process(database_url, ledger, limit=1) as doomed:
        stuck = tasks.limited.enqueue("stuck", 60)
        eventually(lambda: ledger.count("start", "stuck"))
        waiting = tasks.limited.enqueue("waiting", 0)
        with jobs.worker():
            never(lambda: ledger.count("start", "waiting"), 0.5)
            doomed.kill()
            stuck.cancel()
            waiting.wait(10)
    assert stuck.refresh().state.terminal


@pytest.mark.requirement("D7")
def test_a_lease_that_lapsed_does_not_count_even_before_it_is_rescued(jobs: Duly) -> None:
    """A stuck job does not hold its slot for a moment longer than its lease."""

    @jobs.task(concurrency=1)
    def limited(n: int) -> int:
        return n

    jobs.store.gates.set_limit("task", "limited", Says(slots=1))
    limited.enqueue_many([{"n": 1}, {"n": 2}])
    lane = [Lane("", "limited")]
    assert (
        len(jobs.store.claim("default", lane, 2, worker_id=uuid7(), lease_us=300_000, gates=[("task", "limited")])) == 1
    )
    assert jobs.store.claim("default", lane, 2, worker_id=uuid7(), lease_us=300_000, gates=[("task", "limited")]) == []
    eventually(
        lambda: jobs.store.claim("default", lane, 2, worker_id=uuid7(), lease_us=300_000, gates=[("task", "limited")])
    )


@pytest.mark.requirement("D6")
def test_retries_snoozes_and_failures_give_their_slot_back(jobs: Duly, ledger: Ledger) -> None:
    @jobs.task(concurrency=1, retry=Backoff.fixed(0.05, max_attempts=2))
    def limited(how: str) -> str:
        ledger.write(how, "start")
        try:
            time.sleep(0.01)
            if how == "fails":
                raise ValueError
            if how == "snoozes" and ledger.count("start", how) == 1:
                raise Snooze(timedelta(seconds=0.05))
            return how
        finally:
            ledger.write(how, "end")

    with jobs.worker():
        stored = [limited.enqueue(how) for how in ("fails", "snoozes", "works")]
        eventually(lambda: all(job.refresh().state.terminal for job in stored))
    assert [job.state for job in stored] == [State.FAILED, State.SUCCEEDED, State.SUCCEEDED]
    assert ledger.most_at_once() == 1


def test_the_limit_that_the_newest_worker_states_is_the_limit(database_url: str, ledger: Ledger) -> None:
    with opened(database_url) as first, opened(database_url) as second:
        old, new = declare(first, ledger, limit=1), declare(second, ledger, limit=4)
        with first.worker():
            for job in [old.limited.enqueue(str(n), 0.03) for n in range(6)]:
                job.wait(10)
        assert ledger.most_at_once() == 1
        with second.worker():
            for job in [new.limited.enqueue(str(n), 0.1) for n in range(8)]:
                job.wait(10)
        assert ledger.most_at_once() == 4


def test_async_tasks_have_limits_too(jobs: Duly, ledger: Ledger) -> None:
    @jobs.task(concurrency=5)
    async def limited(n: int) -> None:
        ledger.write(str(n), "start")
        await asyncio.sleep(0.03)
        ledger.write(str(n), "end")

    with jobs.worker(), jobs.worker():
        for job in limited.enqueue_many([{"n": n} for n in range(40)]):
            job.wait(20)
    assert ledger.most_at_once() == 5
