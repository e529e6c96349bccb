"""Workers: none, silent ones, other versions; queues and tasks that nobody serves; what should be forgotten."""

from __future__ import annotations

from datetime import timedelta

import pytest

from duly import Duly
from duly.doctor import workers as of_workers
from duly.doctor.finding import Severity
from duly.domain.clock import SystemClock
from duly.domain.records import Counts, ProcessIdentity, Skew, WorkerRecord
from duly.testing import TestClock
from tests.doctor.conftest import add_worker
from tests.doctor.look import findings, only
from tests.helpers import eventually, opened
from tests.store.factory import Factory
from tests.store.raw import Raw

pytestmark = pytest.mark.requirement("C15")


def test_jobs_without_a_worker_are_a_warning_and_nothing_at_all_is_not(timed: Duly, make: Factory) -> None:
    assert only(timed, "workers", "alive").severity is Severity.INFO
    make.enqueue()
    finding = only(timed, "workers", "alive")
    assert (finding.severity, finding.evidence["jobs"]) == (Severity.WARNING, 1)
    add_worker(timed, tasks='["send"]')
    assert only(timed, "workers", "alive").severity is Severity.OK
    assert only(timed, "workers", "tasks").severity is Severity.OK


def test_a_worker_that_is_silent_for_longer_than_its_lease_is_told(timed: Duly, clock: TestClock) -> None:
    worker_id = add_worker(timed)
    assert findings(timed, "workers", "silent") == []
    clock.advance(timedelta(minutes=5))
    finding = only(timed, "workers", "silent")
    assert finding.severity is Severity.WARNING
    assert (finding.evidence["worker"], finding.evidence["silent_seconds"]) == (worker_id, 300)


def test_a_worker_whose_process_ended_is_told_at_once(timed: Duly, raw: Raw) -> None:
    add_worker(timed)
    raw.rows("UPDATE duly.workers SET process_started_at = '1'")  # this pid is somebody else's by now
    assert "has ended without a word" in only(timed, "workers", "silent").what


def test_workers_of_another_version_are_told(timed: Duly) -> None:
    add_worker(timed)
    assert findings(timed, "workers", "versions") == []
    old = add_worker(timed, version="0.0.1")
    finding = only(timed, "workers", "versions")
    assert (finding.severity, finding.evidence["workers"]) == (Severity.WARNING, [old])


def test_a_queue_that_nobody_takes_from_and_a_task_that_nobody_knows_are_told_apart(timed: Duly, make: Factory) -> None:
    add_worker(timed, tasks='["send"]')
    make.enqueue()
    make.enqueue("forgotten")
    make.enqueue("send", queue="mail")
    make.enqueue("send", queue="mail", delay_us=1_000_000)
    queue = only(timed, "workers", "queues")
    assert (queue.severity, queue.evidence) == (Severity.WARNING, {"queue": "mail", "jobs": 2})
    task = only(timed, "workers", "tasks")
    assert (task.severity, task.evidence["task"], task.evidence["jobs"]) == (Severity.WARNING, "forgotten", 1)


def test_a_real_worker_is_alive_and_of_this_version(jobs: Duly) -> None:
    @jobs.task
    def add(x: int) -> None: ...

    with jobs.worker():
        assert only(jobs, "workers", "alive").severity is Severity.OK
        assert findings(jobs, "workers", "silent") == []
        assert findings(jobs, "workers", "versions") == []


class WrongClock(SystemClock):
    """The clock of a host that is off."""

    def __init__(self, by: timedelta) -> None:
        self.by = by

    def now_us(self) -> int:
        return super().now_us() + self.by // timedelta(microseconds=1)


@pytest.mark.parametrize(
    "by, severity",
    [
        (timedelta(0), Severity.OK),
        (timedelta(seconds=5), Severity.WARNING),
        (timedelta(seconds=-5), Severity.WARNING),
        (timedelta(minutes=10), Severity.ERROR),
    ],
)
def test_a_worker_whose_hosts_clock_is_off_says_so(pg_url: str, by: timedelta, severity: Severity) -> None:
    with opened(pg_url, clock=WrongClock(by)) as off, opened(pg_url) as jobs:
        with off.worker():
            finding = only(jobs, "workers", "clocks")
            (worker,) = jobs.workers()
        assert finding.severity is severity
        assert worker.skew is not None
        assert abs(worker.skew.ahead_us - by / timedelta(microseconds=1)) < 1_000_000
        if severity is not Severity.OK:
            assert finding.evidence["host"] == worker.process.host
            assert finding.evidence["workers"] == [worker.id]
            assert abs(float(str(finding.evidence["ahead_seconds"])) - by.total_seconds()) < 1
            assert ("ahead of" if by > timedelta(0) else "behind") in finding.what
            assert "duly doctor" in (finding.next or "")


def test_a_worker_measures_its_clock_again_each_time_it_says_that_it_lives(pg_url: str) -> None:
    clock = WrongClock(timedelta(0))
    with opened(pg_url, clock=clock) as off, opened(pg_url) as jobs, off.worker(lease=1.0):
        assert only(jobs, "workers", "clocks").severity is Severity.OK
        clock.by = timedelta(seconds=5)
        eventually(lambda: only(jobs, "workers", "clocks").severity is Severity.WARNING, within=20)


def test_what_may_be_the_way_there_and_back_is_no_skew() -> None:
    process = ProcessIdentity(host="h", boot_id="b", pid_namespace="", pid=1, process_started_at="")

    def worker(ahead: int, doubt: int) -> WorkerRecord:
        return WorkerRecord(
            id="w",
            process=process,
            started_at=0,
            seen_at=0,
            lease_us=1,
            queues="[]",
            tasks="[]",
            slots=1,
            wake=None,
            idle=True,
            state="running",
            version="1",
            skew=Skew(ahead, doubt),
        )

    assert [each.severity for each in of_workers.clocks([worker(1_500_000, 600_000)])] == [Severity.OK]
    assert [each.severity for each in of_workers.clocks([worker(1_500_000, 400_000)])] == [Severity.WARNING]
    assert list(of_workers.clocks([])) == []
    assert Skew.between(1_000, 5_000, 1_400) == Skew(-3_800, 200)


def test_the_numbers_are_told_as_they_are() -> None:
    counts = Counts(waiting=[("default", "", "send", 1_200, 0)], scheduled=[("mail", "", "send", 34, 0)])
    assert "1,234 jobs" in of_workers.alive([], counts).what


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
def test_finished_jobs_far_older_than_the_retention_are_told_until_pruned(
    timed: Duly, make: Factory, clock: TestClock, state: str
) -> None:
    make.ended(state)
    clock.advance(timedelta(days=7, hours=1) if state != "failed" else timedelta(days=30, hours=1))
    assert only(timed, "retention", "prune").severity is Severity.OK
    clock.advance(timedelta(days=2))
    finding = only(timed, "retention", "prune")
    assert (finding.severity, finding.evidence["state"], finding.evidence["jobs"]) == (Severity.WARNING, state, 1)
    timed.prune()
    assert only(timed, "retention", "prune").severity is Severity.OK


def test_counts_far_older_than_the_retention_are_told(timed: Duly, make: Factory, clock: TestClock, raw: Raw) -> None:
    make.ended()
    assert raw.count("rollups") == 1
    clock.advance(timedelta(days=402))
    assert only(timed, "retention", "rollups").evidence == {"rows": 1}
