"""More workers, and more slots: what each job costs the database, and each slot the process."""

import time
from collections.abc import Sequence
from dataclasses import replace

from bench import Database, count_runs
from contenders import DULY_PG, DULY_PG_DEF, Contender
from results import Goal, Metric, Round, Sample
from workloads.base import Workload
from workloads.drain import LOOK_FOR_REPEATS, RATE, SERVER_CPU, fill, spent
from workloads.processes import together

SLOTS = 4
LONGEST_NAP = 60.0


class Crowd(Workload):
    name = "crowd"
    title = "The more workers"
    method = (
        f"No-op jobs, drained by so many worker processes with {SLOTS} slots each. They share the machine's"
        " cores, so what counts is what a job costs the server, not how soon it is done: CPU, pages (read or"
        " found in the cache), statements and WAL, from before the first worker starts to the end of the"
        " last, their start-up and shutdown included. With many processes these are a large part: what a job"
        " itself costs are the calls and pages of claim and settle. Rate: as with two processes."
    )
    counts = (1, 4, 16, 64)
    contenders = tuple(
        replace(DULY_PG, name=f"{n}-workers", about=f"{DULY_PG.about}; {n} processes, {SLOTS} slots each",
                settings={"slots": str(SLOTS), "processes": str(n)})
        for n in counts
    )  # fmt: skip
    metrics = (
        RATE,
        SERVER_CPU,
        Metric("pages", "pages/job", 1),
        Metric("statements", "statements/job", 3),
        Metric("wal_bytes", "WAL bytes/job"),
        Metric("hot_calls", "claim and settle calls/job", 3),
        Metric("hot_pages", "claim and settle pages/job", 1),
        Metric("took_part", "processes that ran jobs"),
        Metric("memory", "MB each", 1),
    )
    plotted = "hot_pages"
    goals = (
        Goal(text="pages of claim and settle per job, 64 workers against one", metric="hot_pages",
             contender="64-workers", over="1-workers", at_most=1.5),
    )  # fmt: skip

    def measure(self, contender: Contender) -> Sample:
        jobs, processes = self.bench.sizes.crowd_jobs, int(contender.settings["processes"])
        with self.bench.database(contender) as database:
            fill(self.bench, contender, database, jobs)
            before = spent(database)
            with self.bench.worker(contender, database, processes) as worker:
                worker.wait_for_runs(jobs)
                memory = worker.resident_megabytes() / processes
                time.sleep(LOOK_FOR_REPEATS)
                worker.stop()
                runs = worker.runs()
            used = {name: after - before[name] for name, after in spent(database).items()} | hot(database)
        per_job = {name: value / jobs for name, value in used.items()}
        return per_job | together(runs) | {"memory": memory} | count_runs(runs, jobs)


def hot(database: Database) -> Sample:
    """Calls of claim and settle in a fresh database, and the pages they touched; {} if not counted."""
    if database.server is None or not database.server.counts_statements:
        return {}
    answer = database.server.ask(
        "SELECT coalesce(sum(calls), 0), coalesce(sum(shared_blks_hit + shared_blks_read), 0)"
        " FROM pg_stat_statements s JOIN pg_database d ON s.dbid = d.oid"
        f" WHERE datname = '{database.name}' AND query LIKE 'WITH %'"
        " AND query ~ 'DELETE FROM \"?duly\"?.(waiting|running)'"
    )
    calls, pages = answer.split("|")
    return {"hot_calls": float(calls), "hot_pages": float(pages)}


class Slots(Workload):
    name = "slots"
    title = "The more slots"
    method = (
        "One worker process; every slot has a job that sleeps. Memory of the process then, and what each slot"
        " adds to the same worker with one slot."
    )
    contenders = tuple(
        replace(one, name=f"{kind}-{n}", about=f"{one.about}; {n} {kind} slots, all in use",
                settings={**one.settings, setting: str(n), "seconds": str(LONGEST_NAP)})
        for one, kind, setting, counts in (
            (DULY_PG, "async", "slots", (1, 100, 1_000)),
            (DULY_PG_DEF, "thread", "threads", (1, 10, 100)),
        )
        for n in counts
    )  # fmt: skip
    metrics = (Metric("memory", "MB", 1), Metric("each", "KB per slot", 1))
    plotted = "memory"

    def measure(self, contender: Contender) -> Sample:
        slots = self._slots(contender)
        with self.bench.database(contender) as database:
            self.bench.call(contender, "fill", database.url, count=slots)
            with self.bench.worker(contender, database) as worker:
                worker.wait_for_runs(slots)
                time.sleep(1.0)
                memory = worker.resident_megabytes()
                worker.kill()
        return {"memory": memory}

    def round(self, contenders: Sequence[Contender]) -> Round:
        samples = super().round(contenders)
        for contender in contenders:
            kind, slots = contender.name.split("-")[0], self._slots(contender)
            alone = samples.get(f"{kind}-1")
            if slots > 1 and alone and contender.name in samples:
                more = samples[contender.name]["memory"] - alone["memory"]
                samples[contender.name]["each"] = more * 1024 / (slots - 1)
        return samples

    def _slots(self, contender: Contender) -> int:
        return int(contender.name.split("-")[1])
