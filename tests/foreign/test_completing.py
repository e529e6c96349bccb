"""A run completed on a caller's connection comes and goes with the caller's transaction, in every library."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from duly.domain.errors import Conflict, DulyError, InvalidOption, JobCancelled, StaleRun
from duly.domain.ids import uuid7
from duly.domain.records import HOLD, Claimed, Lane, NewJob, Settled
from duly.domain.signature import Signature
from duly.domain.states import State
from duly.store.foreign import is_async
from duly.store.store import Store
from duly.worker.completing import Completing
from duly.worker.context import Run
from duly.worker.registry import Home, Kind, TaskDefinition
from tests.databases import Databases
from tests.foreign.callers import Asynchronous, Caller
from tests.foreign.conftest import Case, notes
from tests.foreign.jobs import a_job, a_unique_job, enqueue, state_of

WORKER = uuid7()


def a_run(store: Store, job: NewJob | None = None) -> Run:
    """A run that this process holds."""
    store.enqueue(job or a_job())
    (claimed,) = store.claim("default", [Lane("", "send")], 1, worker_id=WORKER, lease_us=60_000_000)
    return run_of(store, claimed)


def run_of(store: Store, claimed: Claimed) -> Run:
    def send(text: str) -> None: ...

    definition = TaskDefinition(
        name="send", fn=send, signature=Signature.of(send), kind=Kind.THREAD, home=lambda: Home(store, 1_000)
    )
    run = Run(claimed, definition, 0.0)
    run.start()
    return run


def complete(caller: Caller, run: Run, *statements: str, result: Any = None, error: Exception | None = None) -> None:
    """Complete a run in a block that writes something of the application's own."""
    if not isinstance(caller, Asynchronous):
        with run.completing(caller.connection) as completion:
            for sql in statements:
                caller.execute(sql)
            completion.result = result
            if error is not None:
                raise error
        return

    async def block() -> None:
        async with run.completing(caller.connection) as completion:
            for sql in statements:
                await _execute(caller, sql)
            completion.result = result
            if error is not None:
                raise error

    caller.wait(block())


async def _execute(caller: Asynchronous, sql: str) -> None:
    import sqlalchemy

    by_sqlalchemy = type(caller.connection).__module__.startswith("sqlalchemy")
    await caller.connection.execute(sqlalchemy.text(sql) if by_sqlalchemy else sql)


MINE = "INSERT INTO notes VALUES ('mine')"


def test_run_is_completed_with_the_commit_and_not_before(caller: Caller, store: Store, url: str) -> None:
    run = a_run(store)
    caller.begin()
    complete(caller, run, MINE, result={"sent": 1})
    assert state_of(store, NewJob(run.id, "send", "")) is State.RUNNING
    caller.commit()
    job = store.get(run.id)
    assert job is not None
    assert job.state is State.SUCCEEDED
    (recorded,) = store.runs_of(run.id)
    assert (recorded.outcome, recorded.result, recorded.token) == ("succeeded", '{"sent":1}', run.fence)
    assert notes(url) == ["mine"]
    assert store.completions.look([(run.id, run.fence)]).recorded == {run.id}


def test_a_transaction_rolled_back_has_completed_nothing(caller: Caller, store: Store, url: str) -> None:
    run = a_run(store)
    caller.begin()
    complete(caller, run, MINE)
    caller.rollback()
    assert notes(url) == []
    assert store.completions.look([(run.id, run.fence)]) == (set(), {run.id}, set())
    assert store.settle([Settled(run.id, run.fence, "failed", "failed")]) == {run.id}, "the run is as it was"


def test_a_block_that_raises_has_completed_nothing(caller: Caller, store: Store, url: str) -> None:
    run = a_run(store)
    caller.begin()
    with pytest.raises(ZeroDivisionError):
        complete(caller, run, MINE, error=ZeroDivisionError())
    assert run.completion is None
    caller.rollback()
    assert notes(url) == []
    assert store.completions.look([(run.id, run.fence)]).undone == {run.id}


@pytest.mark.callers("autocommit")
def test_where_nothing_is_open_the_block_is_a_transaction_of_its_own(caller: Caller, store: Store, url: str) -> None:
    run, failing = a_run(store), a_run(store)
    complete(caller, run, MINE)
    assert state_of(store, NewJob(run.id, "send", "")) is State.SUCCEEDED
    assert run.completion is not None
    assert run.completion.committed, "nobody needs to look"
    with pytest.raises(ZeroDivisionError):
        complete(caller, failing, "INSERT INTO notes VALUES ('not mine')", error=ZeroDivisionError())
    assert notes(url) == ["mine"]
    caller.begin()
    caller.execute("INSERT INTO notes VALUES ('still usable')")
    caller.commit()


def test_a_run_that_lost_its_job_is_told_at_the_start(caller: Caller, store: Store, url: str) -> None:
    run = a_run(store)
    store.settle([Settled(run.id, run.fence, "queued", "crashed", crashes=1)])
    caller.begin()
    with pytest.raises(StaleRun, match="no longer this run's"):
        complete(caller, run, MINE)
    caller.rollback()
    assert notes(url) == []


@pytest.mark.callers("postgres")
def test_a_run_that_loses_its_job_in_the_block_is_told_at_its_end(caller: Caller, store: Store, url: str) -> None:
    """Only PostgreSQL: on SQLite the block has the write lock, so nobody can take the job meanwhile."""
    run = a_run(store)
    caller.begin()
    stolen = run.job._replace(token=run.fence + 1)

    class Robbed(Run):
        def announce_completion(self) -> None:
            store.settle([Settled(run.id, run.fence, "queued", "crashed", crashes=1)])

    robbed = Robbed(run.job, run.definition, 0.0)
    robbed.start()
    with pytest.raises(StaleRun):
        complete(caller, robbed, MINE)
    assert robbed.completion is None
    caller.rollback()
    assert notes(url) == []
    (again,) = store.claim("default", [Lane("", "send")], 1, worker_id=WORKER, lease_us=60_000_000, suspect=False)
    assert again.token == stolen.token


def test_a_run_that_was_cancelled_meanwhile_cannot_be_completed(caller: Caller, store: Store, url: str) -> None:
    run = a_run(store)
    assert store.cancel(run.id, "changed my mind")[0] == "asked"
    caller.begin()
    with pytest.raises(JobCancelled, match="changed my mind"):
        complete(caller, run, MINE)
    caller.rollback()
    assert run.cancel_reason == "changed my mind", "so the worker ends it as cancelled, not as failed"
    assert notes(url) == []


def test_a_rolled_back_completion_may_be_tried_again_and_a_committed_one_not(caller: Caller, store: Store) -> None:
    run = a_run(store)
    caller.begin()
    complete(caller, run)
    caller.rollback()
    caller.begin()
    complete(caller, run, result=2)
    caller.commit()
    caller.begin()
    with pytest.raises(Conflict, match="completed before"):
        complete(caller, run)
    caller.rollback()
    assert [each.result for each in store.runs_of(run.id)] == ["2"]


def test_a_unique_key_is_free_again_with_the_commit(caller: Caller, store: Store) -> None:
    run = a_run(store, a_unique_job())
    assert not store.enqueue(a_unique_job()).created
    caller.begin()
    complete(caller, run)
    caller.commit()
    assert store.enqueue(a_unique_job()).created


def test_the_job_behind_a_unique_key_goes_on_with_the_commit(caller: Caller, store: Store) -> None:
    run = a_run(store, a_unique_job("keep_latest"))
    behind = store.enqueue(a_unique_job("keep_latest"))
    assert behind.created
    caller.begin()
    complete(caller, run)
    caller.commit()
    found = store.get(behind.id)
    assert found is not None
    assert found.state is State.QUEUED
    (claimed,) = store.claim("default", [Lane("", "send")], 1, worker_id=WORKER, lease_us=60_000_000)
    assert claimed.id == behind.id


def test_an_open_transaction_is_seen_as_open_and_keeps_nobody_waiting(caller: Caller, store: Store, case: Case) -> None:
    """While a handler holds its row, leases are renewed and the others' runs are settled and rescued."""
    if not case.kind.is_postgres:
        pytest.skip("SQLite has one writer at a time")
    run, other = a_run(store), a_run(store)
    caller.begin()
    complete(caller, run)
    assert store.completions.look([(run.id, run.fence)]) == (set(), set(), {run.id})
    both = [(run.id, run.fence), (other.id, other.fence)]
    assert store.renew(both, 60_000_000) == {run.id: None, other.id: False}
    assert store.settle([Settled(other.id, other.fence, "succeeded", "succeeded", ran_us=5)]) == {other.id}
    assert [each.id for each in store.lapsed(0, 10)] == []
    caller.commit()
    assert store.renew(both, 60_000_000) == {}


def test_a_connection_to_another_database_is_refused(
    caller: Caller, store: Store, case: Case, databases: Databases, url: str
) -> None:
    with databases.fresh(case.kind) as other, closing(Store.open(other)) as elsewhere:
        run = a_run(elsewhere)
        caller.begin()
        with pytest.raises(InvalidOption, match="connection="):
            complete(caller, run, MINE)
        caller.rollback()
        assert notes(url) == []
        assert state_of(elsewhere, NewJob(run.id, "send", "")) is State.RUNNING


def test_jobs_enqueued_in_the_block_come_with_it(caller: Caller, store: Store) -> None:
    run, following = a_run(store), a_job()
    caller.begin()
    enqueue(caller, store, following)
    complete(caller, run)
    caller.rollback()
    assert store.get(following.id) is None
    caller.begin()
    enqueue(caller, store, following)
    complete(caller, run)
    caller.commit()
    assert state_of(store, following) is State.QUEUED
    assert state_of(store, NewJob(run.id, "send", "")) is State.SUCCEEDED


def test_a_task_whose_database_is_unknown_says_so(caller: Caller, store: Store) -> None:
    run = a_run(store)
    homeless = Run(run.job, replace(run.definition, home=None), 0.0)
    with pytest.raises(DulyError, match="Declare the task at the top level"):
        homeless.completing(caller.connection)


def test_an_asynchronous_connection_wants_async_with(caller: Caller, store: Store) -> None:
    run = a_run(store)
    if is_async(caller.connection):
        with pytest.raises(InvalidOption, match="async with"), Completing(run, caller.connection):
            pass


def test_a_result_that_makes_no_sense_completes_nothing(caller: Caller, store: Store, url: str) -> None:
    """Whatever transaction the block has opened by itself is not left open."""
    run = a_run(store)
    recurring = Run(run.job._replace(hold=HOLD["recurs"]), run.definition, 0.0)
    recurring.start()
    caller.begin()
    with pytest.raises(InvalidOption, match="negative"):
        complete(caller, recurring, MINE, result=timedelta(seconds=-1))
    assert recurring.completion is None
    caller.rollback()
    assert notes(url) == []
    assert store.completions.look([(run.id, run.fence)]).undone == {run.id}
