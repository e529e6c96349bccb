"""Pick-up latency: how soon a worker, idle or under load, starts a job that another process enqueues."""

import time
from collections.abc import Sequence

from bench import Run, count_runs
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
from workloads.drain import fill_and_drain

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
        "First one worker process drains a full queue, as above: what it can do. Then a worker on a fresh"
        f" database gets {LOAD:.0%} of that rate from another process, which every 10 ms enqueues what is due"
        " in one bulk call. Over all jobs but the first tenth: from the return of the call to the start of"
        " the handler, and from the call to it. Enqueueing takes its share of the same machine."
    )
    contenders = (DULY_PG, PGQUEUER_BEST, PROCRASTINATE_BEST, DULY_SQLITE)
    metrics = (Metric("offered", "jobs/s offered"), *PERCENTILES)
    plotted = "p99"
    goals = (
        Goal(text="PostgreSQL p99 in ms", metric="p99", contender="duly-pg", at_most=50),
        Goal(text="SQLite p99 in ms", metric="p99", contender="duly-sqlite", at_most=50),
    )

    def measure(self, contender: Contender) -> Sample:
        sizes = self.bench.sizes
        rate = LOAD * fill_and_drain(self.bench, contender, contender.jobs(sizes.drain_jobs))["rate"]
        count = max(100, round(rate * sizes.load_seconds))
        with self.bench.database(contender) as database:
            self.bench.call(contender, "fill", database.url, count=1)
            with self.bench.worker(contender, database) as worker:
                worker.wait_for_runs(1)
                self.bench.wait_until_quiet()
                answer = self.bench.call(contender, "steady", database.url, count=count, first=1, rate=rate)
                worker.wait_for_runs(count + 1)
                runs = worker.runs()
        batches = answer["calls"]
        calls = [(called, returned) for jobs, called, returned in batches for _ in range(int(jobs))]
        offered = len(calls) / (batches[-1][2] - batches[0][1])
        skipped = len(calls) // 10
        return (
            pick_up(calls[skipped:], runs, 2 + skipped) | count_runs(runs, count + 1) | {"offered": offered}
        )
