"""Running jobs: in which order, in which slots, from which queues, and what a worker leaves alone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from duly import Duly, State, Task
from duly.worker.slots import QueueShare
from tests.helpers import Ledger, eventually, never, opened, worker_process
from tests.worker.tasks import declare


@pytest.mark.requirement("C8", "D2")
def test_def_and_async_def_tasks_run_and_leave_their_result(jobs: Duly) -> None:
    @jobs.task
    def plain(a: int, *rest: int, **options: int) -> int:
        return a + sum(rest) + sum(options.values())

    @jobs.task
    async def coroutine(a: int, /, b: int, *, c: int) -> int:
        await asyncio.sleep(0.001)
        return a * b * c

    with jobs.worker():
        assert plain.enqueue(1, 2, 3, x=4).wait(5) == 10
        assert coroutine.enqueue(2, 3, c=4).wait(5) == 24


@pytest.mark.requirement("C1")
@pytest.mark.everywhere
@pytest.mark.parametrize("tenants", [1, 3])
def test_jobs_run_by_priority_then_oldest_first_across_tasks_and_tenants(jobs: Duly, tenants: int) -> None:
    if tenants > 1:
        jobs.set_fair("default", False)  # else each tenant has its turn
    ran: list[str] = []

    @jobs.task
    def one(label: str) -> None:
        ran.append(label)

    @jobs.task
    def two(label: str) -> None:
        ran.append(label)

    @jobs.task
    def three(label: str) -> None:
        ran.append(label)

    tasks = {"one": one, "two": two, "three": three}
    plan = [("one", 0), ("two", 50), ("three", 0), ("one", 50), ("two", 100), ("three", 100), ("one", 7), ("two", 0)]
    for position, (name, priority) in enumerate(plan):
        task = tasks[name].using(priority=priority, tenant=f"t{position % tenants}")
        task.enqueue(f"{100 - priority:03d}-{position}")
    with jobs.worker(thread_slots=1):
        eventually(lambda: len(ran) == len(plan))
    assert ran == sorted(ran)


@contextmanager
def flooded(flood: Task[[], None], jobs: Duly) -> Iterator[None]:
    """Keep about a hundred jobs of the highest priority waiting all the time, also where this thread has to wait."""
    over = threading.Event()

    def pour() -> None:
        while not over.is_set():
            waiting = sum(row[3] for row in jobs.counts().waiting if row[2] == "flood")
            if waiting < 100:
                flood.using(priority=100).enqueue_many([{}] * 50)
            time.sleep(0.02)

    thread = threading.Thread(target=pour)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("limit", [None, 2], ids=["open", "limited"])
def test_a_job_of_the_lowest_priority_is_never_starved_by_a_flood_of_the_highest(jobs: Duly, limit: int | None) -> None:
    ran, flooding = threading.Event(), threading.Event()

    @jobs.task
    def flood() -> None:
        flooding.set()
        time.sleep(0.004)

    @jobs.task(concurrency=limit)
    def patient() -> None:
        ran.set()

    jobs.set_aging("default", timedelta(seconds=1))
    with jobs.worker(thread_slots=1), flooded(flood, jobs):
        assert flooding.wait(8), "the worker knows of the flood"
        eventually(lambda: jobs.counts().waiting)
        started = time.monotonic()
        patient.enqueue()
        assert ran.wait(8), "starved"
        waited = time.monotonic() - started
    assert waited > 0.7, "priority 100 is a head start of one horizon, and there was a backlog of it all the time"


@pytest.mark.requirement("C2")
def test_with_strict_priority_the_lowest_waits_as_long_as_there_is_a_higher(jobs: Duly) -> None:
    ran = threading.Event()

    @jobs.task
    def flood() -> None:
        time.sleep(0.004)

    @jobs.task
    def patient() -> None:
        ran.set()

    jobs.set_aging("default", None, strict=True)
    with jobs.worker(thread_slots=1):
        with flooded(flood, jobs):
            eventually(lambda: jobs.counts().waiting)
            patient.enqueue()
            never(ran.is_set, 1.5)
        assert ran.wait(5), "and runs when the flood is over"


@pytest.mark.requirement("C1")
def test_a_limited_task_takes_its_place_by_priority_too(jobs: Duly) -> None:
    ran: list[str] = []

    @jobs.task
    def open_task(n: int) -> None:
        ran.append(f"open {n}")

    @jobs.task(concurrency=1)
    def limited() -> None:
        ran.append("limited")

    open_task.enqueue_many([{"n": n} for n in range(50)])
    limited.using(priority=100).enqueue()
    with jobs.worker(thread_slots=1):
        eventually(lambda: len(ran) == 51)
    assert ran.index("limited") <= 1


@pytest.mark.requirement("D5")
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_free_slots_fill_at_once_while_a_long_job_runs(lite: Duly, kind: str) -> None:
    over = threading.Event()
    ran: list[int] = []

    if kind == "def":

        @lite.task
        def long() -> None:
            over.wait(10)

        @lite.task
        def quick(n: int) -> None:
            ran.append(n)
    else:

        @lite.task(name="long")
        async def along() -> None:
            while not over.is_set():
                await asyncio.sleep(0.01)

        @lite.task(name="quick")
        async def aquick(n: int) -> None:
            ran.append(n)

    with lite.worker(thread_slots=2, async_slots=2):
        job = lite.enqueue("long")
        eventually(lambda: job.refresh().state is State.RUNNING)
        for n in range(10):
            asked = time.monotonic()
            lite.enqueue("quick", {"n": n}).wait(5)
            assert time.monotonic() - asked < 2
        assert ran == list(range(10))
        assert job.refresh().state is State.RUNNING
        over.set()
        job.wait(5)


@pytest.mark.requirement("D5")
def test_as_many_jobs_run_at_once_as_there_are_slots_and_no_more(lite: Duly) -> None:
    together = threading.Barrier(4)
    now, most = Counter[str](), Counter[str]()
    lock = threading.Lock()

    def enter(kind: str) -> None:
        with lock:
            now[kind] += 1
            most[kind] = max(most[kind], now[kind])

    def leave(kind: str) -> None:
        with lock:
            now[kind] -= 1

    @lite.task
    def plain() -> None:
        enter("plain")
        together.wait(5)
        leave("plain")

    @lite.task
    async def coroutine() -> None:
        enter("coroutine")
        await asyncio.sleep(0.05)
        leave("coroutine")

    stored = [*plain.enqueue_many([{}] * 12), *coroutine.enqueue_many([{}] * 30)]
    with lite.worker(thread_slots=4, async_slots=10):
        for job in stored:
            job.wait(10)
    assert most == {"plain": 4, "coroutine": 10}


def test_a_queue_with_fixed_slots_never_has_more_and_always_gets_them(jobs: Duly) -> None:
    now, most = Counter[str](), Counter[str]()
    lock = threading.Lock()
    over = threading.Event()

    @jobs.task
    def work(queue: str) -> None:
        with lock:
            now[queue] += 1
            most[queue] = max(most[queue], now[queue])
        over.wait(10)
        with lock:
            now[queue] -= 1

    for queue in ("mail", "bulk", "other"):
        work.using(queue=queue).enqueue_many([{"queue": queue}] * 12)
    with jobs.worker({"mail": 2, "bulk": 12}):
        eventually(lambda: most == {"mail": 2, "bulk": 12})
        never(lambda: most["mail"] > 2, 0.2)
        over.set()
        eventually(lambda: sum(row[3] for row in jobs.counts().waiting) == 12)
    assert most == {"mail": 2, "bulk": 12}, "the queue that was not named is left alone"


@pytest.mark.parametrize("duration", [0.0, 0.002])
def test_queues_share_the_slots_by_weight(jobs: Duly, duration: float) -> None:
    ran: list[str] = []

    @jobs.task
    def work(queue: str) -> None:
        time.sleep(duration)
        ran.append(queue)

    for queue in ("heavy", "light"):
        work.using(queue=queue).enqueue_many([{"queue": queue}] * 1_000)
    shares = [QueueShare(name="heavy", weight=4), QueueShare(name="light", weight=1)]
    with jobs.worker(shares, thread_slots=5):
        eventually(lambda: len(ran) >= 600, within=10)
    share = Counter(ran[:600])["heavy"] / 600
    assert 0.72 < share < 0.88, f"{share:.0%} where 80 % is due"


def test_a_worker_takes_from_the_queues_that_its_tasks_are_declared_for(lite: Duly) -> None:
    @lite.task(queue="mail")
    def work(n: int) -> int:
        return n

    elsewhere = work.using(queue="elsewhere").enqueue(3)
    with lite.worker():
        assert work.enqueue(1).wait(5) == 1
        assert work.using(queue="default").enqueue(2).wait(5) == 2
    assert elsewhere.refresh().state is State.QUEUED
    with lite.worker(["elsewhere"]):
        assert elsewhere.wait(5) == 3


@pytest.mark.requirement("E4", "D2")
@pytest.mark.everywhere
def test_a_task_that_this_worker_does_not_know_is_left_alone_and_in_nobodys_way(jobs: Duly, database_url: str) -> None:
    @jobs.task
    def newer(n: int) -> int:
        return n

    @jobs.task
    def both(n: int) -> int:
        return -n

    strange = newer.using(priority=100).enqueue_many([{"n": n} for n in range(2_000)])
    with opened(database_url) as old:
        old.task(name="both")(lambda n: 2 * n)
        known = both.enqueue(5)
        with old.worker():
            assert known.wait(5) == 10
            assert old.counts().waiting[0][3] == 2_000
        first = old.get(strange[0].id)
        assert (first.state, first.attempts, first.runs) == (State.QUEUED, 0, [])
    with jobs.worker():
        assert strange[-1].wait(20) == 1_999, "a worker that knows it runs it"


@pytest.mark.requirement("D6")
def test_of_many_workers_exactly_one_runs_each_job(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger), worker_process(database_url, ledger), jobs.worker():
        stored = tasks.note.enqueue_many([{"name": str(n)} for n in range(400)])
        for n in range(100):
            stored.append(tasks.note.enqueue(str(400 + n)))
        for job in stored:
            job.wait(30)
    counts = Counter(entry.name for entry in ledger.entries())
    assert counts == {str(n): 1 for n in range(500)}


@pytest.mark.requirement("C5")
def test_a_delayed_job_does_not_run_before_its_time(jobs: Duly) -> None:
    ran: list[float] = []

    @jobs.task
    def note() -> None:
        ran.append(time.time())

    with jobs.worker():
        job = note.using(delay=0.7).enqueue()
        job.wait(5)
    due = job.created_at.timestamp() + 0.7
    assert due <= ran[0] < due + 0.5


def test_a_job_that_could_not_start_in_time_expires_without_a_run(jobs: Duly) -> None:
    ran: list[int] = []

    @jobs.task(expires=0.1)
    def note(n: int) -> None:
        ran.append(n)

    late = note.enqueue(1)
    eventually(lambda: time.time() > late.created_at.timestamp() + 0.2)
    with jobs.worker():
        eventually(lambda: late.refresh().state is State.CANCELLED)
        note.enqueue(2).wait(5)
    assert ran == [2]
    assert late.reason is not None
    assert "expired" in late.reason
    assert late.attempts == 0


@pytest.mark.requirement("E4")
def test_more_lanes_than_one_look_can_see_hide_no_job(
    jobs: Duly, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane is a tenant's jobs of one task: here are many of a task that nobody knows, and ours behind them."""
    monkeypatch.setattr("duly.store.ops_claim.MAX_LANES", 20)
    monkeypatch.setattr("duly.worker.claimer.MAX_LANES", 20)

    @jobs.task
    def strange() -> None: ...

    @jobs.task
    def work(tenant: str) -> str:
        return tenant

    for n in range(90):
        strange.using(tenant=f"a{n:03d}").enqueue()
    stored = [work.using(tenant=f"z{n:03d}").enqueue(f"z{n:03d}") for n in range(90)]
    with opened(database_url) as knowing:
        knowing.task(name="work")(lambda tenant: tenant)
        with knowing.worker():
            assert [job.wait(10) for job in stored] == [f"z{n:03d}" for n in range(90)]
            assert work.using(tenant="zzz").enqueue("late").wait(5) == "late"
        stored = [work.using(tenant=f"z{n:03d}").enqueue(f"z{n:03d}") for n in range(50)]
        while knowing.tick(20).claimed:
            pass
        assert {job.refresh().state for job in stored} == {State.SUCCEEDED}
