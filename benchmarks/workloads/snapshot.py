"""Bursts of jobs while a transaction is held open, so that nothing that is dead can be removed."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from bench import Database, count_runs
from contenders import AWA, DULY_PG, PGQUEUER_BEST, PROCRASTINATE, Contender
from results import Goal, Metric, Sample
from venvs import environment
from workloads.base import Workload

HELD = replace(DULY_PG, name="duly-held", about="PostgreSQL, `async def` handler, under the snapshot")
FREE = replace(DULY_PG, name="duly-free", about="the same with no snapshot")
PGQUEUER_HELD = replace(PGQUEUER_BEST, name="pgqueuer-held")
PROCRASTINATE_HELD = replace(PROCRASTINATE, name="procrastinate-held")
AWA_HELD = replace(AWA, name="awa-held")
BURSTS = 10
LONGEST_BURST = 20.0
"""Seconds after which a peer's burst is cut off and its rate taken from what was done."""


class HeldSnapshot(Workload):
    name = "held-snapshot"
    title = "Ten bursts while a transaction is held open"
    method = (
        "A REPEATABLE READ transaction of another session is open from before the first job to the end. Ten"
        " bursts of 100,000 jobs, each enqueued and drained by one worker process that stays: jobs / (first"
        " handler start to last handler start). duly's bursts under the snapshot begin 67 s apart, so"
        " that it is held for ten minutes; the others' follow each other. A peer's burst that is not drained"
        " within 20 s is cut off there, and what is left is added to the next; Procrastinate's bursts are a"
        " tenth of that size. One round."
    )
    most_rounds = 1
    contenders = (HELD, FREE, PGQUEUER_HELD, PROCRASTINATE_HELD, AWA_HELD)
    metrics = (
        Metric("first", "first burst, jobs/s"),
        *(Metric(f"burst_{number}", str(number)) for number in range(2, BURSTS)),
        Metric("tenth", "tenth"),
        Metric("kept", "tenth / first", 2),
        Metric("slowest", "slowest / first", 2),
        Metric("seconds", "held for s"),
    )
    plotted = "tenth"
    goals = (
        Goal(text="the tenth burst against the first", metric="kept", contender="duly-held", at_least=0.8),
        Goal(text="the slowest burst against the first", metric="slowest", contender="duly-held",
             at_least=0.8),
        Goal(text="the tenth burst against PgQueuer's", metric="tenth", contender="duly-held",
             over="pgqueuer-held", at_least=5),
        Goal(text="the tenth burst against Procrastinate's", metric="tenth", contender="duly-held",
             over="procrastinate-held", at_least=5),
    )  # fmt: skip

    def measure(self, contender: Contender) -> Sample:
        with self.bench.database(contender) as database:
            if contender is FREE:
                return self._bursts(contender, database)
            with held_snapshot(database):
                return self._bursts(contender, database)

    def _bursts(self, contender: Contender, database: Database) -> Sample:
        jobs = max(2, self.bench.sizes.burst_jobs // (10 if contender.library == "procrastinate" else 1))
        began = time.monotonic()
        rates = []
        with self.bench.worker(contender, database) as worker:
            for burst in range(BURSTS):
                if contender is HELD:
                    time.sleep(max(0.0, began + burst * self.bench.sizes.burst_every - time.monotonic()))
                before = len(worker.runs())
                self.bench.call(contender, "fill", database.url, count=jobs, first=burst * jobs)
                most = LONGEST_BURST if contender.is_peer else None
                worker.wait_for_runs(before + jobs, patience=120.0, most=most)
                starts = sorted(run.started_at for run in worker.runs()[before:])
                rates.append(len(starts) / max(1e-9, starts[-1] - starts[0]) if len(starts) > 1 else 0.1)
            held = time.monotonic() - began
            worker.stop()
            runs = worker.runs()
        counts = count_runs(runs, BURSTS * jobs)
        if contender.is_peer:
            counts["missing"] = 0  # what was cut off
        figures = {
            "first": rates[0],
            **{f"burst_{number}": rate for number, rate in enumerate(rates, 1)},
            "tenth": rates[-1],
            "kept": rates[-1] / rates[0],
            "slowest": min(rates) / rates[0],
        }
        return {**figures, "seconds": held, **counts}


@contextmanager
def held_snapshot(database: Database) -> Iterator[None]:
    """Another session's transaction that sees everything as it is now."""
    assert database.server is not None
    process = subprocess.Popen(
        [str(database.server.programs / "psql"), "-XAtq", "-d", database.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current();\n")
        process.stdin.flush()
        if not process.stdout.readline().strip():
            raise AssertionError("no snapshot is held")
        yield
    finally:
        process.stdin.close()
        process.wait(30)
