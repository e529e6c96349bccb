"""Usage (B9): every run is counted exactly, by tenant, task and period, also after the runs themselves were pruned."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from duly import Backoff, Cancel, Duly, Snooze, State
from tests.helpers import Ledger, eventually, opened, worker_process
from tests.worker.tasks import declare

COLUMNS = ("runs", "succeeded", "failed", "retried", "cancelled", "crashed", "recovered", "ran_us", "waited_us")
HOUR_US = 3_600_000_000


def usage(jobs: Duly, tenant: str | None = None) -> dict[tuple[str, str, str], dict[str, int]]:
    """What was used around now, by (tenant, queue, task)."""
    now = jobs.store.now_us()
    rows = jobs.store.usage(now - HOUR_US, now + HOUR_US, tenant)
    return {
        (str(row[0]), str(row[1]), str(row[2])): dict(zip(COLUMNS, map(lambda v: int(str(v)), row[3:12]), strict=True))
        for row in rows
    }


@pytest.mark.requirement("B9")
@pytest.mark.everywhere
def test_every_run_is_counted_by_tenant_and_task_with_its_outcome_and_duration(jobs: Duly) -> None:
    tries: dict[str, int] = {}

    @jobs.task(retry=Backoff.fixed(0, max_attempts=3))
    def work(how: str) -> None:
        tries[how] = tries.get(how, 0) + 1
        time.sleep(0.03)
        if how == "fails" or (how == "recovers" and tries[how] < 3):
            raise ValueError
        if how == "cancels":
            raise Cancel("x")
        if how == "snoozes" and tries[how] < 3:
            raise Snooze(timedelta(0))

    @jobs.task(queue="other")
    async def quick() -> None: ...

    with jobs.worker():
        plan = {"works": "a", "fails": "a", "recovers": "a", "cancels": "b", "snoozes": "b"}
        stored = [work.using(tenant=tenant).enqueue(how) for how, tenant in plan.items()]
        stored += [quick.enqueue() for _ in range(7)]
        eventually(lambda: all(job.refresh().state.terminal for job in stored))
    found = usage(jobs)
    a, b, none = found["a", "default", "work"], found["b", "default", "work"], found["", "other", "quick"]
    assert {name: a[name] for name in COLUMNS[:7]} == {
        "runs": 7,
        "succeeded": 2,
        "failed": 5,
        "retried": 4,
        "cancelled": 0,
        "crashed": 0,
        "recovered": 1,
    }
    assert (b["runs"], b["succeeded"], b["cancelled"]) == (4, 1, 1), "a run that snoozed was a run, and took its time"
    assert (none["runs"], none["succeeded"]) == (7, 7)
    assert a["ran_us"] >= 7 * 30_000
    assert b["ran_us"] >= 4 * 30_000
    for tenant, task in (("a", "work"), ("b", "work"), ("", "quick")):
        runs = [run for job in stored if (job.tenant or "") == tenant and job.task == task for run in job.runs]
        total = sum((run.duration for run in runs), timedelta(0))
        queue = "other" if task == "quick" else "default"
        assert found[tenant, queue, task]["runs"] == len(runs)
        assert found[tenant, queue, task]["ran_us"] == total // timedelta(microseconds=1)


@pytest.mark.requirement("B9")
def test_what_was_used_is_still_known_after_the_jobs_are_pruned(database_url: str) -> None:
    with opened(database_url, retention_succeeded=0, retention_failed=0) as jobs:

        @jobs.task(retry=Backoff.fixed(0, max_attempts=2))
        def work(n: int) -> None:
            if n == 0:
                raise ValueError

        with jobs.worker():
            stored = work.using(tenant="acme").enqueue_many([{"n": n} for n in range(40)])
            eventually(lambda: all(job.refresh().state.terminal for job in stored), within=10)
        before = usage(jobs)
        assert jobs.prune() == 40
        assert jobs.list() == []
        assert jobs.runs() == []
        assert usage(jobs) == before
        counted = before["acme", "default", "work"]
        assert (counted["runs"], counted["succeeded"], counted["failed"]) == (41, 39, 2)
        assert usage(jobs, tenant="acme") == before
        assert usage(jobs, tenant="other") == {}


@pytest.mark.requirement("B9")
def test_many_workers_at_once_count_every_run_once(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger), worker_process(database_url, ledger), jobs.worker():
        for job in tasks.note.enqueue_many([{"name": str(n)} for n in range(600)]):
            job.wait(30)
    assert ledger.count() == 600
    assert usage(jobs)["", "default", "note"]["runs"] == 600


@pytest.mark.requirement("B9")
def test_a_run_lost_with_its_worker_is_counted_too(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger) as doomed:
        job = tasks.hold.enqueue("one", 0.3)
        eventually(lambda: ledger.count("start"))
        doomed.kill()
    with jobs.worker():
        job.wait(10)
    counted = usage(jobs)["", "default", "hold"]
    assert (counted["runs"], counted["crashed"], counted["succeeded"], counted["recovered"]) == (2, 1, 1, 1)


def test_a_run_that_never_began_is_not_counted(jobs: Duly) -> None:
    @jobs.task
    def work() -> None: ...

    work.enqueue().cancel()
    late = work.using(expires=0.01).enqueue()
    time.sleep(0.05)
    with jobs.worker():
        eventually(lambda: late.refresh().state is State.CANCELLED)
    assert all(row["ran_us"] < 1_000_000 for row in usage(jobs).values())


@pytest.mark.requirement("B9")
def test_the_waiting_time_is_counted_from_when_the_job_was_due(jobs: Duly) -> None:
    @jobs.task
    def work() -> None: ...

    job = work.enqueue()
    eventually(lambda: time.time() > job.created_at.timestamp() + 0.4)
    with jobs.worker():
        job.wait(5)
    waited = usage(jobs)["", "default", "work"]["waited_us"]
    assert 400_000 <= waited < 5_000_000
