"""Goes through what is measured, part by part: each takes no longer and no more jobs than planned."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from duly.app import Duly
from duly.bench.processes import workers
from duly.bench.runlog import Ran, RunLog
from duly.bench.worker import ASYNC, DEF, IDLE, declare
from duly.store.probe import Bare, Facts, bare
from duly.store.scratch import Scratch
from duly.task import Task

MOST_ONE_BY_ONE = 5_000
PINGS, FEWEST_PINGS, PING_EVERY, WARM_UP = 200, 20, 0.01, 5
AT_ONCE = 2_500
SLICE = 0.1
LOOK_EVERY = 0.01
FIRST_RUN = 10.0
SETTLE_DOWN = 0.3
"""How long a worker is left alone before it counts as idle."""
ROWS_OF_A_JOB = 7


class Plan(NamedTuple):
    """How much to measure: jobs for each drain, worker processes, seconds for each part."""

    jobs: int
    processes: int
    seconds: float

    @property
    def most_ones(self) -> int:
        """How many are enqueued one by one, at most; and bare rows beside them."""
        return min(self.jobs, MOST_ONE_BY_ONE)

    @property
    def most_jobs(self) -> int:
        """How many jobs are stored, at most."""
        return 2 * self.jobs + self.most_ones + PINGS + WARM_UP

    @property
    def most_rows(self) -> int:
        """How many rows are written, at most: those of jobs that run to their end, and bare ones."""
        return self.most_jobs * ROWS_OF_A_JOB + self.most_ones + self.jobs

    @property
    def about_seconds(self) -> int:
        """How long all of it takes at most, about."""
        return round(6 * self.seconds + 5)


class Measured(NamedTuple):
    """One line of the result: so many a second, or waits in milliseconds."""

    name: str
    per_second: float | None = None
    of_bare: float | None = None
    """Which part that is of what the bare driver does, where both do as much."""
    jobs: int | None = None
    repeated: int = 0
    cut: bool = False
    """Whether the time was up before all jobs had run."""
    p50_ms: float | None = None
    p99_ms: float | None = None


class Results(NamedTuple):
    """All of it."""

    facts: Facts
    measured: list[Measured]


Told = Callable[[str], None]


def measure(
    app: Duly,
    scratch: Scratch,
    plan: Plan,
    *,
    met: Callable[[Facts], None],
    begins: Told,
    done: Callable[[Measured], None],
) -> Results:
    """Measure in a place that has been made. Says which database it met, what begins and what came of it."""
    settings = settings_for(app, scratch)
    jobs = Duly(**settings)
    try:
        jobs.migrate()
        raw = bare(jobs.store.database, synchronous=app.settings.synchronous)
        try:
            met(raw.facts)
            parts = Parts(jobs, raw, plan, settings)
            results: list[Measured] = []
            for name, part in parts.all():
                begins(name)
                for each in part():
                    results.append(each)
                    done(each)
            return Results(raw.facts, results)
        finally:
            raw.close()
    finally:
        jobs.close()


def settings_for(app: Duly, scratch: Scratch) -> dict[str, Any]:
    """The settings of an application that speed hangs on, for the place where it is measured."""
    settings = app.settings
    return {
        "url": scratch.url,
        "schema": scratch.schema,
        "synchronous": settings.synchronous,
        "notify": settings.notify,
        "allow_network_disk": settings.allow_network_disk,
        "thread_slots": settings.thread_slots,
        "async_slots": settings.async_slots,
        "poll": settings.poll.total_seconds(),
    }


class Parts:
    """The parts, in their order: each leaves behind what the next needs."""

    def __init__(self, jobs: Duly, raw: Bare, plan: Plan, settings: dict[str, Any]) -> None:
        self._jobs = jobs
        self._raw = raw
        self._plan = plan
        self._settings = settings
        self._tasks = declare(jobs)
        self._numbers = count()
        self._several = f"{plan.processes} process{'es' if plan.processes > 1 else ''}"

    def all(self) -> list[tuple[str, Callable[[], Sequence[Measured]]]]:
        """Each with what to say when it begins."""
        return [
            ("enqueue, one by one", self._one_by_one),
            ("enqueue_many", self._many),
            (f"drain, async def, {self._several}", self._drain_async),
            (f"drain, def, {self._several}", self._drain_def),
            ("pick-up by an idle worker", self._pick_up),
        ]

    # -- enqueue ----------------------------------------------------------------------------------------------

    def _one_by_one(self) -> list[Measured]:
        """Ours and the bare driver take turns, so that both meet the same moments."""
        task, most = self._tasks.on_the_loop, self._plan.most_ones
        task.enqueue(next(self._numbers))  # connects, and prepares
        self._raw.insert(-1)
        ours, theirs = Turn(lambda n: task.enqueue(n)), Turn(self._raw.insert)
        until = time.monotonic() + self._plan.seconds
        while time.monotonic() < until and max(ours.n, theirs.n) < most:
            for turn in (theirs, ours):
                turn.take(min(SLICE, self._plan.seconds / 4), most, self._numbers)
        return [
            Measured("bare: one row and a commit", theirs.rate),
            Measured("enqueue, one by one", ours.rate, of_bare=ours.rate / theirs.rate, jobs=ours.n),
        ]

    def _many(self) -> list[Measured]:
        ours, theirs = self._fill(self._tasks.on_the_loop), self._rate_of(self._raw.insert_many)
        return [
            Measured("bare: many rows and a commit", theirs[0]),
            Measured("enqueue_many", ours[0], jobs=ours[1]),
        ]

    def _fill(self, task: Task[[int], None]) -> tuple[float, int]:
        return self._rate_of(lambda numbers: task.enqueue_many([{"n": n} for n in numbers]))

    def _rate_of(self, store: Callable[[Sequence[int]], object]) -> tuple[float, int]:
        """Store as many as planned, or as the time allows. Returns how many a second, and how many."""
        stored, began = 0, time.monotonic()
        while stored < self._plan.jobs and (stored == 0 or time.monotonic() - began < self._plan.seconds):
            numbers = [next(self._numbers) for _ in range(min(AT_ONCE, self._plan.jobs - stored))]
            store(numbers)
            stored += len(numbers)
        return stored / (time.monotonic() - began), stored

    # -- run --------------------------------------------------------------------------------------------------

    def _drain_async(self) -> list[Measured]:
        return [self._drained("async def", ASYNC)]

    def _drain_def(self) -> list[Measured]:
        self._fill(self._tasks.in_a_thread)
        return [self._drained("def", DEF)]

    def _drained(self, kind: str, queue: str) -> Measured:
        """From the first start to the last; a worker's own start is not part of it."""
        stored = sum(n for name, _, _, n, _ in self._jobs.counts().waiting if name == queue)
        with self._log() as log, workers(self._told(log, queue), self._plan.processes) as started:
            self._wait(lambda: len(log) > 0, FIRST_RUN, started.check)
            self._wait(lambda: len(log) >= stored, self._plan.seconds, started.check)
            ran = log.read()
        return _rate_of_runs(f"drain, {kind}, {self._several}", ran, stored)

    def _pick_up(self) -> list[Measured]:
        """One worker process with nothing to do; from the return of `enqueue` to the start of the handler."""
        task, stored_at = self._tasks.on_the_loop.using(queue=IDLE), dict[int, float]()
        with self._log() as log, workers(self._told(log, IDLE), 1) as started:
            for n in range(WARM_UP):
                task.enqueue(n)
                self._wait(lambda n=n: len(log) > n, FIRST_RUN, started.check)  # type: ignore[misc]
            time.sleep(SETTLE_DOWN)
            until = time.monotonic() + self._plan.seconds
            for n in range(WARM_UP, WARM_UP + PINGS):
                task.enqueue(n)
                stored_at[n] = time.monotonic()
                if stored_at[n] > until and len(stored_at) >= FEWEST_PINGS:
                    break
                time.sleep(PING_EVERY)
            self._wait(lambda: len(log) >= WARM_UP + len(stored_at), self._plan.seconds, started.check)
            waits = sorted(max(0.0, ran.at - stored_at[ran.number]) for ran in log.read() if ran.number >= WARM_UP)
        if not waits:
            return [Measured("pick-up by an idle worker", cut=True, jobs=0)]
        p99 = waits[min(len(waits) - 1, round(len(waits) * 0.99))]
        return [
            Measured(
                "pick-up by an idle worker", p50_ms=statistics.median(waits) * 1e3, p99_ms=p99 * 1e3, jobs=len(waits)
            )
        ]

    @contextmanager
    def _log(self) -> Iterator[RunLog]:
        with tempfile.TemporaryDirectory(prefix="duly-bench-") as folder:
            log = RunLog(Path(folder) / "runs")
            try:
                yield log
            finally:
                log.close()

    def _told(self, log: RunLog, queue: str) -> dict[str, Any]:
        return {"settings": self._settings, "log": str(log.path), "queue": queue}

    def _wait(self, so: Callable[[], bool], seconds: float, check: Callable[[], None]) -> None:
        until = time.monotonic() + seconds
        while not so() and time.monotonic() < until:
            check()
            time.sleep(LOOK_EVERY)


class Turn:
    """One of two that take turns: how often it did what it does, and how long that took."""

    def __init__(self, do: Callable[[int], object]) -> None:
        self._do = do
        self.n = 0
        self._seconds = 0.0

    def take(self, seconds: float, most: int, numbers: Iterator[int]) -> None:
        """Do it for a while."""
        do, began = self._do, time.perf_counter()
        while self.n < most:
            do(next(numbers))
            self.n += 1
            if time.perf_counter() - began > seconds:
                break
        self._seconds += time.perf_counter() - began

    @property
    def rate(self) -> float:
        """How often in a second."""
        return self.n / self._seconds


def _rate_of_runs(name: str, ran: list[Ran], stored: int) -> Measured:
    different = len({each.number for each in ran})
    spent = ran[-1].at - ran[0].at if len(ran) > 1 else 0.0
    rate = (len(ran) - 1) / spent if spent else None
    return Measured(name, rate, jobs=different, repeated=len(ran) - different, cut=different < stored)
