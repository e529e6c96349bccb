"""What runs for every job is planned once for a connection: planning a settle takes PostgreSQL as long as doing it."""

from __future__ import annotations

from typing import Any

import psycopg

from duly.domain.records import Claimed, Lane, Settled
from duly.store.postgres import PostgresDatabase
from tests.helpers import opened
from tests.store.factory import WORKER

TIMES = 15
"""PostgreSQL plans the first five for their values, and then compares what that brought."""
LEASE_US = 15_000_000


def ended(job: Claimed, outcome: str) -> Settled:
    return Settled(job.id, job.token, outcome, outcome)


def test_what_runs_again_and_again_is_not_planned_again_and_again(pg_url: str) -> None:
    with opened(pg_url, notify=False) as jobs:  # by one connection

        @jobs.task
        def one() -> None: ...

        @jobs.task
        def other() -> None: ...

        @jobs.task(concurrency_key=lambda _: "k")
        def keyed() -> None: ...

        store = jobs.store
        how: Any = {"worker_id": WORKER, "lease_us": LEASE_US}
        lanes = [Lane("", task.name) for task in (one, other, keyed)]
        one.enqueue_many([{}] * 3_000)  # where few jobs run, PostgreSQL takes a plan it has for good enough anyway
        for _ in range(6):
            assert len(store.claim("default", lanes[:1], 500, **how)) == 500
        for _ in range(TIMES):
            one.enqueue()
            other.enqueue_many([{}])
            keyed.enqueue()
            store.gates.admit(1_000)
            (first,) = store.claim("default", lanes[:1], 1, **how)
            store.renew([(first.id, first.token)], LEASE_US)
            store.settle([ended(first, "succeeded")])
            second, third = store.claim("default", lanes, 2, **how)
            store.settle([ended(second, "failed")])
            store.settle([ended(third, "succeeded")])
        often = plans_of(store.database)
    assert len(often) == 5
    assert not [statement for statement, generic in often.items() if not generic]


def test_nor_where_postgres_knows_that_many_wait(pg_url: str) -> None:
    with opened(pg_url, notify=False) as jobs:

        @jobs.task
        def one() -> None: ...

        @jobs.task
        def other() -> None: ...

        store = jobs.store
        for task in (one, other):
            task.enqueue_many([{}] * 10_000)
        with psycopg.connect(pg_url, autocommit=True) as connection:
            connection.execute("ANALYZE duly.waiting")
        how: Any = {"worker_id": WORKER, "lease_us": LEASE_US}
        lanes = [Lane("", task.name) for task in (one, other)]
        for _ in range(TIMES):
            for some in (lanes[:1], lanes):
                store.settle([ended(job, "succeeded") for job in store.claim("default", some, 10, **how)])
            store.look("default")
        often = plans_of(store.database)
    assert len(often) == 4  # a claim of one lane, one of several, a settle, a look
    assert not [statement for statement, generic in often.items() if not generic]


def plans_of(database: Any) -> dict[str, int]:
    """How often PostgreSQL used a plan it had, by statement: of those asked often that take long to plan."""
    assert isinstance(database, PostgresDatabase)
    found: dict[str, int] = {}
    for connection in list(database._connections._free):
        rows = connection.execute(
            "SELECT statement, generic_plans FROM pg_prepared_statements"
            " WHERE statement LIKE 'WITH%%' AND generic_plans + custom_plans >= %s",
            (TIMES - 6,),
        )
        found |= {str(statement): int(generic) for statement, generic in rows}
    return found
