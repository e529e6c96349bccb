"""What an operation writes on a caller's connection comes and goes with the caller's transaction, in every library."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from duly.domain.ids import uuid7, uuid7_many
from duly.domain.records import Counts, Enqueued, Lane, NewJob
from duly.domain.states import State
from duly.store import ops_enqueue
from duly.store.call import Op
from duly.store.store import Store
from tests.foreign.callers import Caller
from tests.foreign.conftest import notes
from tests.foreign.jobs import a_job, a_unique_job, enqueue, state_of, that_breaks_a_rule, that_raises


def test_job_is_seen_by_others_only_after_the_commit(caller: Caller, store: Store, url: str) -> None:
    job = a_job()
    caller.begin()
    caller.execute("INSERT INTO notes VALUES ('mine')")
    assert enqueue(caller, store, job) == Enqueued(job.id, created=True)
    assert store.get(job.id) is None
    caller.commit()
    found = store.get(job.id)
    assert found is not None
    assert (found.state, found.args) == (State.QUEUED, job.args)
    assert notes(url) == ["mine"]
    claimed = store.claim("default", [Lane("", "send")], 10, worker_id=uuid7(), lease_us=15_000_000)
    assert [each.id for each in claimed] == [job.id]


def test_job_of_a_transaction_rolled_back_never_existed(caller: Caller, store: Store, url: str) -> None:
    job, later, unique = a_job(), a_job(delay_us=60_000_000), a_unique_job()
    caller.begin()
    caller.execute("INSERT INTO notes VALUES ('mine')")
    for each in (job, later, unique):
        assert enqueue(caller, store, each).created
    caller.rollback()
    assert [store.get(each.id) for each in (job, later, unique)] == [None, None, None]
    assert store.counts() == Counts()
    assert notes(url) == []
    assert store.enqueue(unique).created  # nobody holds its key


def test_first_statement_of_a_transaction_may_be_an_enqueue(caller: Caller, store: Store) -> None:
    first, second = a_job(), a_job()
    caller.begin()
    enqueue(caller, store, first)
    caller.rollback()
    caller.begin()
    enqueue(caller, store, second)
    caller.commit()
    assert (store.get(first.id), store.get(second.id) is None) == (None, False)


@pytest.mark.parametrize("delay_us", [0, 60_000_000])
def test_a_thousand_jobs_at_once(caller: Caller, store: Store, delay_us: int) -> None:
    model = a_job(delay_us=delay_us)
    rows = [(job_id, f'{{"n": {n}}}', None) for n, job_id in enumerate(uuid7_many(1_000))]

    def many() -> Op[ops_enqueue.Many]:
        return ops_enqueue.enqueue_many(store.dialect, model, rows, copy=False)

    caller.begin()
    caller.run(many, store.database)
    caller.rollback()
    assert store.counts() == Counts()
    caller.begin()
    assert [answer.id for answer in caller.run(many, store.database).answers] == [row[0] for row in rows]
    caller.commit()
    counts = store.counts()
    assert [each[3] for each in (counts.scheduled if delay_us else counts.waiting)] == [1_000]


@pytest.mark.parametrize("bad", [that_breaks_a_rule, that_raises])
def test_error_leaves_the_transaction_usable(
    caller: Caller, store: Store, url: str, bad: Callable[[Store, NewJob], Op[None]]
) -> None:
    before, failed, after = a_job(), a_job(), a_job()
    caller.begin()
    caller.execute("INSERT INTO notes VALUES ('before')")
    enqueue(caller, store, before)
    with pytest.raises(Exception, match=r"(?i)check"):
        caller.run(lambda: bad(store, failed), store.database)
    caller.execute("INSERT INTO notes VALUES ('after')")
    enqueue(caller, store, after)
    caller.commit()
    assert notes(url) == ["after", "before"]
    assert [store.get(job.id) is not None for job in (before, failed, after)] == [True, False, True]


@pytest.mark.parametrize("bad", [that_breaks_a_rule, that_raises])
def test_error_in_the_first_statement_of_a_transaction(
    caller: Caller, store: Store, url: str, bad: Callable[[Store, NewJob], Op[None]]
) -> None:
    failed = a_job()
    caller.begin()
    with pytest.raises(Exception, match=r"(?i)check"):
        caller.run(lambda: bad(store, failed), store.database)
    caller.execute("INSERT INTO notes VALUES ('after')")
    caller.commit()
    assert notes(url) == ["after"]
    assert store.counts() == Counts()


def test_savepoints_of_the_caller(caller: Caller, store: Store, url: str) -> None:
    outer, inner = a_job(), a_job()
    caller.begin()
    caller.execute("INSERT INTO notes VALUES ('outer')")
    enqueue(caller, store, outer)
    caller.execute("SAVEPOINT mine")
    enqueue(caller, store, inner)
    caller.execute("INSERT INTO notes VALUES ('inner')")
    caller.execute("ROLLBACK TO SAVEPOINT mine")
    caller.execute("RELEASE SAVEPOINT mine")
    caller.commit()
    assert notes(url) == ["outer"]
    assert [store.get(job.id) is not None for job in (outer, inner)] == [True, False]


@pytest.mark.callers("autocommit")
def test_autocommit_stores_the_job_at_once(caller: Caller, store: Store) -> None:
    job, failed = a_job(), a_job()
    enqueue(caller, store, job)
    assert state_of(store, job) is State.QUEUED
    with pytest.raises(Exception, match=r"(?i)check"):
        caller.run(lambda: that_breaks_a_rule(store, failed), store.database)
    assert store.get(failed.id) is None


@pytest.mark.callers("implicit")
def test_library_that_opens_transactions_by_itself_keeps_it_open(caller: Caller, store: Store) -> None:
    job = a_job()
    enqueue(caller, store, job)
    assert store.get(job.id) is None
    caller.commit()
    assert state_of(store, job) is State.QUEUED
