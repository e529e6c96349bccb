"""Metrics (C12): every one of them has the value that was set up for it, on every database."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from duly import Backoff, Cancel, Duly, Snooze
from duly.domain.ids import uuid7
from duly.domain.records import Lane
from duly.metrics.collector import Collector, collector_of, render
from duly.testing import TestClock
from tests.helpers import Ledger, eventually, opened, worker_process
from tests.metrics.reading import Metrics
from tests.worker.tasks import declare

LANE = {"queue": "mail", "task": "send", "tenant": "acme"}


@pytest.mark.requirement("C12")
@pytest.mark.everywhere
def test_depth_running_scheduled_parked_and_ages_are_shown_by_queue_task_and_tenant(database_url: str) -> None:
    clock = TestClock()
    with opened(database_url, clock=clock) as jobs:

        @jobs.task(queue="mail")
        def send(n: int) -> None: ...

        collector = Collector(jobs.store)
        for n in range(5):
            send.using(tenant="acme").enqueue(n)
        send.enqueue(9)
        send.using(tenant="acme", delay=timedelta(hours=1)).enqueue(7)
        clock.advance(40)
        claimed = jobs.store.claim("mail", [Lane("acme", "send")], 2, worker_id=uuid7(), lease_us=60_000_000)
        jobs.store.park(claimed[0].id, claimed[0].token, reason="arguments", detail="", mark="x")
        clock.advance(20)
        found = Metrics.of(collector)
        assert found.get("duly_jobs_waiting", **LANE) == 3
        assert found.get("duly_jobs_waiting", queue="mail", task="send", tenant="") == 1
        assert found.get("duly_jobs_running", **LANE) == 1
        assert found.get("duly_jobs_scheduled", **LANE) == 1
        assert found.get("duly_jobs_parked", reason="arguments") == 1
        assert found.get("duly_oldest_waiting_seconds", **LANE) == pytest.approx(60)
        assert found.get("duly_longest_running_seconds", **LANE) == pytest.approx(20)


@pytest.mark.requirement("C12")
def test_what_waits_is_shown_by_priority(jobs: Duly) -> None:
    @jobs.task
    def work() -> None: ...

    for priority in (0, 0, 1, 24, 25, 49, 50, 74, 75, 99, 100):
        work.using(priority=priority).enqueue()
    found = Metrics.of(Collector(jobs.store))
    shown = {labels["priority"]: n for labels, n in found.all("duly_jobs_waiting_by_priority")}
    assert shown == {"0": 2, "1-24": 2, "25-49": 2, "50-74": 2, "75-99": 2, "100": 1}


@pytest.mark.requirement("C12")
@pytest.mark.everywhere
def test_runs_are_counted_by_outcome_with_failed_rate_and_success_after_retry(jobs: Duly) -> None:
    tries: dict[str, int] = {}

    @jobs.task(retry=Backoff.fixed(0, max_attempts=3))
    def work(how: str) -> None:
        tries[how] = tries.get(how, 0) + 1
        if how == "fails" or (how == "recovers" and tries[how] < 3):
            raise ValueError
        if how == "cancels":
            raise Cancel("x")
        if how == "snoozes" and tries[how] < 2:
            raise Snooze(timedelta(0))

    collector = Collector(jobs.store)
    collector.begin()
    with jobs.worker():
        stored = [work.using(tenant="a").enqueue(how) for how in ("works", "fails", "recovers", "cancels", "snoozes")]
        eventually(lambda: all(job.refresh().state.terminal for job in stored))
    found = Metrics.of(collector)
    lane = {"queue": "default", "task": "work", "tenant": "a"}
    outcomes = {labels["outcome"]: n for labels, n in found.all("duly_runs_total")}
    assert outcomes == {"succeeded": 3, "failed": 5, "cancelled": 1, "crashed": 0, "other": 1}
    assert found.get("duly_runs_retried_total", **lane) == 4
    assert found.get("duly_runs_recovered_total", **lane) == 1
    assert found.get("duly_failed_ratio", **lane) == pytest.approx(0.5)
    assert found.get("duly_recovered_ratio", **lane) == pytest.approx(1 / 3)


@pytest.mark.requirement("C12")
def test_waits_are_shown_as_average_p99_and_histogram(database_url: str) -> None:
    clock = TestClock()
    with opened(database_url, clock=clock) as jobs:

        @jobs.task
        def work() -> None: ...

        collector = Collector(jobs.store)
        collector.begin()
        for _ in range(9):
            work.enqueue()
        with jobs.worker() as worker:
            eventually(lambda: worker.settled == 9)
        work.enqueue()
        clock.advance(30)
        with jobs.worker() as worker:
            eventually(lambda: worker.settled == 1)
        found = Metrics.of(collector)
        lane = {"queue": "default", "task": "work", "tenant": ""}
        assert found.get("duly_wait_average_seconds", **lane) == pytest.approx(3, abs=0.1)
        assert found.get("duly_wait_p99_seconds", **lane) == pytest.approx(15 + 45 * 0.9, abs=0.1)
        assert found.get("duly_wait_seconds_count", **lane) == 10
        assert found.get("duly_wait_seconds_sum", **lane) == pytest.approx(30, abs=0.5)
        assert found.get("duly_wait_seconds_bucket", **lane, le="15.0") == 9
        assert found.get("duly_wait_seconds_bucket", **lane, le="60.0") == 10


def test_lateness_of_recurring_jobs_is_shown_while_they_are_late(database_url: str) -> None:
    clock = TestClock()
    with opened(database_url, clock=clock) as jobs:

        @jobs.task
        def fetch() -> None: ...

        fetch.recur(key="a", every="1h", start_at=clock.now() + timedelta(minutes=1))
        fetch.recur(key="b", every="1h", start_at=clock.now() + timedelta(minutes=2))
        collector = Collector(jobs.store)
        lane = {"queue": "default", "task": "fetch", "tenant": ""}
        assert Metrics.of(collector).get("duly_schedules_due", **lane) is None
        clock.advance(180)
        late = Metrics.of(collector)  # nobody has put them into their lane
        assert late.get("duly_schedules_due", **lane) == 2
        assert late.get("duly_schedule_lateness_seconds", **lane) == pytest.approx(120)
        jobs.store.promote()
        clock.advance(60)
        later = Metrics.of(collector)
        assert later.get("duly_schedules_due", **lane) == 2
        assert later.get("duly_schedule_lateness_seconds", **lane) == pytest.approx(180)


def test_a_worker_shows_slots_claims_ends_calls_and_how_late_recurring_jobs_started(jobs: Duly) -> None:
    @jobs.task
    def work() -> None: ...

    @jobs.task
    async def awork() -> None: ...

    @jobs.task
    def tick() -> None: ...

    with jobs.worker(thread_slots=7, async_slots=30) as worker:
        collector = Collector(jobs.store, figures=worker.figures)
        for _ in range(4):
            work.enqueue()
        awork.enqueue()
        tick.recur(key="one", every="1h")
        eventually(lambda: (worker.claimed, worker.settled) == (6, 6))  # a job may end before its claim is counted
        found = Metrics.of(collector)
        assert {labels["kind"]: n for labels, n in found.all("duly_worker_slots")} == {"thread": 7, "async": 30}
        assert found.get("duly_worker_claimed_total") == 6
        assert found.get("duly_worker_settled_total") == 6
        assert found.get("duly_worker_busy") == 0
        assert found.get("duly_worker_draining") == 0
        assert found.get("duly_workers") == 1
        assert found.get("duly_slots") == 37
        before = found.get("duly_worker_database_calls_total") or 0
        jobs.counts()
        assert (Metrics.of(collector).get("duly_worker_database_calls_total") or 0) >= before + 5


def test_a_worker_that_serves_metrics_notes_how_late_recurring_jobs_started(database_url: str) -> None:
    with opened(database_url, metrics_listen=0) as jobs:

        @jobs.task
        def tick() -> None: ...

        tick.recur(key="one", every="1h")
        time.sleep(0.6)  # nobody is there to start it in time
        with jobs.worker() as worker:
            eventually(lambda: worker.settled == 1)
            eventually(lambda: worker.figures().lateness[1])
            counts, together = worker.figures().lateness
        assert sum(counts) == 1
        assert counts[0] == 0
        assert 0.5 < together < 30


def test_rescues_and_stale_ends_are_counted(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger) as doomed:
        tasks.hold.enqueue("one", 0.4)
        eventually(lambda: ledger.count("start"))
        with jobs.worker() as worker:
            collector = Collector(jobs.store, figures=worker.figures)
            collector.begin()
            doomed.kill()
            eventually(lambda: ledger.count("end"))
            eventually(lambda: worker.settled == 1)
            found = Metrics.of(collector)
            assert found.get("duly_worker_rescued_total") == 1
            assert found.get("duly_runs_total", task="hold", outcome="crashed") == 1
            assert found.get("duly_worker_refused_total") == 0
            job = tasks.hold.enqueue("two", 0.3)
            eventually(lambda: ledger.count("start", "two"))
            [(job_id, token)] = jobs.store.held_by(worker.id)
            assert jobs.store.give_back([(job_id, token)]) == 1  # its lease is somebody else's from now on
            eventually(lambda: worker.figures().refused == 1)
            assert Metrics.of(collector).get("duly_worker_refused_total") == 1
            job.wait(5)


def test_counters_begin_at_nothing_and_never_fall(jobs: Duly) -> None:
    @jobs.task
    def work() -> None: ...

    with jobs.worker() as worker:
        work.enqueue()
        eventually(lambda: worker.settled == 1)
        collector = Collector(jobs.store)
        lane = {"queue": "default", "task": "work", "outcome": "succeeded"}
        assert Metrics.of(collector).get("duly_runs_total", **lane) == 0  # what was before does not count
        work.enqueue()
        eventually(lambda: worker.settled == 2)
        assert Metrics.of(collector).get("duly_runs_total", **lane) == 1
        jobs.store.prune_rest(0)
        assert (Metrics.of(collector).get("duly_runs_total", **lane) or 0) >= 1


def test_counters_go_on_when_minutes_leave_the_window(database_url: str) -> None:
    clock = TestClock()
    with opened(database_url, clock=clock) as jobs:

        @jobs.task
        def work() -> None: ...

        collector = Collector(jobs.store)
        collector.begin()
        lane = {"queue": "default", "task": "work", "outcome": "succeeded"}
        for expected in range(1, 6):
            work.enqueue()
            with jobs.worker() as worker:
                eventually(lambda worker=worker: worker.settled == 1)  # type: ignore[misc]
            if expected % 2:  # now and then nobody scrapes for long
                assert Metrics.of(collector).get("duly_runs_total", **lane) == expected
            clock.advance(timedelta(minutes=11))
        clock.advance(timedelta(hours=1))
        assert Metrics.of(collector).get("duly_runs_total", **lane) == 5


def test_many_tenants_are_folded_into_other(jobs: Duly) -> None:
    @jobs.task
    def work() -> None: ...

    for tenant in range(30):
        for _ in range(30 - tenant):
            work.using(tenant=f"t{tenant}").enqueue()
    found = Metrics.of(Collector(jobs.store, tenants=4))
    shown = {labels["tenant"]: n for labels, n in found.all("duly_jobs_waiting")}
    assert shown == {"t0": 30, "t1": 29, "t2": 28, "t3": 27, "other": sum(range(1, 27))}


def test_an_application_can_render_its_metrics_at_an_endpoint_of_its_own(jobs: Duly) -> None:
    @jobs.task
    def work() -> None: ...

    work.enqueue()
    kind, body = render(jobs)
    assert kind.startswith("text/plain")
    assert b'duly_jobs_waiting{queue="default",task="work",tenant=""} 1.0' in body
    assert render(jobs, "application/openmetrics-text; version=1.0.0")[0].startswith("application/openmetrics-text")
    assert collector_of(jobs) is collector_of(jobs)


def test_active_alerts_are_counted_by_rule(jobs: Duly) -> None:
    @jobs.task
    def work() -> None: ...

    jobs.alerts.configure(depth=2)
    for _ in range(3):
        work.enqueue()
    jobs.alerts.check()
    assert Metrics.of(Collector(jobs.store)).get("duly_alerts_active", rule="depth") == 1


def test_scope_process_asks_nothing_of_the_database(lite: Duly) -> None:
    @lite.task
    def work() -> None: ...

    with lite.worker() as worker:
        found = Metrics.of(Collector(lite.store, figures=worker.figures, database=False))
    assert found.names
    assert all(name.startswith("duly_worker_") for name in found.names)


def test_what_waits_for_its_key_counts_as_waiting(jobs: Duly) -> None:
    @jobs.task(concurrency_key=lambda account: account, per_key=1)
    def sync(account: str) -> None: ...

    for _ in range(5):
        sync.enqueue("acme")
    found = Metrics.of(Collector(jobs.store))
    assert found.get("duly_jobs_waiting", task="sync") == 5
    assert found.all("duly_jobs_parked") == []
