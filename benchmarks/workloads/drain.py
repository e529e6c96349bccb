"""Drain a full queue of no-op jobs with one worker process."""

import time

import machine
from bench import Bench, Database, Worker, count_runs
from contenders import (
    DULY_PG,
    DULY_PG_DEF,
    DULY_SQLITE,
    DULY_SQLITE_DEF,
    HUEY,
    PGQUEUER,
    PGQUEUER_BEST,
    Contender,
)
from postgres import Server
from results import Goal, Metric, Sample
from workloads.base import Workload

LOOK_FOR_REPEATS = 0.25
"""Seconds that a worker stays after the last job, so that a second run of one would show."""

RATE = Metric("rate", "jobs/s")
WORKER_CPU = Metric("worker_cpu_us", "worker CPU µs/job", 1)
PEAK_MEMORY = Metric("peak_mb", "peak MB")


def fill(bench: Bench, contender: Contender, database: Database, jobs: int) -> None:
    """Queue the jobs, bring the database to rest and let the machine settle."""
    bench.call(contender, "fill", database.url, count=jobs)
    if database.server is not None:
        database.server.ask("VACUUM ANALYZE", database.name)
        database.server.ask("CHECKPOINT")
    bench.wait_until_quiet()


def drain(bench: Bench, contender: Contender, database: Database, jobs: int) -> Sample:
    """Start a worker on a filled database; take the figures from the first handler start to the last."""
    server = database.server
    with bench.worker(contender, database) as worker:
        worker.wait_for_runs(1)
        before = _cpu_microseconds(worker, server)
        worker.wait_for_runs(jobs)
        after = _cpu_microseconds(worker, server)
        peak = machine.resident_megabytes(worker.pid, "VmHWM")
        time.sleep(LOOK_FOR_REPEATS)
        worker.stop()
        runs = worker.runs()
    starts = [run.started_at for run in runs]
    return {
        "rate": jobs / (max(starts) - min(starts)),
        **{name: (after[name] - before[name]) / jobs for name in before},
        "peak_mb": peak,
        **count_runs(runs, jobs),
    }


def _cpu_microseconds(worker: Worker, server: Server | None) -> Sample:
    used = {"worker_cpu_us": machine.cpu_seconds(worker.pid) * 1e6}
    if server is not None:
        used["server_cpu_us"] = machine.cpu_seconds(server.pid) * 1e6
    return used


class DrainPostgres(Workload):
    name = "drain-postgres"
    title = "Drain on PostgreSQL, one worker process"
    method = (
        "Queued no-op jobs, then VACUUM ANALYZE and CHECKPOINT, then one worker process starts. Rate: jobs"
        " / (first handler start to last handler start). WAL and statements: from the CHECKPOINT to the end"
        " of the worker, its start-up and shutdown included."
    )
    contenders = (DULY_PG, PGQUEUER_BEST, DULY_PG_DEF, PGQUEUER)
    metrics = (
        RATE,
        WORKER_CPU,
        Metric("server_cpu_us", "server CPU µs/job", 1),
        Metric("wal_bytes", "WAL bytes/job"),
        Metric("statements", "statements/job", 3),
        PEAK_MEMORY,
    )
    goals = (
        Goal(text="`async def`, against PgQueuer at its best", metric="rate", contender="duly-pg",
             over="pgqueuer-500", at_least=1.7),
        Goal(text="`async def`, against PgQueuer's defaults", metric="rate", contender="duly-pg",
             over="pgqueuer", at_least=4),
        Goal(text="`def`, against PgQueuer at its best", metric="rate", contender="duly-pg-def",
             over="pgqueuer-500", at_least=1.2),
        Goal(text="WAL bytes per job", metric="wal_bytes", contender="duly-pg", at_most=1000),
        Goal(text="statements per job", metric="statements", contender="duly-pg", at_most=0.03),
    )  # fmt: skip

    def measure(self, contender: Contender) -> Sample:
        jobs = self.bench.sizes.drain_jobs
        server = self.bench.server
        with self.bench.database(contender) as database:
            fill(self.bench, contender, database, jobs)
            wal, statements = server.wal_position(), server.statements(database.name)
            sample = drain(self.bench, contender, database, jobs)
            sample["wal_bytes"] = (server.wal_position() - wal) / jobs
            sample["statements"] = (server.statements(database.name) - statements) / jobs
        return sample


class DrainSqlite(Workload):
    name = "drain-sqlite"
    title = "Drain on SQLite, one worker process"
    method = (
        "Queued no-op jobs in a new file on a real disk, WAL, synchronous FULL, then one worker process"
        " starts. Rate: jobs / (first handler start to last handler start)."
    )
    contenders = (DULY_SQLITE, HUEY, DULY_SQLITE_DEF)
    metrics = (RATE, WORKER_CPU, PEAK_MEMORY)
    goals = (
        Goal(text="`async def`, against SqliteHuey", metric="rate", contender="duly-sqlite",
             over="huey-sqlite", at_least=5),
    )  # fmt: skip

    def measure(self, contender: Contender) -> Sample:
        jobs = self.bench.sizes.drain_jobs
        with self.bench.database(contender) as database:
            fill(self.bench, contender, database, jobs)
            return drain(self.bench, contender, database, jobs)
