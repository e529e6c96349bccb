"""Millions of rows: jobs that wait to be run, and jobs that ran long ago."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from bench import Bench, Database
from contenders import DULY_PG, DULY_SQLITE, Contender
from results import Goal, Metric, Sample
from workloads.backlog import Backlog
from workloads.base import Workload
from workloads.drain import LOOK_FOR_REPEATS, RATE, SERVER_CPU, WORKER_CPU, middle, spent

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
PART = 1_000_000
"""So many rows are made by one call."""


def make_rows(bench: Bench, database: Database, kind: str, count: int, first: int = 0) -> None:
    """Put rows into a database, behind duly's back."""
    for start in range(first, first + count, PART):
        part = min(PART, first + count - start)
        bench.call_module("duly", ["drivers.duly_rows", kind, database.url, str(part), str(start)])


class Waiting(Workload):
    name = "waiting"
    title = "The longer the queue"
    method = (
        "So many no-op jobs of the worker's own wait (made by SQL); one worker process starts and is stopped"
        " after the first of them: 10,000, or all if there are fewer. Rate: from the first handler start"
        " to the last of these. Pages: of the database, read or found in its cache. What was taken is put"
        " back after each drain. Median of three drains per round."
    )
    contenders = tuple(
        replace(one, name=f"{one.database}-{rows:,}", about=f"{one.about}; {rows:,} jobs wait",
                settings={"rows": str(rows)})
        for one in (DULY_PG, DULY_SQLITE)
        for rows in SIZES
    )  # fmt: skip
    metrics = (RATE, WORKER_CPU, SERVER_CPU, Metric("pages", "pages/job", 1))
    goals = (
        Goal(text="PostgreSQL, rate with 10,000,000 waiting against 10,000", metric="rate",
             contender="postgres-10,000,000", over="postgres-10,000", at_least=0.8),
        Goal(text="SQLite, rate with 10,000,000 waiting against 10,000", metric="rate",
             contender="sqlite-10,000,000", over="sqlite-10,000", at_least=0.8),
    )  # fmt: skip
    drains = 3

    @contextmanager
    def prepared(self) -> Iterator[None]:
        self._databases: dict[str, Database] = {}
        self._made: dict[str, int] = {}
        with ExitStack() as stack:
            for contender in self.contenders:
                database = stack.enter_context(self.bench.database(contender))
                self._databases[contender.name] = database
                self._made[contender.name] = self._add(database, self._rows(contender), 0)
            yield

    def measure(self, contender: Contender) -> Sample:
        database, rows = self._databases[contender.name], self._rows(contender)
        samples: list[Sample] = []
        for _ in range(self.drains):
            database.bring_to_rest()
            self.bench.wait_until_quiet()
            samples.append(take_first(self.bench, contender, database, min(rows, self.bench.sizes.head_jobs)))
            taken = round(samples[-1]["runs"])
            self._made[contender.name] = self._add(database, taken, self._made[contender.name])
        return middle(samples)

    def _rows(self, contender: Contender) -> int:
        return max(10, round(int(contender.settings["rows"]) * self.bench.sizes.waiting_rows / SIZES[-1]))

    def _add(self, database: Database, count: int, first: int) -> int:
        make_rows(self.bench, database, "waiting", count, first)
        return first + count


def take_first(bench: Bench, contender: Contender, database: Database, jobs: int) -> Sample:
    """Start a worker, and stop it when it has run so many jobs. It may have run more by then."""
    before = spent(database)
    with bench.worker(contender, database) as worker:
        worker.wait_for_runs(1)
        began = worker.cpu_seconds()
        worker.wait_for_runs(jobs)
        cpu = worker.cpu_seconds() - began
        time.sleep(LOOK_FOR_REPEATS)
        worker.stop()
        runs = worker.runs()
    after = spent(database)
    starts = sorted(run.started_at for run in runs)
    distinct = len({run.number for run in runs})
    return {
        "rate": jobs / (starts[jobs - 1] - starts[0]),
        "worker_cpu_us": cpu * 1e6 / jobs,
        **{name: (after[name] - before[name]) / len(runs) for name in before},
        "runs": len(runs),
        "repeated": len(runs) - distinct,
        "missing": 0,
    }


class History(Backlog):
    name = "history"
    title = "Jobs that have ended"
    method = (
        "Jobs that succeeded, with their runs, are in the tables (made by SQL); then the worker's jobs are"
        " queued and drained as in the drain workloads. The same databases serve all rounds. Median of three"
        " drains per round."
    )
    fresh = (
        replace(DULY_PG, name="pg-fresh", about="PostgreSQL, no history"),
        replace(DULY_SQLITE, name="sqlite-fresh", about="SQLite, no history"),
    )
    old = (
        replace(DULY_PG, name="pg-history", about="PostgreSQL, with the history"),
        replace(DULY_SQLITE, name="sqlite-history", about="SQLite, with the history"),
    )
    contenders = (fresh[0], old[0], fresh[1], old[1])
    filled = old
    goals = (
        Goal(text="PostgreSQL, time per job against no history", metric="us", contender="pg-history",
             over="pg-fresh", at_most=1.1),
        Goal(text="SQLite, time per job against no history", metric="us", contender="sqlite-history",
             over="sqlite-fresh", at_most=1.1),
    )  # fmt: skip

    def _fill(self, contender: Contender, database: Database) -> None:
        make_rows(self.bench, database, "ended", self.bench.sizes.history_rows)

    @property
    def _jobs(self) -> int:
        return self.bench.sizes.drain_jobs


class Prune(Workload):
    name = "prune"
    title = "Forgetting jobs that have ended"
    method = (
        "Jobs that succeeded, with their runs, are in the tables (made by SQL); one process forgets them all,"
        " in the batches of a worker's upkeep. Kept: what the database had grown by, indexes included."
    )
    contenders = (DULY_PG, DULY_SQLITE)
    metrics = (
        RATE,
        SERVER_CPU,
        Metric("wal_bytes", "WAL bytes/job"),
        Metric("kept_bytes", "bytes kept/job"),
    )

    def measure(self, contender: Contender) -> Sample:
        rows = self.bench.sizes.prune_rows
        with self.bench.database(contender) as database:
            empty = database.size()
            make_rows(self.bench, database, "ended", rows)
            kept = (database.size() - empty) / rows
            database.bring_to_rest()
            self.bench.wait_until_quiet()
            before = spent(database)
            answer = self.bench.call_module("duly", ["drivers.duly_prune", database.url])
            used = {name: (after - before[name]) / answer["gone"] for name, after in spent(database).items()}
        return {"rate": answer["gone"] / answer["seconds"], "kept_bytes": kept, **used}
