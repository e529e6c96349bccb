"""Whoever changes a job locks what there is of it in one order, so that no two wait for each other in a circle.

Every verb is stopped after each of its statements, and every other one begun there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from duly.domain.ids import uuid7
from duly.domain.records import NewJob, Settled
from duly.domain.states import State
from duly.store import ops_enqueue, ops_jobs, ops_settle, ops_upkeep
from duly.store.call import Dialect, Op
from duly.store.opening import open_database
from duly.store.store import Store
from duly.testing import TestClock
from tests.clock import us
from tests.databases import Kind
from tests.stepping import Beside, run_with
from tests.store.conftest import empty
from tests.store.factory import Factory
from tests.store.raw import Raw

PG = Dialect.POSTGRES
WAITS = (
    "SELECT 1 FROM pg_stat_activity"
    " WHERE datname = current_database() AND backend_type = 'client backend' AND wait_event_type = 'Lock'"
)
Verb = Callable[[str], Op[Any]]


@pytest.fixture
def raw(pg_kind: Kind, shared_postgres: Callable[[Kind], Raw]) -> Iterator[Raw]:
    """A database in which rows are locked."""
    raw = shared_postgres(pg_kind)
    yield raw
    empty(raw)


@pytest.fixture
def other(raw: Raw, clock: TestClock) -> Iterator[Store]:
    """A store with connections of its own."""
    other = Store(open_database(raw.url, clock))
    yield other
    other.close()


def enqueuing(mode: str) -> Verb:
    """Another wants the key that the job has."""

    def verb(job_id: str) -> Op[Any]:
        new = NewJob(id=uuid7(), task="send", args="{}", unique_key="k", unique_mode=mode, unique_scope="live")
        return ops_enqueue.enqueue(PG, new)

    return verb


def settling(job_id: str) -> Op[Any]:
    """Its first run, if it has had one, ends."""
    failed = Settled(job_id, 1, "scheduled", "failed", delay_us=us(1), ran_us=1)
    return ops_settle.settle_keyed(PG, failed, 1, shard=0)


VERBS: dict[str, Verb] = {
    "cancel": lambda job_id: ops_jobs.cancel(PG, job_id, "stop"),
    "retry": lambda job_id: ops_jobs.retry(PG, job_id),
    "end": lambda job_id: ops_jobs.end_by_hand(PG, job_id, State.FAILED, "stop"),
    "delete": lambda job_id: ops_jobs.delete(PG, job_id),
    "set priority": lambda job_id: ops_jobs.set_priority(job_id, 70),
    "reschedule": lambda job_id: ops_jobs.reschedule(PG, job_id, run_at=None, delay_us=us(5)),
    "replace": enqueuing("replace"),
    "debounce": enqueuing("debounce"),
    "keep latest": enqueuing("keep_latest"),
    "settle": settling,
    "prune": lambda job_id: ops_upkeep.prune_jobs(PG, State.CANCELLED, -1, 10),
}


def parked(make: Factory, **options: Any) -> str:
    job = make.running(**options)
    make.store.park(job.id, job.token, reason="arguments", detail="", mark="v1")
    return job.id


def cancelled(make: Factory, **options: Any) -> str:
    job_id = make.enqueue(**options)
    make.store.cancel(job_id, "stop")
    return job_id


PLACES: dict[str, Callable[..., str]] = {
    "waiting": lambda make, **options: make.enqueue(**options),
    "scheduled": lambda make, **options: make.enqueue(delay_us=us(5), **options),
    "parked": parked,
    "held back": lambda make, **options: make.enqueue(limit_key="send/k", **options),
    "running": lambda make, **options: make.running(**options).id,
    "cancelled": cancelled,
}


@pytest.mark.parametrize("second", VERBS)
@pytest.mark.parametrize("place", PLACES)
def test_no_two_verbs_wait_in_a_circle(
    make: Factory, store: Store, other: Store, raw: Raw, place: str, second: str
) -> None:
    for first in VERBS:
        for after in itertools.count(1):
            job_id = PLACES[place](make, unique_key="k", unique_scope="live")
            beside = Beside(
                lambda job_id=job_id: other.run(lambda: VERBS[second](job_id)),  # type: ignore[misc]
                moment=5.0,
                waits=lambda: raw.rows(WAITS),
            )
            _, began = run_with(store, lambda job_id=job_id, first=first: VERBS[first](job_id), after, beside)  # type: ignore[misc]
            assert beside.error is None, f"{first}, then {second} after its statement {after}"
            for table in ("scheduled", "waiting", "parked", "running", "ended", "runs", "unique_keys", "keys", "jobs"):
                raw.rows(f"DELETE FROM duly.{table}")
            if not began:
                break
