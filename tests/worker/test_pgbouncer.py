"""PgBouncer gives each transaction to whichever server connection is free: through it all works, a little slower."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import psycopg
import pytest

from duly import Backoff, JobCancelled, State
from duly.domain.ids import uuid7, uuid7_many
from duly.domain.records import Lane, NewJob
from duly.store.database import Hint
from duly.store.postgres import PostgresDatabase
from duly.store.postgres_wake import PostgresWaker
from duly.store.store import Store
from tests import pgbouncer
from tests.helpers import Ledger, eventually, opened, worker_process
from tests.worker.tasks import declare

pytestmark = pytest.mark.skipif(
    pgbouncer.program() is None, reason="pgbouncer is not installed (Debian: apt-get install pgbouncer)"
)


@pytest.fixture
def pooled(pg_url: str) -> Iterator[Callable[..., str]]:
    """Start a pooler in front of the test's database; returns its address."""
    with ExitStack() as stack:
        yield lambda mode="transaction", size=3: stack.enter_context(pgbouncer.pooler(pg_url, mode, size))


def test_jobs_run_and_fail_and_are_cancelled_through_a_pooler(pooled: Callable[..., str], ledger: Ledger) -> None:
    url = pooled()
    with opened(url) as jobs, opened(url) as producer:
        tasks = declare(jobs, ledger)

        @jobs.task
        def double(n: int) -> int:
            return 2 * n

        @jobs.task(retry=Backoff.fixed(0, max_attempts=1))
        def fail() -> None:
            raise ValueError("no")

        with jobs.worker():
            results = [double.enqueue(n) for n in range(20)]
            bad, stuck = fail.enqueue(), tasks.heed.enqueue("stuck")
            many = double.enqueue_many([{"n": n} for n in range(500)])
            assert [job.wait(20) for job in results] == [2 * n for n in range(20)]
            eventually(lambda: bad.refresh().state is State.FAILED)
            eventually(lambda: ledger.count("start", "stuck"))
            producer.cancel(stuck.id, "enough")
            with pytest.raises(JobCancelled):
                stuck.wait(20)
            assert many[-1].wait(20) == 998
            first = double.using(unique="one", delay=60).enqueue(1)
            again = double.using(unique="one", delay=60).enqueue(1)
            assert (again.id, again.created) == (first.id, False)
        assert jobs.store.counts().running == []


def test_a_limit_is_exact_through_a_pooler(pooled: Callable[..., str], ledger: Ledger) -> None:
    url = pooled()
    with opened(url) as jobs, worker_process(url, ledger), worker_process(url, ledger):
        tasks = declare(jobs, ledger)
        for n in range(12):
            tasks.limited.enqueue(str(n), 0.1)
        eventually(lambda: ledger.count("end") == 12, 30)
    assert ledger.most_at_once() == 3


@pytest.mark.parametrize("size", [1, 3])
def test_nothing_is_prepared_on_connections_that_are_shared(pooled: Callable[..., str], size: int) -> None:
    """A statement prepared by one client would be found by another, which means a statement of its own by that name."""
    url = pooled(size=size)
    store = Store.open(url)
    store.migrate()
    for _ in range(3):
        store.enqueue(NewJob(id=uuid7(), task="t", args="{}"))
        store.enqueue_many(NewJob(id="", task="t", args="{}"), [(each, "{}", None) for each in uuid7_many(3)])
        store.claim("default", [Lane("", "t")], 2, worker_id=uuid7(), lease_us=1_000_000)
        store.counts()
    assert store.counts().waiting == [("default", "", "t", 6, store.counts().waiting[0][4])]
    with ExitStack() as stack:
        found = [
            stack.enter_context(psycopg.connect(url, autocommit=False, prepare_threshold=None)) for _ in range(size)
        ]
        names = [each.execute("SELECT name FROM pg_prepared_statements").fetchall() for each in found]
    store.close()
    assert names == [[]] * size


def test_two_schemas_share_the_connections_and_nothing_else(pooled: Callable[..., str]) -> None:
    url = pooled(size=1)
    one, two = Store.open(url), Store.open(url, schema="other")
    two.migrate()
    for _ in range(3):
        one.enqueue(NewJob(id=uuid7(), task="one", args="{}"))
        two.enqueue(NewJob(id=uuid7(), task="two", args="{}"))
        assert {row[2] for row in one.counts().waiting} == {"one"}
        assert {row[2] for row in two.counts().waiting} == {"two"}
    one.close()
    two.close()


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_worker_listens_only_where_it_would_hear(pooled: Callable[..., str], mode: str) -> None:
    store = Store.open(pooled(mode))
    waker = store.waker(uuid7())
    assert isinstance(waker, PostgresWaker)
    waker.wait(0.1)
    assert waker.polls_every == (0.2 if mode == "transaction" else 10.0)
    if mode == "session":
        waker.wait(0.1)
        store.set_idle(uuid7(), True)
        store.poke(Hint("look"))
        assert waker.wait(5) == [Hint("look")]
    waker.dispose()
    store.close()


def test_an_idle_worker_behind_a_pooler_starts_a_job_soon(pooled: Callable[..., str], ledger: Ledger) -> None:
    url = pooled()
    with opened(url) as jobs, worker_process(url, ledger):
        tasks = declare(jobs, ledger)
        time.sleep(1.5)
        for n in range(5):
            asked = time.monotonic()
            tasks.note.enqueue(str(n))
            eventually(partial(ledger.count, name=str(n)))
            assert time.monotonic() - asked < 1.0


def test_a_direct_connection_is_not_taken_for_a_pooler(pg_url: str) -> None:
    store = Store.open(pg_url)
    store.counts()
    assert isinstance(store.database, PostgresDatabase)
    assert store.database._prepare == 0
    store.close()
