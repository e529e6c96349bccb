"""How many statements jobs take: a regression shows here on any machine, however busy.

What an idle worker sends is counted in `tests/worker/test_wakeup.py`
(`test_an_idle_worker_leaves_the_database_alone`).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from duly import Duly
from duly.alerts.evaluate import Evaluator
from duly.alerts.settings import AlertSettings
from duly.domain.ids import uuid7
from duly.domain.records import Claimed, Lane, NewJob, Settled
from tests.databases import Kind
from tests.speed.counting import Handler, check, drain, fill, noop
from tests.store.factory import WORKER

BATCH = 500


@pytest.mark.parametrize("handler", ["async def", "def"])
def test_statements_per_job_in_a_drain(jobs: Duly, database_kind: Kind, handler: Handler) -> None:
    """From the start of the worker. On SQLite a statement is no round trip, and a claim takes several."""
    n = 10_000
    fill(noop(jobs, handler), n)
    check("statements per job", drain(jobs, n) / n, 0.03 if database_kind.is_postgres else 0.1)


def statements(jobs: Duly, do: Callable[[], object]) -> int:
    before = jobs.store.database.calls
    do()
    return jobs.store.database.calls - before


def test_statements_of_one_enqueue(jobs: Duly, database_kind: Kind) -> None:
    task = noop(jobs)
    task.enqueue(n=0)
    took = statements(jobs, lambda: task.enqueue(n=1))
    check("statements of one enqueue", took, 1 if database_kind.is_postgres else 3)


def test_statements_of_enqueueing_many(jobs: Duly, database_kind: Kind) -> None:
    task = noop(jobs)
    task.enqueue(n=0)
    took = statements(jobs, lambda: fill(task, 5_000))
    check("statements of an enqueue of 5,000 rows", took, 7 if database_kind.is_postgres else 5)


def test_statements_of_a_claim_and_of_a_settle(jobs: Duly, database_kind: Kind) -> None:
    """Of a whole batch: a worker that keeps up sends these and nothing else."""
    store = jobs.store
    model = NewJob(id=uuid7(), task="t", args="{}")
    store.enqueue_many(model, [(uuid7(), "{}", None) for _ in range(BATCH)])
    held: list[Claimed] = []
    claiming = statements(
        jobs,
        lambda: held.extend(store.claim("default", [Lane("", "t")], BATCH, worker_id=WORKER, lease_us=60_000_000)),
    )
    assert len(held) == BATCH
    settling = statements(
        jobs, lambda: store.settle([Settled(job.id, job.token, "succeeded", "succeeded", ran_us=1) for job in held])
    )
    check(f"statements of a claim of {BATCH} jobs", claiming, 1 if database_kind.is_postgres else 6)
    check(f"statements of a settle of {BATCH} runs", settling, 1 if database_kind.is_postgres else 7)


def test_statements_of_a_look_for_alerts_where_nothing_happens(jobs: Duly, database_kind: Kind) -> None:
    """The turn, a glance, and on PostgreSQL the size of the database."""
    task = noop(jobs)
    task.enqueue(n=0)
    drain(jobs, 1)
    evaluator = Evaluator(jobs.store, AlertSettings)
    evaluator.step()
    took = statements(jobs, lambda: evaluator.evaluate(now_please=True))
    check("statements of a look for alerts", took, 3 if database_kind.is_postgres else 2)
