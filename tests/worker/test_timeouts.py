"""Timeouts: a run that takes too long fails with a TimeoutError, whatever it does, and its slot is of use again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from duly import Backoff, Duly, JobFailed, State, current_job
from tests.helpers import ROOT, eventually


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_run_that_takes_too_long_is_stopped_and_fails(jobs: Duly, kind: str) -> None:
    stopped: list[str] = []

    def busy() -> None:
        until = time.monotonic() + 10
        try:
            while time.monotonic() < until:
                time.sleep(0.005)
        except TimeoutError:
            stopped.append("TimeoutError")
            raise

    async def sleepy() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            stopped.append("CancelledError")
            raise

    task = jobs.declare(
        busy if kind == "def" else sleepy, {"name": "slow", "timeout": 0.2, "retry": Backoff.fixed(0, max_attempts=2)}
    )
    with jobs.worker():
        started = time.monotonic()
        job = task.enqueue()
        with pytest.raises(JobFailed, match=r"timed out after 200ms") as failed:
            job.wait(10)
        assert time.monotonic() - started < 5
    assert failed.value.kind == "TimeoutError"
    assert stopped == ["TimeoutError" if kind == "def" else "CancelledError"] * 2
    assert [run.outcome for run in job.runs] == ["failed", "failed"]
    for run in job.runs:
        assert 0.2 <= run.duration.total_seconds() < 2


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_the_slot_of_a_run_that_timed_out_is_free_again(lite: Duly, kind: str) -> None:
    def plain(seconds: float) -> float:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.005)
        return seconds

    async def coroutine(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    task = lite.declare(
        plain if kind == "def" else coroutine, {"name": "work", "timeout": 0.15, "retry": Backoff.none()}
    )
    with lite.worker(thread_slots=1, async_slots=1):
        slow, quick = task.enqueue(5), task.enqueue(0.01)
        assert quick.wait(10) == 0.01
        assert slow.refresh().state is State.FAILED


def test_a_run_within_its_time_is_left_alone(lite: Duly) -> None:
    @lite.task(timeout=5)
    def plain() -> int:
        time.sleep(0.05)
        return 1

    @lite.task(timeout=5)
    async def coroutine() -> int:
        await asyncio.sleep(0.05)
        return 2

    with lite.worker():
        stored = [task.enqueue() for _ in range(20) for task in (plain, coroutine)]
        assert sorted(job.wait(10) for job in stored) == [1] * 20 + [2] * 20


def test_a_timeout_never_reaches_the_next_job_of_its_thread(lite: Duly) -> None:
    """Runs that end at about the moment their time is up must not leave the exception to another."""
    hit: list[str] = []

    @lite.task(timeout=0.05, retry=Backoff.none())
    def near(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass

    @lite.task(retry=Backoff.none())
    def innocent() -> int:
        try:
            until = time.monotonic() + 0.003
            while time.monotonic() < until:
                pass
        except BaseException as error:
            hit.append(repr(error))
            raise
        return 1

    stored = []
    for n in range(24):
        near.enqueue(0.045 + n % 10 / 1000)
        stored.append(innocent.enqueue())
    with lite.worker(thread_slots=1):
        for job in stored:
            assert job.wait(20) == 1
    assert hit == []


def test_the_time_can_be_given_at_enqueue_and_is_known_to_the_handler(lite: Duly) -> None:
    left: list[float | None] = []

    @lite.task
    def look() -> None:
        deadline = current_job().deadline
        left.append(None if deadline is None else deadline - time.monotonic())

    with lite.worker():
        look.enqueue().wait(5)
        look.using(timeout=30).enqueue().wait(5)
    assert left[0] is None
    assert left[1] is not None
    assert 29 < left[1] <= 30


def test_a_handler_that_swallows_the_timeout_and_stops_is_told_by_the_flag(lite: Duly) -> None:
    seen = threading.Event()

    @lite.task(timeout=0.1, retry=Backoff.none())
    def stubborn() -> None:
        job = current_job()
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                if job.wait_cancelled(0.05):
                    seen.set()
                    return
            except TimeoutError:
                continue

    with lite.worker():
        job = stubborn.enqueue()
        with pytest.raises(JobFailed, match="timed out"):
            job.wait(10)
    assert seen.is_set()


@pytest.mark.requirement("D7")
def test_a_run_that_ignores_its_timeout_is_given_up_by_the_database_and_keeps_its_thread(jobs: Duly) -> None:
    """F12: a hung handler whose worker goes on renewing: the deadline in the database ends it."""
    release = threading.Event()
    runs: list[int] = []

    @jobs.task(timeout=0.2, retry=Backoff.fixed(0, max_attempts=2), concurrency=1)
    def hung() -> int:
        runs.append(1)
        if len(runs) == 1:
            while not release.is_set():
                try:
                    release.wait(0.05)
                except TimeoutError:
                    continue
        return len(runs)

    with jobs.worker(lease=0.5, thread_slots=2):
        job = hung.enqueue()
        assert job.wait(10) == 2
        assert [run.outcome for run in job.runs] == ["crashed", "succeeded"]
        release.set()
        eventually(lambda: not jobs.list(state="running"))
    assert job.refresh().state is State.SUCCEEDED
    assert len(job.runs) == 2, "what the hung run returned at last was not recorded"


AND_THEN_A_PROFILER = """
import contextlib, faulthandler, sys, time
from duly import Backoff, Duly, JobFailed

faulthandler.dump_traceback_later(20, exit=True)
jobs = Duly(sys.argv[1])
jobs.migrate()

@jobs.task(timeout=0.1, retry=Backoff.none())
def slow():
    while True:
        time.sleep(0.005)

def called():
    return "fine"

with jobs.worker():
    with contextlib.suppress(JobFailed):
        slow.enqueue().wait(10)
sys.setprofile(lambda *_: None)
print(called())
"""


def test_after_a_timeout_the_process_can_still_be_profiled_or_traced(tmp_path: Path) -> None:
    """As debuggers, coverage and monitoring do it: on Python 3.11 an exception that was taken back hangs them all."""
    command = [sys.executable, "-c", AND_THEN_A_PROFILER, f"sqlite:///{tmp_path / 'jobs.db'}"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / "src")}, timeout=60)
    assert done.stdout == "fine\n", done.stderr
