"""Enqueue: many in one call, and one at a time beside the peers and beside a bare INSERT."""

import statistics
from collections.abc import Sequence

from contenders import (
    AWA,
    DULY_PG,
    DULY_SQLITE,
    HUEY,
    OBAN,
    ON_POSTGRES,
    ON_REDIS,
    PGQUEUER,
    PROCRASTINATE,
    RQ,
    Contender,
)
from results import Goal, Metric, Round, Sample
from workloads.base import Workload
from workloads.drain import SERVER_CPU, spent

WARM_UP = 50


class EnqueueMany(Workload):
    name = "enqueue-many"
    title = "Bulk enqueue"
    method = (
        "One producer process on an open connection, no worker. duly: one `enqueue_many` call for all rows;"
        " the peers: 1,000 rows per call. Celery, DBOS, Dramatiq, Huey, SAQ and taskiq have no bulk call."
        " Slow peers get fewer rows."
    )
    contenders = (DULY_PG, PGQUEUER, PROCRASTINATE, OBAN, AWA, DULY_SQLITE, RQ)
    metrics = (Metric("rate", "rows/s"), SERVER_CPU, Metric("wal_bytes", "WAL bytes/job"))
    goals = (
        Goal(text="PostgreSQL, against PgQueuer's bulk enqueue", metric="rate", contender="duly-pg",
             over="pgqueuer", at_least=1.3),
        Goal(text="SQLite, rows per second", metric="rate", contender="duly-sqlite", at_least=60_000),
    )  # fmt: skip

    def measure(self, contender: Contender) -> Sample:
        rows = contender.jobs(self.bench.sizes.bulk_jobs)
        with self.bench.database(contender) as database:
            if database.server is not None:
                database.server.ask("CHECKPOINT")
            self.bench.wait_until_quiet()
            before = spent(database)
            answer = self.bench.call(contender, "bulk", database.url, count=rows)
            used = {name: (after - before[name]) / rows for name, after in spent(database).items()}
        return {"rate": rows / answer["seconds"], **used}


class EnqueueOneBesidePeers(Workload):
    name = "enqueue-one-peers"
    title = "Single enqueue beside the peers"
    method = (
        "One producer process on an open connection, no worker, one job per call, one call after the other;"
        f" the first {WARM_UP} are left out. Rate: calls / time spent in them. What is acknowledged on"
        " PostgreSQL and SQLite has been synced to disk; on Redis it is in memory only."
    )
    contenders = (DULY_PG, *ON_POSTGRES, DULY_SQLITE, HUEY, *ON_REDIS)
    metrics = (Metric("rate", "enqueues/s"),)
    goals = tuple(
        Goal(
            text=f"PostgreSQL, against {one.name}",
            metric="rate",
            contender="duly-pg",
            over=one.name,
            at_least=1,
        )
        for one in ON_POSTGRES
    )

    def measure(self, contender: Contender) -> Sample:
        count = self.bench.sizes.single_jobs + WARM_UP
        with self.bench.database(contender) as database:
            self.bench.wait_until_quiet()
            answer = self.bench.call(contender, "one-by-one", database.url, count=count)
        calls = answer["calls"][WARM_UP:]
        return {"rate": len(calls) / sum(returned - called for called, returned in calls)}


BARE = Contender(
    name="bare-insert",
    library="duly",
    database="postgres",
    about="psycopg, autocommit, prepared: one row of the same columns into one table with a primary key",
)


class EnqueueOne(Workload):
    name = "enqueue-one"
    title = "Single enqueue on PostgreSQL"
    method = (
        "One producer process, no worker: slices of duly's `enqueue` and of a bare prepared INSERT of the"
        " same columns take turns within the process. Rate and ratio: medians over the slices."
    )
    contenders = (DULY_PG, BARE)
    metrics = (Metric("rate", "enqueues/s"), Metric("of_bare", "of the bare INSERT", 2))
    goals = (
        Goal(text="against the bare INSERT", metric="of_bare", contender="duly-pg", at_least=0.75),
    )  # fmt: skip

    def round(self, contenders: Sequence[Contender]) -> Round:
        sizes = self.bench.sizes
        with self.bench.database(DULY_PG) as database:
            self.bench.wait_until_quiet()
            command = ["drivers.enqueue_one", f"--url={database.url}"]
            command += [f"--slices={sizes.enqueue_slices}", f"--per-slice={sizes.enqueue_per_slice}"]
            slices = self.bench.call_module("duly", command)
        duly, bare = slices["duly"], slices["bare"]
        return {
            "duly-pg": {
                "rate": statistics.median(duly),
                "of_bare": statistics.median(mine / its for mine, its in zip(duly, bare, strict=True)),
            },
            "bare-insert": {"rate": statistics.median(bare)},
        }
