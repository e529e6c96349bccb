"""Every operation that a caller may run in a transaction works in every library."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from duly.domain.audit import Actor
from duly.domain.ids import uuid7, uuid7_many
from duly.domain.records import Enqueued, Lane
from duly.domain.states import State
from duly.store import ops_audit, ops_enqueue, ops_jobs
from duly.store.call import Call, Op
from duly.store.database import Hint
from duly.store.foreign import notifying
from duly.store.postgres import PostgresDatabase
from duly.store.postgres_wake import channel_of, hint_of
from duly.store.store import Store
from tests.foreign.callers import Caller
from tests.foreign.jobs import a_job, a_unique_job, cancel, enqueue, state_of


def test_delayed_job_is_scheduled(caller: Caller, store: Store) -> None:
    later, at, past = a_job(delay_us=60_000_000), a_job(run_at=2**51), a_job(run_at=1_000_000)
    caller.begin()
    for job in (later, at, past):
        enqueue(caller, store, job)
    caller.commit()
    found = [store.get(job.id) for job in (later, at, past)]
    assert [each and each.state for each in found] == [State.SCHEDULED, State.SCHEDULED, State.QUEUED]
    assert found[1] is not None
    assert found[1].run_at == 2**51


def test_every_option_is_stored(caller: Caller, store: Store) -> None:
    job = a_job(
        queue="mail",
        tenant="acme",
        priority=70,
        max_attempts=9,
        retry='{"kind":"exponential"}',
        timeout_us=5_000_000,
        expires_us=10_000_000,
        enqueued_by="me",
        tags='["a%b"]',
        headers='{"x":1}',
    )
    caller.begin()
    enqueue(caller, store, job)
    caller.commit()
    found = store.get(job.id)
    assert found is not None
    for name in (
        "queue",
        "tenant",
        "priority",
        "max_attempts",
        "retry",
        "timeout_us",
        "enqueued_by",
        "tags",
        "headers",
    ):
        assert getattr(found, name) == getattr(job, name)
    assert found.expires_at == found.created_at + 10_000_000


def test_unique_key_names_the_job_that_holds_it(caller: Caller, store: Store) -> None:
    first = a_unique_job()
    caller.begin()
    assert enqueue(caller, store, first) == Enqueued(first.id, created=True)
    assert enqueue(caller, store, first) == Enqueued(first.id, created=True)  # the same again, as after a lost reply
    assert enqueue(caller, store, a_unique_job()) == Enqueued(first.id, created=False)
    caller.commit()
    assert store.enqueue(a_unique_job()) == Enqueued(first.id, created=False)


@pytest.mark.parametrize("mode", ["replace", "debounce", "keep_latest"])
def test_newest_arguments_win(caller: Caller, store: Store, mode: str) -> None:
    first = a_unique_job(mode)
    caller.begin()
    enqueue(caller, store, first)
    again = enqueue(caller, store, a_unique_job(mode, args='{"text":"newest"}', delay_us=60_000_000))
    caller.commit()
    found = store.get(first.id)
    assert again == Enqueued(first.id, created=False)
    assert found is not None
    assert found.args == '{"text":"newest"}'
    assert found.state is (State.SCHEDULED if mode == "debounce" else State.QUEUED)


def test_job_that_follows_a_running_one_is_parked_behind_it(caller: Caller, store: Store) -> None:
    first, second = a_unique_job("keep_latest"), a_unique_job("keep_latest")
    store.enqueue(first)
    store.claim("default", [Lane("", "send")], 1, worker_id=uuid7(), lease_us=15_000_000)
    caller.begin()
    assert enqueue(caller, store, second) == Enqueued(second.id, created=True)
    assert enqueue(caller, store, a_unique_job("keep_latest")) == Enqueued(second.id, created=False)
    caller.commit()
    found = store.get(second.id)
    assert found is not None
    assert found.reason == "parked: unique"


def test_many_unique_jobs_at_once(caller: Caller, store: Store) -> None:
    held = a_unique_job()
    ids = uuid7_many(4)
    rows = [(job_id, "{}", key) for job_id, key in zip(ids, ["a", "k", "a", "b"], strict=True)]
    caller.begin()
    enqueue(caller, store, held)
    many = caller.run(lambda: ops_enqueue.enqueue_many(store.dialect, a_unique_job(), rows, copy=False), store.database)
    caller.commit()
    assert [each.id for each in many.answers] == [ids[0], held.id, ids[0], ids[3]]
    assert [each.created for each in many.answers] == [True, False, False, True]


def test_cancel_comes_and_goes_with_the_transaction(caller: Caller, store: Store) -> None:
    job = a_unique_job()
    store.enqueue(job)
    caller.begin()
    assert cancel(caller, store, job.id) == ("cancelled", None)
    caller.rollback()
    assert state_of(store, job) is State.QUEUED
    caller.begin()
    cancel(caller, store, job.id)
    assert state_of(store, job) is State.QUEUED
    caller.commit()
    assert state_of(store, job) is State.CANCELLED
    assert store.enqueue(a_unique_job()).created  # it gave its key back


def test_cancel_asks_the_worker_of_a_running_job(caller: Caller, store: Store) -> None:
    job, worker_id = a_job(), uuid7()
    store.enqueue(job)
    store.claim("default", [Lane("", "send")], 1, worker_id=worker_id, lease_us=15_000_000)
    caller.begin()
    assert cancel(caller, store, job.id) == ("asked", worker_id)
    assert cancel(caller, store, uuid7()) == ("unknown", None)
    caller.commit()
    assert [each[0] for each in store.cancel_requests(worker_id)] == [job.id]


def test_retry_in_the_callers_transaction(caller: Caller, store: Store) -> None:
    job = a_unique_job()
    store.enqueue(job)
    store.cancel(job.id, "by mistake")
    caller.begin()
    assert caller.run(lambda: ops_jobs.retry(store.dialect, job.id), store.database) == ("queued", None)
    caller.commit()
    assert state_of(store, job) is State.QUEUED


def test_retry_names_the_holder_of_the_key(caller: Caller, store: Store) -> None:
    job, newer = a_unique_job(), a_unique_job()
    store.enqueue(job)
    store.cancel(job.id, "by mistake")
    store.enqueue(newer)
    caller.begin()
    assert caller.run(lambda: ops_jobs.retry(store.dialect, job.id), store.database) == ("held", newer.id)
    caller.commit()


def test_record_read_in_the_transaction_has_ids_as_text(caller: Caller, store: Store) -> None:
    job, worker_id = a_job(), uuid7()
    store.enqueue(job)
    store.claim("default", [Lane("", "send")], 1, worker_id=worker_id, lease_us=15_000_000)
    caller.begin()
    found = caller.run(lambda: ops_jobs.get(job.id), store.database)
    caller.commit()
    assert found == store.get(job.id)
    assert found is not None
    assert (found.id, found.worker_id) == (job.id, worker_id)


class StoppedClock:
    """Stands still."""

    manual = True

    def now_us(self) -> int:
        return 1_234_567_890_000_000

    def lease_us(self) -> int:
        return 77


def test_clock_that_is_moved_by_hand_counts(caller: Caller, store: Store, url: str) -> None:
    stopped = Store.open(url, clock=StoppedClock())
    job, later, unique = a_job(), a_job(delay_us=5), a_unique_job()
    ids = uuid7_many(2)
    rows = [(each, "{}", None) for each in ids]
    caller.begin()
    for each in (job, later, unique):
        enqueue(caller, stopped, each)
    caller.run(lambda: ops_enqueue.enqueue_many(store.dialect, a_job(), rows, copy=False), stopped.database)
    cancel(caller, stopped, unique.id)
    caller.commit()
    stopped.close()
    found = [store.get(each) for each in (job.id, later.id, unique.id, *ids)]
    assert [each and each.created_at for each in found] == [1_234_567_890_000_000] * 5
    assert found[1] is not None
    assert found[1].run_at == 1_234_567_890_000_005


@pytest.mark.callers("postgres")
def test_workers_are_notified_once_when_the_transaction_commits(caller: Caller, store: Store, url: str) -> None:
    hint = Hint("jobs", "default", "", "send")

    def op() -> Op[Enqueued]:
        return notifying(ops_enqueue.enqueue(store.dialect, a_job()), hint, database=store.database)

    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute(f"LISTEN {channel_of('duly')}")
        caller.begin()
        caller.run(op, store.database)
        caller.rollback()
        caller.begin()
        caller.run(op, store.database)
        caller.run(op, store.database)
        assert list(listener.notifies(timeout=0.02)) == []
        caller.commit()
        heard = list(listener.notifies(timeout=0.5, stop_after=1)) + list(listener.notifies(timeout=0.02))
    assert [hint_of(note.payload) for note in heard] == [hint]


def test_nobody_is_notified_where_nobody_listens(sqlite_url: str) -> None:
    quiet = PostgresDatabase("postgresql:///", StoppedClock(), notify=False)
    calls = notifying(ops_enqueue.enqueue(quiet.dialect, a_job()), Hint("look"), database=quiet)
    assert [call.name for call in calls if isinstance(call, Call)] == ["enqueue_due"]
    store = Store.open(sqlite_url)
    calls = notifying(ops_enqueue.enqueue(store.dialect, a_job()), Hint("look"), database=store.database)
    assert [call.name for call in calls if isinstance(call, Call)] == ["insert_job"]
    store.close()


def test_what_an_operator_did_is_kept_with_the_transaction(caller: Caller, store: Store) -> None:
    first, second = a_job(), a_job()
    for job in (first, second):
        store.enqueue(job)
    ada = Actor("ada", "api", True)
    caller.begin()
    caller.run(lambda: ops_jobs.cancel(store.dialect, first.id, "no more", actor=ada), store.database)
    caller.rollback()
    assert store.audit() == []
    caller.begin()
    caller.run(lambda: ops_jobs.cancel(store.dialect, second.id, "no more", actor=ada), store.database)
    caller.run(lambda: ops_audit.set_horizon("mail", 5, actor=ada), store.database)
    caller.commit()
    aging, cancelled = store.audit()
    assert (cancelled.who, cancelled.via, cancelled.action, cancelled.job_id) == ("ada", "api", "cancel", second.id)
    assert (aging.subject, aging.job_id, aging.before) == ("mail", None, '{"horizon_us": null}')
    assert len(caller.run(lambda: ops_audit.find(**_all(second.id)), store.database)) == 1


def _all(job_id: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("who", "action", "tenant", "since_at", "until_at", "before_id"))
    return {**nothing, "job_id": job_id, "n": 10}
