"""Retention: finished jobs are forgotten in the background when their time is over; nothing else is."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from duly import Backoff, Duly, State, Unique
from tests.helpers import eventually, opened


@pytest.mark.requirement("C11", "E8")
@pytest.mark.everywhere
def test_a_worker_forgets_finished_jobs_in_the_background(database_url: str) -> None:
    with opened(
        database_url, retention_succeeded=0.3, retention_failed="30d", retention_cancelled=0, maintenance_interval=0.1
    ) as jobs:

        @jobs.task(retry=Backoff.none())
        def work(n: int) -> float:
            return 1 / n

        with jobs.worker():
            good, bad = work.enqueue(1), work.enqueue(0)
            gone = work.using(delay=60).enqueue(2)
            gone.cancel()
            waiting = work.using(delay=60).enqueue(3)
            assert good.wait(5) == 1.0
            eventually(lambda: {job.id for job in jobs.list()} == {bad.id, waiting.id})
        assert [run.job_id for run in jobs.runs()] == [bad.id]
        assert jobs.get(bad.id).state is State.FAILED
        assert jobs.get(bad.id).last_error is not None


@pytest.mark.requirement("C11")
def test_without_being_told_otherwise_a_week_is_kept(jobs: Duly) -> None:
    @jobs.task
    def work() -> None: ...

    with jobs.worker(maintenance_interval=0.05):
        job = work.enqueue()
        job.wait(5)
        time.sleep(0.3)
    assert jobs.get(job.id).state is State.SUCCEEDED
    kept = jobs.retention
    assert (kept.succeeded and kept.succeeded.days, kept.failed and kept.failed.days) == (7, 30)


@pytest.mark.requirement("C11")
def test_many_jobs_are_forgotten_in_steps(database_url: str) -> None:
    with opened(database_url, retention_succeeded=0, maintenance_interval=0.1) as jobs:

        @jobs.task
        async def work() -> None: ...

        work.enqueue_many([{}] * 3_500)
        with jobs.worker():
            eventually(lambda: jobs.counts().waiting == [] and jobs.counts().ended == {}, within=30)
        assert jobs.list(limit=10) == []
        assert jobs.runs() == []


def test_the_key_of_a_pruned_job_can_be_used_again(database_url: str) -> None:
    with opened(database_url, retention_succeeded=0) as jobs:

        @jobs.task
        def work() -> int:
            return 1

        task = work.using(unique=Unique(key="k", scope="window", window=timedelta(seconds=0.3)))
        with jobs.worker():
            first = task.enqueue()
            first.wait(5)
            jobs.prune()
            again = eventually(lambda: found if (found := task.enqueue()).created else None)
            assert again is not None
            assert again.id != first.id
            assert again.wait(5) == 1


@pytest.mark.requirement("C11")
def test_settings_come_from_keywords_environment_and_file(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DULY_RETENTION_FAILED", "2d")
    monkeypatch.setenv("DULY_MAINTENANCE_INTERVAL", "7s")
    monkeypatch.setenv("DULY_STUCK_AFTER", "5m")
    with opened(database_url, retention_succeeded="1h") as jobs:
        settings = jobs.worker_settings()
        assert settings.retention.succeeded is not None
        assert settings.retention.failed is not None
        assert settings.retention.succeeded.total_seconds() == 3600
        assert settings.retention.failed.days == 2
        assert settings.maintenance_interval == 7
        assert settings.lease == 300, "a job may be silent for so long before it is taken for stuck"
        assert settings.renew_every == 5
