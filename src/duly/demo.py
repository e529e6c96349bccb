"""`python -m duly.demo`: half a minute of duly. Two worker processes, a lively mix of jobs, one that kills its worker.

Everything is in a temporary folder and goes away. Exit code 0 only if every job ended as it should.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from duly.app import Duly
from duly.cli.base import FAILED, INTERRUPTED, OK, print_anything
from duly.cli.text import plural
from duly.demo_view import View, view_for
from duly.domain.states import State
from duly.job import Job

BURST = 5_000
PATIENCE = 60.0
LOOK_EVERY = 0.1
PROCESSES = 2


class Expected(NamedTuple):
    """A job, and the state it must end in."""

    job: Job[Any]
    state: State = State.SUCCEEDED


class Scene(NamedTuple):
    """What was enqueued, and what to look at in particular."""

    cast: list[Expected]
    crash: Job[Any]
    running_to_cancel: Job[Any]
    marker: Path


class Workers(NamedTuple):
    """The process that keeps the workers alive, and the file of what they say."""

    supervisor: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Complain if they have ended."""
        if self.supervisor.poll() is not None:
            raise Trouble(f"the workers ended with exit code {self.supervisor.returncode}")


class Trouble(Exception):
    """The demo did not go as it should."""


def main() -> int:
    """Run it. Returns the exit code."""
    print_anything()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="duly-demo-", ignore_cleanup_errors=True) as folder:
        url = f"sqlite:///{Path(folder) / 'demo.db'}"
        os.environ["DULY_URL"] = url
        from duly.demo_tasks import jobs

        try:
            scene = _enqueue(jobs, Path(folder))
            with _workers(url, Path(folder)) as workers, view_for(sys.stdout) as view:
                try:
                    _watch(jobs, scene, workers, view)
                    rate = _burst(jobs, workers, view)
                except Trouble as trouble:
                    view.close()
                    print(f"\nduly demo: {trouble}\nThe workers said:\n{workers.log.read_text()}", file=sys.stderr)
                    return FAILED
            return _summary(jobs, scene, rate, time.monotonic() - begun)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED
        finally:
            jobs.close()


# -- the cast ---------------------------------------------------------------------------------------------------------


def _enqueue(jobs: Duly, folder: Path) -> Scene:
    """Store a lively mix before any worker is there; nothing is lost by that."""
    from duly import demo_tasks as tasks

    marker = folder / "killed-at"
    crash = tasks.crash.using(priority=100).enqueue(str(marker))
    cancelled = tasks.remind.using(delay="1h").enqueue("never mind")
    running = tasks.report.enqueue("everything ever", 600.0)
    cast = [
        Expected(crash),
        Expected(tasks.report.enqueue("sales", 5.0)),
        Expected(tasks.report.enqueue("taxes", 8.0)),
        Expected(tasks.report.enqueue("weather", 3.0)),
        Expected(running, State.CANCELLED),
        Expected(tasks.fetch.enqueue("example.org", 1)),
        Expected(tasks.fetch.enqueue("example.com", 2)),
        Expected(tasks.fetch.enqueue("example.net", 3)),
        Expected(tasks.parse.enqueue("a cat"), State.FAILED),
        Expected(tasks.remind.using(delay="3s").enqueue("tea")),
        Expected(tasks.remind.using(delay="6s").enqueue("cake")),
        Expected(tasks.remind.using(delay="9s").enqueue("dishes")),
        Expected(cancelled, State.CANCELLED),
    ]
    for priority in (10, 90, 50, 70, 30):
        cast.append(Expected(tasks.deliver.using(priority=priority).enqueue(f"urgency {priority}")))
    cast += [Expected(job) for job in tasks.greet.enqueue_many([{"name": f"guest {n}"} for n in range(1, 31)])]
    return Scene(cast, crash, running, marker)


@contextmanager
def _workers(url: str, folder: Path) -> Iterator[Workers]:
    """Run a supervised pair of worker processes."""
    log = folder / "workers.log"
    command = [sys.executable, "-m", "duly", "worker", "duly.demo_tasks:jobs", "--processes", str(PROCESSES)]
    command += ["--grace", "2s", "--parent", str(os.getpid())]
    here = str(Path(__file__).parents[1])  # not installed perhaps, and the folder is another
    environment = {**os.environ, "DULY_URL": url, "PYTHONPATH": os.pathsep.join([here, *sys.path])}
    with log.open("wb") as out:
        supervisor = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out, process_group=0)
    try:
        yield Workers(supervisor, log)
    finally:
        supervisor.send_signal(signal.SIGTERM)
        try:
            supervisor.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(supervisor.pid, signal.SIGKILL)
            supervisor.wait()


# -- the show ---------------------------------------------------------------------------------------------------------


def _watch(jobs: Duly, scene: Scene, workers: Workers, view: View) -> None:
    """Show the jobs until all have ended; cancel two on the way."""
    begun = time.monotonic()
    ids = {each.job.id for each in scene.cast}
    to_cancel = [each.job for each in scene.cast if each.state is State.CANCELLED]
    while True:
        found = [job for job in jobs.list(limit=1_000) if job.id in ids]
        seconds = time.monotonic() - begun
        view.show(found, jobs.live_workers(), seconds)
        by_id = {job.id: job for job in found}
        for job in list(to_cancel):
            if seconds > 1.0 and (job is not scene.running_to_cancel or _is_under_way(by_id.get(job.id), seconds)):
                job.cancel("changed our mind")
                to_cancel.remove(job)
        if not to_cancel and all(job.state.terminal for job in found) and len(found) == len(ids):
            return
        workers.check()
        if seconds > PATIENCE:
            left = [f"{job.task} {job.id} is {job.state}" for job in found if not job.state.terminal]
            raise Trouble(f"after {PATIENCE:.0f} s some jobs had not ended: {', '.join(left)}")
        time.sleep(LOOK_EVERY)


def _is_under_way(job: Job[Any] | None, seconds: float) -> bool:
    return job is not None and job.state is State.RUNNING and (job.progress or 0) > 0 and seconds > 5.0


def _burst(jobs: Duly, workers: Workers, view: View) -> float:
    """See how fast many jobs that do nothing go through. Returns how many a second."""
    from duly import demo_tasks as tasks

    before = jobs.counts().ended.get("succeeded", 0)
    begun = time.monotonic()
    tasks.nothing.enqueue_many([{} for _ in range(BURST)])
    while True:
        seconds = time.monotonic() - begun
        done = jobs.counts().ended.get("succeeded", 0) - before
        view.show_burst(done, BURST, seconds)
        if done >= BURST:
            return done / seconds
        workers.check()
        if seconds > PATIENCE:
            raise Trouble(f"after {PATIENCE:.0f} s only {done} of {BURST} jobs had ended")
        time.sleep(LOOK_EVERY / 2)


# -- the reckoning ----------------------------------------------------------------------------------------------------


def _summary(jobs: Duly, scene: Scene, rate: float, seconds: float) -> int:
    """Say what happened and whether it is what should have."""
    wrong = [
        f"{each.job.task} {each.job.id} should be {each.state} and is {each.job.state}"
        for each in scene.cast
        if each.job.refresh().state is not each.state
    ]
    runs = [run for each in scene.cast for run in each.job.runs]
    outcomes = Counter(run.outcome for run in runs)
    states = Counter(str(each.job.state) for each in scene.cast)
    wrong += _wrong_order(scene)
    again = _seconds_to_run_again(scene)
    if again is None:
        wrong.append("the job that killed its worker did not run again")
    counts = jobs.counts()
    if counts.waiting or counts.scheduled or counts.running:
        wrong.append("something is left in the queues")
    print()
    print(f"{plural(len(scene.cast), 'job')}: " + ", ".join(f"{n} {state}" for state, n in states.most_common()))
    print(
        f"{plural(len(runs), 'run')}: {outcomes['failed']} failed and were tried again or given up, "
        f"{outcomes['crashed']} lost with a worker, {outcomes['cancelled']} stopped halfway"
    )
    if again is not None:
        print(f"One job killed its worker process (SIGKILL). It ran again {again:.2f} s later, in another.")
    print(f"{BURST:,} jobs that do nothing: {rate:,.0f} a second, each one stored, leased, settled and in the history.")
    print(f"{seconds:.0f} s in all.")
    for line in wrong:
        print(f"wrong: {line}", file=sys.stderr)
    return FAILED if wrong else OK


def _wrong_order(scene: Scene) -> list[str]:
    """Letters are delivered one at a time by urgency."""
    letters = [each.job for each in scene.cast if each.job.task == "deliver"]
    last_runs = {job: job.runs[-1] for job in letters if job.runs}
    order = [job.priority for job in sorted(last_runs, key=lambda job: last_runs[job].started_at)]
    crashed = any(run.outcome == "crashed" for job in letters for run in job.runs)
    if order == sorted(order, reverse=True) or crashed:
        return []
    return [f"letters were delivered in the order {order}"]


def _seconds_to_run_again(scene: Scene) -> float | None:
    runs = scene.crash.runs
    if not scene.marker.exists() or not any(run.outcome == "crashed" for run in runs):
        return None
    killed = int(scene.marker.read_text()) / 1e9
    return max(0.0, runs[-1].started_at.timestamp() - killed)


if __name__ == "__main__":
    sys.exit(main())
