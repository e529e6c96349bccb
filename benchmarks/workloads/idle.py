"""What duly costs when nothing happens: an idle worker, and the import."""

import statistics
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack

from bench import Database, Worker
from contenders import DBOS_BEST, DULY_PG, DULY_SQLITE, HUEY, ON_POSTGRES, ON_REDIS, Contender
from results import Goal, Metric, Round, Sample
from venvs import HERE, environment
from workloads.base import Workload

SETTLE = 3.0


class Idle(Workload):
    name = "idle"
    title = "Idle worker"
    method = (
        "One worker process each, all at the same time on databases of their own; each has run one"
        f" job and then idled for {SETTLE:.0f} s. Queries: those in its own database;"
        " on Redis, commands to its own server."
        " CPU: percent of one core."
    )
    contenders = (DULY_PG, *ON_POSTGRES, DBOS_BEST, DULY_SQLITE, HUEY, *ON_REDIS)
    metrics = (Metric("queries", "queries/s", 2), Metric("cpu", "CPU %", 2), Metric("memory", "MB", 1))
    plotted = "memory"
    goals = (
        Goal(text="PostgreSQL, queries per second", metric="queries", contender="duly-pg", at_most=0.5),
        Goal(text="SQLite, CPU percent", metric="cpu", contender="duly-sqlite", at_most=1),
        Goal(text="PostgreSQL, MB", metric="memory", contender="duly-pg", at_most=45),
        Goal(text="SQLite, MB", metric="memory", contender="duly-sqlite", at_most=35),
    )

    def round(self, contenders: Sequence[Contender]) -> Round:
        with ExitStack() as stack:
            workers: dict[str, tuple[Worker, Database]] = {}
            for contender in contenders:
                database = stack.enter_context(self.bench.database(contender))
                self.bench.call(contender, "fill", database.url, count=1)
                worker = stack.enter_context(self.bench.worker(contender, database))
                worker.wait_for_runs(1)
                workers[contender.name] = worker, database
            time.sleep(SETTLE)
            started = time.monotonic()
            before = {name: self._used(*worker) for name, worker in workers.items()}
            time.sleep(self.bench.sizes.idle_seconds)
            after = {name: self._used(*worker) for name, worker in workers.items()}
            seconds = time.monotonic() - started
            samples: Round = {}
            for name, (worker, _) in workers.items():
                used = {key: after[name][key] - before[name][key] for key in before[name]}
                samples[name] = {
                    "cpu": used["cpu"] / seconds * 100,
                    "memory": worker.resident_megabytes(),
                }
                if "queries" in used:
                    samples[name]["queries"] = used["queries"] / seconds
        return samples

    def _used(self, worker: Worker, database: Database) -> Sample:
        used = {"cpu": worker.cpu_seconds()}
        if (queries := database.queries()) is not None:
            used["queries"] = queries
        return used


class ImportTime(Workload):
    name = "import"
    title = "`import duly`"
    method = "`python -c 'import duly'` and `python -c pass` in turns; the difference of the medians."
    contenders = (DULY_PG,)
    metrics = (Metric("import_ms", "import ms", 1), Metric("bare_ms", "bare interpreter ms", 1))
    goals = (
        Goal(text="import time in ms", metric="import_ms", contender="duly-pg", at_most=100),
    )  # fmt: skip

    def measure(self, contender: Contender) -> Sample:
        self._milliseconds("import duly")
        pairs = [
            (self._milliseconds("import duly"), self._milliseconds("pass"))
            for _ in range(self.bench.sizes.imports)
        ]  # fmt: skip
        imported, bare = (statistics.median(times) for times in zip(*pairs, strict=True))
        return {"import_ms": imported - bare, "bare_ms": bare}

    def _milliseconds(self, code: str) -> float:
        python = self.bench.environments.python("duly")
        started = time.perf_counter()
        subprocess.run([python, "-c", code], check=True, cwd=HERE, env=environment())
        return (time.perf_counter() - started) * 1000
