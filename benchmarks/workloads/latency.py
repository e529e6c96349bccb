"""Pick-up latency: how soon an idle worker starts a job that another process enqueues."""

import time

from bench import count_runs
from contenders import DULY_PG, DULY_SQLITE, PROCRASTINATE, Contender
from results import Goal, Metric, Sample, percentile
from workloads.base import Workload

INTERVAL = 0.05
WARM_UP = 5


class Latency(Workload):
    name = "latency"
    title = "Pick-up latency, idle worker"
    method = (
        "One worker process that has run a job and then idled for a second; another process enqueues one job"
        f" every {INTERVAL * 1000:.0f} ms; the first {WARM_UP} are left out. From the return of the enqueue"
        " call to the start of the handler, and from the call to the start, in milliseconds."
    )
    contenders = (DULY_PG, PROCRASTINATE, DULY_SQLITE)
    metrics = (
        Metric("p50", "p50 ms", 2),
        Metric("p95", "p95 ms", 2),
        Metric("p99", "p99 ms", 2),
        Metric("call_p50", "call to start p50", 2),
        Metric("call_p99", "call to start p99", 2),
    )
    goals = (
        Goal(text="PostgreSQL p50, against Procrastinate", metric="p50", contender="duly-pg",
             over="procrastinate", at_most=1),
        Goal(text="PostgreSQL p99, against Procrastinate", metric="p99", contender="duly-pg",
             over="procrastinate", at_most=1),
        Goal(text="PostgreSQL call to start, against Procrastinate", metric="call_p50", contender="duly-pg",
             over="procrastinate", at_most=1),
        Goal(text="SQLite p50 in ms", metric="p50", contender="duly-sqlite", at_most=3),
        Goal(text="SQLite p99 in ms", metric="p99", contender="duly-sqlite", at_most=10),
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
        started_at = {run.number: run.started_at for run in reversed(runs)}
        measured = [number for number in range(1 + WARM_UP, 1 + count) if number in started_at]
        calls = dict(enumerate(answer["calls"], start=1))
        after_call = [(started_at[number] - calls[number][0]) * 1000 for number in measured]
        after_return = [(started_at[number] - calls[number][1]) * 1000 for number in measured]
        return count_runs(runs, count + 1) | {
            "p50": percentile(after_return, 50),
            "p95": percentile(after_return, 95),
            "p99": percentile(after_return, 99),
            "call_p50": percentile(after_call, 50),
            "call_p99": percentile(after_call, 99),
        }
