"""What is read where a hundred thousand runs have ended and VACUUM has not come yet: the table once, not its index.

Each entry of an index that leads to a row that is gone costs a look at that row; a page of the table has fifty of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from duly.store import ops_settle, ops_upkeep
from duly.store.call import Op
from tests.databases import Databases, Kind
from tests.speed.reading import on_postgres
from tests.store.factory import WORKER

GONE, LATE = 100_000, 20
HOLD_AND_END = """
INSERT INTO duly.jobs (id, task, args, created_at)
SELECT gen_random_uuid(), 't', '{}', n FROM generate_series(1, %(n)s) n;
INSERT INTO duly.running (id, token, queue, tenant, task, priority, run_at, attempt, crashes, hold, limited,
                          worker_id, claimed_at, leased_until)
SELECT id, 1, 'default', '', 't', 0, 1, 1, 0, 0, 0, %(worker)s::uuid, 1, 1 FROM duly.jobs ORDER BY id;
DELETE FROM duly.running WHERE id NOT IN (SELECT id FROM duly.running ORDER BY id DESC LIMIT %(late)s)
"""


@pytest.fixture(scope="module")
def littered(databases: Databases) -> Iterator[str]:
    """A database where runs have ended that a transaction still sees; a few are late."""
    with databases.fresh(Kind.PG18) as url, psycopg.connect(url) as holder:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER TABLE duly.running SET (autovacuum_enabled = off)")
            before, after = HOLD_AND_END.rsplit(";", 1)
            values = {"n": GONE, "late": LATE, "worker": WORKER}
            for text in before.split(";"):
                connection.execute(text.encode(), values)
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT count(*) FROM duly.running")
            connection.execute(after.encode(), values)
        yield url


@pytest.mark.parametrize(
    "search",
    [
        lambda: ops_settle.lapsed(lease_us=1_000, n=500),
        lambda: ops_settle.held_by_dead(WORKER, 500),
        lambda: ops_upkeep.next_lapse(),
    ],
    ids=["lapsed leases", "runs of a dead worker", "the next lapse"],
)
def test_a_search_among_ended_runs_reads_the_table_once(littered: str, search: Callable[[], Op[Any]]) -> None:
    with psycopg.connect(littered) as connection:
        row = connection.execute("SELECT pg_relation_size('duly.running') / 8192").fetchone()
    assert row is not None
    (read,) = on_postgres(littered, search()).values()
    assert read.amount <= 2 * row[0] + 20 * LATE, f"{read.amount:,} pages, the table has {row[0]:,}\n{read.plan}"
