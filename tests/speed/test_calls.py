"""How much Python a job costs: the calls that duly's own code makes, in the process that enqueues and in the worker.

Allowed is 15 % above what was counted on Python 3.11 (later ones count fewer: a comprehension is no call there). The
message names what was called most.
"""

from __future__ import annotations

import pytest

from duly import Duly
from tests.databases import Kind
from tests.speed.counting import Calls, Handler, calls_here, calls_in_new_threads, check, drain, fill, noop

N = 3_000
MARGIN = 1.15
COUNTED = {
    Kind.SQLITE: {"async def": 48.5, "def": 49.5, "one enqueue": 133, "one of many": 23.1},
    Kind.PG18: {"async def": 50.5, "def": 51.5, "one enqueue": 100, "one of many": 30.1},
}


def check_calls(kind: Kind, what: str, calls: Calls, per: int) -> None:
    allowed = COUNTED.get(kind, COUNTED[Kind.PG18])[what] * MARGIN
    check(f"calls for each job ({what})", calls.n / per, allowed, calls.most(per))


@pytest.mark.parametrize("handler", ["async def", "def"])
def test_calls_per_job_to_claim_run_and_settle_it(jobs: Duly, database_kind: Kind, handler: Handler) -> None:
    fill(noop(jobs, handler), N)
    with calls_in_new_threads() as calls:
        drain(jobs, N)
    check_calls(database_kind, handler, calls, N)


def test_calls_of_one_enqueue(jobs: Duly, database_kind: Kind) -> None:
    task = noop(jobs)
    task.enqueue(n=0)
    with calls_here() as calls:
        task.enqueue(n=1)
    check_calls(database_kind, "one enqueue", calls, 1)


def test_calls_per_row_of_enqueueing_many(jobs: Duly, database_kind: Kind) -> None:
    task = noop(jobs)
    task.enqueue(n=0)
    with calls_here() as calls:
        fill(task, N)
    check_calls(database_kind, "one of many", calls, N)
