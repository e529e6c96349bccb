"""Drain a full queue with several worker processes on the same database."""

import time

from bench import Run, count_runs
from contenders import DULY_PG, PGQUEUER_BEST, PROCRASTINATE_BEST, Contender
from results import Goal, Metric, Sample
from workloads.base import Workload
from workloads.drain import LOOK_FOR_REPEATS, RATE, SERVER_CPU, WORKER_CPU, cpu_microseconds, fill


class DrainProcesses(Workload):
    """The number of processes is what its subclasses differ in."""

    processes: int
    method = (
        "As with one, more jobs. The clock starts when the last of the processes has started its first job;"
        " rate: handler starts from then on / (that moment to the last of them)."
    )
    contenders = (DULY_PG, PGQUEUER_BEST, PROCRASTINATE_BEST)
    metrics = (RATE, WORKER_CPU, SERVER_CPU, Metric("took_part", "processes that ran jobs"))

    def measure(self, contender: Contender) -> Sample:
        jobs = contender.jobs(self.bench.sizes.process_jobs)
        with self.bench.database(contender) as database:
            fill(self.bench, contender, database, jobs)
            with self.bench.worker(contender, database, self.processes) as worker:
                worker.wait_for_runs(1)
                before = cpu_microseconds(worker, database)
                worker.wait_for_runs(jobs)
                after = cpu_microseconds(worker, database)
                time.sleep(LOOK_FOR_REPEATS)
                worker.stop()
                runs = worker.runs()
        used = {name: (after[name] - before[name]) / jobs for name in before}
        return together(runs) | used | count_runs(runs, jobs)


def together(runs: list[Run]) -> Sample:
    """The rate from the moment when all who ran anything were running."""
    first = {run.worker: run.started_at for run in sorted(runs, key=lambda run: run.started_at, reverse=True)}
    began = max(first.values())
    after = [run.started_at for run in runs if run.started_at > began]
    rate = len(after) / (max(after) - began) if after else 0.0
    return {"rate": rate, "took_part": len(first)}


class DrainTwo(DrainProcesses):
    name = "drain-2-processes"
    title = "Drain on PostgreSQL, two worker processes"
    processes = 2
    goals = (
        Goal(text="against PgQueuer at its best", metric="rate", contender="duly-pg",
             over="pgqueuer-500", at_least=1.4),
    )  # fmt: skip


class DrainFour(DrainProcesses):
    name = "drain-4-processes"
    title = "Drain on PostgreSQL, four worker processes"
    processes = 4
    goals = (
        Goal(text="against PgQueuer at its best", metric="rate", contender="duly-pg",
             over="pgqueuer-500", at_least=1),
    )  # fmt: skip
