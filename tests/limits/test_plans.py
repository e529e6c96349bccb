"""Plans on large tables: what lets jobs in, counts and claims goes by indexes, with statistics and without."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from duly.domain.limits import Says
from duly.domain.records import Lane
from duly.store import ops_claim, ops_keys
from duly.store.call import Call, Dialect, Op, Rows
from duly.store.postgres import PLANNER
from duly.store.statements import Compiled
from tests.databases import Databases, Kind
from tests.plans import plans
from tests.store.factory import WORKER

PG = Dialect.POSTGRES
KEYS = [f"send/k{n}" for n in range(1, 400)]
IDS = [f"00000000-0000-7000-8000-{n:012d}" for n in range(1, 200)]
ID = "('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid"
KEY = "'send/k' || (n % 100000 + 1)"
BIG = f"""
INSERT INTO duly.gates (scope, name, slots, limited_at, stamped)
VALUES ('task', 'send', 5, 1, true), ('keys', 'send', 1, 1, false);
INSERT INTO duly.jobs (id, task, queue, tenant, args, priority, max_attempts, created_at, limit_key)
SELECT {ID}, 'send', 'default', '', '{{}}', 0, 1, n, {KEY} FROM generate_series(1, 300000) n;
INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority)
SELECT 'default', '', 'send', n, {ID}, n, 0 FROM generate_series(1, 90000) n;
INSERT INTO duly.running (id, token, queue, tenant, task, priority, run_at, attempt, crashes, hold, limited,
                          worker_id, claimed_at, leased_until)
SELECT {ID}, 1, 'default', '', 'send', 0, n, 1, 0, 0, 1, '00000000-0000-7000-8000-000000000000', n, 9000000000000000
FROM generate_series(90001, 100000) n;
INSERT INTO duly.parked (id, queue, tenant, task, run_at, priority, parked_at, reason, mark, rank)
SELECT {ID}, 'default', '', 'send', n, 0, n, CASE WHEN n > 299000 THEN 'arrived' ELSE 'key' END, {KEY}, n
FROM generate_series(100001, 300000) n;
INSERT INTO duly.admitted (key, job_id, look)
SELECT {KEY}, {ID}, n % 10000 = 0 FROM generate_series(1, 100000) n;
INSERT INTO duly.keys (name, rate_n, rate_us, burst, opens_at)
SELECT 'send/k' || n, 1, 1000000, 1, CASE WHEN n % 1000 = 0 THEN n END FROM generate_series(1, 100000) n;
"""


@pytest.fixture(scope="module")
def big(databases: Databases) -> Iterator[str]:
    """A hundred thousand keys, each with one job in its lane or running and two that wait for it."""
    with databases.fresh(Kind.PG18) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            for table in ("jobs", "waiting", "parked", "running", "admitted", "keys", "gates"):
                connection.execute(f"ALTER TABLE duly.{table} SET (autovacuum_enabled = off)".encode())
            connection.execute(BIG.encode())
        yield url


def answer(call: Call) -> Rows:
    """Rows that keep an operation going."""
    match call.name:
        case "arrived":
            return [(job_id, key) for job_id, key in zip(IDS, KEYS, strict=False)]
        case "opening_keys" | "keys_to_look_at" | "busy_keys" | "waiting_keys":
            return [(key,) for key in KEYS]
        case "breaker_of":
            return [("[0.5, 10, 60000000, 30000000]", None, 0, None, 9, 9, 1)]
        case _:
            return []


def claim_op() -> Op[Any]:
    return ops_claim.claim(
        PG,
        queue="default",
        from_lanes=[Lane("", "send")],
        n=100,
        worker_id=WORKER,
        lease_us=1,
        gates=[("task", "send")],
    )


def one(statement: str, **params: Any) -> Callable[[], Op[Any]]:
    def op() -> Op[Any]:
        yield Call(statement, params)

    return op


OPERATIONS: dict[str, tuple[Callable[[], Op[Any]], str]] = {
    "admit many": (lambda: ops_keys.admit(PG, KEYS), "parked_by_key"),
    "admit one": (lambda: ops_keys.admit(PG, KEYS[:1]), "admitted_pkey"),
    "arrive": (lambda: ops_keys.arrive(PG, 1_000), "parked_by_reason"),
    "reopen": (lambda: ops_keys.reopen(PG), "keys_by_opening"),
    "to look at": (lambda: ops_keys.reopen(PG), "admitted_to_look_at"),
    "any": (one("any_arrived"), "admitted_to_look_at"),
    "next due": (one("next_due"), "keys_by_opening"),
    "pause": (
        lambda: ops_keys.pause(PG, KEYS[0], by=None, reason=None, until=None, for_us=None, actor=None),
        "parked_by_key",
    ),
    "set limit": (lambda: ops_keys.set_limit(PG, KEYS[0], Says(slots=1), actor=None), "waiting_pkey"),
    "rearrange": (lambda: ops_keys.rearrange(PG, "send", "send"), "parked_by_key"),
    "count run": (lambda: ops_keys.count_run(PG, KEYS[0], failed=True), "keys_pkey"),
    "claim": (claim_op, "waiting_lane"),
    "leave word": (one("look_at_key_of", id=IDS[0]), "admitted_pkey"),
    "waiting in queue": (one("count_waiting_queue", name="default", most=1_000), "Limit"),
}


@pytest.fixture(scope="module", params=[False, True])
def analysed(big: str, request: pytest.FixtureRequest) -> bool:
    """First without statistics and then with."""
    if request.param:
        with psycopg.connect(big, autocommit=True) as connection:
            connection.execute("ANALYZE")
    return bool(request.param)


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_done_to_keys_goes_by_indexes(big: str, name: str, analysed: bool) -> None:
    op, index = OPERATIONS[name]
    found = plans(big, op(), answer)
    for statement, plan in found.items():
        if statement.startswith("count_waiting"):
            continue  # walks as far as it must count, however it goes
        scanned = set(re.findall(r"Seq Scan on (\w+)", plan)) - {"queues", "gates"}
        assert not scanned, f"{statement}:\n{plan}"
    assert index in "\n".join(found.values()), "\n".join(found.values())


def actual(big: str, op: Op[Any]) -> str:
    """What the first statement of an operation really reads."""
    compiled = Compiled(PG, "pyformat", "duly", server_clock=True)
    with psycopg.connect(big, options=PLANNER) as connection:
        connection.execute("ANALYZE")
        call = next(op)
        assert isinstance(call, Call)
        sql, _ = compiled.get(call.name)
        lines = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS OFF, TIMING OFF) {sql}".encode(), dict(call.params))
        text = "\n".join(str(line[0]) for line in lines)
        connection.rollback()
    return text


def read(text: str) -> float:
    found = re.findall(r"(?:Index|Seq).* Scan.*?actual rows=([\d.]+) loops=(\d+)", text)
    return sum(float(n) * int(loops) for n, loops in found)


def test_letting_in_reads_little_more_than_it_moves(big: str) -> None:
    text = actual(big, ops_keys.admit(PG, KEYS))
    assert read(text) < len(KEYS) * 15, text


def test_the_counts_of_a_limit_read_only_what_runs_under_it(big: str) -> None:
    """The function's own statement, as it stands in the migration."""
    with psycopg.connect(big, options=PLANNER) as connection:
        lines = connection.execute(
            "EXPLAIN SELECT count(*) FROM duly.running WHERE task = 'send' AND limited & 1 <> 0 AND leased_until > 5"
        )
        assert "running_by_task" in "\n".join(str(line[0]) for line in lines)
        for scope, column, bit in (("queue", "queue", 2), ("tenant", "tenant", 4)):
            lines = connection.execute(
                f"EXPLAIN SELECT count(*) FROM duly.running WHERE {column} = 'x' AND limited & {bit} <> 0"
                " AND leased_until > 5".encode()
            )
            assert f"running_by_{scope}" in "\n".join(str(line[0]) for line in lines)


STATEMENTS = (
    *("key_now", "drop_admitted", "looked_at_key", "parked_by_key", "spare", "evict_park", "evict_note", "admit_lanes"),
    *("admit_waiting", "admit_note", "admit_leave", "meter_key", "arrived", "any_arrived", "settle_in", "opening_keys"),
    *("keys_to_look_at", "look_at_key_of", "limit_keys_of", "busy_keys", "waiting_keys", "spend_keys"),
    *("next_due", "open_lanes", "spend_rate", "insert_arrived", "requeue_keyed", "rerank_parked", "breaker_of"),
)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_sqlite_searches_too(sqlite_url: str, statement: str) -> None:
    compiled = Compiled(Dialect.SQLITE, "question", "duly", server_clock=False)
    sql, names = compiled.get(statement)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        lines = connection.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * len(names)).fetchall()
    plan = "\n".join(str(line[3]) for line in lines)
    scanned = set(re.findall(r"SCAN (?!json_each|\(|e\b|l\b|s\b|CONSTANT)(\w+)(?! USING)", plan))
    assert not scanned & {
        "duly_admitted",
        "duly_parked",
        "duly_jobs",
        "duly_waiting",
        "duly_running",
        "p",
        "w",
        "r",
        "a",
        "j",
    }, plan
