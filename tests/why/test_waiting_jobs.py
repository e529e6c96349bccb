"""Why a job does not start: each situation set up for real, with real workers where it takes some; what is said, who is
named, what to do, and that doing it helps."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import Backoff, Duly, Snooze, State
from duly.why.answer import Reason
from duly.worker.worker import Worker
from tests.doctor.conftest import add_worker
from tests.helpers import Ledger, eventually, opened, worker_process
from tests.store.raw import Raw
from tests.why.look import Gate, blocker, do, held, reasons

pytestmark = pytest.mark.requirement("C15")


# -- not yet ----------------------------------------------------------------------------------------------------------


def test_a_job_that_is_not_due_says_until_when_and_can_be_run_at_once(jobs: Duly) -> None:
    @jobs.task
    def send() -> int:
        return 1

    with jobs.worker():
        job = send.using(delay=3600).enqueue()
        why = job.why()
        assert why.reason is Reason.NOT_DUE
        assert why.until is not None
        assert abs((why.until - datetime.now(UTC)).total_seconds() - 3600) < 60
        assert (why.state, reasons(why)) == ("scheduled", ["not_due"])
        assert why.next == f"duly jobs retry {job.id}"
        do(jobs, why)
        assert job.wait(10) == 1


def test_what_will_hold_a_job_when_it_is_due_is_told_beside(jobs: Duly) -> None:
    @jobs.task
    def send() -> None: ...

    job = send.using(delay=3600).enqueue()
    jobs.pause(task="send", by="ann")
    jobs.pause(queue="default", duration="10m")
    assert reasons(job.why()) == ["not_due", "paused", "no_worker"], "the queue is open again by then"


def test_a_job_that_waits_for_its_retry_says_what_it_failed_with(jobs: Duly) -> None:
    @jobs.task(retry=Backoff.fixed("1h", max_attempts=3))
    def send() -> None:
        raise ConnectionError("mail server is away")

    with jobs.worker():
        job = send.enqueue()
        eventually(lambda: job.refresh().state is State.SCHEDULED)
        why = job.why()
        assert why.reason is Reason.RETRY
        assert why.answer.because == "ConnectionError: mail server is away"
        assert (why.answer.details["attempt"], why.answer.details["max_attempts"]) == (1, 3)
        assert "Run 1 of 3 failed" in why.text
        do(jobs, why)
        eventually(lambda: len(job.runs) == 2)


def test_a_job_that_was_put_off_by_its_handler_says_so(jobs: Duly) -> None:
    @jobs.task
    def send() -> None:
        raise Snooze(timedelta(hours=2))

    with jobs.worker():
        job = send.enqueue()
        eventually(lambda: job.refresh().state is State.SCHEDULED)
        why = job.why()
    assert why.reason is Reason.SNOOZED
    assert why.until is not None


# -- paused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["queue", "task", "tenant"])
def test_a_pause_says_by_whom_since_when_until_when_and_why(jobs: Duly, scope: str) -> None:
    @jobs.task(queue="mail")
    def send() -> int:
        return 1

    name = {"queue": "mail", "task": "send", "tenant": "acme"}[scope]
    before = datetime.now(UTC) - timedelta(seconds=5)
    with jobs.worker():
        only: Any = {scope: name}
        jobs.pause(**only, by="ann", reason="migration of the server", duration="1h")
        job = send.using(tenant="acme").enqueue()
        why = job.why()
        assert (why.reason, why.answer.scope, why.answer.name) == (Reason.PAUSED, scope, name)
        assert (why.answer.by, why.answer.because) == ("ann", "migration of the server")
        assert why.since is not None
        assert why.since > before
        assert why.until is not None
        assert why.until > why.since + timedelta(minutes=59)
        assert why.next == f"duly resume --{scope} {name}"
        do(jobs, why)
        assert job.wait(10) == 1


def test_of_two_pauses_the_one_that_nobody_ends_by_itself_decides(jobs: Duly) -> None:
    @jobs.task
    def send() -> None: ...

    with jobs.worker():
        jobs.pause(queue="default", duration="1h")
        jobs.pause(task="send", by="ann")
        why = send.enqueue().why()
        assert [(each.scope, each.reason) for each in why.blockers] == [("task", "paused"), ("queue", "paused")]


# -- limits and rates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["queue", "task", "tenant"])
def test_a_full_limit_names_the_jobs_and_workers_that_hold_it(jobs: Duly, gate: Gate, scope: str) -> None:
    @jobs.task(queue="mail")
    def send() -> None:
        gate.wait()

    name = {"queue": "mail", "task": "send", "tenant": "acme"}[scope]
    only: Any = {scope: name}
    jobs.set_limit(**only, concurrency=2)
    with held(jobs, gate):
        holders = [send.using(tenant="acme").enqueue() for _ in range(2)]
        gate.has_started(2)
        job = send.using(tenant="acme").enqueue()
        why = job.why()
        assert (why.reason, why.answer.scope, why.answer.name) == (Reason.LIMIT_FULL, scope, name)
        assert {each.job_id for each in why.answer.holders} == {each.id for each in holders}
        (worker,) = jobs.workers()
        assert {each.worker_id for each in why.answer.holders} == {worker.id}
        assert {(each.host, each.pid) for each in why.answer.holders} == {(worker.process.host, worker.process.pid)}
        assert all(each.since is not None for each in why.answer.holders)
        assert why.answer.details["slots"] == why.answer.details["held"] == 2
        assert str(holders[0].id) in why.text
        assert why.next == (
            f"duly limits set --{scope} {name} --concurrency 3" if scope != "tenant" else "duly quota acme --running 3"
        )
        do(jobs, why)
        gate.has_started()
        assert job.refresh().state is State.RUNNING


def test_a_limit_of_none_at_all_says_so(jobs: Duly) -> None:
    @jobs.task
    def send() -> None: ...

    jobs.set_limit(task="send", concurrency=0)
    with jobs.worker():
        why = send.enqueue().why()
    assert (why.reason, why.answer.details["slots"]) == (Reason.LIMIT_FULL, 0)
    assert "none at all" in why.text


def test_a_used_up_rate_says_when_the_next_may_start(jobs: Duly) -> None:
    @jobs.task(rate="1/1h", burst=1)
    def send() -> None: ...

    with jobs.worker():
        send.enqueue_many([{}] * 2)
        job = send.enqueue()
        eventually(lambda: jobs.counts().ended == {"succeeded": 1})  # one that came late is given back, with its start
        eventually(lambda: job.why().reason is Reason.RATE_USED_UP)
        why = job.why()
        assert (why.reason, why.answer.scope, why.answer.name) == (Reason.RATE_USED_UP, "task", "send")
        assert why.until is not None
        left = (why.until - datetime.now(UTC)).total_seconds()
        assert 3500 < left < 3601
        assert why.answer.details == {"rate": "1/h", "burst": 1}
        assert why.next == "duly limits set --task send --rate 2/h --burst 1"


@pytest.mark.parametrize("per", ["minute", "day"])
def test_a_quota_that_was_had_says_when_it_goes_on(jobs: Duly, per: str) -> None:
    @jobs.task
    def send() -> None: ...

    per_us = {"minute": 60_000_000, "day": 86_400_000_000}[per]
    one: Any = {f"per_{per}": 1}
    jobs.set_quota("acme", **one, over="wait")
    with jobs.worker():
        jobs["send"].using(tenant="acme").enqueue_many([{}] * 3)
        job = send.using(tenant="acme").enqueue()
        eventually(lambda: job.why().reason is Reason.QUOTA_USED_UP)
        why = job.why()
        assert (why.reason, why.answer.scope, why.answer.name) == (Reason.QUOTA_USED_UP, "tenant", "acme")
        assert why.answer.details == {"quota": 1, "per": per, "used": 1}
        assert why.until is not None
        assert datetime.now(UTC) < why.until <= datetime.now(UTC) + timedelta(microseconds=per_us)
        assert why.next == f"duly quota acme --per-{per} 2"
        do(jobs, why)
        assert getattr(jobs.quota("acme"), f"per_{per}") == 2


def test_a_task_that_was_asked_to_wait_says_until_when_and_what_was_said(jobs: Duly) -> None:
    @jobs.task
    def send() -> None: ...

    with jobs.worker():
        jobs.store.gates.block("task", "send", 30_000_000, "429 from the mail server")
        why = send.enqueue().why()
        assert (why.reason, why.answer.scope, why.answer.because) == (
            Reason.BLOCKED,
            "task",
            "429 from the mail server",
        )
        assert why.until is not None
        assert why.next is None, "it goes on by itself"


# -- workers ----------------------------------------------------------------------------------------------------------


def test_without_any_worker_that_is_the_reason(jobs: Duly) -> None:
    @jobs.task
    def send() -> int:
        return 1

    job = send.enqueue()
    why = job.why()
    assert (why.reason, why.next) == (Reason.NO_WORKER, "duly worker app:jobs")
    assert why.answer.details["workers"] == []
    with jobs.worker():
        assert job.wait(10) == 1


def test_a_worker_that_was_killed_is_no_worker_and_is_named(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    @jobs.task
    def send() -> None: ...

    with worker_process(database_url, ledger) as doomed:
        assert jobs.live_workers()
        doomed.kill()
        why = send.enqueue().why()
        assert why.reason is Reason.NO_WORKER
        (seen,) = why.answer.details["workers"]
        assert (seen["pid"], seen["alive"]) == (doomed.pid, False)


def test_a_queue_that_nobody_takes_from_is_told_with_the_queues_that_are_taken(jobs: Duly) -> None:
    @jobs.task(queue="mail")
    def send() -> int:
        return 1

    with jobs.worker(queues=["default", "other"]):
        job = send.enqueue()
        why = job.why()
        assert (why.reason, why.answer.name) == (Reason.NO_WORKER_FOR_QUEUE, "mail")
        assert why.answer.details["queues_served"] == ["default", "other"]
        assert why.next == "duly worker app:jobs --queue mail"
        with jobs.worker(queues=["mail"]):
            assert job.wait(10) == 1


def test_a_task_that_no_worker_knows_is_told_with_the_workers_seen_and_a_near_name(
    jobs: Duly, database_url: str
) -> None:
    @jobs.task
    def send_mail() -> int:
        return 1

    with opened(database_url) as other:

        @other.task
        def send_mails() -> None: ...

        @other.task(queue="slow")
        def slow() -> None: ...

        job = send_mail.enqueue()
        with other.worker(queues=["default"]):
            why = job.why()
            (worker,) = jobs.workers()
            assert (why.reason, why.answer.name) == (Reason.UNKNOWN_TASK, "send_mail")
            assert [each["pid"] for each in why.answer.details["workers"]] == [worker.process.pid]
            assert "send_mails" in why.text
            with jobs.worker(queues=["slow"]):
                eventually(lambda: len(jobs.workers()) == 2)
                (elsewhere,) = job.why().answer.details["known_by_workers_of_other_queues"]
                assert elsewhere["id"] != worker.id
            with jobs.worker():
                assert job.wait(10) == 1


def test_busy_workers_are_told_with_what_they_run_and_more_of_them_help(jobs: Duly, gate: Gate) -> None:
    @jobs.task
    def nap() -> None:
        gate.wait()

    @jobs.task
    async def quick() -> int:
        return 1

    with held(jobs, gate, thread_slots=2, async_slots=50):
        for _ in range(2):
            nap.enqueue()
        gate.has_started(2)
        job = nap.using(max_attempts=7).enqueue()
        why = job.why()
        assert (why.reason, why.next) == (Reason.WORKERS_BUSY, "duly worker app:jobs")
        assert (why.answer.details["slots"], why.answer.details["busy"]) == (2, 2)
        assert why.answer.details["running"] == {"nap": 2}
        assert quick.enqueue().wait(5) == 1, "coroutines have slots of their own"
        with jobs.worker():
            gate.has_started()
            assert job.refresh().state is State.RUNNING


def test_the_slots_that_a_queue_was_promised_can_be_full_while_the_worker_has_others(jobs: Duly, gate: Gate) -> None:
    @jobs.task(queue="mail")
    def send() -> None:
        gate.wait()

    with held(jobs, gate, queues={"mail": 1, "default": 5}):
        send.enqueue()
        gate.has_started()
        why = send.enqueue().why()
        assert why.reason is Reason.WORKERS_BUSY
        assert (why.answer.details["slots"], why.answer.details["busy"]) == (1, 1)


def test_a_worker_that_stops_takes_no_more(jobs: Duly, gate: Gate) -> None:
    @jobs.task
    def nap() -> None:
        gate.wait()

    settings = jobs.worker_settings()
    worker = Worker(jobs.store, jobs.registry, settings)
    worker.start()
    nap.enqueue()
    gate.has_started()
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    try:
        eventually(lambda: not any(thread.name == "duly-claimer" for thread in threading.enumerate()))
        job = nap.enqueue()
        jobs.store.see_worker(worker.id, "draining")  # as it does itself every few seconds
        why = job.why()
        assert why.reason is Reason.NO_WORKER
        assert why.answer.details["workers"][0]["state"] == "draining"
    finally:
        gate.over.set()
        stopping.join()


# -- its turn ---------------------------------------------------------------------------------------------------------


def test_a_job_behind_others_says_how_many_and_when_it_may_start(jobs: Duly, gate: Gate) -> None:
    @jobs.task
    def nap() -> None:
        gate.wait()

    @jobs.task
    async def quick() -> None: ...

    with held(jobs, gate, thread_slots=1):
        for _ in range(5):
            quick.enqueue().wait(10)
        nap.enqueue()
        gate.has_started()
        ahead = [nap.enqueue() for _ in range(3)]
        job = nap.enqueue()
        nap.enqueue()
        why = job.why()
        assert reasons(why) == ["workers_busy", "behind_others"]
        behind = blocker(why, Reason.BEHIND_OTHERS)
        assert behind.details["ahead"] == 3
        assert (behind.details["position_in_lane"], behind.details["in_lane"]) == (4, 5)
        assert behind.details["first"] == [each.id for each in ahead]
        assert behind.details["runs_measured"] == 5
        assert behind.until is not None
        assert behind.until > datetime.now(UTC)
        assert behind.next == f"duly jobs boost {job.id}"
        do(jobs, behind)
        assert "behind_others" not in reasons(job.why()), "by priority it is first now"


def test_jobs_that_are_held_back_come_before_nobody(jobs: Duly, gate: Gate) -> None:
    @jobs.task
    def shut() -> None: ...

    @jobs.task(concurrency=1)
    def full() -> None:
        gate.wait()

    @jobs.task
    def nap() -> None:
        gate.wait()

    with held(jobs, gate, thread_slots=2):
        full.enqueue()
        nap.enqueue()
        gate.has_started(2)
        jobs.pause(task="shut")
        for task in (shut, full, shut, full, nap):
            task.enqueue()
        behind = blocker(nap.enqueue().why(), Reason.BEHIND_OTHERS)
        assert (behind.details["ahead"], behind.details["ahead_by_task"]) == (1, {"nap": 1})
        jobs.resume(task="shut")
        behind = blocker(nap.enqueue().why(), Reason.BEHIND_OTHERS)
        assert behind.details["ahead_by_task"] == {"nap": 2, "shut": 2}


def test_a_job_whose_queue_nothing_was_measured_of_is_promised_nothing(jobs: Duly) -> None:
    @jobs.task
    def send() -> None: ...

    send.enqueue()
    behind = blocker(send.enqueue().why(), Reason.BEHIND_OTHERS)
    assert (behind.until, behind.details["ahead"]) == (None, 1)


def test_the_turns_among_tenants_are_told_without_counting_their_jobs_as_ahead(jobs: Duly) -> None:
    @jobs.task
    def send() -> None: ...

    for _ in range(4):
        send.using(tenant="flood").enqueue()
    send.using(tenant="acme").enqueue()
    job = send.using(tenant="acme").enqueue()
    behind = blocker(job.why(), Reason.BEHIND_OTHERS)
    assert (behind.details["ahead"], behind.details["other_tenants"]) == (1, 1)
    jobs.set_fair("default", False)
    assert blocker(job.why(), Reason.BEHIND_OTHERS).details["ahead"] == 5, "by rank alone all come before"


def test_a_job_that_nothing_holds_starts_in_a_moment(jobs: Duly, raw: Raw) -> None:
    @jobs.task
    def send() -> None: ...

    add_worker(jobs, tasks='["send"]')  # on record, and takes its time
    job = send.enqueue()
    why = job.why()
    assert (why.reason, why.blockers, why.next) == (Reason.STARTING, (), None)
    raw.rows("UPDATE duly.waiting SET run_at = run_at - 300000000")
    why = job.why()
    assert (why.reason, why.next) == (Reason.UNEXPLAINED, "duly doctor")
