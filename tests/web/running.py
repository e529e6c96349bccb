"""A job that a worker holds, without a worker."""

from __future__ import annotations

from duly import Duly
from duly.domain.ids import uuid7
from duly.domain.records import Lane


def one_running(jobs: Duly, tenant: str = "") -> str:
    """Enqueue a job and claim it, as a worker would; it stays so for an hour."""
    job = jobs["add"].using(queue="held", tenant=tenant).enqueue(1)
    lanes = [Lane(tenant, "add")]
    [claimed] = jobs.store.claim("held", lanes, 1, worker_id=uuid7(), lease_us=3_600_000_000)
    assert claimed.id == job.id
    return job.id
