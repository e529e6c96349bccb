"""Alerts (C13): each rule starts one and ends it, by a worker that runs, on every database."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest

from duly import Duly
from duly.store import ops_observe
from duly.store.call import Call, Dialect, Op
from duly.store.statements import load
from tests.alerts.watching import Told, active, cleared, raised, watching
from tests.helpers import Ledger, eventually, never, opened, worker_process
from tests.worker.tasks import declare


@pytest.mark.requirement("C13")
@pytest.mark.everywhere
def test_depth(jobs: Duly) -> None:
    told = Told(jobs)

    @jobs.task(queue="mail")
    def send() -> None: ...

    @jobs.task(queue="bulk")
    def sweep() -> None: ...

    with watching(jobs, ["default"], depth=5, queues={"bulk": {"depth": 100}}):
        for _ in range(6):
            send.enqueue()
            sweep.enqueue()
        found = raised(jobs, "depth queue mail")
        assert (found.value, found.threshold, found.queue) == (6, 5, "mail")
        assert found.message == "6 jobs wait in queue mail"
        with jobs.worker(["mail", "bulk"]):
            ended = cleared(jobs)
        eventually(lambda: told.words == ["started depth queue mail", "ended depth queue mail"])
    assert ended.id == found.id
    assert ended.ended_at is not None


@pytest.mark.requirement("C13")
def test_depth_of_one_task(jobs: Duly) -> None:
    @jobs.task(queue="mail")
    def send() -> None: ...

    with watching(jobs, ["default"], tasks={"send": {"depth": 2}}):
        for _ in range(3):
            send.enqueue()
        raised(jobs, "depth task send")
        with jobs.worker(["mail"]):
            cleared(jobs)


@pytest.mark.requirement("C13")
@pytest.mark.everywhere
def test_failed_rate(jobs: Duly) -> None:
    @jobs.task
    def work(fail: bool) -> None:
        if fail:
            raise ValueError

    jobs.alerts.configure(failed_runs=10)
    with watching(jobs, failed_rate=0.10):
        work.using(max_attempts=1).enqueue_many([{"fail": True}] * 3)
        never(lambda: active(jobs), 0.5)  # three runs say nothing
        work.using(max_attempts=1).enqueue_many([{"fail": True}] * 7)
        found = raised(jobs, "failed_rate task work in default")
        assert found.value == pytest.approx(1.0)
        assert found.details["failed"] == 10
        work.enqueue_many([{"fail": False}] * 150)
        cleared(jobs)


@pytest.mark.requirement("C13")
@pytest.mark.everywhere
def test_running_for_too_long(jobs: Duly) -> None:
    go_on = threading.Event()

    @jobs.task
    def hold() -> None:
        go_on.wait(20)

    with watching(jobs, running=0.3):
        job = hold.enqueue()
        found = raised(jobs, "running task hold")
        assert found.details["jobs"] == [job.id]
        assert found.value > 0.3
        go_on.set()
        cleared(jobs)


@pytest.mark.requirement("C13")
@pytest.mark.everywhere
def test_a_schedule_that_misses_its_window(jobs: Duly) -> None:
    @jobs.task(queue="later")
    def fetch() -> None: ...

    with watching(jobs, ["default"], schedule_late=0.3):
        fetch.recur(key="feed", every="1h")
        found = raised(jobs, "schedule_late task fetch")
        assert found.value > 0.3
        with jobs.worker(["later"]):
            cleared(jobs)


@pytest.mark.requirement("C13")
def test_a_schedule_that_nobody_puts_into_its_lane_is_late_too(jobs: Duly) -> None:
    @jobs.task
    def fetch() -> None: ...

    fetch.recur(key="feed", every="1h")
    jobs.alerts.configure(schedule_late=1)
    eventually(lambda: any(each.rule == "schedule_late" for each in jobs.alerts.check()), within=10, every=0.2)


@pytest.mark.requirement("C13")
def test_no_worker_for_a_task_with_waiting_jobs(jobs: Duly, database_url: str) -> None:
    with opened(database_url) as other:

        @other.task
        def unknown() -> None: ...

        with watching(jobs, no_worker=0.2):
            unknown.enqueue()
            found = raised(jobs, "no_worker task unknown in default")
            assert found.details == {"jobs": 1}
            with other.worker():
                cleared(jobs)


@pytest.mark.requirement("C13")
def test_oldest_waiting_older_than_the_target_of_its_queue(jobs: Duly) -> None:
    @jobs.task(queue="mail")
    def send() -> None: ...

    @jobs.task(queue="bulk")
    def sweep() -> None: ...

    with watching(jobs, ["default"], queues={"mail": {"oldest_waiting": 0.3}}):
        sweep.enqueue()
        send.enqueue()
        raised(jobs, "oldest_waiting queue mail")
        with jobs.worker(["mail"]):
            cleared(jobs)


def test_what_is_paused_waits_on_purpose(jobs: Duly) -> None:
    @jobs.task(queue="mail")
    def send() -> None: ...

    with watching(jobs, ["default"], oldest_waiting=0.2, no_worker=0.2):
        jobs.pause(queue="mail")
        send.enqueue()
        never(lambda: active(jobs), 0.8)
        jobs.resume(queue="mail")
        eventually(lambda: set(active(jobs)) == {"oldest_waiting queue mail", "no_worker task send in mail"})


@pytest.mark.requirement("C13")
def test_poison_jobs(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger) as doomed:
        job = tasks.die.enqueue("x")
        eventually(lambda: doomed.process.poll() is not None)
    jobs.alerts.configure(poison="1h")
    with opened(database_url, crash_limit=1) as careful:
        declare(careful, ledger)
        with watching(careful, poison="1h"):
            found = raised(careful, "poison task die")
            assert found.details == {"jobs": 1, "job": job.id}
            assert (job.refresh().record.reason or "").startswith("poison")
            careful.delete(job.id)
            cleared(careful)


@pytest.mark.requirement("C13")
def test_a_recurring_job_that_is_poison_counts_too(database_url: str, ledger: Ledger) -> None:
    with opened(database_url, crash_limit=1) as jobs:
        tasks = declare(jobs, ledger)
        with worker_process(database_url, ledger) as doomed:
            tasks.die.recur(key="x", every="1h", args={"name": "x"})
            eventually(lambda: doomed.process.poll() is not None)
        with watching(jobs, poison="1h"):
            raised(jobs, "poison task die")


@pytest.mark.requirement("C13")
def test_disk_and_log_of_sqlite(lite: Duly) -> None:
    @lite.task
    def work() -> None: ...

    work.enqueue()
    lite.alerts.configure(disk_free=2**62, wal_size=1)
    found = {each.rule: each for each in lite.alerts.check()}
    assert set(found) == {"disk_free", "wal_size"}
    log = Path(str(lite.store.database.path) + "-wal")  # type: ignore[attr-defined]
    assert 0 < found["wal_size"].value <= log.stat().st_size  # to write it down has made the log longer
    lite.alerts.configure(disk_free=1, wal_size=2**40, clear_after=0)
    assert lite.alerts.check() == []


@pytest.mark.requirement("C13")
def test_log_that_postgresql_keeps_for_a_replica(pg_url: str) -> None:
    with opened(pg_url) as jobs, psycopg.connect(pg_url, autocommit=True) as admin:

        @jobs.task
        def work() -> None: ...

        jobs.alerts.configure(wal_size=10_000, clear_after=0)
        assert jobs.alerts.check() == []
        admin.execute("SELECT pg_create_physical_replication_slot('duly_test', true)")
        try:
            work.enqueue_many([{}] * 2_000)
            assert [each.rule for each in jobs.alerts.check() if each.rule != "depth"] == ["wal_size"]
        finally:
            admin.execute("SELECT pg_drop_replication_slot('duly_test')")
        assert [each.rule for each in jobs.alerts.check() if each.rule != "depth"] == []


def test_the_size_of_the_database(jobs: Duly) -> None:
    jobs.counts()
    jobs.alerts.configure(database_size=1, clear_after=0)
    assert [each.rule for each in jobs.alerts.check()] == ["database_size"]
    jobs.alerts.configure(database_size="1TiB")
    assert jobs.alerts.check() == []


def test_a_rule_that_is_off_says_nothing(jobs: Duly) -> None:
    @jobs.task
    def work() -> None: ...

    work.enqueue_many([{}] * 1_001)
    jobs.alerts.configure(depth=False, no_worker=False)
    assert jobs.alerts.check() == []
    jobs.alerts.configure(depth=1_000)
    assert [each.rule for each in jobs.alerts.check()] == ["depth"]


def test_a_user_who_may_not_see_the_size_of_the_database_still_has_the_other_rules(pg_url: str) -> None:
    with opened(pg_url) as jobs:

        @jobs.task
        def work() -> None: ...

        def refused() -> Op[tuple[int, int] | None]:
            yield Call("refused", {})
            return None

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ops_observe, "postgres_size", refused)
            patch.setitem(load(Dialect.POSTGRES), "refused", "SELECT * FROM pg_no_such_view")
            work.enqueue_many([{}] * 3)
            jobs.alerts.configure(depth=2)
            assert [each.rule for each in jobs.alerts.check()] == ["depth"]
