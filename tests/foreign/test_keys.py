"""Jobs with keys in a caller's transaction, in every library: they stand aside until a worker lets them in."""

from __future__ import annotations

import pytest

from duly.domain.ids import uuid7_many
from duly.domain.limits import Says
from duly.domain.records import Lane
from duly.store import ops_enqueue, ops_jobs
from duly.store.store import Store
from tests.foreign.callers import Caller
from tests.foreign.jobs import a_job, cancel, enqueue

pytestmark = pytest.mark.requirement("D6")


def let_in(store: Store, n: int) -> int:
    """Let in what there is room for; return how many can be claimed."""
    store.gates.declare([(("keys", "send"), Says(slots=n))])
    while store.gates.admit():
        pass
    lanes = [Lane("", "send")]
    return len(store.claim("default", lanes, 10, worker_id=uuid7_many(1)[0], lease_us=60_000_000))


def test_one_with_a_key_comes_with_the_commit(caller: Caller, store: Store) -> None:
    caller.begin()
    for _ in range(3):
        enqueue(caller, store, a_job(task="send", limit_key="send/a % b'c"))
    caller.commit()
    assert let_in(store, 1) == 1


def test_many_with_keys_come_with_the_commit(caller: Caller, store: Store) -> None:
    model = a_job(task="send")
    rows = [(job_id, "{}", None, f"send/{n % 2}") for n, job_id in enumerate(uuid7_many(6))]
    caller.begin()
    caller.run(lambda: ops_enqueue.enqueue_many(store.dialect, model, rows, copy=False), store.database)
    caller.commit()
    assert let_in(store, 2) == 4


def test_a_cancel_makes_room_for_the_next_with_its_commit(caller: Caller, store: Store) -> None:
    first, second = a_job(task="send", limit_key="send/a"), a_job(task="send", limit_key="send/a")
    for job in (first, second):
        store.enqueue(job)
    store.gates.declare([(("keys", "send"), Says(slots=1))])
    store.gates.admit()
    caller.begin()
    assert cancel(caller, store, first.id)
    caller.commit()
    assert let_in(store, 1) == 1


def test_another_priority_of_a_job_that_waits_for_its_key(caller: Caller, store: Store) -> None:
    first, second = a_job(task="send", limit_key="send/a"), a_job(task="send", limit_key="send/a")
    for job in (first, second):
        store.enqueue(job)
    store.gates.declare([(("keys", "send"), Says(slots=1))])
    store.gates.admit()
    caller.begin()
    assert caller.run(lambda: ops_jobs.set_priority(second.id, 90), store.database)
    caller.commit()
    while store.gates.admit():
        pass
    lanes = [Lane("", "send")]
    [claimed] = store.claim("default", lanes, 10, worker_id=uuid7_many(1)[0], lease_us=60_000_000)
    assert claimed.id == second.id
