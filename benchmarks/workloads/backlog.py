"""A huge number of waiting jobs that the worker cannot run, in the queue it works on."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from bench import Database
from contenders import DULY_PG, DULY_SQLITE, Contender
from results import Goal, Metric, Sample
from workloads.base import Workload
from workloads.drain import RATE, drain, fill, middle

CHUNK = 100_000
EMPTY_PG = replace(DULY_PG, name="pg-empty", about="PostgreSQL, nothing else in the queue")
BEHIND_PG = replace(DULY_PG, name="pg-backlog", about="PostgreSQL, behind the unknown jobs")
EMPTY_SQLITE = replace(DULY_SQLITE, name="sqlite-empty", about="SQLite, nothing else in the queue")
BEHIND_SQLITE = replace(DULY_SQLITE, name="sqlite-backlog", about="SQLite, behind the unknown jobs")


class Backlog(Workload):
    name = "backlog"
    title = "Waiting jobs of a task that the worker does not know"
    method = (
        "The unknown jobs wait in the same queue, enqueued first; then the worker's own jobs are queued and"
        " drained as in the drain workloads. The same databases serve all rounds."
        " Median of three drains per round."
    )
    contenders = (EMPTY_PG, BEHIND_PG, EMPTY_SQLITE, BEHIND_SQLITE)
    filled = (BEHIND_PG, BEHIND_SQLITE)
    metrics = (RATE, Metric("us", "µs/job", 1), Metric("server_cpu_us", "server CPU µs/job", 1))
    goals = (
        Goal(text="PostgreSQL, time per job against an empty queue", metric="us", contender="pg-backlog",
             over="pg-empty", at_most=1.5),
        Goal(text="SQLite, time per job against an empty queue", metric="us", contender="sqlite-backlog",
             over="sqlite-empty", at_most=1.5),
    )  # fmt: skip
    drains = 3

    @contextmanager
    def prepared(self) -> Iterator[None]:
        self._databases: dict[str, Database] = {}
        with ExitStack() as stack:
            for contender in self.contenders:
                database = stack.enter_context(self.bench.database(contender))
                self._databases[contender.name] = database
                if contender in self.filled:
                    self._fill(contender, database)
            yield

    def measure(self, contender: Contender) -> Sample:
        database, jobs = self._databases[contender.name], self._jobs
        samples: list[Sample] = []
        for _ in range(self.drains):
            fill(self.bench, contender, database, jobs)
            samples.append(drain(self.bench, contender, database, jobs))
        sample = middle(samples)
        return sample | {"us": 1e6 / sample["rate"]}

    @property
    def _jobs(self) -> int:
        return self.bench.sizes.backlog_jobs

    def _fill(self, contender: Contender, database: Database) -> None:
        strangers = replace(contender, settings={"task": "stranger"})
        rows = self.bench.sizes.backlog_rows
        for first in range(0, rows, CHUNK):
            self.bench.call(strangers, "fill", database.url, count=min(CHUNK, rows - first), first=first)
