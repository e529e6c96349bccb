"""A worker that lost a job and claimed it again may end both runs at once: what counts is what the database took."""

from __future__ import annotations

import time
from typing import Any

import pytest

from duly import Duly
from duly.domain.records import Claimed, Lane, Settled
from duly.worker.context import Run, lease_time
from duly.worker.executor import Concluded
from duly.worker.finisher import Finisher
from tests.store.factory import WORKER


def claim(jobs: Duly, task: str) -> Claimed:
    how: Any = {"worker_id": WORKER, "lease_us": 15_000_000}
    (job,) = jobs.store.claim("default", [Lane("", task)], 1, **how)
    return job


@pytest.mark.parametrize("lost", [False, True], ids=["not known", "known"])
@pytest.mark.parametrize("older_first", [True, False], ids=["older first", "newer first"])
def test_of_two_runs_of_a_job_that_end_together_only_the_one_that_holds_it_counts(
    jobs: Duly, older_first: bool, lost: bool
) -> None:
    @jobs.task
    def work() -> None: ...

    work.enqueue()
    held: dict[str, Run] = {}
    over: list[tuple[str, str]] = []
    told: list[Concluded] = []
    finisher = Finisher(
        jobs.store, held, lambda counts, spells: None, finished=over.extend, due_in=lambda seconds: None
    )
    finisher.report = told.extend

    def ended(job: Claimed, state: str) -> Concluded:
        run = held[job.id] = Run(job, work.definition, lease_time())
        return run, time.monotonic_ns(), Settled(job.id, job.token, state, state, ran_us=1_000)

    older = claim(jobs, work.name)
    stale = ended(older, "failed")
    stale[0].lost = lost
    assert jobs.store.give_back([(older.id, older.token)]) == 1
    newer = ended(claim(jobs, work.name), "succeeded")
    for each in (stale, newer) if older_first else (newer, stale):
        finisher.conclude(each)
    finisher.step()
    assert (finisher.settled, finisher.refused) == (1, 1)
    assert over == [(older.id, "succeeded")]
    assert told == [newer]
    assert held == {}
    assert jobs.get(older.id).state == "succeeded"
