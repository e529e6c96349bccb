"""What the benchmark of recurring jobs does inside the environment that has duly.

Run as `python duly_recurring.py VERB {"options": ...}` with BENCH_URL set; prints one line of JSON.
As a module it is the application that `duly worker` runs.
"""

import json
import os
import random
import sqlite3
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from duly import Duly, current_job
from duly.maintenance.declare import declare
from duly.store.call import Call, Dialect, Op
from duly.store.statements import Compiled

URL = os.environ["BENCH_URL"]
ON_POSTGRES = URL.startswith("postgresql")
SECOND = 1_000_000

jobs = Duly(
    URL,
    retention_succeeded=float(os.environ.get("BENCH_RETENTION", "604800")),
    maintenance_interval=float(os.environ.get("BENCH_MAINTENANCE", "60")),
)


@jobs.task
async def work() -> None: ...


@jobs.task
async def again() -> timedelta:
    return timedelta(0)


# -- fill ----------------------------------------------------------------------------------------------


def fill(*, rows: int, every: int, delay: float) -> dict[str, Any]:
    """Store recurring jobs of one interval, their ticks spread evenly over it, the first after `delay` s."""
    jobs.migrate()
    first = jobs.store.now_us() + int(delay * SECOND)
    rule = json.dumps({"rules": [f"@every {every}s"]}, separators=(",", ":"))
    (_fill_postgres if ON_POSTGRES else _fill_sqlite)(rows, first, every * SECOND, rule)
    return {}


PLACES = (
    "INSERT INTO duly.jobs (id, task, created_at, max_attempts) SELECT id, 'work', at, 1000000 FROM fresh",
    "INSERT INTO duly.schedules (id, tenant, task, key, rule, anchor_at, created_at, updated_at)"
    " SELECT id, '', 'work', key, rule, at, at, at FROM fresh",
    "INSERT INTO duly.recurring (id, enabled, next_run_at, tick_at) SELECT id, true, at, at FROM fresh",
    "INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority, hold)"
    " SELECT id, at, 'default', '', 'work', 0, 4 FROM fresh",
)


def _fill_postgres(rows: int, first: int, spread: int, rule: str) -> None:
    import psycopg

    with psycopg.connect(URL, autocommit=True) as connection:
        connection.execute(
            "CREATE TEMP TABLE fresh AS SELECT gen_random_uuid() AS id, n::text AS key, %s::text AS rule,"
            " %s::bigint + (random() * %s)::bigint AS at FROM generate_series(1, %s) n",
            (rule, first, spread, rows),
        )
        for statement in PLACES:
            connection.execute(statement.encode())
        for table in ("jobs", "schedules", "recurring", "scheduled"):
            connection.execute(f"VACUUM ANALYZE duly.{table}".encode())


def _fill_sqlite(rows: int, first: int, spread: int, rule: str) -> None:
    fresh = [(str(uuid.uuid4()), str(n), rule, first + random.randrange(spread)) for n in range(1, rows + 1)]
    connection = sqlite3.connect(URL.removeprefix("sqlite:///"))
    with connection:
        connection.execute("CREATE TEMP TABLE fresh (id, key, rule, at)")
        connection.executemany("INSERT INTO fresh VALUES (?, ?, ?, ?)", fresh)
        for statement in PLACES:
            connection.execute(statement.replace("duly.", "duly_"))
    connection.close()


def make(*, count: int) -> dict[str, Any]:
    """Store recurring jobs that are due again as soon as a run has ended."""
    jobs.migrate()
    for n in range(count):
        again.recur(n)
    return {}


# -- measure -------------------------------------------------------------------------------------------


def verbs(*, rows: int, times: int) -> dict[str, Any]:
    """Look-up, disable and enable by key, by the caller's clock."""
    keys = [str(n) for n in random.sample(range(1, rows + 1), times)]
    found: dict[str, Any] = {"lookup": _timed(keys, lambda key: jobs.recurring_job("work", key))}
    handles = {key: jobs.recurring_job("work", key) for key in keys}
    found["disable"] = _timed(keys, lambda key: handles[key].disable())
    found["enable"] = _timed(keys, lambda key: handles[key].enable())
    return found


def _timed(keys: list[str], verb: Callable[[str], object]) -> dict[str, float]:
    took: list[float] = []
    for key in keys:
        began = time.perf_counter()
        verb(key)
        took.append((time.perf_counter() - began) * 1e3)
    return {"median_ms": round(statistics.median(took), 3), "p99_ms": round(sorted(took)[-3], 3)}


def plans(*, times: int) -> dict[str, Any]:
    """The same verbs statement by statement: planning and execution time in the server, and table scans."""
    import psycopg

    compiled = Compiled(Dialect.POSTGRES, "pyformat", "duly", server_clock=True)
    spent: dict[str, list[float]] = {}
    scans: set[str] = set()

    def explain(name: str, op: Op[Any], connection: psycopg.Connection[Any]) -> None:
        total, rows = 0.0, None
        while True:
            try:
                call = op.send(rows) if rows is not None else next(op)
            except StopIteration:
                break
            assert isinstance(call, Call)
            sql, order = compiled.get(call.name)
            params = {key: value for key, value in call.params.items() if key in order}
            connection.execute("SAVEPOINT before_plan")
            explained = connection.execute(
                f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode(), params
            ).fetchone()
            connection.execute("ROLLBACK TO before_plan")
            plan = explained[0][0]
            total += plan["Execution Time"] + plan["Planning Time"]
            if "Seq Scan" in json.dumps(plan):
                scans.add(f"{name}: {call.name}")
            cursor = connection.execute(sql.encode(), params)
            rows = [tuple(map(_plain, row)) for row in cursor.fetchall()] if cursor.description else []
        spent.setdefault(name, []).append(total)

    ops = jobs.store.recurring
    with psycopg.connect(URL) as connection:
        for n in range(1, times + 1):
            job_id = jobs.recurring_job("work", str(n)).id
            explain("lookup", ops.find("", "work", str(n)), connection)
            explain("disable", ops.set_enabled(job_id, False, by=None, reason=None), connection)
            explain("enable", ops.set_enabled(job_id, True, by=None, reason=None), connection)
    median = {f"{name}_ms": round(statistics.median(each), 3) for name, each in spent.items()}
    return {**median, "table_scans": sorted(scans)}


def _plain(value: object) -> object:
    return str(value) if isinstance(value, uuid.UUID) else value


def declared(*, count: int) -> dict[str, Any]:
    """How long start-up takes with many declared jobs: the first time, and again."""
    jobs.migrate()

    @jobs.task
    def daily(n: int) -> None: ...

    began = time.perf_counter()
    for n in range(count):
        jobs.recurring("@daily", key=n, args={"n": n})(daily)
    moments = [time.perf_counter()]
    for _ in range(2):
        declare(jobs.store, jobs.registry)
        moments.append(time.perf_counter())
    return {
        "declared": count,
        "read_s": round(moments[0] - began, 3),
        "first_s": round(moments[1] - moments[0], 3),
        "again_s": round(moments[2] - moments[1], 3),
    }


def lone(*, times: int) -> dict[str, Any]:
    """How late a job starts that is due in 3 s on an idle system."""
    jobs.migrate()
    late: list[float] = []

    @jobs.task
    def due() -> timedelta:
        tick = current_job().tick
        assert tick is not None
        late.append((datetime.now(UTC) - tick).total_seconds() * 1e3)
        return timedelta(hours=1)

    with jobs.worker():
        time.sleep(1.5)
        for n in range(times):
            due.recur(n, start_at=datetime.now(UTC) + timedelta(seconds=3))
            time.sleep(3.5)
    return {"late_ms": [round(each, 1) for each in late], "worst_ms": round(max(late), 1)}


BUCKETS = ("5ms", "20ms", "100ms", "500ms", "1s", "5s", "15s", "1m", "5m", "30m", "2h", "more")


def lateness() -> dict[str, Any]:
    """How late the runs on record started."""
    runs, *counts = _row(
        f"SELECT sum(runs), {', '.join(f'sum(wait_{each})' for each in BUCKETS)} FROM duly.rollups"
    )
    within: dict[str, float] = {}
    total = 0
    for bucket, n in zip(BUCKETS, counts, strict=True):
        total += n
        within[bucket] = round(100 * total / max(1, runs), 3)
    p99 = next(bucket for bucket in BUCKETS if within[bucket] >= 99)
    return {"runs": runs, "percent_within": within, "p99_under": p99}


def sizes() -> dict[str, Any]:
    """How many runs there have been, and what they left."""
    runs, kept, rows = (
        _row("SELECT sum(runs) FROM duly.rollups")[0],
        _row("SELECT count(*) FROM duly.runs")[0],
        _row("SELECT count(*) FROM duly.jobs")[0],
    )
    if ON_POSTGRES:
        size = _row(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
            " WHERE relnamespace = 'duly'::regnamespace AND relkind = 'r'"
        )[0]
    else:
        size = os.stat(URL.removeprefix("sqlite:///")).st_size
    return {"runs": runs, "runs_kept": kept, "jobs": rows, "megabytes": round(size / 1e6, 1)}


def _row(sql: str) -> list[int]:
    if ON_POSTGRES:
        import psycopg

        with psycopg.connect(URL) as connection:
            found = connection.execute(sql.encode()).fetchone()
    else:
        connection_ = sqlite3.connect(URL.removeprefix("sqlite:///"), timeout=30)
        found = connection_.execute(sql.replace("duly.", "duly_")).fetchone()
        connection_.close()
    return [int(value or 0) for value in found or ()]


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](**json.loads(sys.argv[2]))))
