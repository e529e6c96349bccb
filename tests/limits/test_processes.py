"""Limits, rates and keys among real workers: several processes, killed ones, and workers that sleep and wake."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest

from duly import Duly, State
from duly.domain.limits import Rate, Says
from duly.store import ops_limits
from duly.store.store import Store
from duly.worker import executor
from tests.helpers import Entry, Ledger, WorkerProcess, eventually, never, opened
from tests.worker.tasks import declare

pytestmark = pytest.mark.requirement("D6")


def overlaps(entries: list[Entry], killed: dict[int, float]) -> list[tuple[str, str]]:
    """Runs of one key that were under way at the same time; a killed process's runs end when it was killed."""
    open_runs: dict[str, dict[str, Entry]] = defaultdict(dict)
    found = []
    for entry in sorted(entries, key=lambda each: each.at):
        key, _, name = entry.name.partition(" ")
        if entry.event == "end":
            open_runs[key].pop(name, None)
            continue
        live = [each for each in open_runs[key].values() if killed.get(each.pid, float("inf")) > entry.at]
        found += [(each.name, entry.name) for each in live]
        open_runs[key][name] = entry
    return found


def work_and_kill(jobs: Duly, url: str, ledger: Ledger, *, n: int, keys: int, kills: int, seconds: float) -> None:
    """Several processes work; now and then one is killed and another takes its place."""
    tasks = declare(jobs, ledger)
    calls = [{"key": f"k{i % keys}", "name": str(i), "seconds": seconds} for i in range(n)]
    stored = tasks.keyed.enqueue_many(calls)
    killed: dict[int, float] = {}
    with ExitStack() as stack:

        def start() -> WorkerProcess:
            # Who has not heard of a worker notices its death by its lease, once it is itself as old as that.
            process = WorkerProcess(url, ledger, settings={"lease": "5s"}, worker={"thread_slots": 8})
            stack.callback(process.close)
            return process

        processes = [start() for _ in range(3)]
        for process in processes:
            process.ready()
        for _ in range(kills):
            wanted = min(n, ledger.count("end") + n // (kills + 2) // 2)
            eventually(lambda wanted=wanted: ledger.count("end") >= wanted, 30, every=0.02)  # type: ignore[misc]
            if wanted == n:
                break  # all is done: they were quicker than we
            busy = ledger.entries("start")[-1].pid
            doomed = next((each for each in processes if each.pid == busy), processes[0])
            processes.remove(doomed)
            killed[doomed.pid] = time.monotonic()  # before: the others may have its runs before we have reaped it
            doomed.kill()
            processes.append(start())
        for job in stored:
            job.wait(60)
    assert len(killed) >= kills // 2, "most of them were killed while there was work"
    assert overlaps(ledger.entries(), killed) == []
    ran = Counter(entry.name for entry in ledger.entries("end"))
    assert len(ran) == n
    assert {job.refresh().state for job in stored} == {State.SUCCEEDED}
    pids = {entry.pid for entry in ledger.entries()}
    assert len(pids) >= 2, "one process did it all: nothing was shown"


@pytest.mark.requirement("D7")
def test_no_two_runs_of_a_key_at_once_though_workers_are_killed(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    work_and_kill(jobs, database_url, ledger, n=120, keys=8, kills=2, seconds=0.08)


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.requirement("D7")
def test_no_two_runs_of_a_key_at_once_for_long(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    work_and_kill(jobs, database_url, ledger, n=3_000, keys=40, kills=12, seconds=0.03)


@pytest.mark.requirement("D7")
def test_the_key_of_a_killed_worker_is_free_again(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    tasks = declare(jobs, ledger)
    with ExitStack() as stack:
        doomed = WorkerProcess(database_url, ledger)
        stack.callback(doomed.close)
        doomed.ready()
        stuck = tasks.keyed.enqueue("k", "stuck", 60)
        eventually(lambda: ledger.count("start"), 10)
        after = tasks.keyed.enqueue("k", "after", 0)
        with jobs.worker():
            never(lambda: ledger.count("start", "k after"), 0.3)
            doomed.kill()
            stuck.cancel()
            after.wait(20)


def test_a_rate_holds_over_several_processes(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    tasks = declare(jobs, ledger)
    with ExitStack() as stack:
        processes = [WorkerProcess(database_url, ledger, worker={"thread_slots": 4}) for _ in range(3)]
        for process in processes:
            stack.callback(process.close)
        for process in processes:
            process.ready()
        began = time.monotonic()
        tasks.rated.enqueue_many([{"name": str(n)} for n in range(300)])
        time.sleep(2.5)
        at = sorted(entry.at for entry in ledger.entries("start"))
        took = time.monotonic() - began
    for first, start in enumerate(at):
        for last in range(first, len(at)):
            assert last - first + 1 <= 6 + 40 * (at[last] - start) + 1e-6, "more than the burst and what time brings"
    assert len(at) >= 0.5 * 40 * took, "and much of it is used, also on a busy machine"


def test_a_limit_of_a_queue_is_raised_and_lowered_while_processes_work(
    jobs: Duly, database_url: str, ledger: Ledger
) -> None:
    tasks = declare(jobs, ledger)
    jobs.set_limit(queue="default", concurrency=2)
    with ExitStack() as stack:
        processes = [WorkerProcess(database_url, ledger, worker={"thread_slots": 6}) for _ in range(2)]
        for process in processes:
            stack.callback(process.close)
        for process in processes:
            process.ready()
        first = tasks.hold.enqueue_many([{"name": f"a{n}", "seconds": 0.05} for n in range(16)])
        for job in first:
            job.wait(30)
        assert ledger.most_at_once() == 2
        jobs.set_limit(queue="default", concurrency=5)
        second = tasks.hold.enqueue_many([{"name": f"b{n}", "seconds": 0.1} for n in range(20)])
        for job in second:
            job.wait(30)
        assert 3 <= ledger.most_at_once() <= 5
        jobs.set_limit(queue="default", concurrency=1)
        seen = len(ledger.entries())
        third = tasks.hold.enqueue_many([{"name": f"c{n}", "seconds": 0.02} for n in range(6)])
        for job in third:
            job.wait(30)
        last = sorted(ledger.entries()[seen:], key=lambda entry: entry.at)
        assert [entry.event for entry in last] == ["start", "end"] * 6


def test_a_worker_learns_of_a_limit_that_nobody_told_it_of(jobs: Duly, ledger: Ledger) -> None:
    """The hint is lost: its claims get nothing, so it reads what is limited."""
    tasks = declare(jobs, ledger)
    with jobs.worker(thread_slots=6):
        tasks.note.enqueue("first").wait(10)
        jobs.store.database.write(lambda: ops_limits.set_by_hand("task", "hold", Says(slots=2), actor=None))
        stored = tasks.hold.enqueue_many([{"name": str(n), "seconds": 0.05} for n in range(6)])
        for job in stored:
            job.wait(20)
    assert ledger.most_at_once() == 2


class Counted:
    """How many operations reach the database."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, jobs: Duly) -> None:
        self.n = 0
        kind = type(jobs.store.database)
        for name in ("read", "write"):
            monkeypatch.setattr(kind, name, self._counting(getattr(kind, name)))

    def _counting(self, method: Any) -> Any:
        def count(database: Any, *args: Any, **options: Any) -> Any:
            self.n += 1
            return method(database, *args, **options)

        return count

    def within(self, seconds: float) -> int:
        before = self.n
        time.sleep(seconds)
        return self.n - before


def test_a_worker_sleeps_until_a_rate_opens_and_wakes_then(
    jobs: Duly, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    @jobs.task(rate="1/2s")
    def slow(n: int) -> None:
        ledger.write(str(n), "start")

    with jobs.worker():
        stored = slow.enqueue_many([{"n": n} for n in range(3)])
        stored[0].wait(10)
        counted = Counted(monkeypatch, jobs)
        asked = counted.within(1.2)
        for job in stored:
            job.wait(20)
    at = [entry.at for entry in ledger.entries("start")]
    assert all(1.9 <= late - early < 3.5 for early, late in pairwise(at)), at
    assert asked < 40, f"{asked} operations in 1.2 s of sleep"


@pytest.mark.parametrize("known", [True, False])
def test_jobs_of_a_rated_key_that_nobody_can_run_now_cause_no_storm(
    jobs: Duly, database_url: str, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """One stands in its lane and does not start: nobody needs to look at its key every hundredth of a second."""
    with opened(database_url) as other:

        @other.task(concurrency_key=lambda args: args.host, rate_per_key="100/s")
        def fetch(host: str) -> None: ...

        @jobs.task(name="fetch" if known else "something", concurrency_key=lambda args: args.host, rate_per_key="100/s")
        def mine(host: str) -> None: ...

        other.store.gates.declare(other.registry.limits(), other.registry.key_groups())
        jobs.pause(task="fetch")
        fetch.enqueue_many([{"host": host} for host in "abcde" for _ in range(4)])
        with jobs.worker():
            eventually(lambda: (jobs.store.next_due_us() or 1) > 0, 10)
            counted = Counted(monkeypatch, jobs)
            asked = counted.within(1.5)
    assert asked < 60, f"{asked} operations in 1.5 s in which nothing could be done"


def test_a_sleeping_worker_wakes_for_a_key_that_another_process_frees(
    jobs: Duly, database_url: str, ledger: Ledger
) -> None:
    tasks = declare(jobs, ledger)
    with ExitStack() as stack:
        processes = [WorkerProcess(database_url, ledger, worker={"thread_slots": 1}) for _ in range(2)]
        for process in processes:
            stack.callback(process.close)
        for process in processes:
            process.ready()
        began = time.monotonic()
        stored = [tasks.keyed.enqueue("k", str(n), 0.05) for n in range(12)]
        for job in stored:
            job.wait(20)
        assert time.monotonic() - began < 8
    assert overlaps(ledger.entries(), {}) == []


def test_a_pause_of_a_key_and_jobs_told_to_wait_do_not_stop_a_limited_task(jobs: Duly) -> None:
    @jobs.task(concurrency=2, concurrency_key=lambda args: args.host, rate_per_key="50/s")
    def fetch(host: str) -> str:
        return host

    with jobs.worker():
        jobs.pause(key="fetch/a")
        held = fetch.enqueue("a")
        assert [fetch.enqueue(host).wait(10) for host in ("b", "c", "b", "c")] == ["b", "c", "b", "c"]
        assert held.refresh().state is State.QUEUED
        jobs.resume(key="fetch/a")
        assert held.wait(10) == "a"


@pytest.mark.parametrize("slow", ["claims", "everything"])
def test_a_slow_database_or_machine_does_not_keep_jobs_under_a_rate_from_starting(
    jobs: Duly, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    """They must start within 30 ms of their claim; where none could, some do all the same."""

    @jobs.task(rate="20/s")
    def quick(n: int) -> None: ...

    real = Store.claim

    def claim(store: Store, *args: Any, **options: Any) -> Any:
        got = real(store, *args, **options)
        time.sleep(0.05)
        return got

    if slow == "claims":
        monkeypatch.setattr(Store, "claim", claim)
    else:
        monkeypatch.setattr(executor, "LATE", -1.0)
    with jobs.worker():
        for job in quick.enqueue_many([{"n": n} for n in range(5)]):
            job.wait(20)


def test_claims_are_what_the_rate_counts(jobs: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker with many slots asks no more often than the rate opens."""

    @jobs.task(rate=Rate(10, 1_000_000, 4))
    def quick(n: int) -> None: ...

    claims = Counter[bool]()
    real = Store.claim

    def claim(store: Store, *args: Any, **options: Any) -> Any:
        got = real(store, *args, **options)
        claims[bool(got)] += 1
        return got

    monkeypatch.setattr(Store, "claim", claim)
    with jobs.worker(thread_slots=20):
        for job in quick.enqueue_many([{"n": n} for n in range(15)]):
            job.wait(20)
    assert claims[False] <= 3 * claims[True] + 10, claims
