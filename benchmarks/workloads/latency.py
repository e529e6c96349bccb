"""Pick-up latency: how soon a worker, idle or under load, starts a job that another process enqueues."""

import time
from collections.abc import Sequence
from contextlib import ExitStack

from bench import Database, Run, count_runs
from contenders import (
    DBOS_BEST,
    DULY_PG,
    DULY_SQLITE,
    HUEY,
    ON_POSTGRES,
    ON_REDIS,
    PGQUEUER_BEST,
    PROCRASTINATE_BEST,
    Contender,
)
from results import Goal, Metric, Sample, percentile
from workloads.base import Workload
from workloads.drain import drain, fill

INTERVAL = 0.05
WARM_UP = 5
LOAD = 0.7
PERCENTILES = (
    Metric("p50", "p50 ms", 2),
    Metric("p95", "p95 ms", 2),
    Metric("p99", "p99 ms", 2),
    Metric("call_p50", "call to start p50", 2),
    Metric("call_p99", "call to start p99", 2),
)


def pick_up(calls: Sequence[Sequence[float]], runs: list[Run], first: int) -> Sample:
    """Milliseconds from call and return of the enqueue to handler start, of the jobs from `first` on."""
    started_at = {run.number: run.started_at for run in reversed(runs)}
    timed = [(*call, started_at[number]) for number, call in enumerate(calls, first) if number in started_at]
    after_call = [(started - called) * 1000 for called, _, started in timed]
    after_return = [(started - returned) * 1000 for _, returned, started in timed]
    return {f"p{percent}": percentile(after_return, percent) for percent in (50, 95, 99)} | {
        f"call_p{percent}": percentile(after_call, percent) for percent in (50, 99)
    }


class Latency(Workload):
    name = "latency"
    title = "Pick-up latency, idle worker"
    method = (
        "One worker process that has run a job and then idled for a second; another process enqueues one job"
        f" every {INTERVAL * 1000:.0f} ms; the first {WARM_UP} are left out. From the return of the enqueue"
        " call to the start of the handler, and from the call to the start, in milliseconds."
    )
    contenders = (DULY_PG, *ON_POSTGRES, DBOS_BEST, DULY_SQLITE, HUEY, *ON_REDIS)
    metrics = PERCENTILES
    plotted = "p50"
    goals = (
        Goal(text="PostgreSQL p50, against Procrastinate", metric="p50", contender="duly-pg",
             over="procrastinate", at_most=1),
        Goal(text="PostgreSQL p99, against Procrastinate", metric="p99", contender="duly-pg",
             over="procrastinate", at_most=1),
        Goal(text="PostgreSQL call to start, against Procrastinate", metric="call_p50", contender="duly-pg",
             over="procrastinate", at_most=1),
        Goal(text="PostgreSQL p50, against Oban", metric="p50", contender="duly-pg", over="oban", at_most=1),
        Goal(text="PostgreSQL p99, against Oban", metric="p99", contender="duly-pg", over="oban", at_most=1),
        Goal(text="PostgreSQL p50 in ms", metric="p50", contender="duly-pg", at_most=1.5),
        Goal(text="PostgreSQL p99 in ms", metric="p99", contender="duly-pg", at_most=5),
        Goal(text="SQLite p50 in ms", metric="p50", contender="duly-sqlite", at_most=1.5),
        Goal(text="SQLite p99 in ms", metric="p99", contender="duly-sqlite", at_most=5),
    )  # fmt: skip

    def measure(self, contender: Contender) -> Sample:
        count = self.bench.sizes.latency_samples + WARM_UP
        with self.bench.database(contender) as database:
            self.bench.call(contender, "fill", database.url, count=1)
            with self.bench.worker(contender, database) as worker:
                worker.wait_for_runs(1)
                self.bench.wait_until_quiet()
                time.sleep(1.0)
                answer = self.bench.call(
                    contender, "one-by-one", database.url, count=count, first=1, interval=INTERVAL
                )
                worker.wait_for_runs(count + 1)
                runs = worker.runs()
        return pick_up(answer["calls"][WARM_UP:], runs, 1 + WARM_UP) | count_runs(runs, count + 1)


class LatencyUnderLoad(Workload):
    name = "latency-loaded"
    title = f"Pick-up latency at {LOAD:.0%} load"
    method = (
        "What a worker and a process that enqueues can do together on this machine: the latter offers as many"
        " jobs a second as a worker drains of a full queue, every 10 ms what is due in one bulk call, and"
        f" handler starts meanwhile are counted. {LOAD:.0%} of that is then offered to a worker on a fresh"
        " database. Over all jobs but the first tenth: from the return of the call to the start of the"
        " handler, and from the call to it."
    )
    contenders = (DULY_PG, PGQUEUER_BEST, PROCRASTINATE_BEST, DULY_SQLITE)
    metrics = (Metric("together", "jobs/s together"), Metric("offered", "jobs/s offered"), *PERCENTILES)
    plotted = "p99"
    goals = (
        Goal(text="PostgreSQL p99 in ms", metric="p99", contender="duly-pg", at_most=50),
        Goal(text="SQLite p99 in ms", metric="p99", contender="duly-sqlite", at_most=50),
    )

    def measure(self, contender: Contender) -> Sample:
        jobs = contender.jobs(self.bench.sizes.drain_jobs)
        with ExitStack() as kept:  # dropping one may keep the disk busy: all stay to the end
            database = kept.enter_context(self.bench.database(contender))
            fill(self.bench, contender, database, jobs)
            alone = drain(self.bench, contender, database, jobs)["rate"]
            calls, runs = self._offer(contender, kept.enter_context(self.bench.database(contender)), alone)
            until = calls[-1][1]
            together = sum(run.started_at <= until for run in runs) / (until - calls[0][0])
            offered = LOAD * together
            calls, runs = self._offer(contender, kept.enter_context(self.bench.database(contender)), offered)
        skipped = len(calls) // 10
        measured = {"together": together, "offered": len(calls) / (calls[-1][1] - calls[0][0])}
        return pick_up(calls[skipped:], runs, 2 + skipped) | count_runs(runs, len(calls) + 2) | measured

    def _offer(
        self, contender: Contender, database: Database, rate: float
    ) -> tuple[list[tuple[float, float]], list[Run]]:
        """So many jobs a second for a while: when the call for each was made and returned, and the runs."""
        count = max(100, round(rate * self.bench.sizes.load_seconds))
        self.bench.call(contender, "fill", database.url, count=1)
        with self.bench.worker(contender, database) as worker:
            worker.wait_for_runs(1)
            self.bench.wait_until_quiet()
            answer = self.bench.call(contender, "steady", database.url, count=count, first=1, rate=rate)
            worker.wait_for_runs(count + 1)
            runs = worker.runs()
        return [(called, returned) for n, called, returned in answer["calls"] for _ in range(int(n))], runs
