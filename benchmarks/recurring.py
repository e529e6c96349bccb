"""Recurring jobs at scale, on both databases: what issue-sized claims about them rest on.

    python benchmarks/recurring.py                        everything (about 15 minutes)
    python benchmarks/recurring.py --only verbs keep-up   some of it
    python benchmarks/recurring.py --scale 0.02           a rehearsal

Measures: look-up, enable and disable with a million rows; start-up with 1,000 declarations; lateness with 5,000 due per
second (SQLite: 1,000); a million runs of 1,000 jobs with retention on; a lone job on an idle system.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from postgres import find_programs, running_server
from venvs import FOLDER, HERE, Environments

APP = """
import os, time
from datetime import timedelta
from duly import Duly

jobs = Duly(os.environ["BENCH_URL"], retention_succeeded=float(os.environ.get("BENCH_RETENTION", 604800)),
            maintenance_interval=float(os.environ.get("BENCH_MAINTENANCE", 60)))

@jobs.task
async def work() -> None: ...

@jobs.task
async def again() -> timedelta:
    return timedelta(0)
"""


class Place:
    """A database and a program that works on it."""

    def __init__(self, kind: str, url: str, folder: Path, python: Path) -> None:
        self.kind, self.url, self.folder, self.python = kind, url, folder, python
        (folder / "bench_app.py").write_text(APP)

    def run(self, code: str, **env: object) -> dict[str, Any]:
        """Run Python in the environment that has duly; it prints JSON last."""
        done = subprocess.run(
            [self.python, "-c", f"from bench_app import *\n{code}"],
            cwd=self.folder,
            env=self._env(**env),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(done.stderr[-3000:])
        lines = done.stdout.strip().splitlines()
        return json.loads(lines[-1]) if lines else {}

    @contextmanager
    def worker(self, **env: object) -> Iterator[subprocess.Popen[bytes]]:
        """A worker process, as `duly worker` starts it."""
        with (self.folder / "worker.log").open("wb") as log:
            process = subprocess.Popen(
                [self.python, "-m", "duly", "worker", "bench_app:jobs"],
                cwd=self.folder, env=self._env(**env), stdout=log, stderr=log,
            )  # fmt: skip
            try:
                yield process
            finally:
                process.terminate()
                process.wait(30)

    def _env(self, **env: object) -> dict[str, str]:
        more = {name.upper(): str(value) for name, value in env.items()}
        return {**os.environ, "BENCH_URL": self.url, "PYTHONPATH": str(self.folder), **more}


FILL_POSTGRES = """
import psycopg
rows, every, spread = {rows}, {every}, {spread}
jobs.migrate()
with psycopg.connect(os.environ["BENCH_URL"], autocommit=True) as c:
    now = jobs.store.now_us()
    rule = '{{"rules":["@every %ss"]}}' % every
    c.execute("CREATE TEMP TABLE n AS SELECT n, gen_random_uuid() AS id, (random() * %s)::bigint AS shift FROM generate_series(1, %s) n", (spread * 1000000, rows))
    c.execute("INSERT INTO duly.jobs (id, task, created_at, max_attempts) SELECT id, 'work', %s, 1000000 FROM n", (now,))
    c.execute("INSERT INTO duly.schedules (id, tenant, task, key, rule, anchor_at, created_at, updated_at) SELECT id, '', 'work', n::text, %s, %s::bigint + shift, %s, %s FROM n", (rule, now + {delay} * 1000000, now, now))
    c.execute("INSERT INTO duly.recurring (id, enabled, next_run_at, tick_at) SELECT id, true, anchor_at, anchor_at FROM duly.schedules")
    c.execute("INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority, hold) SELECT id, anchor_at, 'default', '', 'work', 0, 4 FROM duly.schedules")
    for table in ("jobs", "schedules", "recurring", "scheduled"):
        c.execute("VACUUM ANALYZE duly." + table)
"""
FILL_SQLITE = """
import sqlite3, uuid, random
rows, every, spread = {rows}, {every}, {spread}
jobs.counts()
now = time.time_ns() // 1000
c = sqlite3.connect(os.environ["BENCH_URL"].removeprefix("sqlite:///"))
rule = '{{"rules":["@every %ss"]}}' % every
data = [(str(uuid.uuid4()), str(n), now + {delay} * 1000000 + int(random.random() * spread * 1e6)) for n in range(1, rows + 1)]
with c:
    c.executemany("INSERT INTO duly_jobs (id, task, created_at, max_attempts) VALUES (?, 'work', ?, 1000000)", [(i, now) for i, _, _ in data])
    c.executemany("INSERT INTO duly_schedules (id, tenant, task, key, rule, anchor_at, created_at, updated_at) VALUES (?, '', 'work', ?, ?, ?, ?, ?)", [(i, k, rule, at, now, now) for i, k, at in data])
    c.executemany("INSERT INTO duly_recurring (id, enabled, next_run_at, tick_at) VALUES (?, 1, ?, ?)", [(i, at, at) for i, _, at in data])
    c.executemany("INSERT INTO duly_scheduled (id, run_at, queue, tenant, task, priority, hold) VALUES (?, ?, 'default', '', 'work', 0, 4)", [(i, at) for i, _, at in data])
c.close()
"""


def fill(place: Place, rows: int, *, every: int, spread: float, delay: float = 5.0) -> None:
    """Store recurring jobs of one interval, their ticks spread evenly over it, the first after `delay` seconds."""
    text = FILL_POSTGRES if place.kind == "postgresql" else FILL_SQLITE
    place.run(text.format(rows=rows, every=every, spread=spread, delay=delay))


# -- what is measured -----------------------------------------------------------------------------------------


def verbs(place: Place, scale: float) -> dict[str, Any]:
    """Look-up, enable and disable by key with many rows: median and worst time per statement in the database."""
    rows = int((1_000_000 if place.kind == "postgresql" else 100_000) * scale)
    fill(place, rows, every=3600, spread=3600, delay=3600)
    code = f"""
import json, random, statistics
keys = [str(random.randint(1, {rows})) for _ in range(300)]
def timed(verb):
    found = []
    for key in keys:
        job = jobs.recurring_job("work", key)
        began = time.perf_counter(); verb(job, key); found.append((time.perf_counter() - began) * 1e3)
    return {{"median_ms": round(statistics.median(found), 3), "p99_ms": round(sorted(found)[-3], 3)}}
out = {{"rows": {rows},
  "lookup": timed(lambda job, key: jobs.recurring_job("work", key)),
  "disable": timed(lambda job, key: job.disable()),
  "enable": timed(lambda job, key: job.enable())}}
print(json.dumps(out))
"""
    found = place.run(code)
    if place.kind == "postgresql":
        found["database_ms"] = place.run(EXPLAIN)
    return found


EXPLAIN = """
import json, psycopg
from duly.store.call import Call, Dialect
from duly.store.statements import Compiled
compiled = Compiled(Dialect.POSTGRES, "pyformat", "duly", server_clock=True)
out = {}
with psycopg.connect(os.environ["BENCH_URL"]) as c:
    def drive(name, op):
        spent, plans = 0.0, []
        try:
            call = next(op)
            while True:
                sql, order = compiled.get(call.name)
                params = {k: v for k, v in call.params.items() if k in order}
                c.execute("SAVEPOINT plan")
                plan = c.execute(("EXPLAIN (ANALYZE, FORMAT JSON) " + sql).encode(), params).fetchone()[0][0]
                c.execute("ROLLBACK TO plan")
                spent += plan["Execution Time"] + plan["Planning Time"]
                if "Seq Scan" in json.dumps(plan): plans.append(call.name)
                c.execute("SAVEPOINT s")
                cursor = c.execute(sql.encode(), params)
                rows = [tuple(str(v) if hasattr(v, "hex") and not isinstance(v, (int, float)) else v for v in r) for r in cursor.fetchall()] if cursor.description else []
                c.execute("RELEASE s")
                call = op.send(rows)
        except StopIteration:
            pass
        out.setdefault(name, []).append(spent)
        out.setdefault(name + " seq scans", []).extend(plans)
    ops = jobs.store.recurring
    for key in range(1, 60):
        job = jobs.recurring_job("work", str(key)).id
        for _ in range(1):
            drive("lookup", ops.find("", "work", str(key)))
            c.execute("SAVEPOINT outer_one")
            drive("disable", ops.set_enabled(job, False, by=None, reason=None))
            c.execute("ROLLBACK TO outer_one")
import statistics
for key in range(60, 90):
    jobs.recurring_job("work", str(key)).disable()
with psycopg.connect(os.environ["BENCH_URL"]) as c:
    for key in range(60, 90):
        drive("enable", jobs.store.recurring.set_enabled(jobs.recurring_job("work", str(key)).id, True, by=None, reason=None))
print(json.dumps({k: (round(statistics.median(v), 3) if v and not isinstance(v[0], str) else v) for k, v in out.items()}))
"""


def declared(place: Place, scale: float) -> dict[str, Any]:
    """How long a worker takes to start with many declared recurring jobs: the first time, and again."""
    n = max(10, int(1_000 * scale))
    code = f"""
import json
from duly.maintenance.declare import declare
jobs.migrate()
@jobs.task
def daily(n: int) -> None: ...
began = time.perf_counter()
for n in range({n}):
    jobs.recurring("@daily", key=n, args={{"n": n}})(daily)
said = time.perf_counter()
declare(jobs.store, jobs.registry)
first = time.perf_counter()
declare(jobs.store, jobs.registry)
again = time.perf_counter()
print(json.dumps({{"declared": {n}, "reading_s": round(said - began, 3), "first_s": round(first - said, 3), "again_s": round(again - first, 3)}}))
"""
    return place.run(code)


def keep_up(place: Place, scale: float) -> dict[str, Any]:
    """Lateness of starts while many are due every second."""
    per_second = max(20, int((5_000 if place.kind == "postgresql" else 1_000) * scale))
    rows = max(1_000, int((1_000_000 if place.kind == "postgresql" else 100_000) * scale))
    every = rows // per_second
    seconds = 60 if scale >= 1 else 10
    fill(place, rows, every=every, spread=every, delay=20)
    with place.worker(bench_retention=30, bench_maintenance=5):
        time.sleep(15 + seconds)
    return place.run(LATENESS) | {"rows": rows, "due_per_second": per_second}


LATENESS = """
import json
rows = jobs.store.usage(0, 2**62)
code = "SELECT sum(runs), sum(wait_5ms), sum(wait_20ms), sum(wait_100ms), sum(wait_500ms), sum(wait_1s), sum(wait_5s) + sum(wait_15s) + sum(wait_1m) + sum(wait_5m) FROM duly.rollups"
if os.environ["BENCH_URL"].startswith("postgresql"):
    import psycopg
    with psycopg.connect(os.environ["BENCH_URL"]) as c:
        runs, *waits = [int(v) for v in c.execute(code).fetchone()]
else:
    import sqlite3
    runs, *waits = [int(v) for v in sqlite3.connect(os.environ["BENCH_URL"].removeprefix("sqlite:///")).execute(code.replace("duly.", "duly_")).fetchone()]
names = ["<5ms", "<20ms", "<100ms", "<500ms", "<1s", "more"]
total, at = 0, {}
for name, n in zip(names, waits):
    total += n
    at[name] = round(100 * total / max(1, runs), 3)
print(json.dumps({"runs": runs, "percent_started_within": at, "p99_under": next((k for k in names if at[k] >= 99), "more")}))
"""


def growth(place: Place, scale: float) -> dict[str, Any]:
    """A million runs of 1,000 jobs that are due again at once: rows and sizes as they go, with short retention."""
    jobs, runs = max(50, int(1_000 * min(1.0, scale * 10))), int(1_000_000 * scale)
    place.run(f"jobs.migrate()\nfor n in range({jobs}): again.recur(n)")
    sizes: list[dict[str, Any]] = []
    began = time.monotonic()
    with place.worker(bench_retention=5, bench_maintenance=1) as process:
        while not sizes or sizes[-1]["runs"] < runs:
            time.sleep(10 if scale >= 1 else 2)
            sizes.append(place.run(SIZES) | {"second": round(time.monotonic() - began)})
            if process.poll() is not None:
                sys.exit((place.folder / "worker.log").read_text()[-2000:])
    return {"jobs": jobs, "samples": sizes[:: max(1, len(sizes) // 8)] + sizes[-1:]}


SIZES = """
import json
url = os.environ["BENCH_URL"]
if url.startswith("postgresql"):
    import psycopg
    with psycopg.connect(url) as c:
        one = lambda sql: int(c.execute(sql).fetchone()[0] or 0)
        size = one("SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = 'duly'::regnamespace AND relkind = 'r'")
        out = {"runs": one("SELECT sum(runs) FROM duly.rollups"), "jobs_rows": one("SELECT count(*) FROM duly.jobs"), "run_rows": one("SELECT count(*) FROM duly.runs"), "megabytes": round(size / 1e6, 1)}
else:
    import sqlite3
    path = url.removeprefix("sqlite:///")
    c = sqlite3.connect(path, timeout=30)
    one = lambda sql: int(c.execute(sql).fetchone()[0] or 0)
    out = {"runs": one("SELECT sum(runs) FROM duly_rollups"), "jobs_rows": one("SELECT count(*) FROM duly_jobs"), "run_rows": one("SELECT count(*) FROM duly_runs"), "megabytes": round(os.stat(path).st_size / 1e6, 1)}
print(json.dumps(out))
"""


def lone(place: Place, scale: float) -> dict[str, Any]:
    """A job due in 3 s on an idle system: how late it starts, and how often the worker asks meanwhile."""
    code = f"""
import json
from datetime import datetime, timedelta, timezone
from duly import current_job
jobs.migrate()
late = []
@jobs.task
def due() -> timedelta:
    late.append((datetime.now(timezone.utc) - current_job().tick).total_seconds() * 1e3)
    return timedelta(hours=1)
calls = [0]
with jobs.worker():
    time.sleep(1.5)
    for n in range({max(2, int(10 * scale))}):
        due.recur(n, start_at=datetime.now(timezone.utc) + timedelta(seconds=3))
        time.sleep(3.3)
print(json.dumps({{"late_ms": [round(each, 1) for each in late], "worst_ms": round(max(late), 1)}}))
"""
    return place.run(code)


WORK: dict[str, Callable[[Place, float], dict[str, Any]]] = {
    "lone": lone, "declared": declared, "verbs": verbs, "keep-up": keep_up, "growth": growth,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(WORK), default=list(WORK))
    parser.add_argument(
        "--databases", nargs="+", choices=["postgresql", "sqlite"], default=["postgresql", "sqlite"]
    )
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    FOLDER.mkdir(exist_ok=True)
    environments = Environments()
    python = environments.python("duly")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(dir=FOLDER, prefix="recurring-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        server = None
        if "postgresql" in options.databases:
            server = stack.enter_context(running_server(find_programs(environments, folder), folder / "pg"))
        for name in options.only:
            for kind in options.databases:
                here = folder / f"{name}-{kind}"
                here.mkdir()
                if kind == "postgresql":
                    assert server is not None
                    database = f"d{random.randrange(10**9)}"
                    server.ask(f"CREATE DATABASE {database}")
                    url = server.url(database)
                else:
                    url = f"sqlite:///{here / 'duly.db'}"
                print(f"{name} on {kind} ...", file=sys.stderr, flush=True)
                found = WORK[name](Place(kind, url, here, python), options.scale)
                results[f"{name} {kind}"] = found
                print(json.dumps({f"{name} {kind}": found}), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
