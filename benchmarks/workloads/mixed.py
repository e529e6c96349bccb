"""Enqueueing and running at the same time, as in a system that is neither idle nor catching up."""

from bench import count_runs
from contenders import (
    DULY_PG,
    DULY_SQLITE,
    HUEY,
    OBAN,
    PGQUEUER_BEST,
    PROCRASTINATE_BEST,
    Contender,
)
from results import Goal, Metric, Sample, percentile
from workloads.base import Workload
from workloads.drain import RATE, SERVER_CPU, WORKER_CPU, cpu_microseconds


class Mixed(Workload):
    name = "mixed"
    title = "Enqueue and run at the same time"
    method = (
        "One process enqueues as fast as the calls return: of every hundred jobs ten one by one and ninety by"
        " a bulk call. One worker process runs them meanwhile. Rate: jobs / (first call to last handler"
        " start). Behind: how long a job has waited from its call to its start, since the worker may not keep"
        " up with the calls."
    )
    contenders = (DULY_PG, PGQUEUER_BEST, PROCRASTINATE_BEST, OBAN, DULY_SQLITE, HUEY)
    metrics = (
        RATE,
        Metric("enqueued", "enqueued jobs/s"),
        Metric("behind_p50", "behind p50 ms", 1),
        WORKER_CPU,
        SERVER_CPU,
    )
    goals = (
        Goal(text="PostgreSQL, against PgQueuer at its best", metric="rate", contender="duly-pg",
             over="pgqueuer-500", at_least=1),
        Goal(text="SQLite, against SqliteHuey", metric="rate", contender="duly-sqlite",
             over="huey-sqlite", at_least=1),
    )  # fmt: skip

    def measure(self, contender: Contender) -> Sample:
        jobs = contender.jobs(self.bench.sizes.mixed_jobs)
        with self.bench.database(contender) as database:
            self.bench.call(contender, "fill", database.url, count=1)
            with self.bench.worker(contender, database) as worker:
                worker.wait_for_runs(1)
                self.bench.wait_until_quiet()
                cpu = cpu_microseconds(worker, database)
                answer = self.bench.call(contender, "mixed", database.url, count=jobs, first=1)
                worker.wait_for_runs(jobs + 1)
                used = {
                    name: (after - cpu[name]) / jobs
                    for name, after in cpu_microseconds(worker, database).items()
                }
                runs = worker.runs()
        calls = answer["calls"]
        called = {number: at for first, n, at, _ in calls for number in range(int(first), int(first + n))}
        waits = [(run.started_at - called[run.number]) * 1000 for run in runs if run.number in called]
        began, returned = calls[0][2], calls[-1][3]
        return {
            "rate": jobs / (max(run.started_at for run in runs) - began),
            "enqueued": jobs / (returned - began),
            "behind_p50": percentile(waits, 50),
            **used,
            **count_runs(runs, jobs + 1),
        }
