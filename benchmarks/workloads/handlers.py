"""Drain jobs that do something: handlers that take a while, and jobs that carry something."""

from contenders import (
    DULY_PG,
    DULY_PG_500,
    DULY_PG_DEF,
    DULY_SQLITE,
    PGQUEUER_BEST,
    PROCRASTINATE_BEST,
    Contender,
)
from results import Goal, Metric, Sample
from workloads.base import Workload
from workloads.drain import RATE, SERVER_CPU, WORKER_CPU, fill_and_drain


class Handlers(Workload):
    name = "handlers"
    title = "Drain on PostgreSQL, handlers of 1 ms and 10 ms"
    method = (
        "As the drain with one worker process, but the handler then sleeps for 1 or 10 ms, as one that waits"
        " for an answer would. How many handlers run at once decides here: in duly at most 10 threads (`def`)"
        " and 100 or 500 coroutines, in PgQueuer as many as it claims, in Procrastinate 30."
    )
    contenders = tuple(
        contender.with_settings(f"{ms}ms", f"sleeps {ms} ms", seconds=str(ms / 1000))
        for ms in (1, 10)
        for contender in (DULY_PG, DULY_PG_500, DULY_PG_DEF, PGQUEUER_BEST, PROCRASTINATE_BEST)
    )
    metrics = (RATE, WORKER_CPU, SERVER_CPU)
    goals = (
        Goal(text="1 ms, against PgQueuer at its best", metric="rate", contender="duly-pg-1ms",
             over="pgqueuer-500-1ms", at_least=1),
        Goal(text="10 ms and 500 slots, against PgQueuer at its best", metric="rate",
             contender="duly-pg-500-10ms", over="pgqueuer-500-10ms", at_least=1),
    )  # fmt: skip

    def measure(self, contender: Contender) -> Sample:
        return fill_and_drain(self.bench, contender, contender.jobs(self.bench.sizes.handler_jobs))


class Payloads(Workload):
    name = "payloads"
    title = "Payloads of 1 KB and 10 KB"
    method = (
        "Bulk enqueue, then the drain with one worker process, of jobs that each carry that much text, which"
        " cannot be compressed. WAL: of the drain."
    )
    contenders = tuple(
        contender.with_settings(f"{size}kb", f"{size} KB of text", payload=str(size * 1000))
        for size in (1, 10)
        for contender in (DULY_PG, PGQUEUER_BEST, PROCRASTINATE_BEST, DULY_SQLITE)
    )
    metrics = (
        Metric("queued", "enqueued rows/s"),
        RATE,
        WORKER_CPU,
        SERVER_CPU,
        Metric("wal_bytes", "WAL bytes/job"),
    )
    goals = tuple(
        Goal(text=f"{size} KB, {what}, against PgQueuer at its best", metric=metric,
             contender=f"duly-pg-{size}kb", over=f"pgqueuer-500-{size}kb", at_least=1)
        for size in (1, 10)
        for metric, what in (("queued", "enqueue"), ("rate", "drain"))
    )  # fmt: skip

    def measure(self, contender: Contender) -> Sample:
        return fill_and_drain(self.bench, contender, contender.jobs(self.bench.sizes.payload_jobs))
