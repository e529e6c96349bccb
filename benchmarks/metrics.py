"""What metrics and alerts cost with a million jobs waiting and a million ended.

`python benchmarks/metrics.py URL...`: each must be an empty database, SQLite or PostgreSQL; it is filled.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable

from duly import Duly
from duly.alerts.evaluate import Evaluator
from duly.metrics.collector import Collector

N = 1_000_000
LANES = "'q' || (i % 5), 't' || (i % 50), 'task' || (i % 20)"


def fill(jobs: Duly) -> None:
    """A million that wait, in 100 lanes, a million that ended, and two days of counts by the minute."""
    jobs.migrate()
    now = jobs.store.now_us()
    if jobs.settings.url.startswith("sqlite"):
        import sqlite3

        lite = sqlite3.connect(jobs.settings.url.removeprefix("sqlite:///"), isolation_level=None)
        lite.execute("PRAGMA synchronous = OFF")
        lite.execute("BEGIN")
        _insert(
            lite.execute,
            now,
            "duly_",
            "lower(printf('%08x-0000-7000-{}000-%012x', i / 65536, i))",
            _RECURSIVE,
        )
        lite.execute("COMMIT")
        lite.close()
    else:
        import psycopg

        with psycopg.connect(jobs.settings.url, autocommit=True) as postgres:
            series = "WITH g(i) AS (SELECT generate_series(1::bigint, {}))"
            make = "(lpad(to_hex(i/65536), 8, '0') || '-0000-7000-{}000-' || lpad(to_hex(i), 12, '0'))::uuid"
            _insert(postgres.execute, now, "duly.", make, series)  # type: ignore[arg-type]
            postgres.execute("VACUUM ANALYZE")


_RECURSIVE = "WITH RECURSIVE g(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM g WHERE i < {})"


def _insert(run: Callable[[str], object], now: int, prefix: str, make_id: str, rows: str) -> None:
    million, minute = rows.format(N), now - now % 60_000_000
    for letter in "89":
        run(
            f"INSERT INTO {prefix}jobs (queue, tenant, task, id, args, created_at) {million} "
            f"SELECT {LANES}, {make_id.format(letter)}, '{{}}', {now} FROM g"
        )
    run(
        f"INSERT INTO {prefix}waiting (queue, tenant, task, rank, id, run_at, priority) {million} "
        f"SELECT {LANES}, {now} - i * 10, {make_id.format('8')}, {now} - i * 10, i % 101 FROM g"
    )
    run(
        f"INSERT INTO {prefix}ended (id, state, finished_at, token, attempt, crashes) {million} "
        f"SELECT {make_id.format('9')}, CASE WHEN i % 20 = 0 THEN 'failed' ELSE 'succeeded' END, "
        f"{now} - i * 1000, 1, 1, 0 FROM g"
    )
    run(
        f"INSERT INTO {prefix}rollups (queue, tenant, task, period_us, period_at, shard, "
        f"runs, succeeded, failed, ran_us, waited_us, wait_5ms, wait_1s) {rows.format(288_000)} "
        f"SELECT {LANES}, 60000000, {minute} - (i / 100) * 60000000, i % 100, "
        "10, 9, 1, 100000, 500000, 9, 1 FROM g"
    )


def timed(what: Callable[[], object], times: int = 5) -> str:
    """The middle of several times, in milliseconds."""
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        what()
        took.append((time.perf_counter() - begun) * 1000)
    return f"{sorted(took)[len(took) // 2]:,.1f} ms"


def measure(url: str) -> None:
    """Fill a database and time what is asked of it."""
    jobs = Duly(url)
    fill(jobs)
    collector = Collector(jobs.store)
    collector.begin()
    series = collector.render()[1].count(b"\n")
    evaluator = Evaluator(jobs.store, lambda: jobs.alerts.settings)
    print(f"{jobs.store.dialect}: a look {timed(lambda: collector._observer.observe(fresh=True))}", end=", ")
    print(f"a scrape of the look before {timed(collector.render)} ({series:,} lines)", end=", ")
    print(f"an evaluation of the alerts {timed(lambda: evaluator.evaluate(now_please=True), 3)}", end=", ")
    print(f"memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    jobs.close()


if __name__ == "__main__":
    for each in sys.argv[1:]:
        measure(each)
