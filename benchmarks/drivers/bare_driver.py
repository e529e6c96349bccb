"""The limit: a script that moves the same rows as duly, by one connection, and does nothing else.

No leases to renew, no lanes, limits, retries, wake-ups or figures: 500 rows leave `waiting` for `running` in
one transaction, and `running` for `ended` and `runs` in another. Jobs are enqueued by duly.
"""

import json
import signal
import sqlite3
import time
from collections.abc import Sequence
from typing import Protocol
from uuid import uuid4

from drivers.common import main
from drivers.duly_driver import DulyDriver

BATCH = 500
LEASE_US = 15_000_000
IN_ORDER = f"ORDER BY queue, suspect, tenant, task, rank, id LIMIT {BATCH}"
RUNNING = """
    (id, token, queue, tenant, task, priority, run_at, attempt, crashes, hold, limited, worker_id, claimed_at,
     leased_until)
    SELECT id, token + 1, queue, tenant, task, priority, run_at, attempt + 1, crashes, hold, 0,"""
RUNS = """
    (job_id, outcome, finished_at, token, attempt, started_at, worker_id)
    SELECT id, 'succeeded',"""


class Rows(Protocol):
    """The rows of jobs, in one database or the other."""

    def take(self) -> Sequence[tuple[object, str]]:
        """Have the next ones run; returns their ids and arguments."""
        ...

    def finish(self) -> None:
        """Those that were taken have succeeded."""
        ...


class PostgresRows:
    def __init__(self, url: str) -> None:
        import psycopg

        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self._worker = uuid4()
        self._taken: list[object] = []

    def take(self) -> Sequence[tuple[object, str]]:
        rows = self._connection.execute(
            f"""
            WITH taken AS (
                DELETE FROM duly.waiting WHERE ctid = ANY (ARRAY(SELECT ctid FROM duly.waiting {IN_ORDER}))
                RETURNING *
            ), leased AS (
                INSERT INTO duly.running {RUNNING} %(worker)s, %(now)s, %(now)s + {LEASE_US} FROM taken
            )
            SELECT t.id, j.args::text FROM taken t JOIN duly.jobs j ON j.id = t.id
            """,
            {"worker": self._worker, "now": now_us()},
        ).fetchall()
        self._taken = [job for job, _ in rows]
        return rows

    def finish(self) -> None:
        self._connection.execute(
            f"""
            WITH done AS (
                DELETE FROM duly.running WHERE id = ANY (%(ids)s) RETURNING *
            ), ended AS (
                INSERT INTO duly.ended (id, state, finished_at, token, attempt)
                SELECT id, 'succeeded', %(now)s, token, attempt FROM done
            )
            INSERT INTO duly.runs {RUNS} %(now)s, token, attempt, claimed_at, worker_id FROM done
            """,
            {"ids": self._taken, "now": now_us()},
        )


class SqliteRows:
    def __init__(self, url: str) -> None:
        self._connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TEMP TABLE picked (id TEXT PRIMARY KEY)")
        self._worker = str(uuid4())

    def take(self) -> Sequence[tuple[object, str]]:
        ask = self._connection.execute
        now = now_us()
        ask("BEGIN IMMEDIATE")
        ask(f"INSERT INTO picked SELECT id FROM duly_waiting {IN_ORDER}")
        ask(
            f"INSERT INTO duly_running {RUNNING} ?, ?, ? FROM duly_waiting WHERE id IN picked",
            (self._worker, now, now + LEASE_US),
        )
        ask("DELETE FROM duly_waiting WHERE id IN picked")
        rows = ask("SELECT id, args FROM duly_jobs WHERE id IN picked").fetchall()
        ask("COMMIT")
        return rows

    def finish(self) -> None:
        ask = self._connection.execute
        now = now_us()
        ask("BEGIN IMMEDIATE")
        ask(
            "INSERT INTO duly_ended (id, state, finished_at, token, attempt, crashes, hold)"
            " SELECT id, 'succeeded', ?, token, attempt, crashes, hold FROM duly_running WHERE id IN picked",
            (now,),
        )
        ask(
            f"INSERT INTO duly_runs {RUNS} ?, token, attempt, claimed_at, worker_id FROM duly_running"
            " WHERE id IN picked",
            (now,),
        )
        ask("DELETE FROM duly_running WHERE id IN picked")
        ask("DELETE FROM picked")
        ask("COMMIT")


class BareDriver(DulyDriver):
    def work(self) -> None:
        asked: list[int] = []
        signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
        rows: Rows = SqliteRows(self.url) if self.url.startswith("sqlite") else PostgresRows(self.url)
        while not asked:
            taken = rows.take()
            for _, args in taken:
                self.log.record(json.loads(args)["n"])
            if taken:
                rows.finish()
            else:
                time.sleep(0.01)


def now_us() -> int:
    return time.time_ns() // 1_000


if __name__ == "__main__":
    main(BareDriver)
