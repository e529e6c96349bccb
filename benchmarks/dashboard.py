"""How long the dashboard's pages take among many jobs, and what open tabs cost. Needs duly[web,postgres].

    python benchmarks/dashboard.py                    1,000,000 finished and 200,000 waiting jobs (10 minutes)
    python benchmarks/dashboard.py --scale 0.01       a rehearsal: its figures mean nothing
    python benchmarks/dashboard.py --markdown docs/benchmarks-dashboard.md

Server time: from the request to the whole answer, within the server's process, nothing read before kept.
50 tabs: how often the database is read in ten seconds with 50 tabs that listen, and with one.
"""

import argparse
import asyncio
import json
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from duly import Duly
from duly.web import Principal, create_app
from duly.web.pages.live import Tab, _stream
from postgres import find_programs, running_server
from venvs import FOLDER, Environments

GOALS = {"postgresql": 300.0, "sqlite": 500.0}
TIMES, TABS, SECONDS = 7, 50, 10.0
MINUTE = 60_000_000
PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "jobs: succeeded": "/jobs?state=succeeded",
    "jobs: queued": "/jobs?state=queued",
    "jobs: failed, of one task": "/jobs?state=failed&task=task3",
    "jobs: of one tenant": "/jobs?tenant=tenant7",
    "jobs: succeeded, of one tenant": "/jobs?state=succeeded&tenant=tenant7",
    "jobs: text in few": "/jobs?text=person-12345@",
    "jobs: text in none": "/jobs?state=succeeded&text=nobody-at-all",
    "jobs: text in none of one task": "/jobs?state=succeeded&task=task3&text=nobody-at-all",
    "jobs: text in none of one tenant": "/jobs?tenant=tenant7&text=nobody-at-all",
    "jobs: the last hour": "/jobs?since=1h",
    "a job that ended": "/jobs/{ended}",
    "a job that waits": "/jobs/{waiting}",
    "schedules": "/schedules",
    "a schedule": "/schedules/{schedule}",
    "queues": "/queues",
    "workers": "/workers",
    "tenants": "/tenants",
    "audit": "/audit",
    "newest runs": "/runs",
    "newest runs of one task": "/runs?task=task3",
    "usage of a day": "/usage",
    "what holds what waits": "/why",
    "system": "/system",
    "check-up": "/system/doctor",
    "live.json": "/live.json?page=overview&watch={ended},{waiting}",
}

# Ids are in the order of time, as real ones; everything is spread over tenants, tasks and queues.
SPREAD = """
SELECT i, at, 'task' || (i % 10) AS task, 'queue' || (i % 4) AS queue, 'tenant' || (i % 20) AS tenant,
       {id} AS id
"""
SQLITE_IDS = """
CREATE TEMP TABLE n AS WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i < {all} - 1)
SELECT i, {now} - ({all} - i) * 50000 AS at FROM c;
CREATE TEMP TABLE ids AS {spread} FROM n;
"""
POSTGRES_IDS = """
CREATE TEMP TABLE ids AS {spread}
FROM (SELECT i, {now} - ({all} - i) * 50000 AS at FROM generate_series(0, {all}::bigint - 1) i) n;
"""
SQLITE_ID = """printf('%08x-%04x-7%03x-8%03x-%012x', (at / 1000) >> 16, (at / 1000) & 65535, i & 4095,
                        (i >> 12) & 4095, i)"""
POSTGRES_ID = """(lpad(to_hex((at / 1000) >> 16), 8, '0') || '-' || lpad(to_hex((at / 1000) & 65535), 4, '0')
    || '-7' || lpad(to_hex(i & 4095), 3, '0') || '-8' || lpad(to_hex((i >> 12) & 4095), 3, '0')
    || '-' || lpad(to_hex(i), 12, '0'))::uuid"""
FILL = """
INSERT INTO {t}jobs (id, task, queue, tenant, args, created_at)
SELECT id, task, queue, tenant,
       CAST('{{"to": "person-' || i || '@example.org", "subject": "A letter of some length"}}' AS {json}), at
FROM ids;
INSERT INTO {t}waiting (queue, tenant, task, rank, id, run_at, priority)
SELECT queue, tenant, task, at, id, at, 0 FROM ids WHERE i >= {ended};
INSERT INTO {t}ended (id, state, finished_at, token, attempt, crashes)
SELECT id, CASE WHEN i % 50 = 0 THEN 'failed' WHEN i % 99 = 0 THEN 'cancelled' ELSE 'succeeded' END,
       at + 2000000, 1, 1, 0
FROM ids WHERE i < {ended};
INSERT INTO {t}runs (job_id, token, attempt, outcome, started_at, finished_at, worker_id,
                     error_kind, error, result)
SELECT id, 1, 1, CASE WHEN i % 50 = 0 THEN 'failed' ELSE 'succeeded' END, at + 1000000, at + 2000000,
       '01900000-0000-7000-8000-000000000001', CASE WHEN i % 50 = 0 THEN 'ConnectionError' END,
       CASE WHEN i % 50 = 0 THEN 'it did not answer' END, '{{"ok": true}}'
FROM ids WHERE i < {ended};
"""
ROLLUP = """
INSERT INTO {t}rollups (period_at, period_us, tenant, queue, task, shard, runs, succeeded, failed, ran_us,
                        waited_us, wait_20ms, wait_1s)
VALUES ({marks})
"""
RAN = (60, 58, 2, 60_000_000, 6_000_000, 40, 20)


def fill(url: str, jobs: Duly, ended: int, waiting: int) -> dict[str, str]:
    """Put so many jobs there, what they left in the rollups, schedules, workers and an audit."""
    now = jobs.store.now_us()
    numbers = {"now": now, "all": ended + waiting, "ended": ended}
    lite = url.startswith("sqlite")
    spread = SPREAD.format(id=SQLITE_ID if lite else POSTGRES_ID).strip()
    script = (SQLITE_IDS if lite else POSTGRES_IDS).format(spread=spread, **numbers)
    script += FILL.format(t="duly_" if lite else "duly.", json="text" if lite else "json", **numbers)
    rows = [
        (
            (now // MINUTE - minute) * MINUTE,
            MINUTE,
            f"tenant{tenant}",
            f"queue{task % 4}",
            f"task{task}",
            0,
            *RAN,
        )
        for minute in range(120)
        for tenant in range(20)
        for task in range(10)
    ]
    if lite:
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.executescript(script)
            connection.executemany(ROLLUP.format(t="duly_", marks=", ".join("?" * 13)), rows)
            connection.execute("ANALYZE")
    else:
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(script)
            connection.cursor().executemany(ROLLUP.format(t="duly.", marks=", ".join(["%s"] * 13)), rows)
            connection.execute("VACUUM ANALYZE")

    @jobs.task(name="report")
    def report(customer: int) -> None: ...

    made = [report.recur(n, every=f"{n % 50 + 10}m", args={"customer": n}) for n in range(200)]
    with jobs.acting_as("bench"):
        for job in jobs.list(state="queued", limit=500):
            jobs.set_priority(job.id, 10)
    first = jobs.list(state="succeeded", limit=1, offset=1_000)[0]
    return {"ended": first.id, "waiting": jobs.list(state="queued", limit=1)[0].id, "schedule": made[0].id}


def alice(request: object) -> Principal:
    return Principal.make("alice", ["admin"])


async def time_pages(jobs: Duly, ids: dict[str, str]) -> dict[str, float]:
    """The median of several openings of each page, in milliseconds."""
    app = create_app(jobs, auth=alice, rate=1e6, burst=1_000_000)
    transport = httpx.ASGITransport(app)
    found = {}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        for name, path in PAGES.items():
            took = []
            for _ in range(TIMES + 1):
                app.state.web.hub.forget()
                begun = time.perf_counter()
                answer = await client.get(path.format(**ids))
                took.append((time.perf_counter() - begun) * 1_000)
                if answer.status_code != 200:
                    sys.exit(f"{path}: {answer.status_code} {answer.text[:500]}")
            found[name] = statistics.median(took[1:])
    return found


async def count_reads(jobs: Duly, tabs: int) -> tuple[int, int]:
    """How often the database is read while so many tabs listen, and how many messages they get."""
    hub = create_app(jobs, auth=alice).state.web.hub
    pages = ("overview", "jobs", "queues", "workers", "tenants")
    messages = 0

    async def listen(n: int) -> None:
        nonlocal messages
        async for _ in _stream(hub, Tab(pages[n % len(pages)], None, "", (), False)):
            messages += 1

    listening = [asyncio.create_task(listen(n)) for n in range(tabs)]
    await asyncio.sleep(SECONDS)
    for each in listening:
        each.cancel()
    await asyncio.gather(*listening, return_exceptions=True)
    return hub.reads, messages


def measure(url: str, scale: float) -> dict[str, Any]:
    """Everything, on one database."""
    jobs = Duly(url)
    jobs.migrate()
    ids = fill(url, jobs, int(1_000_000 * scale), int(200_000 * scale))
    pages = asyncio.run(time_pages(jobs, ids))
    one, many = asyncio.run(count_reads(jobs, 1)), asyncio.run(count_reads(jobs, TABS))
    jobs.close()
    return {"pages": pages, "reads_of_one_tab": one[0], "reads_of_tabs": many[0], "messages_to_tabs": many[1]}


def markdown(results: dict[str, Any]) -> str:
    """The page for the documentation."""
    lines = [
        "# The dashboard among many jobs",
        "",
        "Written by `python benchmarks/dashboard.py --markdown docs/benchmarks-dashboard.md`: 1,000,000",
        "finished and 200,000 waiting jobs of 20 tenants, 10 tasks and 4 queues, 200 schedules. The median",
        "of 7 openings, in milliseconds from the request to the whole answer within the server; nothing",
        "is kept from one to the next.",
        "",
        f"| page | {' | '.join(results)} |",
        f"|---|{'---|' * len(results)}",
    ]
    for name in PAGES:
        took = " | ".join(format(found["pages"][name], ".0f") for found in results.values())
        lines.append(f"| {name} | {took} |")
    one = " | ".join(str(found["reads_of_one_tab"]) for found in results.values())
    many = " | ".join(str(found["reads_of_tabs"]) for found in results.values())
    lines += [
        f"| reads of the database in 10 s, one tab open | {one} |",
        f"| ... with {TABS} tabs open | {many} |",
    ]
    return "\n".join(lines) + "\n"


@contextmanager
def databases(kinds: list[str]) -> Iterator[dict[str, str]]:
    """Fresh databases."""
    FOLDER.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=FOLDER, prefix="dashboard-"))
    folder.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        urls = {}
        if "postgresql" in kinds:
            programs = find_programs(Environments(), folder)
            server = stack.enter_context(running_server(programs, folder / "pg"))
            server.ask("CREATE DATABASE dashboard")
            urls["postgresql"] = server.url("dashboard")
        if "sqlite" in kinds:
            urls["sqlite"] = f"sqlite:///{folder / 'duly.db'}"
        yield urls


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--databases", nargs="+", choices=list(GOALS), default=list(GOALS))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page for the documentation")
    options = parser.parse_args()
    results = {}
    with databases(options.databases) as urls:
        for kind, url in urls.items():
            print(f"{kind} ...", file=sys.stderr, flush=True)
            results[kind] = measure(url, options.scale)
            print(json.dumps({kind: results[kind]}, indent=1), flush=True)
    if options.markdown:
        options.markdown.write_text(markdown(results))
    slow = [
        f"{name} on {kind}: {took:.0f} ms"
        for kind, found in results.items()
        for name, took in found["pages"].items()
        if took > GOALS[kind]
    ]
    greedy = [
        kind for kind, found in results.items() if found["reads_of_tabs"] > found["reads_of_one_tab"] + 1
    ]
    for problem in slow:
        print(f"too slow: {problem}", file=sys.stderr)
    for kind in greedy:
        print(f"{TABS} tabs cost more than one on {kind}", file=sys.stderr)
    sys.exit(1 if slow or greedy else 0)


if __name__ == "__main__":
    main()
