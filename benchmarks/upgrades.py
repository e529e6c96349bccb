"""How long migrations keep others waiting: 1,000,000 jobs, workers that run, producers that enqueue.

    python benchmarks/upgrades.py                     1,000,000 jobs on each database (10 minutes)
    python benchmarks/upgrades.py --jobs 100000       a rehearsal
    python benchmarks/upgrades.py --markdown docs/benchmarks-upgrades.md

Needs duly[web,postgres]. 70 % of the jobs have ended, each with its run, 30 % wait; two worker processes of
the version before drain those, a third process enqueues, claims and settles jobs of its own one by one, and
times each call. Meanwhile made-up migrations of a version to come are applied, one kind after the other.
Before and after them, as long again without any. Bar: nobody waits longer than 3 s on PostgreSQL.
"""

import argparse
import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from dashboard import databases, fill
from duly import Duly, current_job
from duly.domain.ids import uuid7
from duly.domain.records import Lane, NewJob, Settled
from duly.store import migrate
from duly.store.call import Dialect
from duly.store.migrate import Migration
from duly.store.store import Store
from venvs import PROJECT, environment

BAR = 3.0
CALM = 10.0
"""How long is measured without migrations, before and after."""
HELD = 6.0
"""How long somebody else's transaction is open that a migration must not wait behind."""
COMPATIBLE = f"-- compatible from {migrate.newest(Dialect.SQLITE):04d}\n"
STEPS = {
    "add a column to jobs": "ALTER TABLE {t}jobs ADD COLUMN colour text;",
    "add a column with a default to runs": "ALTER TABLE {t}runs ADD COLUMN cost integer NOT NULL DEFAULT 0;",
    "add a table with an index": "CREATE TABLE {t}colours (name text PRIMARY KEY, seen integer);"
    "CREATE INDEX colours_seen ON {t}colours (seen);",
    "fill the column in batches of 5,000": "-- in batches\n"
    "UPDATE {t}jobs SET colour = 'red' WHERE id IN (SELECT id FROM {t}jobs "
    "WHERE id > :after AND created_at < :began ORDER BY id LIMIT 5000) RETURNING id;",
    "build an index on jobs": "CREATE INDEX {c}IF NOT EXISTS {i}jobs_by_colour ON {t}jobs (colour, id);",
    f"add a column behind a transaction open for {HELD:.0f} s": "ALTER TABLE {t}jobs ADD COLUMN held text;",
}


# -- the processes beside it -----------------------------------------------------------------------


def work(url: str, path: str) -> None:
    """A worker whose jobs take a tenth of a second; says at its end which it ran."""
    jobs, ran = Duly(url), []
    for n in range(10):

        @jobs.task(name=f"task{n}")
        async def handle(to: str, subject: str) -> None:
            await asyncio.sleep(0.1)
            ran.append(current_job().id)

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with jobs.worker([f"queue{n}" for n in range(4)], async_slots=100):
        print("ready", flush=True)
        signal.sigwait({signal.SIGTERM})
    jobs.close()
    Path(path).write_text("\n".join(ran))


def probe(url: str, path: str) -> None:
    """Enqueue, claim and settle one job after the other, and time each call."""
    store, me, seen = Store.open(url), uuid7(), []
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    store.counts()
    print("ready", flush=True)
    while not over.wait(0.005):
        at = [time.monotonic()]
        store.enqueue(NewJob(id=uuid7(), task="probe", args="{}", queue="probe"))
        at.append(time.monotonic())
        claimed = store.claim("probe", [Lane("", "probe")], 1, worker_id=me, lease_us=600_000_000)
        at.append(time.monotonic())
        store.settle([Settled(job.id, job.token, "succeeded", "succeeded", ran_us=1) for job in claimed])
        at.append(time.monotonic())
        seen.append((*at, len(claimed)))
    store.close()
    Path(path).write_text(json.dumps(seen))


@contextmanager
def beside(verb: str, url: str, path: Path) -> Iterator[None]:
    """One of them, as a process, ended well at the end."""
    command = [sys.executable, __file__, "--beside", verb, url, str(path)]
    process = subprocess.Popen(
        command, env={**environment(), "PYTHONPATH": str(PROJECT / "src")}, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != b"ready":
            sys.exit(f"{verb} did not start")
        yield
        if process.poll() is not None:
            sys.exit(f"{verb} ended by itself: {process.returncode}")
    finally:
        process.terminate()
        process.wait(120)


# -- what is looked at -----------------------------------------------------------------------------


class Locks:
    """Looks every 10 ms for who waits for a lock on a table (on PostgreSQL), and how long already."""

    ASK = """
        SELECT coalesce(max(extract(epoch FROM clock_timestamp() - waitstart)), 0)
        FROM pg_locks WHERE NOT granted AND locktype = 'relation'
    """

    def __init__(self, url: str) -> None:
        self.longest = 0.0
        self._url, self._over = url, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Locks":
        if self._url.startswith("postgresql"):
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def take(self) -> float:
        """The longest wait since the last time."""
        longest, self.longest = self.longest, 0.0
        return longest

    def _look(self) -> None:
        import psycopg

        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._over.wait(0.01):
                row = connection.execute(self.ASK).fetchone()
                self.longest = max(self.longest, float(row[0]) if row else 0.0)


def steps(dialect: Dialect) -> list[Migration]:
    """The migrations of a version to come."""
    lite = dialect is Dialect.SQLITE
    words = {"t": "duly_", "c": "", "i": "duly_"} if lite else {"t": "duly.", "c": "CONCURRENTLY ", "i": ""}
    first = migrate.newest(dialect) + 1
    return [
        Migration(first + n, f"later_{n}", COMPATIBLE + text.format(**words))
        for n, text in enumerate(STEPS.values())
    ]


@contextmanager
def held(url: str) -> Iterator[None]:
    """Somebody else's transaction that has read `jobs`, for a while."""
    import psycopg

    connection = psycopg.connect(url)
    connection.execute("SELECT 1 FROM duly.jobs LIMIT 1")
    timer = threading.Timer(HELD, connection.close)
    timer.start()
    yield
    timer.join()


def migrate_in_steps(url: str, locks: Locks) -> list[tuple[str, float, float, float]]:
    """Apply one after the other. Returns the name, begin, end and longest wait of each."""
    store = Store.open(url)
    added, told = steps(store.dialect), []
    real = migrate.migrations
    locks.take()
    for n, name in enumerate(STEPS):
        if "behind" in name and store.dialect is Dialect.SQLITE:
            break  # there readers are in nobody's way
        migrate.migrations = lambda dialect, n=n: real(dialect) + tuple(added[: n + 1])
        print(f"  {name} ...", file=sys.stderr, flush=True)
        with held(url) if "behind" in name else nullcontext():
            begun = time.monotonic()
            assert store.migrate() == [added[n].version]
            told.append((name, begun, time.monotonic(), locks.take()))
        time.sleep(1)
    migrate.migrations = real
    store.close()
    return told


def waits(seen: list[list[float]], begun: float, end: float) -> dict[str, float]:
    """How long calls took that were under way between two instants: how many, 99th percentile and longest."""
    took: dict[str, list[float]] = {"enqueue": [], "claim": []}
    for at in seen:
        for n, name in enumerate(took):
            if at[n + 1] >= begun and at[n] <= end:
                took[name].append(at[n + 1] - at[n])
    found: dict[str, float] = {"calls": float(len(took["enqueue"]))}
    for name, times in took.items():
        times.sort()
        found[f"{name} p99"] = times[int(len(times) * 0.99)] if times else 0.0
        found[f"{name} max"] = times[-1] if times else 0.0
    return found


def judge(url: str, ended_before: int, folder: Path, probes: int) -> dict[str, int]:
    """What was lost or done twice: by the tables, and by what the workers say that they ran."""
    ran = Counter("\n".join((folder / f"ran{n}").read_text() for n in range(2)).split())
    t = "duly_" if url.startswith("sqlite") else "duly."
    places = " UNION ALL ".join(
        f"SELECT id FROM {t}{place}" for place in ("scheduled", "waiting", "parked", "running", "ended")
    )
    numbers = {
        "jobs": f"SELECT count(*) FROM {t}jobs",
        "in a place": f"SELECT count(*) FROM ({places}) AS p",
        "in some place": f"SELECT count(DISTINCT id) FROM ({places}) AS p",
        "ended": f"SELECT count(*) FROM {t}ended",
        "runs twice": f"SELECT count(*) - count(DISTINCT job_id) FROM {t}runs",
    }
    found = {}
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            found = {name: connection.execute(sql).fetchone()[0] for name, sql in numbers.items()}
    else:
        import psycopg

        with psycopg.connect(url) as connection:
            found = {name: connection.execute(sql).fetchone()[0] for name, sql in numbers.items()}
    twice = sum(times > 1 for times in ran.values()) + found["runs twice"]
    lost = found["jobs"] - found["in some place"]
    lost += (
        abs(found["ended"] - ended_before - len(ran) - probes) + found["in a place"] - found["in some place"]
    )
    return {"ran": len(ran), "lost": lost, "twice": twice}


def measure(url: str, n: int, folder: Path) -> dict[str, Any]:
    """Everything, on one database."""
    jobs = Duly(url)
    jobs.migrate()
    print("  fill ...", file=sys.stderr, flush=True)
    ended = n * 7 // 10
    fill(url, jobs, ended, n - ended)
    jobs.close()
    with (
        Locks(url) as locks,
        beside("probe", url, folder / "probe"),
        beside("work", url, folder / "ran0"),
        beside("work", url, folder / "ran1"),
    ):
        time.sleep(3)
        begun = time.monotonic()
        time.sleep(CALM)
        calm = [("nothing, before", begun, time.monotonic(), locks.take())]
        told = migrate_in_steps(url, locks)
        begun = time.monotonic()
        time.sleep(CALM)
        calm.append(("nothing, after", begun, time.monotonic(), locks.take()))
    seen = json.loads((folder / "probe").read_text())
    rows = [
        {"what": name, "took": end - begun, "lock": lock, **waits(seen, begun, end)}
        for name, begun, end, lock in (calm[0], *told, calm[1])
    ]
    verdict = judge(url, ended, folder, sum(at[4] for at in seen))
    return {"rows": rows, **verdict, "load": os.getloadavg()[0]}


# -- what is said ----------------------------------------------------------------------------------


def markdown(results: dict[str, Any], n: int, note: str) -> str:
    """The page for the documentation."""
    lines = [
        "# Migrations while work goes on",
        "",
        f"Written by `python benchmarks/upgrades.py --jobs {n} --markdown docs/benchmarks-upgrades.md`:",
        f"{n:,} jobs, 70 % ended with a run each, 30 % waiting; two workers of the version before drain",
        "(jobs of 0.1 s, 100 at once each), a third process enqueues, claims and settles jobs of its own one",
        "by one. Times in seconds. *Lock*: the longest that anybody waited for a lock on a table, looked at",
        f"every 10 ms. Bar on PostgreSQL: nobody waits longer than {BAR:.0f} s. Rows of 'nothing' show what",
        "the machine does by itself.",
        *(["", note] if note else []),
    ]
    for kind, found in results.items():
        lines += [
            "",
            f"## {kind}",
            "",
            "| migration | took | enqueue p99 | enqueue max | claim p99 | claim max | lock | calls |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in found["rows"]:
            names = ("took", "enqueue p99", "enqueue max", "claim p99", "claim max", "lock")
            figures = " | ".join(format(row[name], ".3f") for name in names)
            if kind == "sqlite":
                figures = figures.rpartition(" | ")[0] + " | –"
            lines.append(f"| {row['what']} | {figures} | {row['calls']:.0f} |")
        lines += [
            "",
            f"{found['ran']:,} jobs ran meanwhile; lost: {found['lost']}, run twice: {found['twice']}. "
            f"Load of the machine at the end: {found['load']:.1f}.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and say whether the bar was met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--databases", nargs="+", choices=["postgresql", "sqlite"])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--note", default="", help="a sentence about the machine, for the page")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page for the documentation")
    parser.add_argument("--beside", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.beside:
        verb, url, path = options.beside
        (work if verb == "work" else probe)(url, path)
        return
    results = {}
    with databases(options.databases or ["postgresql", "sqlite"]) as urls:
        folder = Path(next(iter(urls.values())).removeprefix("sqlite:///")).parent
        for kind, url in urls.items():
            print(f"{kind} ...", file=sys.stderr, flush=True)
            place = (
                folder if folder.is_dir() else Path(os.environ.get("TMPDIR", "/tmp"))
            ) / f"upgrades-{os.getpid()}"
            place.mkdir()
            results[kind] = measure(url, options.jobs, place)
            for file in place.iterdir():
                file.unlink()
            place.rmdir()
    page = markdown(results, options.jobs, options.note)
    print(page)
    if options.markdown:
        options.markdown.write_text(page)
    broken = [f"{found['lost']} lost, {found['twice']} twice on {kind}"
              for kind, found in results.items() if found["lost"] or found["twice"]]  # fmt: skip
    slow = [
        f"{row['what']}: {max(row['enqueue max'], row['claim max'], row['lock']):.1f} s"
        for row in results.get("postgresql", {"rows": []})["rows"]
        if max(row["enqueue max"], row["claim max"], row["lock"]) > BAR
    ]
    for problem in broken + slow:
        print(f"not as promised: {problem}", file=sys.stderr)
    sys.exit(1 if broken or slow else 0)


if __name__ == "__main__":
    main()
