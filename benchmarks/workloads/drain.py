"""Drain a full queue of no-op jobs with one worker process."""

import time

import machine
from bench import Bench, Database, Worker, count_runs
from contenders import (
    AWA,
    BARE_PG,
    BARE_SQLITE,
    CELERY_PREFORK,
    DBOS_BEST,
    DRAMATIQ_BEST,
    DULY_PG,
    DULY_PG_DEF,
    DULY_SQLITE,
    DULY_SQLITE_DEF,
    HUEY,
    OBAN,
    ON_REDIS,
    PGQUEUER,
    PGQUEUER_BEST,
    PROCRASTINATE_BEST,
    SAQ_PG,
    Contender,
)
from results import Goal, Metric, Sample
from workloads.base import Workload

LOOK_FOR_REPEATS = 0.25
"""Seconds that a worker stays after the last job, so that a second run of one would show."""

RATE = Metric("rate", "jobs/s")
WORKER_CPU = Metric("worker_cpu_us", "worker CPU µs/job", 1)
SERVER_CPU = Metric("server_cpu_us", "server CPU µs/job", 1)
PEAK_MEMORY = Metric("peak_mb", "peak MB")


def fill(bench: Bench, contender: Contender, database: Database, jobs: int) -> float:
    """Queue the jobs, bring the database to rest, let the machine settle; return jobs queued per second."""
    answer = bench.call(contender, "fill", database.url, count=jobs)
    database.bring_to_rest()
    bench.wait_until_quiet()
    return float((jobs - 1) / answer["seconds"])


def drain(bench: Bench, contender: Contender, database: Database, jobs: int) -> Sample:
    """Start a worker on a filled database; take the figures from the first handler start to the last."""
    with bench.worker(contender, database) as worker:
        worker.wait_for_runs(1)
        before = cpu_microseconds(worker, database)
        worker.wait_for_runs(jobs)
        after = cpu_microseconds(worker, database)
        peak = worker.resident_megabytes("VmHWM")
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


def fill_and_drain(bench: Bench, contender: Contender, jobs: int) -> Sample:
    """Do both on a fresh database, and count what it took of the server."""
    with bench.database(contender) as database:
        queued = fill(bench, contender, database, jobs)
        before = counted(database)
        sample = drain(bench, contender, database, jobs)
        after = counted(database)
    return sample | {name: (after[name] - before[name]) / jobs for name in before} | {"queued": queued}


def cpu_microseconds(worker: Worker, database: Database) -> Sample:
    used = {"worker_cpu_us": worker.cpu_seconds() * 1e6}
    if database.server_pid is not None:
        used["server_cpu_us"] = machine.cpu_seconds(database.server_pid) * 1e6
    return used


def counted(database: Database) -> Sample:
    """What the server counts of itself: statements, WAL, and pages read or found in its cache."""
    found: Sample = {}
    if (queries := database.queries()) is not None:
        found["statements"] = queries
    if database.server is not None:
        found["wal_bytes"] = database.server.wal_position()
        found["pages"] = database.server.pages(database.name)
    return found


def spent(database: Database) -> Sample:
    """The same, and its CPU."""
    if database.server is None:
        return {}
    return counted(database) | {"server_cpu_us": machine.cpu_seconds(database.server.pid) * 1e6}


def middle(samples: list[Sample]) -> Sample:
    """Of several drains the one in the middle by its rate, with the runs of all."""
    by_rate = sorted(samples, key=lambda sample: sample["rate"])
    counts = {key: sum(sample[key] for sample in samples) for key in ("runs", "repeated", "missing")}
    return by_rate[len(samples) // 2] | counts


class Drain(Workload):
    """Queue no-op jobs, then let one worker process have them."""

    def measure(self, contender: Contender) -> Sample:
        return fill_and_drain(self.bench, contender, contender.jobs(self.bench.sizes.drain_jobs))


class DrainPostgres(Drain):
    name = "drain-postgres"
    title = "Drain on PostgreSQL, one worker process"
    method = (
        "Queued no-op jobs, then VACUUM ANALYZE and CHECKPOINT, then one worker process starts. Rate: jobs"
        " / (first handler start to last handler start). WAL and statements: from the CHECKPOINT to the end"
        " of the worker, its start-up and shutdown included. Slow peers get fewer jobs."
    )
    contenders = (
        DULY_PG,
        PGQUEUER_BEST,
        DULY_PG_DEF,
        PGQUEUER,
        PROCRASTINATE_BEST,
        OBAN,
        SAQ_PG,
        DBOS_BEST,
        AWA,
        BARE_PG,
    )
    metrics = (
        RATE,
        WORKER_CPU,
        SERVER_CPU,
        Metric("wal_bytes", "WAL bytes/job"),
        Metric("statements", "statements/job", 3),
        PEAK_MEMORY,
    )
    goals = (
        Goal(text="`async def`, against PgQueuer at its best", metric="rate", contender="duly-pg",
             over="pgqueuer-500", at_least=2.3),
        Goal(text="`async def`, against PgQueuer's defaults", metric="rate", contender="duly-pg",
             over="pgqueuer", at_least=5),
        Goal(text="`def`, against PgQueuer at its best", metric="rate", contender="duly-pg-def",
             over="pgqueuer-500", at_least=1.5),
        Goal(text="`async def`, against a bare script on the same rows", metric="rate", contender="duly-pg",
             over="bare-pg", at_least=0.6),
        Goal(text="WAL bytes per job", metric="wal_bytes", contender="duly-pg", at_most=1000),
        Goal(text="statements per job", metric="statements", contender="duly-pg", at_most=0.03),
    )  # fmt: skip


class DrainSqlite(Drain):
    name = "drain-sqlite"
    title = "Drain on SQLite, one worker process"
    method = (
        "Queued no-op jobs in a new file on a real disk, WAL, synchronous FULL, then one worker process"
        " starts. Rate: jobs / (first handler start to last handler start)."
    )
    contenders = (DULY_SQLITE, HUEY, DULY_SQLITE_DEF, BARE_SQLITE)
    metrics = (RATE, WORKER_CPU, PEAK_MEMORY)
    goals = (
        Goal(text="`async def`, against SqliteHuey", metric="rate", contender="duly-sqlite",
             over="huey-sqlite", at_least=8),
    )  # fmt: skip


class DrainRedis(Drain):
    name = "drain-redis"
    title = "Drain on Redis, one worker process, with duly on PostgreSQL beside it"
    method = (
        "As on PostgreSQL, with a fresh Redis server per run that keeps everything in memory only: what it"
        " acknowledges is lost when it crashes, unlike in the PostgreSQL beside it, where fsync is on."
    )
    contenders = (DULY_PG, *ON_REDIS, CELERY_PREFORK, DRAMATIQ_BEST)
    metrics = (
        RATE,
        WORKER_CPU,
        SERVER_CPU,
        Metric("statements", "statements or commands/job", 3),
        PEAK_MEMORY,
    )
    goals = tuple(
        Goal(
            text=f"on PostgreSQL, against {one.name}",
            metric="rate",
            contender="duly-pg",
            over=one.name,
            at_least=1,
        )
        for one in (*ON_REDIS, DRAMATIQ_BEST)
    )
