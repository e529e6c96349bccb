"""While a transaction stays open nothing dead is removed; what stands before the dead is found all the same."""

from __future__ import annotations

import time

import psycopg
import pytest

from tests.helpers import Ledger, eventually, opened, worker_process
from tests.worker.tasks import declare

JOBS = 60_000
SOON = 1.5
"""Seconds: a look at the beginning of a lane every second, and some for a busy machine."""
RESCUED = 3.0 + SOON


@pytest.mark.deep
@pytest.mark.timeout(300)
@pytest.mark.requirement("C1")
def test_rescued_urgent_and_late_jobs_are_found_before_many_dead_ones(pg_url: str, ledger: Ledger) -> None:
    with opened(pg_url) as jobs, psycopg.connect(pg_url) as reader, psycopg.connect(pg_url) as caller:
        hold = declare(jobs, ledger).hold
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT txid_current()")

        def begun(name: str, n: int = 1) -> float:
            """When a run of that name began, the last of so many."""
            return eventually(lambda: ledger.entries("start", name)[n - 1 : n], within=20, every=0.1)[0].at

        with worker_process(pg_url, ledger, worker={"thread_slots": 1}) as doomed:
            hold.enqueue("stuck", 600.0)
            begun("stuck")
            hold.using(connection=caller).enqueue("late", 0.0)
            with worker_process(pg_url, ledger, worker={"thread_slots": 8}):
                hold.enqueue_many([{"name": "", "seconds": 0.0}] * JOBS)
                eventually(lambda: not jobs.list(state="queued", limit=1), 120, every=0.2)
                killed = time.monotonic()
                doomed.kill()
                assert begun("stuck", 2) - killed < RESCUED
                hold.enqueue_many([{"name": "", "seconds": 0.001}] * JOBS)  # there is always something else to do
                asked = time.monotonic()
                caller.commit()
                hold.using(priority=100).enqueue("urgent", 0.0)
                assert begun("urgent") - asked < SOON
                assert begun("late") - asked < SOON
