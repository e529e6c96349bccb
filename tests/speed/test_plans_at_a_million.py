"""What claim, settle, promote and rescue read among 1.4 million jobs: in proportion to what they take, never all.

Smaller tables are in `tests/store/test_postgres.py` and `tests/limits/test_plans.py`, which run every time.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duly.domain.clock import SystemClock
from duly.domain.records import Lane, Settled
from duly.store import ops_claim, ops_settle, ops_upkeep
from duly.store.call import Call, Dialect, Op
from duly.store.sqlite import SqliteDatabase
from duly.store.statements import Compiled
from duly.store.store import Store
from tests.databases import Databases, Kind
from tests.speed.reading import Read, on_postgres
from tests.store.factory import WORKER

pytestmark = [pytest.mark.deep, pytest.mark.timeout(900)]

WAITING, SCHEDULED, RUNNING, ENDED = 1_000_000, 200_000, 2_000, 200_000
TAKEN = 50
SMALL = {"running", "queues", "gates", "keys", "rollups", "workers", "leasing", "settling"}
"""Tables that have as many rows as there are slots, queues or limits, or jobs in a batch, whatever waits."""

FILL = """
INSERT INTO duly.jobs (id, task, args, created_at) SELECT {id}, 't' || (n % 7), '{{}}', n FROM {all};
INSERT INTO duly.waiting (queue, suspect, tenant, task, rank, id, run_at, priority)
SELECT 'default', 0, '', 't' || (n % 7), n, {id}, n, 0 FROM {waiting};
INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority)
SELECT {id}, n * 1000, 'default', '', 't' || (n % 7), 0 FROM {scheduled};
INSERT INTO duly.running (id, token, queue, tenant, task, priority, run_at, attempt, crashes, hold, limited,
                          worker_id, claimed_at, leased_until)
SELECT {id}, 1, 'default', '', 't' || (n % 7), 0, 1, 1, 0, 0, 0, {worker}, 1,
       CASE WHEN n % 40 = 0 THEN 1 ELSE 9000000000000000 END FROM {running};
INSERT INTO duly.ended (id, state, finished_at, token, attempt, crashes)
SELECT {id}, 'succeeded', n, 1, 1, 0 FROM {ended};
INSERT INTO duly.runs (job_id, token, attempt, outcome, started_at, finished_at, worker_id)
SELECT {id}, 1, 1, 'succeeded', n, n, {worker} FROM {ended}
"""


def ranges() -> dict[str, tuple[int, int]]:
    """Which jobs, by number, are where."""
    found: dict[str, tuple[int, int]] = {}
    first = 1
    for place, n in (("waiting", WAITING), ("scheduled", SCHEDULED), ("running", RUNNING), ("ended", ENDED)):
        found[place] = (first, first + n - 1)
        first += n
    return {**found, "all": (1, first - 1)}


def job_id(n: int) -> str:
    return f"00000000-0000-7000-8000-{n:012d}"


# -- PostgreSQL -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def big_postgres(databases: Databases) -> Iterator[str]:
    with databases.fresh(Kind.PG18) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            for table in ("jobs", "waiting", "scheduled", "running", "ended", "runs"):
                connection.execute(f"ALTER TABLE duly.{table} SET (autovacuum_enabled = off)".encode())
            series = {place: f"generate_series({first}, {last}) n" for place, (first, last) in ranges().items()}
            of_number = "('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid"
            connection.execute(FILL.format(id=of_number, worker=f"'{WORKER}'::uuid", **series).encode())
        yield url


# -- SQLite -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def big_sqlite(databases: Databases) -> Iterator[str]:
    with databases.fresh(Kind.SQLITE) as url:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            series = {
                place: f"(WITH RECURSIVE s(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM s WHERE n < {last})"
                " SELECT n FROM s)"
                for place, (first, last) in ranges().items()
            }
            of_number = "printf('00000000-0000-7000-8000-%012d', n)"
            text = FILL.format(id=of_number, worker=f"'{WORKER}'", **series).replace("duly.", "duly_")
            connection.executescript(f"BEGIN; {text}; COMMIT;")
        yield url


def on_sqlite(url: str, op: Op[Any], path: Path) -> dict[str, Read]:
    """Run an operation on our own connection, see what each statement reads, and undo it."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    compiled = Compiled(Dialect.SQLITE, "question", "duly", server_clock=False)
    found: dict[str, Read] = {}

    def watched(op: Op[Any], connection: sqlite3.Connection, now: int) -> Op[None]:
        call = next(op)
        while True:
            assert isinstance(call, Call)
            sql, order = compiled.get(call.name)
            given = {**call.params, "now": now, "lease_now": now}
            lines = connection.execute(f"EXPLAIN QUERY PLAN {sql}", [given[name] for name in order]).fetchall()
            before = steps
            rows = yield call
            plan = "\n".join(str(line[3]) for line in lines)
            scanned = set(re.findall(r"SCAN (duly_\w+)$", plan, re.M))
            found[call.name] = Read(steps - before, {table.removeprefix("duly_") for table in scanned}, plan)
            try:
                call = op.send(rows)
            except StopIteration:
                raise Undo from None

    connections: list[sqlite3.Connection] = []

    def connect(file: str) -> sqlite3.Connection:
        connections.append(sqlite3.connect(file, isolation_level=None, check_same_thread=False))
        return connections[-1]

    database = SqliteDatabase(path, SystemClock(), connect=connect)
    store = Store(database)
    try:
        database.write(_nothing)
        writer = connections[-1]
        writer.set_progress_handler(step, 1)
        with pytest.raises(Undo):
            database.write(lambda: watched(op, writer, SystemClock().now_us()))
    finally:
        store.close()
    return found


class Undo(Exception):
    """Has the transaction rolled back."""


def _nothing() -> Op[None]:
    yield Call("any_gate")


# -- what is read -----------------------------------------------------------------------------------------------------


def claim(dialect: Dialect, lanes: int) -> Op[Any]:
    named = [Lane("", f"t{n}") for n in range(lanes)]
    claimed = yield from ops_claim.claim(
        dialect, queue="default", from_lanes=named, n=TAKEN, worker_id=WORKER, lease_us=1_000_000
    )
    assert len(list(claimed)) == TAKEN


def settle(dialect: Dialect) -> Op[Any]:
    first = ranges()["running"][0]
    batch = [Settled(job_id(first + n), 1, "succeeded", "succeeded", ran_us=1) for n in range(TAKEN)]
    assert len((yield from ops_settle.settle(dialect, batch, own=True))) == TAKEN


def retry(dialect: Dialect) -> Op[Any]:
    first = ranges()["running"][0]
    batch = [Settled(job_id(first + n), 1, "scheduled", "failed", 1_000_000, error="x") for n in range(TAKEN)]
    assert len((yield from ops_settle.settle(dialect, batch, own=True))) == TAKEN


def promote(dialect: Dialect) -> Op[Any]:
    lanes = yield from ops_upkeep.promote(dialect, TAKEN)
    assert sum(lane[4] for lane in lanes) == TAKEN


def rescue(dialect: Dialect) -> Op[Any]:
    found = yield from ops_settle.lapsed(lease_us=1_000, n=TAKEN)
    assert len(found) == TAKEN
    for run in found[:3]:
        settled = Settled(run.id, run.token, "scheduled", "crashed", 1_000_000)
        yield from ops_settle.settle_keyed(dialect, settled, run.hold, only_expired=True)


def rescue_dead(dialect: Dialect) -> Op[Any]:
    found = yield from ops_settle.held_by_dead(WORKER, TAKEN)
    assert len(found) == TAKEN


OPERATIONS: dict[str, Callable[[Dialect], Op[Any]]] = {
    "lanes": lambda dialect: ops_claim.lanes(dialect, "default", suspect=False),
    "claim from one lane": lambda dialect: claim(dialect, 1),
    "claim from seven lanes": lambda dialect: claim(dialect, 7),
    "settle": settle,
    "settle for a retry": retry,
    "renew": lambda dialect: ops_settle.renew(
        dialect, [(job_id(ranges()["running"][0] + n), 1) for n in range(TAKEN)], 1_000_000
    ),
    "promote": promote,
    "next due": lambda _: ops_upkeep.next_due(),
    "next lapse": lambda _: ops_upkeep.next_lapse(),
    "rescue what lapsed": rescue,
    "rescue the runs of a dead worker": rescue_dead,
}
PAGES, STEPS = 60, 500
"""For each job that is taken. A walk over all that waits would be 14,000 pages, or some million steps."""


@pytest.fixture(scope="module", params=["without statistics", "with statistics"])
def postgres(big_postgres: str, request: pytest.FixtureRequest) -> str:
    """Tables grow from nothing to a million rows between two runs of ANALYZE."""
    if request.param == "with statistics":
        with psycopg.connect(big_postgres, autocommit=True) as connection:
            connection.execute("ANALYZE")
    return big_postgres


@pytest.mark.parametrize("name", OPERATIONS)
def test_postgres_reads_in_proportion_to_what_is_taken(postgres: str, name: str) -> None:
    judge(on_postgres(postgres, OPERATIONS[name](Dialect.POSTGRES)), PAGES * TAKEN, "pages")


@pytest.mark.parametrize("name", OPERATIONS)
def test_sqlite_reads_in_proportion_to_what_is_taken(big_sqlite: str, name: str) -> None:
    path = Path(big_sqlite.removeprefix("sqlite:///"))
    judge(on_sqlite(big_sqlite, OPERATIONS[name](Dialect.SQLITE), path), STEPS * TAKEN, "steps")


def judge(found: dict[str, Read], allowed: int, unit: str) -> None:
    assert found
    for statement, read in found.items():
        assert not read.scanned - SMALL, f"{statement} goes through all of {read.scanned - SMALL}:\n{read.plan}"
        assert read.amount <= allowed, f"{statement}: read {read.amount:,} {unit}, allowed {allowed:,}\n{read.plan}"
