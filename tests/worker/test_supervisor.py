"""`run_supervised`: real worker processes under a real supervisor, killed, stopped and replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from duly import Duly, JobFailed, State
from duly.worker.identity import started_at
from duly.worker.recycle import Recycle, resident_mb
from duly.worker.supervisor import FIRST_PAUSE, LONGEST_PAUSE, Member
from tests.helpers import ROOT, Ledger, eventually, opened

FAR = 30.0
APP = """
import os, signal, time
from pathlib import Path
from duly import Backoff, Duly
from tests.helpers import Ledger

jobs = Duly()
ledger = Ledger(Path(os.environ["TEST_LEDGER"]))

@jobs.task
def note(n: int) -> None:
    ledger.write(str(n))
    time.sleep(0.01)

@jobs.task
def hold(seconds: float) -> None:
    ledger.write("hold", "start")
    time.sleep(seconds)
    ledger.write("hold", "end")

@jobs.task(retry=Backoff.fixed(0.1, max_attempts=10))
def die() -> None:
    ledger.write("die", "start")
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Supervised:
    """A supervisor with its worker processes, and a `Duly` to give them work."""

    def __init__(self, directory: Path, url: str, jobs: Duly, ledger: Ledger, **options: Any) -> None:
        (directory / "app.py").write_text(APP)
        self.jobs = jobs
        self.ledger = ledger
        options = {"url": url, "argv": ["worker", "app.py", "--log-level", "warning"], **options}
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.worker.supervise", json.dumps(options)],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": path, "DULY_URL": url, "TEST_LEDGER": str(ledger.path)},
        )

    def pids(self) -> set[int]:
        """The processes of the workers on record."""
        return {worker.process.pid for worker in self.jobs.store.workers()}

    def ready(self, processes: int) -> set[int]:
        """Wait until so many workers are at work."""
        return eventually(lambda: pids if len(pids := self.pids()) >= processes else None, FAR) or set()

    def start_of_hold(self) -> int:
        """Wait until a handler is holding; returns its process."""
        return eventually(lambda: self.ledger.entries("start"), FAR)[-1].pid

    def stop(self) -> int:
        """Ask it to stop; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(FAR)


@contextmanager
def supervised(directory: Path, url: str, processes: int, **options: Any) -> Iterator[Supervised]:
    with opened(url) as jobs:
        declare(jobs)
        it = Supervised(directory, url, jobs, Ledger(directory / "ledger"), processes=processes, **options)
        try:
            yield it
        finally:
            if it.process.poll() is None:
                it.stop()


def declare(jobs: Duly) -> None:
    """Let the test enqueue what only the worker processes can run."""

    @jobs.task
    def note(n: int) -> None: ...

    @jobs.task
    def hold(seconds: float) -> None: ...

    @jobs.task
    def die() -> None: ...


def is_gone(pid: int) -> bool:
    return started_at(pid) is None


def test_a_killed_worker_is_replaced_and_its_jobs_run_again_within_three_seconds(
    database_url: str, tmp_path: Path
) -> None:
    with supervised(tmp_path, database_url, 2) as it:
        before = it.ready(2)
        job = it.jobs["hold"].enqueue(seconds=1.0)
        pid = it.start_of_hold()
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        again = eventually(lambda: it.ledger.entries("start")[1:], 10)[0]
        assert again.at - killed < 3
        eventually(lambda: len(it.pids() - before) == 1 and len(it.pids()) == 2, FAR)
        job.wait(FAR)
        assert it.stop() == 0
        assert [run.outcome for run in job.refresh().runs] == ["crashed", "succeeded"]
        assert it.pids() == set()


def test_a_poison_pill_takes_three_workers_and_the_other_jobs_run(database_url: str, tmp_path: Path) -> None:
    with supervised(tmp_path, database_url, 5) as it:
        it.ready(5)
        pill = it.jobs["die"].enqueue()
        others = it.jobs["note"].enqueue_many([{"n": n} for n in range(200)])
        with pytest.raises(JobFailed, match="ended"):
            pill.wait(60)
        for job in others:
            job.wait(FAR)
        assert it.stop() == 0
        assert str(pill.refresh().record.reason).startswith("poison: 3 runs in a row took their worker")
        assert len({entry.pid for entry in it.ledger.entries(name="die")}) == 3
        assert {entry.name for entry in it.ledger.entries("ran")} == {str(n) for n in range(200)}
        assert all(job.refresh().state == State.SUCCEEDED for job in others)


def test_sigterm_lets_running_jobs_end(sqlite_url: str, tmp_path: Path) -> None:
    with supervised(tmp_path, sqlite_url, 2) as it:
        it.ready(2)
        job = it.jobs["hold"].enqueue(seconds=1.0)
        it.start_of_hold()
        assert it.stop() == 0
        assert job.refresh().state == State.SUCCEEDED
        assert it.pids() == set()


def test_a_second_signal_stops_at_once_and_gives_jobs_back(sqlite_url: str, tmp_path: Path) -> None:
    with supervised(tmp_path, sqlite_url, 1, argv=["worker", "app.py", "--lease", "1s"]) as it:
        it.ready(1)
        job = it.jobs["hold"].enqueue(seconds=20)
        it.start_of_hold()
        it.process.send_signal(signal.SIGINT)
        eventually(lambda: it.jobs.store.workers()[0].state == "draining", FAR)
        begun = time.monotonic()
        assert it.stop() == 0
        assert time.monotonic() - begun < 8
        assert (job.refresh().state, job.record.attempt) == (State.QUEUED, 0)


def test_workers_are_recycled(sqlite_url: str, tmp_path: Path) -> None:
    argv = ["worker", "app.py", "--max-jobs", "5", "--threads", "1", "--log-level", "warning"]
    with supervised(tmp_path, sqlite_url, 1, argv=argv) as it:
        for job in it.jobs["note"].enqueue_many([{"n": n} for n in range(12)]):
            job.wait(FAR)
        assert it.stop() == 0
        ran = [entry.pid for entry in it.ledger.entries("ran")]
        assert len(ran) == 12
        assert max(ran.count(pid) for pid in ran) <= 5


def test_workers_that_are_done_are_not_started_again(sqlite_url: str, tmp_path: Path) -> None:
    argv = ["worker", "app.py", "--until-empty", "--log-level", "warning"]
    with opened(sqlite_url) as jobs:
        declare(jobs)
        done = jobs["note"].enqueue_many([{"n": n} for n in range(20)])
    with supervised(tmp_path, sqlite_url, 2, argv=argv, once=True) as it:
        assert it.process.wait(FAR) == 0
        assert all(it.jobs.get(job.id).state == State.SUCCEEDED for job in done)


def test_wrong_usage_ends_it_all_with_code_2(sqlite_url: str, tmp_path: Path) -> None:
    with supervised(tmp_path, sqlite_url, 2, argv=["worker", "there_is_no_such_file.py"]) as it:
        assert it.process.wait(FAR) == 2


def test_the_workers_of_a_killed_supervisor_end(sqlite_url: str, tmp_path: Path) -> None:
    with supervised(tmp_path, sqlite_url, 2) as it:
        pids = it.ready(2)
        job = it.jobs["hold"].enqueue(seconds=0.5)
        it.start_of_hold()
        it.process.kill()
        it.process.wait()
        eventually(lambda: all(is_gone(pid) for pid in pids), FAR)
        assert job.refresh().state == State.SUCCEEDED, "they were told to stop, not killed"


def test_a_worker_that_does_not_stop_is_killed(sqlite_url: str, tmp_path: Path) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open('up', 'w').close(); time.sleep(60)"
    )
    program = [sys.executable, "-c", stubborn]
    with supervised(tmp_path, sqlite_url, 1, argv=[], program=program, grace=0.1, slack=0.2) as it:
        eventually((tmp_path / "up").exists, FAR)
        assert it.stop() == 1


def test_what_dies_again_and_again_is_started_later_and_later() -> None:
    member = Member(1, [])
    member.started = time.monotonic()
    pauses = [member.start_again(at_once=False) for _ in range(12)]
    assert pauses[0] == 0
    for exponent, pause in enumerate(pauses[1:]):
        most = min(LONGEST_PAUSE, FIRST_PAUSE * 2**exponent)
        assert most / 2 <= pause <= most
    assert member.start_again(at_once=True) == 0
    member.started -= 60
    assert [member.start_again(at_once=False) for _ in range(3)] == [0, 0, 0]


def test_a_worker_above_its_memory_retires_when_what_runs_has_ended(sqlite_url: str) -> None:
    with opened(sqlite_url) as jobs:
        runs: list[int] = []
        task = jobs.task(name="run")(lambda: runs.append(1))
        with jobs.worker() as worker:
            recycle = Recycle(worker, max_memory=1)
            assert not recycle.ready(), "it has done nothing yet"
            task.enqueue().wait(FAR)
            eventually(recycle.ready)
            later = task.enqueue()
            assert "MB of memory used" in str(recycle.reason)
        assert later.refresh().state == State.QUEUED
    assert 5 < resident_mb() < 5_000
