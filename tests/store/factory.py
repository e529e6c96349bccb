"""Arranges jobs for a test of the store in a word each, and does what a worker would with them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

from duly.domain.ids import uuid7, uuid7_many
from duly.domain.records import Claimed, Enqueued, JobRecord, Lane, NewJob, ProcessIdentity, Settled
from duly.store.store import Store
from duly.testing import TestClock
from tests.clock import us
from tests.store.raw import Raw

LEASE = timedelta(seconds=15)
WORKER = str(uuid4())
OTHER_WORKER = str(uuid4())


ME = ProcessIdentity(host="h", boot_id="b", pid_namespace="n", pid=os.getpid(), process_started_at="s")


def add_worker(store: Store, worker_id: str = WORKER, **options: Any) -> None:
    """Write a worker down."""
    how: dict[str, Any] = {
        "lease_us": us(LEASE),
        "queues": "default",
        "tasks": "send",
        "slots": 10,
        "wake": None,
        "version": "1",
    }
    store.add_worker(worker_id, ME, **(how | options))


class Factory:
    """A store, its clock and its tables, and short words for what most tests do with them."""

    def __init__(self, store: Store, clock: TestClock, raw: Raw) -> None:
        self.store = store
        self.clock = clock
        self.raw = raw

    # -- a producer -------------------------------------------------------------------------------------------

    def new(self, task: str = "send", args: str = "{}", **options: Any) -> NewJob:
        return NewJob(id=uuid7(), task=task, args=args, **options)

    def enqueue(self, task: str = "send", args: str = "{}", **options: Any) -> str:
        """Store a job; return its id."""
        return self.store.enqueue(self.new(task, args, **options)).id

    def unique(self, key: str = "k", *, mode: str = "skip", scope: str = "live", **options: Any) -> Enqueued:
        """Enqueue with a unique key; return the answer."""
        return self.store.enqueue(self.new(unique_key=key, unique_mode=mode, unique_scope=scope, **options))

    def many(self, n: int, task: str = "send", **options: Any) -> list[str]:
        ids = uuid7_many(n)
        self.store.enqueue_many(self.new(task, **options), [(job_id, "{}", None) for job_id in ids])
        return ids

    # -- a worker ---------------------------------------------------------------------------------------------

    def claim(
        self,
        n: int = 1,
        *,
        task: str = "send",
        tenant: str = "",
        queue: str = "default",
        lanes: Sequence[Lane] | None = None,
        worker: str = WORKER,
        lease: timedelta = LEASE,
        suspect: bool = False,
        limited: bool = False,
    ) -> list[Claimed]:
        lanes = [Lane(tenant, task)] if lanes is None else lanes
        gates = [("task", lanes[0].task)] if limited and lanes else []
        return self.store.claim(queue, lanes, n, worker_id=worker, lease_us=us(lease), suspect=suspect, gates=gates)

    def take(self, **options: Any) -> Claimed:
        """Claim exactly one job."""
        (job,) = self.claim(1, **options)
        return job

    def running(self, task: str = "send", **options: Any) -> Claimed:
        """A new job that a worker holds."""
        self.enqueue(task, **options)
        return self.take(task=task, tenant=options.get("tenant", ""), queue=options.get("queue", "default"))

    def settle(self, *settled: Settled, only_expired: bool = False) -> set[str]:
        return self.store.settle(settled, only_expired=only_expired)

    def finish(self, job: Claimed, state: str = "succeeded", **options: Any) -> bool:
        """Settle a run as a worker would, whether its job holds a key or not."""
        outcome = options.pop("outcome", "failed" if state in ("failed", "scheduled", "queued") else state)
        options.setdefault("ran_us", 1_000)
        return bool(self.store.settle_keyed(Settled(job.id, job.token, state, outcome, **options), job.hold))

    def retry_later(self, job: Claimed, delay: float = 60.0, **options: Any) -> bool:
        return self.finish(job, "scheduled", delay_us=us(delay), error_kind="Oops", error="oops", **options)

    def ended(self, state: str = "succeeded", **options: Any) -> str:
        """A job that ran and ended."""
        job = self.running(**options)
        assert self.finish(job, state)
        return job.id

    # -- an observer ------------------------------------------------------------------------------------------

    def get(self, job_id: str) -> JobRecord:
        job = self.store.get(job_id)
        assert job is not None, f"no job {job_id}"
        return job

    def state(self, job_id: str) -> str:
        return self.get(job_id).state.value


def succeeded(job: Claimed, **options: Any) -> Settled:
    return Settled(job.id, job.token, "succeeded", "succeeded", **{"ran_us": 1_000, **options})


def failed(job: Claimed, **options: Any) -> Settled:
    return Settled(job.id, job.token, "failed", "failed", **{"ran_us": 1_000, "error": "oops", **options})


def retried(job: Claimed, delay: float = 60.0, **options: Any) -> Settled:
    return Settled(job.id, job.token, "scheduled", "failed", **{"delay_us": us(delay), "ran_us": 1_000, **options})


def snoozed(job: Claimed, delay: float = 60.0, **options: Any) -> Settled:
    how = {"delay_us": us(delay), "uncounted": 1, "ran_us": 1_000, "crashes": 0}
    return Settled(job.id, job.token, "scheduled", "snoozed", **{**how, **options})


def released(job: Claimed, **options: Any) -> Settled:
    return Settled(job.id, job.token, "queued", "released", **{"uncounted": 1, "crashes": job.crashes, **options})


def crashed(job: Claimed, **options: Any) -> Settled:
    return Settled(job.id, job.token, "queued", "crashed", **{"crashes": job.crashes + 1, **options})


def cancelled(job: Claimed, **options: Any) -> Settled:
    return Settled(job.id, job.token, "cancelled", "cancelled", **{"ran_us": 1_000, "reason": "stop", **options})


SETTLES = {each.__name__: each for each in (succeeded, failed, retried, snoozed, released, crashed, cancelled)}
"""Every kind of end that a run may come to."""
