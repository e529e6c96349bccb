"""Millions of rows in duly's tables, by a few statements: jobs that wait, or jobs that have succeeded.

Run as `python -m drivers.duly_rows waiting|ended URL COUNT FIRST`. Their ids are in the order of their
numbers, as those of enqueued jobs are in the order of time.
"""

import json
import sqlite3
import sys
import time
from collections.abc import Iterator

CHUNK = 500_000
JOBS = """
INSERT INTO {duly}jobs (id, task, args, created_at) SELECT {id}, 'noop', {args}, {now} + n FROM {numbers}"""
WAITING = (
    JOBS,
    """
INSERT INTO {duly}waiting (queue, tenant, task, rank, id, run_at, priority)
SELECT 'default', '', 'noop', {now} + n, {id}, {now} + n, 0 FROM {numbers}""",
)
ENDED = (
    JOBS,
    """
INSERT INTO {duly}ended (id, state, finished_at, token, attempt, crashes, hold)
SELECT {id}, 'succeeded', {now} + n, 1, 1, 0, 0 FROM {numbers}""",
    """
INSERT INTO {duly}runs (job_id, token, attempt, outcome, started_at, finished_at, worker_id)
SELECT {id}, 1, 1, 'succeeded', {now} + n, {now} + n, '{worker}' FROM {numbers}""",
)
WORKER = "00000000-0000-7000-8000-000000000000"


def statements(kind: str, *, postgres: bool, count: int, first: int) -> Iterator[str]:
    """The statements for `count` jobs, the first numbered `first`, in chunks; all due in the last hours."""
    now_us = time.time_ns() // 1_000 - 10_000_000_000
    number = "lpad(n::text, 12, '0')" if postgres else "printf('%012d', n)"
    values = {
        "duly": "duly." if postgres else "duly_",
        "id": f"('00000000-0000-7000-8000-' || {number})" + ("::uuid" if postgres else ""),
        "args": "json_build_object('n', n)" if postgres else "json_object('n', n)",
        "now": now_us,
        "worker": WORKER,
    }
    for start in range(first, first + count, CHUNK):
        end = min(start + CHUNK, first + count)
        numbers = (
            f"generate_series({start}, {end - 1}) n"
            if postgres
            else f"(WITH RECURSIVE s(n) AS (SELECT {start} UNION ALL SELECT n + 1 FROM s WHERE n < {end - 1})"
            " SELECT n FROM s)"
        )
        for statement in WAITING if kind == "waiting" else ENDED:
            yield statement.format(**values, numbers=numbers)


def fill(kind: str, url: str, count: int, first: int) -> None:
    postgres = url.startswith("postgresql")
    todo = statements(kind, postgres=postgres, count=count, first=first)
    if postgres:
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            for statement in todo:
                connection.execute(statement.encode())
    else:
        file = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        file.execute("PRAGMA cache_size = -500000")
        for statement in todo:
            file.execute(statement)
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        file.close()


if __name__ == "__main__":
    fill(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    print(json.dumps(None))
