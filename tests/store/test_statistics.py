"""PostgreSQL's statistics may say that a table is empty when it is not: then it is counted anew (decision 0028)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from duly.store import ops_keys
from duly.store.call import Dialect
from duly.store.statements import Compiled
from tests.databases import Databases, Kind
from tests.helpers import eventually, opened
from tests.plans import plans
from tests.store.factory import WORKER, add_worker

JOBS = 20_000
FILL = """
INSERT INTO duly.jobs (id, task, args, created_at)
SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'send', '{}', n FROM generate_series(1, %s) n
"""
LET_THEM_WAIT = """
INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority)
SELECT 'default', '', task, created_at, id, created_at, 0 FROM duly.jobs
"""
COMPILED = Compiled(Dialect.POSTGRES, "pyformat", "duly", server_clock=True)


@pytest.fixture
def miscounted(databases: Databases) -> Iterator[str]:
    """A database whose jobs that wait have all come since VACUUM found none, and could not shrink the table."""
    with databases.fresh(Kind.PG18) as url, psycopg.connect(url) as reader:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER TABLE duly.waiting SET (autovacuum_enabled = off)")
            connection.execute(FILL, (JOBS,))
            connection.execute(LET_THEM_WAIT)
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT txid_current()")
            connection.execute("DELETE FROM duly.waiting")
            connection.execute("VACUUM ANALYZE duly.waiting")
            connection.execute(LET_THEM_WAIT)
            assert counted(connection) == 0
        # who wrote says so when it is gone, or a moment later
        with psycopg.connect(url, autocommit=True) as connection:
            eventually(lambda: live(connection) >= JOBS)
        yield url


def counted(connection: psycopg.Connection[Any]) -> int:
    """How many jobs PostgreSQL found waiting when it last looked."""
    return one(connection, "SELECT reltuples::bigint FROM pg_class WHERE oid = 'duly.waiting'::regclass")


def live(connection: psycopg.Connection[Any]) -> int:
    """How many rows of `waiting` its statistics count as live by now."""
    return one(connection, "SELECT pg_stat_get_live_tuples('duly.waiting'::regclass)")


def one(connection: psycopg.Connection[Any], sql: str) -> int:
    found = connection.execute(sql.encode()).fetchone()
    assert found is not None
    return int(found[0])


def test_jobs_are_looked_up_by_their_keys_again_once_a_table_was_counted(miscounted: str) -> None:
    """Until then PostgreSQL goes through all that waits, for each job that may come in."""

    def gone_through() -> list[str]:
        plan = plans(miscounted, ops_keys.admit(Dialect.POSTGRES, ["send/a"]))["admit"]
        return re.findall(r"Scan using \w+ on waiting .*\n(?!\s*Index Cond)", plan)

    with opened(miscounted) as jobs:
        add_worker(jobs.store)
        assert gone_through()
        assert jobs.store.see_worker(WORKER, "running").miscounted
        jobs.store.count_anew()
        assert not gone_through()
        assert not jobs.store.see_worker(WORKER, "running").miscounted


def test_a_worker_has_a_table_counted_that_seems_empty(miscounted: str) -> None:
    with (
        opened(miscounted) as jobs,
        psycopg.connect(miscounted, autocommit=True) as connection,
        jobs.worker(lease=2),
    ):
        eventually(lambda: counted(connection) == JOBS, within=10)


def test_who_may_not_have_tables_counted_is_not_told_of_them(miscounted: str) -> None:
    seeing, _ = COMPILED.get("see_worker")
    params = dict.fromkeys(("clock_ahead_us", "clock_doubt_us", "memory_bytes")) | {"id": WORKER, "state": "running"}
    with opened(miscounted) as jobs, psycopg.connect(miscounted) as connection:
        add_worker(jobs.store)
        mine = connection.execute(seeing.encode(), params).fetchone()
        connection.execute("CREATE ROLE guest_of_tables")
        connection.execute("GRANT USAGE ON SCHEMA duly TO guest_of_tables")
        connection.execute("GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA duly TO guest_of_tables")
        connection.execute("SET LOCAL ROLE guest_of_tables")
        theirs = connection.execute(seeing.encode(), params).fetchone()
        connection.rollback()
    assert mine is not None
    assert theirs is not None
    assert (mine[-1], theirs[-1]) == (1, 0)
