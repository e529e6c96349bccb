"""A job of the highest priority behind a flood: how soon it starts."""

import time

from bench import BenchError
from contenders import DULY_PG, DULY_SQLITE, Contender
from results import Goal, Metric, Sample
from workloads.base import Workload
from workloads.drain import fill
from workloads.latency import pick_up

INTERVAL = 0.1
WARM_UP = 1_000
LONGEST = 1.0
"""Seconds within which the last one must have started."""


class Urgent(Workload):
    name = "urgent"
    title = "A job of priority 100 under full load"
    method = (
        "One worker process drains a flood of jobs of priority 0; meanwhile another process enqueues one job"
        f" of priority 100 every {INTERVAL * 1000:.0f} ms. From the call of the enqueue to the start of the"
        " handler, in milliseconds. Void unless the flood outlasts them."
    )
    contenders = (DULY_PG, DULY_SQLITE)
    metrics = (Metric("call_p50", "call to start p50", 1), Metric("slowest", "slowest", 1))
    goals = (
        Goal(text="PostgreSQL, the slowest in ms", metric="slowest", contender="duly-pg", at_most=1000),
        Goal(text="SQLite, the slowest in ms", metric="slowest", contender="duly-sqlite", at_most=1000),
    )

    def measure(self, contender: Contender) -> Sample:
        flood, count = self.bench.sizes.flood_jobs, self.bench.sizes.urgent_jobs
        urgent = contender.with_settings("urgent", "priority 100", priority="100")
        with self.bench.database(contender) as database:
            fill(self.bench, contender, database, flood)
            with self.bench.worker(contender, database) as worker:
                worker.wait_for_runs(min(WARM_UP, flood // 10))
                answer = self.bench.call(
                    urgent, "one-by-one", database.url, count=count, first=flood, interval=INTERVAL
                )
                time.sleep(LONGEST)
                runs = worker.runs()
        if len(runs) >= flood:
            raise BenchError(f"{flood} jobs were done before the urgent ones: set --size flood_jobs higher")
        started = {run.number: run.started_at for run in runs}
        waits = [
            (started.get(number, float("inf")) - called) * 1000
            for number, (called, _) in enumerate(answer["calls"], flood)
        ]
        return pick_up(answer["calls"], runs, flood) | {"slowest": max(waits)}
