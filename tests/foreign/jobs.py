"""Jobs to try, and the operations that the tests run on a caller's connection."""

from __future__ import annotations

from duly.domain.ids import uuid7
from duly.domain.records import Enqueued, NewJob
from duly.domain.states import State
from duly.store import ops_enqueue, ops_jobs
from duly.store.call import Call, Op, Value
from duly.store.store import Store
from tests.foreign.callers import Caller


def a_job(**options: object) -> NewJob:
    return NewJob(id=uuid7(), task="send", args='{"text": "100 % ä"}')._replace(**options)  # type: ignore[arg-type]


def a_unique_job(mode: str = "skip", **options: object) -> NewJob:
    return a_job(unique_key="k", unique_mode=mode, unique_scope="live", **options)


def enqueue(caller: Caller, store: Store, job: NewJob) -> Enqueued:
    return caller.run(lambda: ops_enqueue.enqueue(store.dialect, job), store.database)


def cancel(caller: Caller, store: Store, job_id: str) -> tuple[str, str | None]:
    return caller.run(lambda: ops_jobs.cancel(store.dialect, job_id, "no more"), store.database)


def state_of(store: Store, job: NewJob) -> State | None:
    found = store.get(job.id)
    return None if found is None else found.state


def that_breaks_a_rule(store: Store, job: NewJob) -> Op[None]:
    """Write something good, then something that the database refuses."""
    yield from ops_enqueue.enqueue(store.dialect, job)
    end: dict[str, Value] = {"id": job.id, "state": "vanished", "token": 0, "attempt": 0, "crashes": 0}
    yield Call("insert_ended", end | {"hold": 0, "reason": None})


def that_raises(store: Store, job: NewJob) -> Op[None]:
    """Write something good, then fail in Python."""
    yield from ops_enqueue.enqueue(store.dialect, job)
    raise ZeroDivisionError("check your divisor")
