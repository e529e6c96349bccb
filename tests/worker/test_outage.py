"""Outages of PostgreSQL under a running worker: jobs go on afterwards, nothing is lost or done twice for nothing."""

from __future__ import annotations

import threading
import time
from collections import Counter

import psycopg
import pytest

from duly import Backoff, DatabaseUnavailable, Duly, Job
from tests.helpers import Ledger, eventually, frozen, opened, worker_process
from tests.postgres import PostgresServer, StopMode
from tests.worker.tasks import declare


def enqueue_stubbornly(jobs: Duly, n: int) -> Job[int]:
    """As a caller does that must get its job stored: again until it is."""
    while True:
        try:
            return jobs.enqueue("work", {"n": n})
        except DatabaseUnavailable:
            time.sleep(0.1)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_jobs_go_on_after_the_server_was_stopped_and_started(
    pg_server: PostgresServer, own_server_url: str, mode: StopMode
) -> None:
    """F13: idle and busy, the worker lives through it without being started again."""
    ran: Counter[int] = Counter()

    with opened(own_server_url) as jobs:

        @jobs.task(retry=Backoff.fixed(0.05))
        def work(n: int) -> int:
            time.sleep(0.01)
            ran[n] += 1
            return n

        with jobs.worker(lease=2.0):
            first = work.enqueue_many([{"n": n} for n in range(150)])
            eventually(lambda: len(ran) > 20)
            pg_server.stop(mode)
            with pytest.raises(DatabaseUnavailable):
                work.enqueue(-1)
            time.sleep(0.5)
            pg_server.start()
            back = time.monotonic()
            later = [enqueue_stubbornly(jobs, n) for n in range(150, 170)]
            for n, job in enumerate((*first, *later)):
                assert job.wait(20) == n
            assert time.monotonic() - back < 15
            assert jobs.counts().running == []
        assert {run.outcome for job in (*first, *later) for run in job.runs} <= {"succeeded", "crashed", "released"}
    assert set(ran) == set(range(170)) | ({-1} if -1 in ran else set())


def test_backends_that_are_ended_again_and_again_lose_nothing(
    pg_server: PostgresServer, own_server_url: str, ledger: Ledger
) -> None:
    with opened(own_server_url) as jobs:
        tasks = declare(jobs, ledger)
        over = threading.Event()

        def harass() -> None:
            with psycopg.connect(own_server_url, autocommit=True) as connection:
                while not over.wait(0.15):
                    connection.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE application_name = 'duly' AND pid <> pg_backend_pid()"
                    )

        thread = threading.Thread(target=harass)
        with jobs.worker(lease=2.0), worker_process(own_server_url, ledger, worker={"lease": 2.0}):
            thread.start()
            try:
                stored = []
                for n in range(120):
                    while True:
                        try:
                            stored.append(tasks.note.enqueue(str(n)))
                            break
                        except DatabaseUnavailable:
                            continue
                eventually(lambda: len({entry.name for entry in ledger.entries()}) == 120, within=30)
            finally:
                over.set()
                thread.join()
            for job in stored:
                job.wait(20)
        assert jobs.counts().waiting == jobs.counts().running == []
        finished = jobs.counts().ended["succeeded"]
        assert finished >= 120, "an enqueue that failed may have been stored all the same"


def test_a_server_that_falls_silent_and_comes_back_is_found_again(
    pg_server: PostgresServer, own_server_url: str
) -> None:
    """F15: no reset, no refusal; the worker must not hang for good."""
    with opened(own_server_url) as jobs:

        @jobs.task
        def work(n: int) -> int:
            return n

        with jobs.worker(lease=2.0):
            assert work.enqueue(1).wait(10) == 1
            with frozen(pg_server.pid):
                time.sleep(1.5)
            asked = time.monotonic()
            assert work.enqueue(2).wait(10) == 2
            assert time.monotonic() - asked < 5


def test_a_worker_does_not_start_without_its_database_and_says_why(
    pg_server: PostgresServer, own_server_url: str
) -> None:
    pg_server.stop("fast")
    with opened(own_server_url) as jobs:

        @jobs.task
        def work() -> int:
            return 1

        worker = jobs.worker()
        with pytest.raises(DatabaseUnavailable, match="cannot connect"):
            worker.start()
        worker.stop()
        pg_server.start()
        with jobs.worker():
            assert work.enqueue().wait(10) == 1
