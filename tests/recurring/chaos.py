"""Many schedulers, one tick a second, and somebody who kills and pauses them: each tick has one accepted run.

    python -m tests.recurring.chaos sqlite:////tmp/chaos.db --seconds 300 --processes 10
    python -m tests.recurring.chaos postgresql://... --seconds 300 --processes 10

The suite runs the same for a shorter time.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from duly import Duly, State, current_job

ROOT = Path(__file__).parents[2]
LEASE = 2.0
SETTLING = 60.0
"""How long the survivors may take to catch up with what was missed."""


@dataclass(frozen=True, slots=True)
class Report:
    """What happened."""

    expected: int
    accepted: dict[int, int]
    """By the number of the tick, how many runs of it were accepted."""
    kills: int
    pauses: int
    started: int
    """How many handlers started in all: more than were accepted, where one was killed."""

    @property
    def missing(self) -> list[int]:
        """Ticks without an accepted run."""
        return [n for n in range(self.expected) if n not in self.accepted]

    @property
    def repeated(self) -> list[int]:
        """Ticks with more than one accepted run."""
        return [n for n, times in self.accepted.items() if times > 1]

    def __str__(self) -> str:
        return (
            f"{self.expected} ticks, {len(self.accepted)} run, {len(self.missing)} missing, {len(self.repeated)} "
            "repeated; "
            f"{self.started} handlers started, {self.kills} processes killed, {self.pauses} paused"
        )


def application(url: str) -> Duly:
    """The application whose processes suffer."""
    jobs = Duly(url, lease=LEASE, grace=0.2)

    @jobs.task
    def beat() -> float:
        """Take a moment, so that some are killed at it; say which tick it was."""
        time.sleep(random.random() * 0.2)
        tick = current_job().tick
        assert tick is not None
        return tick.timestamp()

    return jobs


def work(url: str) -> None:
    """One process: a worker until it is killed."""
    jobs = application(url)
    with jobs.worker(thread_slots=2):
        while sys.stdin.read(1):
            pass


def torment(url: str, *, seconds: float, processes: int, seed: int) -> Report:
    """Let `processes` workers tick for so long while they are killed and paused at random; then let them catch up."""
    chance = random.Random(seed)
    jobs = application(url)
    jobs.migrate()
    job = jobs["beat"].recur(every="1s", misfire="all", cap=100_000)
    first = job.record.anchor_at / 1e6
    workers = [_start(url) for _ in range(processes)]
    paused: dict[int, float] = {}
    kills = pauses = 0
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            time.sleep(chance.random())
            _wake(workers, paused)
            n = chance.randrange(processes)
            if workers[n].pid in paused:
                continue
            if chance.random() < 0.5:
                _end(workers[n])
                workers[n] = _start(url)
                kills += 1
            else:
                workers[n].send_signal(signal.SIGSTOP)
                paused[workers[n].pid] = time.monotonic() + chance.uniform(0.2, 3 * LEASE)
                pauses += 1
        _wake(workers, paused, all_of_them=True)
        expected = int(time.time() - first) + 1
        _catch_up(jobs, job.id, first, expected)
    finally:
        for each in workers:
            _end(each)
    accepted = Counter(round(tick - first) for tick in _ticks(jobs, job.id))
    started = len(jobs.get(job.id).runs)
    assert jobs.get(job.id).state in (State.SCHEDULED, State.QUEUED, State.RUNNING)
    jobs.close()
    return Report(expected, {n: times for n, times in accepted.items() if n < expected}, kills, pauses, started)


def _ticks(jobs: Duly, job_id: str) -> list[float]:
    records = jobs.store.runs_of(job_id)
    return [float(run.result or 0) for run in records if run.outcome == "succeeded"]


def _catch_up(jobs: Duly, job_id: str, first: float, expected: int) -> None:
    give_up = time.monotonic() + SETTLING
    while time.monotonic() < give_up:
        if max((round(tick - first) for tick in _ticks(jobs, job_id)), default=-1) >= expected - 1:
            return
        time.sleep(0.5)


def _start(url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.recurring.chaos", url, "--work"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()  # a process that stands still is ended too
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _wake(workers: list[subprocess.Popen[bytes]], paused: dict[int, float], *, all_of_them: bool = False) -> None:
    now = time.monotonic()
    for each in workers:
        if each.pid in paused and (all_of_them or paused[each.pid] <= now):
            each.send_signal(signal.SIGCONT)
            del paused[each.pid]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.url)
        return
    print(f"seed {options.seed}", flush=True)
    report = torment(options.url, seconds=options.seconds, processes=options.processes, seed=options.seed)
    print(report)
    sys.exit(1 if report.missing or report.repeated else 0)


if __name__ == "__main__":
    main()
