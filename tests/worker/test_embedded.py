"""A worker inside the caller's process: with and async with, several of them, forks, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from duly import Duly, State
from duly.domain.outcome import released
from duly.domain.records import Claimed, Lane, Settled
from duly.worker.context import Run, lease_time
from tests.clock import us
from tests.databases import Databases, Kind
from tests.helpers import ROOT, eventually, opened


def open_files() -> Counter[str]:
    """What this process has open, and how often."""
    found: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one by which this is read
            found[re.sub(r"\d+", "N", os.readlink(f"/proc/self/fd/{number}"))] += 1
    return found


def test_a_job_that_was_claimed_ahead_and_given_back_is_no_run(jobs: Duly) -> None:
    @jobs.task
    def work() -> None: ...

    job, worker = work.enqueue(), jobs.worker()._worker
    for end, runs, state in ((released, 0, State.QUEUED), (succeeded, 1, State.SUCCEEDED)):
        (claimed,) = jobs.store.claim("default", [Lane("", "work")], 1, worker_id=worker.id, lease_us=us(60))
        run = worker._held[job.id] = Run(claimed, work.definition, lease_time())
        worker._finisher.conclude((run, time.monotonic_ns(), end(claimed)))
        worker._finisher.step()
        assert (worker.settled, job.refresh().state) == (runs, state)


def succeeded(job: Claimed) -> Settled:
    return Settled(job.id, job.token, "succeeded", "succeeded", ran_us=5)


@pytest.mark.requirement("D4")
def test_a_worker_lives_as_long_as_its_block(jobs: Duly) -> None:
    @jobs.task
    def work(n: int) -> int:
        return n

    with jobs.worker() as worker:
        assert [record.id for record in jobs.workers()] == [worker.id]
        assert work.enqueue(1).wait(5) == 1
        assert eventually(lambda: worker.settled) == 1
        eventually(lambda: (worker.claimed, worker.busy) == (1, 0))  # a job may end before its claim is counted
    assert jobs.workers() == []
    left = work.enqueue(2)
    assert left.state is State.QUEUED


@pytest.mark.requirement("D4")
def test_a_worker_lives_inside_an_event_loop_without_blocking_it(jobs: Duly) -> None:
    loops: set[int] = set()

    @jobs.task
    async def work(n: int) -> int:
        loops.add(id(asyncio.get_running_loop()))
        await asyncio.sleep(0.01)
        return n

    async def main() -> int:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0.01)
                beats += 1

        heart = asyncio.create_task(beat())
        async with jobs.worker():
            assert list(await asyncio.gather(*[await work.aenqueue(n) for n in range(5)])) == [0, 1, 2, 3, 4]
            await asyncio.sleep(0.3)
        heart.cancel()
        assert id(asyncio.get_running_loop()) not in loops, "handlers have a loop of their own"
        return beats

    assert asyncio.run(main()) > 10


@pytest.mark.requirement("D4")
def test_a_block_that_raises_stops_its_worker_too(lite: Duly) -> None:
    @lite.task
    def work() -> None: ...

    with pytest.raises(ZeroDivisionError), lite.worker():
        raise ZeroDivisionError
    assert lite.workers() == []


def test_two_objects_on_two_databases_work_side_by_side_in_one_process(
    databases: Databases, database_kind: Kind
) -> None:
    ran: list[str] = []
    with (
        databases.fresh(database_kind) as first_url,
        databases.fresh(Kind.SQLITE) as second_url,
        opened(first_url) as first,
        opened(second_url) as second,
    ):

        @first.task
        def work(n: int) -> str:
            ran.append("first")
            return f"first {n}"

        @second.task(name="work")
        async def other(n: int) -> str:
            ran.append("second")
            return f"second {n}"

        with first.worker(), second.worker():
            stored = [task.enqueue(n) for n in range(10) for task in (work, other)]
            assert [job.wait(10) for job in stored] == [
                f"{side} {n}" for n in range(10) for side in ("first", "second")
            ]
        assert len(first.list()) == len(second.list()) == 10


def test_two_workers_of_one_object_share_the_work(lite: Duly) -> None:
    together = threading.Barrier(2)

    @lite.task
    def work() -> int:
        together.wait(5)
        return 1

    with lite.worker(thread_slots=1), lite.worker(thread_slots=1):
        assert len(lite.workers()) == 2
        one, two = work.enqueue(), work.enqueue()
        assert (one.wait(5), two.wait(5)) == (1, 1)


def test_starting_and_stopping_many_times_leaks_nothing(jobs: Duly) -> None:
    """Counted when `jobs` is closed: until then SQLite keeps files open for connections to come."""

    @jobs.task
    def plain() -> int:
        return 1

    @jobs.task
    async def coroutine() -> int:
        return 2

    def once() -> None:
        with jobs.worker():
            assert (plain.enqueue().wait(5), coroutine.enqueue().wait(5)) == (1, 2)

    once()
    jobs.close()
    gc.collect()
    threads, files = threading.active_count(), open_files()
    for _ in range(6):
        once()
    jobs.close()
    eventually(lambda: threading.active_count() <= threads)

    def too_many() -> Counter[str]:
        gc.collect()
        now = open_files()
        return now - files if now.total() > files.total() + 2 else Counter()

    with suppress(AssertionError):
        eventually(lambda: not too_many())
    assert too_many() == Counter()


def in_a_child(work: str, url: str) -> str:
    """Run a program that forks; returns what it printed. In a process of its own, for pytest has threads."""
    program = f"""
        import os, sys, threading
        from duly import Duly

        jobs = Duly({url!r})

        @jobs.task
        def double(n: int) -> int:
            return 2 * n

        def forked(work):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    work()
                    code = 0
                except BaseException:
                    import traceback
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program) + textwrap.dedent(work)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_object_that_was_used_works_on_in_a_forked_child_and_in_its_parent(database_url: str) -> None:
    """F43: as a web server does that loads the application before it forks."""
    said = in_a_child(
        """
        before = double.enqueue(1)
        assert before.state == "queued"

        def child():
            print("child", double.enqueue(2).created, len(jobs.list()))
            with jobs.worker():
                print("child", before.wait(10), double.enqueue(3).wait(10))

        forked(child)
        after = double.enqueue(4)
        with jobs.worker():
            print("parent", after.wait(10), len(jobs.list()))
        jobs.close()
        """,
        database_url,
    )
    assert said.splitlines() == ["child True 2", "child 2 6", "parent 8 4"]


def test_waiting_works_in_a_child_that_was_forked_while_its_parent_waited(database_url: str) -> None:
    said = in_a_child(
        """
        first = double.enqueue(1)
        waiting = threading.Thread(target=lambda: print("parent", first.wait(20)))
        waiting.start()
        while not jobs.waiters._waiting:
            pass

        def child():
            second = double.enqueue(2)
            with jobs.worker():
                print("child", second.wait(10))

        forked(child)
        waiting.join()
        jobs.close()
        """,
        database_url,
    )
    assert sorted(said.splitlines()) == ["child 4", "parent 2"]


def test_a_fork_under_a_running_worker_harms_neither(database_url: str) -> None:
    said = in_a_child(
        """
        with jobs.worker():
            assert double.enqueue(1).wait(10) == 2

            def child():
                print("child", double.enqueue(5).wait(10))

            forked(child)
            print("parent", double.enqueue(2).wait(10))
        jobs.close()
        """,
        database_url,
    )
    assert said.splitlines() == ["child 10", "parent 4"]


def test_a_program_that_ends_without_stopping_its_worker_ends(sqlite_url: str, tmp_path: Path) -> None:
    """Every thread of ours is a daemon: a forgotten stop does not keep the process alive."""
    said = in_a_child(
        """
        worker = jobs.worker()
        worker.start()
        print(double.enqueue(4).wait(10))
        """,
        sqlite_url,
    )
    assert said.strip() == "8"


def test_nothing_is_opened_before_it_is_needed(tmp_path: Path) -> None:
    before = threading.active_count(), open_files()
    jobs = Duly(f"sqlite:///{tmp_path}/duly.db")

    @jobs.task
    def work() -> None: ...

    jobs.worker()
    assert (threading.active_count(), open_files()) == before
    assert list(tmp_path.iterdir()) == []
    jobs.close()


def test_an_object_that_was_closed_opens_again_when_it_is_used(lite: Duly) -> None:
    @lite.task
    def work() -> int:
        return 1

    work.enqueue()
    lite.close()
    lite.close()
    assert len(lite.list()) == 1
    with lite.worker():
        assert work.enqueue().wait(5) == 1
