"""How runs under a limit are counted: exactly, whatever the leases, and without walking over what has ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from duly.domain.limits import Gate, Rate, Says
from duly.domain.records import Claimed, Lane
from duly.store import ops_claim
from duly.store.call import Call, Dialect
from duly.store.postgres import PLANNER
from duly.store.statements import Compiled
from tests.clock import us
from tests.store.factory import OTHER_WORKER, WORKER, Factory, released, succeeded

pytestmark = pytest.mark.requirement("D6")

GATES: list[Gate] = [("task", "send"), ("queue", "default"), ("tenant", "acme")]
LONG, SHORT = timedelta(hours=1), timedelta(minutes=1)
LANE = Lane("acme", "send")


def claim(make: Factory, gate: Gate, n: int, lease: timedelta, worker: str = WORKER) -> list[Claimed]:
    return make.store.claim("default", [LANE], n, worker_id=worker, lease_us=us(lease), gates=[gate])


@pytest.fixture(params=GATES, ids=lambda gate: gate[0])
def gate(make: Factory, request: pytest.FixtureRequest) -> Gate:
    """A limit of three, and jobs under it."""
    make.many(40, tenant="acme")
    scope, name = request.param
    make.store.gates.set_limit(scope, name, Says(slots=3))
    return scope, name


def test_a_short_lease_counts_where_others_are_long(make: Factory, gate: Gate) -> None:
    first = claim(make, gate, 3, LONG)
    make.settle(*map(succeeded, first))
    assert len(claim(make, gate, 1, LONG)) == 1, "from here on the count begins an hour ahead"
    assert len(claim(make, gate, 1, SHORT, OTHER_WORKER)) == 1
    assert len(claim(make, gate, 5, LONG)) == 1
    assert claim(make, gate, 5, SHORT) == []


def test_a_lease_renewed_for_less_than_it_had_still_counts(make: Factory, gate: Gate) -> None:
    (kept,) = claim(make, gate, 1, LONG)
    assert make.store.renew([(kept.id, kept.token)], us(SHORT)) == {kept.id: False}
    assert len(claim(make, gate, 5, LONG)) == 2
    assert claim(make, gate, 5, LONG) == []


def test_what_was_claimed_before_a_limit_counts_however_short_its_lease(make: Factory, gate: Gate) -> None:
    claim(make, gate, 3, LONG)
    make.store.gates.unset_limit(*gate)
    free = make.store.claim("default", [LANE], 2, worker_id=OTHER_WORKER, lease_us=us(SHORT))
    assert len(free) == 2
    make.store.gates.set_limit(*gate, Says(slots=6))
    assert len(claim(make, gate, 9, LONG)) == 1


def test_a_rate_and_a_limit_hold_together(make: Factory, gate: Gate) -> None:
    make.store.gates.set_limit(*gate, Says.limits(3, Rate(10, 3_600_000_000, 5)))
    first = claim(make, gate, 9, LONG)
    assert len(first) == 3
    make.settle(*map(succeeded, first))
    make.clock.advance(timedelta(seconds=1))
    assert len(claim(make, gate, 9, SHORT)) == 2, "five may start"
    make.store.gates.set_limit(*gate, Says(slots=3))
    assert len(claim(make, gate, 9, LONG)) == 1, "what was claimed under the rate counts without it"


# -- runs that have ended and are not yet settled ---------------------------------------------------------------


def replace(make: Factory, gate: Gate, ended: list[Claimed], n: int = 9) -> list[Claimed]:
    """Claim as the worker of these runs would, once their handlers have ended."""
    pairs = [(job.id, job.token) for job in ended]
    return make.store.claim("default", [LANE], n, worker_id=WORKER, lease_us=us(LONG), gates=[gate], ended=pairs)


def test_a_slot_is_taken_again_while_its_run_is_being_settled(make: Factory, gate: Gate) -> None:
    first = claim(make, gate, 3, LONG)
    assert len(replace(make, gate, first[:2])) == 2
    assert replace(make, gate, first[:2]) == [], "said again, it is no more room"
    assert claim(make, gate, 9, LONG, OTHER_WORKER) == [], "to others they count"
    make.settle(*map(succeeded, first[:2]))
    assert replace(make, gate, first[:2]) == []
    assert claim(make, gate, 9, LONG, OTHER_WORKER) == []
    make.settle(succeeded(first[2]))
    assert len(claim(make, gate, 9, LONG, OTHER_WORKER)) == 1


def test_a_job_that_runs_again_counts_whatever_is_said_of_its_run_before(make: Factory, gate: Gate) -> None:
    first = claim(make, gate, 3, LONG)
    make.settle(*map(released, first))
    again = claim(make, gate, 3, LONG, OTHER_WORKER)
    assert {job.id for job in again} == {job.id for job in first}
    assert replace(make, gate, first) == []


def test_what_ended_under_another_limit_makes_no_room(make: Factory, gate: Gate) -> None:
    make.many(3, "other", tenant="else", queue="else")
    others = make.store.claim("else", [Lane("else", "other")], 3, worker_id=WORKER, lease_us=us(LONG))
    assert len(claim(make, gate, 3, LONG)) == 3
    assert replace(make, gate, others) == []


def test_runs_that_are_not_marked_yet_are_not_counted_either_once_they_have_ended(make: Factory, gate: Gate) -> None:
    first = claim(make, gate, 3, LONG)
    make.raw.rows("UPDATE duly.gates SET stamped = false")
    make.raw.rows("UPDATE duly.running SET limited = 0")
    assert replace(make, gate, []) == []
    assert len(replace(make, gate, first[:1])) == 1


# -- PostgreSQL: what has ended stays in the indexes until vacuum comes -----------------------------------------


@pytest.fixture
def busy(make: Factory, gate: Gate, database_url: str) -> Iterator[tuple[psycopg.Connection, Gate]]:
    """Six thousand runs under the limit have ended, and nothing has been vacuumed."""
    if make.store.dialect is not Dialect.POSTGRES:
        pytest.skip("SQLite leaves nothing dead behind")
    make.raw.rows("ALTER TABLE duly.running SET (autovacuum_enabled = off)")
    make.store.gates.set_limit(*gate, Says(slots=500))
    make.many(6_100, tenant="acme")
    with psycopg.connect(database_url, options=PLANNER) as connection:
        yield connection, gate


def run(make: Factory, gate: Gate, times: range) -> None:
    """Run a hundred so many times, as if a tenth of a second lay between."""
    for n in times:
        jobs = claim(make, gate, 100, LONG + n * timedelta(seconds=0.1))
        assert len(jobs) == 100
        make.settle(*map(succeeded, jobs))


def explained(connection: psycopg.Connection, gate: Gate) -> str:
    op = ops_claim.claim(
        Dialect.POSTGRES,
        queue="default",
        from_lanes=[LANE],
        n=10,
        worker_id=WORKER,
        lease_us=us(LONG),
        gates=[gate],
    )
    call: Any = next(op)
    assert isinstance(call, Call)
    sql, _ = Compiled(Dialect.POSTGRES, "pyformat", "duly", server_clock=True).get(call.name)
    lines = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {sql}".encode(), dict(call.params)).fetchall()
    return "\n".join(str(line[0]) for line in lines)


@pytest.mark.parametrize("snapshot", [False, True], ids=["", "beside a long transaction"])
def test_a_count_does_not_walk_over_what_has_ended(
    make: Factory, busy: tuple[psycopg.Connection, Gate], database_url: str, snapshot: bool
) -> None:
    connection, gate = busy
    with ExitStack() as stack:
        if snapshot:
            holder = stack.enter_context(psycopg.connect(database_url))
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT count(*) FROM duly.running")
        run(make, gate, range(1))
        explained(connection, gate)  # what only the first time costs
        connection.rollback()
        before = pages(explained(connection, gate))
        connection.rollback()
        run(make, gate, range(1, 60))
        plan = explained(connection, gate)
        connection.rollback()
        assert pages(plan) < before + 40, plan


def pages(plan: str) -> int:
    """How many pages the function that counts has read."""
    found = re.search(r"Function Scan on gate_room.*?Buffers: shared hit=(\d+)", plan, re.DOTALL)
    assert found, plan
    return int(found[1])


def test_a_claim_that_finds_no_room_writes_nothing(make: Factory, busy: tuple[psycopg.Connection, Gate]) -> None:
    connection, gate = busy
    make.store.gates.set_limit(*gate, Says(slots=2))
    assert len(claim(make, gate, 5, LONG)) == 2
    explained(connection, gate)
    assert connection.execute("SELECT pg_current_xact_id_if_assigned()").fetchone() == (None,)
