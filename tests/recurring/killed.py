"""Kills a run without a process: claims it as a worker that is never heard of again, and rescues it."""

from __future__ import annotations

from uuid import uuid4

from duly import Duly
from duly.domain.records import Claimed, Lane
from duly.maintenance.rescue import rescue_lapsed
from duly.testing import TestClock

LEASE_US = 1_000_000


def claim(jobs: Duly, task: str, *, tenant: str = "", queue: str = "default") -> Claimed:
    """Claim the one due job of a task, suspect or not."""
    jobs.store.promote()
    for suspect in (False, True):
        found = jobs.store.claim(
            queue, [Lane(tenant, task)], 1, worker_id=str(uuid4()), lease_us=LEASE_US, suspect=suspect
        )
        if found:
            return found[0]
    raise AssertionError(f"no job of {task} is due")


def kill_a_run(jobs: Duly, clock: TestClock, task: str | None) -> int:
    """Have a run's worker vanish and its lease lapse, and rescue what has lapsed. Returns how many were rescued."""
    if task is not None:
        claim(jobs, task)
    clock.advance(2)
    jobs.store.now_us()
    return rescue_lapsed(jobs.store, lease_us=0, crash_limit=3)
