"""What operators do to many jobs at once, and what they see of the workers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from duly import Backoff, Duly, JobNotFound, State, Task
from duly.domain.ids import uuid7
from duly.worker.identity import this_process
from tests.helpers import eventually


@pytest.fixture
def work(jobs: Duly) -> Task[[int], int]:
    @jobs.task(retry=Backoff.none())
    def work(n: int) -> int:
        if n < 0:
            raise ValueError(f"{n} is too little")
        return n

    return work


def test_many_jobs_are_retried_and_refusals_have_a_reason(jobs: Duly, work: Task[[int], int]) -> None:
    failed = [job.id for job in work.enqueue_many([{"n": -n} for n in range(1, 251)])]
    jobs.tick(250)
    assert {job.state for job in jobs.list(limit=1_000)} == {State.FAILED}
    missing = uuid7()
    bulk = jobs.retry_many([*failed, missing])
    assert sorted(bulk.done) == sorted(failed)
    assert bulk.refused == [(missing, "it is gone")]
    assert {job.state for job in jobs.list(limit=1_000)} == {State.QUEUED}


def test_many_jobs_are_cancelled_those_that_run_are_asked(jobs: Duly, work: Task[[int], int]) -> None:
    @jobs.task
    def patient() -> None:
        from duly import current_job

        assert not current_job().wait_cancelled(20)

    done = work.enqueue(1)
    jobs.tick()
    later = work.using(delay=60).enqueue(1)
    with jobs.worker():
        running = patient.enqueue()
        eventually(lambda: running.refresh().state is State.RUNNING)
        bulk = jobs.cancel_many([done.id, later.id, running.id], "enough")
        assert sorted(bulk.done) == sorted([later.id, running.id])
        assert bulk.refused == [(done.id, "it has already ended")]
        eventually(lambda: running.refresh().state is State.CANCELLED)
    assert running.reason == later.refresh().reason == "enough"


def test_many_jobs_are_deleted(jobs: Duly, work: Task[[int], int]) -> None:
    ids = [job.id for job in work.enqueue_many([{"n": n} for n in range(150)])]
    assert sorted(jobs.delete_many(ids).done) == sorted(ids)
    assert jobs.list() == []
    assert jobs.delete_many([]).done == []


def test_what_is_no_id_is_refused_before_anything_is_done(jobs: Duly, work: Task[[int], int]) -> None:
    job = work.enqueue(1)
    with pytest.raises(JobNotFound):
        jobs.delete_many([job.id, "nonsense"])
    assert jobs.get(job.id).state is State.QUEUED


def test_a_worker_is_alive_while_it_is_heard_of_and_its_process_is_there(jobs: Duly, work: Task[[int], int]) -> None:
    gone = replace(this_process(), process_started_at="1")
    other_host = replace(this_process(), host="elsewhere", boot_id="another boot")
    on_record = {"lease_us": 15_000_000, "queues": '["default"]', "tasks": '["work"]', "slots": 1, "wake": None}
    assert jobs.live_workers() == []
    jobs.store.add_worker(uuid7(), gone, version="0", **on_record)  # type: ignore[arg-type]
    assert jobs.live_workers() == []
    there = uuid7()
    jobs.store.add_worker(there, other_host, version="0", **on_record)  # type: ignore[arg-type]
    assert [worker.id for worker in jobs.live_workers()] == [there]
    assert jobs.live_workers(task="work", queue="default")
    assert not jobs.live_workers(task="rest")
    assert not jobs.live_workers(queue="mail")


def test_tasks_that_no_live_worker_could_run_are_named(jobs: Duly, work: Task[[int], int]) -> None:
    work.enqueue(1)
    work.using(queue="mail", delay=60).enqueue(1)
    assert jobs.unknown_tasks() == [("default", "work"), ("mail", "work")]
    with jobs.worker():
        assert jobs.unknown_tasks() == [("mail", "work")]
