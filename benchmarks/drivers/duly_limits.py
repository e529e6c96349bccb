"""What the benchmark of limits does inside the environment that has duly.

Run as `python duly_limits.py VERB {"options": ...}` with BENCH_URL set; prints one line of JSON.
As a module it is the application that `duly worker` runs. Handlers that must be checked write when they
start and end to a file of their process, by the machine's one monotonic clock.
"""

import asyncio
import json
import os
import sqlite3
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from duly import Duly, current_job

URL = os.environ["BENCH_URL"]
ON_POSTGRES = URL.startswith("postgresql")
LEDGER = Path(os.environ.get("BENCH_LEDGER", "."))

jobs = Duly(
    URL,
    thread_slots=int(os.environ.get("BENCH_SLOTS", "20")),
    async_slots=int(os.environ.get("BENCH_SLOTS", "100")),
)


class _Book:
    """The ledger of this process: one line per start and end."""

    def __init__(self) -> None:
        self._file: Any = None

    def note(self, what: str, key: str = "") -> None:
        if self._file is None:
            path = LEDGER / f"ledger-{os.getpid()}"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        line = f"{time.monotonic_ns()} {what} {os.getpid()} {current_job().id} {key}\n"
        os.write(self._file, line.encode())


book = _Book()


@jobs.task(concurrency=3)
def three() -> None:
    book.note("start")
    time.sleep(0.001)
    book.note("end")


@jobs.task
async def free() -> None: ...


@jobs.task(concurrency=1_000)
async def thousand() -> None: ...


@jobs.task(concurrency=50)
async def fifty() -> None:
    await asyncio.sleep(0.01)


@jobs.task
async def unlimited_fifty() -> None:
    await asyncio.sleep(0.01)


@jobs.task(concurrency_key=lambda args: args.key)
async def keyed(key: str) -> None:
    book.note("start", key)
    book.note("end", key)


@jobs.task(concurrency=1)
async def full() -> None:
    await asyncio.sleep(3600)


@jobs.task
async def slow() -> None:
    await asyncio.sleep(0.02)


@jobs.task(rate="100/s", burst=10)
async def rated() -> None:
    book.note("start")


# -- verbs ---------------------------------------------------------------------------------------------


def fill(*, task: str, n: int, tenant: str = "", keys: int = 0, chunk: int = 20_000) -> dict[str, Any]:
    """Store `n` jobs of a task; with `keys`, of so many keys in turn."""
    jobs.migrate()
    using = jobs[task].using(tenant=tenant) if tenant else jobs[task]
    began = time.monotonic()
    for start in range(0, n, chunk):
        some = range(start, min(n, start + chunk))
        using.enqueue_many([{"key": f"k{i % keys}"} if keys else {} for i in some])
    return {"seconds": round(time.monotonic() - began, 2)}


def enqueue_now_and_then(*, task: str, tenant: str, n: int, every: float) -> dict[str, Any]:
    """Enqueue one job after the other, with a pause between them."""
    using = jobs[task].using(tenant=tenant) if tenant else jobs[task]
    for _ in range(n):
        using.enqueue()
        time.sleep(every)
    return {}


def ended(*, task: str = "") -> dict[str, Any]:
    """How many jobs have ended, and how many are left."""
    counts = jobs.store.counts()
    left = sum(row[3] for row in [*counts.waiting, *counts.scheduled, *counts.running])
    return {"ended": counts.ended, "left": left + sum(counts.parked.values())}


def wait(*, n: int, every: float, most: float) -> dict[str, Any]:
    """Wait until so many jobs have succeeded, in one process: starting one for each look costs a core."""
    until = time.monotonic() + most
    while _ask("SELECT count(*) FROM duly.ended WHERE state = 'succeeded'")[0][0] < n:
        if time.monotonic() > until:
            break
        time.sleep(every)
    return {}


def come_to_rest(**_: Any) -> dict[str, Any]:
    """Do what the server would do by itself in a while, so that it is not done during a measurement."""
    if ON_POSTGRES:
        import psycopg

        with psycopg.connect(URL, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")
    return {}


def left(*, task: str) -> dict[str, Any]:
    """How many jobs of a task wait or run."""
    places = ("waiting", "running")
    return {
        "left": sum(
            _ask(f"SELECT count(*) FROM duly.{place} WHERE task = '{task}'")[0][0] for place in places
        )
    }


def spans(*, task: str, tenant: str = "") -> dict[str, Any]:
    """When the runs of a task began and ended, and how long its jobs waited."""
    return _figures(task, tenant, 0.0)


def rate_since(*, task: str, since: float) -> dict[str, Any]:
    """The same for the runs that began after some time."""
    return _figures(task, "", since)


def _figures(task: str, tenant: str, since: float) -> dict[str, Any]:
    rows = _ask(
        "SELECT r.started_at, r.finished_at, j.created_at"
        " FROM duly.runs r JOIN duly.jobs j ON j.id = r.job_id"
        f" WHERE j.task = '{task}' AND j.tenant = '{tenant}' AND r.outcome = 'succeeded'"
        f" AND r.started_at > {int(since * 1e6)}"
    )
    if not rows:
        return {"runs": 0}
    began, over = min(row[0] for row in rows), max(row[1] for row in rows)
    waits = sorted((row[0] - row[2]) / 1e3 for row in rows)
    return {
        "runs": len(rows),
        "seconds": round((over - began) / 1e6, 3),
        "per_second": round(len(rows) / max(1e-9, (over - began) / 1e6)),
        "wait_p50_ms": round(waits[len(waits) // 2], 2),
        "wait_p99_ms": round(waits[min(len(waits) - 1, int(len(waits) * 0.99))], 2),
        "wait_most_ms": round(waits[-1], 2),
    }


def shares(*, task: str, first: int) -> dict[str, Any]:
    """How many of the first runs of a task each tenant had."""
    rows = _ask(
        "SELECT j.tenant FROM duly.runs r JOIN duly.jobs j ON j.id = r.job_id"
        f" WHERE j.task = '{task}' ORDER BY r.started_at LIMIT {first}"
    )
    return dict(Counter(row[0] for row in rows))


def pause(*, tenant: str) -> dict[str, Any]:
    """Pause a tenant, and say how long that took."""
    began = time.monotonic()
    jobs.pause(tenant=tenant)
    return {"seconds": round(time.monotonic() - began, 4)}


def weight(*, tenant: str, weight: float) -> dict[str, Any]:
    """Give a tenant a weight."""
    jobs.migrate()
    jobs.set_weight(tenant, weight)
    return {}


def limit(*, queue: str = "", tenant: str = "", concurrency: int = 1) -> dict[str, Any]:
    """Limit a queue or a tenant."""
    jobs.migrate()
    jobs.set_limit(queue=queue or None, tenant=tenant or None, concurrency=concurrency)
    return {}


def _ask(sql: str) -> list[Any]:
    if not ON_POSTGRES:
        path = URL.removeprefix("sqlite:///")
        with sqlite3.connect(path) as connection:
            return connection.execute(sql.replace("duly.", "duly_")).fetchall()
    import psycopg

    with psycopg.connect(URL) as connection:
        return connection.execute(sql).fetchall()  # type: ignore[arg-type]


VERBS = (
    fill,
    enqueue_now_and_then,
    ended,
    wait,
    come_to_rest,
    left,
    spans,
    rate_since,
    shares,
    pause,
    weight,
    limit,
)

if __name__ == "__main__":
    verb, text = sys.argv[1:3]
    found = next(each for each in VERBS if each.__name__ == verb)(**json.loads(text))
    print(json.dumps(found))
