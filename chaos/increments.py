"""Increments under constant `kill -9`: each job adds 1 to a counter in the transaction that completes it.

    PYTHONPATH=src python -m chaos.increments sqlite:////tmp/increments.db --jobs 50000
    PYTHONPATH=src python -m chaos.increments postgresql://... --jobs 50000

Worker processes are killed at random moments and replaced at once, all the time, until every job has ended. Handlers
misbehave too: some raise in the block, some after the commit, some roll back and return. In the end the counters must
add up to the number of jobs. A table of increments says which job was lost or doubled, if any was.

With `--apart` the increment is committed by itself and the job completed by the worker, as usual: that must come out
wrong, or this would prove nothing.

A database of an earlier run will do: its counters are made anew, and what it has on record is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaos.checker import connect
from duly import Backoff, Duly, current_job

ROOT = Path(__file__).parents[1]
ACCOUNTS = 16
LEASE = 5.0
PATIENT = Backoff.fixed(0.05, max_attempts=1_000)


@dataclass(frozen=True, slots=True)
class Report:
    """What happened."""

    jobs: int
    counted: int
    """What the counters add up to."""
    lost: int
    """Jobs without an increment."""
    doubled: int
    """Jobs with more than one."""
    unfinished: int
    """Jobs that have not succeeded."""
    started: int
    """Runs on record: more than jobs, where a worker was killed or a handler misbehaved."""
    crashed: int
    """Runs that a kill cut short."""
    kills: int
    seconds: float
    seed: int

    @property
    def exact(self) -> bool:
        """Whether every job had exactly one effect."""
        return self.counted == self.jobs and not (self.lost or self.doubled or self.unfinished)

    def __str__(self) -> str:
        return (
            f"{self.jobs} jobs, {self.kills} kills: counted {self.counted}, {self.lost} lost, {self.doubled} doubled, "
            f"{self.unfinished} unfinished; {self.started} runs, {self.crashed} of them cut short; "
            f"{self.seconds:.1f} s, seed {self.seed}: {'exact' if self.exact else 'WRONG'}"
        )


# -- the application ----------------------------------------------------------------------------------------------


class Connections:
    """The application's own connections: one per thread, and some for the event loop."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._here = threading.local()
        self._free: list[Any] = []

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A transaction that commits at the end."""
        connection = getattr(self._here, "connection", None)
        if connection is None:
            connection = self._here.connection = connect(self._url)
        try:
            yield connection
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    @asynccontextmanager
    async def atransaction(self) -> Any:
        """The same for a coroutine."""
        connection = self._free.pop() if self._free else await aconnect(self._url)
        try:
            yield connection
            await connection.commit()
        except BaseException:
            await connection.rollback()
            raise
        finally:
            self._free.append(connection)


async def aconnect(url: str) -> Any:
    """A connection by the usual library, for a coroutine."""
    if url.startswith("postgres"):
        import psycopg

        return await psycopg.AsyncConnection.connect(url)
    import aiosqlite

    return await aiosqlite.connect(url.removeprefix("sqlite:///"), timeout=60)


def increment(account: int) -> tuple[str, str]:
    """The statements of one increment."""
    return (
        f"UPDATE counters SET n = n + 1 WHERE account = {int(account)}",
        f"INSERT INTO increments VALUES ('{current_job().id}')",
    )


def misbehave(where: str) -> None:
    """Fail, now and then."""
    if random.random() < 0.01:
        raise ConnectionError(f"chaos {where}")


def application(url: str, *, apart: bool = False) -> Duly:
    """The application whose workers are killed. `apart`: effect and completion are two transactions."""
    jobs = Duly(url, lease=LEASE, grace=0.2, crash_limit=1_000, maintenance_interval=5, alerts={"enabled": False})
    connections = Connections(url)

    @jobs.task(retry=PATIENT)
    def add(account: int) -> None:
        with connections.transaction() as connection:
            with nullcontext() if apart else current_job().completing(connection):
                for sql in increment(account):
                    connection.execute(sql)
                misbehave("in the block")
            if random.random() < 0.1:
                time.sleep(random.random() * 0.004)  # so that some kills come between here and the commit
            misbehave("before the commit")
        misbehave("after the commit")

    @jobs.task(retry=PATIENT)
    async def aadd(account: int) -> None:
        async with connections.atransaction() as connection:
            async with nullcontext() if apart else current_job().completing(connection):
                for sql in increment(account):
                    await connection.execute(sql)
                misbehave("in the block")
            if random.random() < 0.01 and not apart:
                await connection.rollback()  # and return, as if nothing had happened
        await asyncio.sleep(0)
        misbehave("after the commit")

    return jobs


# -- the storm ----------------------------------------------------------------------------------------------------


def work(url: str, *, apart: bool) -> None:
    """One process: a worker until it is killed."""
    logging.basicConfig(level=logging.CRITICAL)
    jobs = application(url, apart=apart)
    slots = 4 if url.startswith("postgres") else 2  # SQLite has one writer at a time, however many wait
    with jobs.worker(thread_slots=slots, async_slots=slots):
        sys.stdin.read()


def prepare(url: str, n: int) -> Duly:
    """Tables, and the jobs."""
    jobs = application(url)
    jobs.migrate()
    with closing(connect(url)) as connection:
        for sql in (
            "DROP TABLE IF EXISTS counters",
            "DROP TABLE IF EXISTS increments",
            "CREATE TABLE counters (account integer PRIMARY KEY, n integer NOT NULL)",
            "CREATE TABLE increments (job_id varchar(36) NOT NULL)",
            *(f"INSERT INTO counters VALUES ({account}, 0)" for account in range(ACCOUNTS)),
        ):
            connection.execute(sql)
        connection.commit()
    enqueue(jobs, n)
    return jobs


def enqueue(jobs: Duly, n: int) -> None:
    """Enqueue `n` jobs, most of them for threads."""
    names = sorted(jobs.registry.tasks)
    for name, some in zip(names, (n // 4, n - n // 4), strict=True):
        for first in range(0, some, 5_000):
            jobs[name].enqueue_many([{"account": each % ACCOUNTS} for each in range(first, min(some, first + 5_000))])


def storm(
    url: str,
    *,
    jobs: int,
    processes: int = 3,
    pause: float = 0.6,
    least: int = 0,
    seed: int | None = None,
    limit: float = 3_600.0,
    apart: bool = False,
) -> Report:
    """Run all jobs while workers are killed, `pause` seconds apart on average. Raises if it takes too long.

    Where the jobs come to their end before `least` kills, as many again are added: how much a storm shows does not
    depend on how fast the machine is.
    """
    seed = random.randrange(1 << 32) if seed is None else seed
    chance = random.Random(seed)
    app = prepare(url, jobs)
    total = jobs
    before = _on_record(url)
    workers = [_start(url, apart=apart) for _ in range(processes)]
    kills, began = 0, time.monotonic()
    try:
        while (left := _left(app)) or kills < least:
            if time.monotonic() - began > limit:
                raise TimeoutError(f"{left} jobs are left after {limit:.0f} s; {kills} kills, seed {seed}")
            if kills < least and left < jobs // 4:
                enqueue(app, jobs)
                total += jobs
            time.sleep(chance.uniform(0, 2 * pause))
            n = chance.randrange(processes)
            _end(workers[n])
            workers[n] = _start(url, apart=apart)
            kills += 1
    finally:
        for each in workers:
            _end(each)
    seconds = time.monotonic() - began
    app.close()
    return _checked(url, total, before, kills, seconds, seed)


def _left(app: Duly) -> int:
    """How many jobs have not ended."""
    counts = app.store.counts()
    waiting = sum(row[3] for row in (*counts.waiting, *counts.scheduled))
    return waiting + sum(counts.parked.values()) + len(app.list(state="running", limit=1))


def _on_record(url: str) -> tuple[int, int, int]:
    """How many jobs have succeeded, how many runs there were, and how many of those were cut short."""
    prefix = "duly." if url.startswith("postgres") else "duly_"
    return (
        _ask(url, f"SELECT count(*) FROM {prefix}ended WHERE state = 'succeeded'"),
        _ask(url, f"SELECT count(*) FROM {prefix}runs"),
        _ask(url, f"SELECT count(*) FROM {prefix}runs WHERE outcome = 'crashed'"),
    )


def _checked(url: str, jobs: int, before: tuple[int, int, int], kills: int, seconds: float, seed: int) -> Report:
    succeeded, started, crashed = (now - then for now, then in zip(_on_record(url), before, strict=True))
    twice = "SELECT job_id FROM increments GROUP BY job_id HAVING count(*) > 1"
    return Report(
        jobs=jobs,
        counted=_ask(url, "SELECT sum(n) FROM counters"),
        lost=jobs - _ask(url, "SELECT count(DISTINCT job_id) FROM increments"),
        doubled=_ask(url, f"SELECT count(*) FROM ({twice}) AS doubled"),
        unfinished=jobs - succeeded,
        started=started,
        crashed=crashed,
        kills=kills,
        seconds=seconds,
        seed=seed,
    )


def _ask(url: str, sql: str) -> int:
    with closing(connect(url)) as connection:
        return int(connection.execute(sql).fetchone()[0] or 0)


def _start(url: str, *, apart: bool = False) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "chaos.increments", url, "--work", *(["--apart"] if apart else [])],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stdin=subprocess.PIPE,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def main() -> None:
    """Run one storm, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--processes", type=int, default=3, help="how many workers live at a time")
    parser.add_argument("--pause", type=float, default=0.6, help="seconds between kills, on average")
    parser.add_argument("--seed", type=int, help="which moments, and whom, to kill")
    parser.add_argument("--apart", action="store_true", help="do not complete in the handler: must come out wrong")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.url, apart=options.apart)
        return
    report = storm(
        options.url,
        jobs=options.jobs,
        processes=options.processes,
        pause=options.pause,
        seed=options.seed,
        apart=options.apart,
    )
    print(json.dumps(asdict(report)) if options.json else report)
    sys.exit(not report.exact)


if __name__ == "__main__":
    main()
