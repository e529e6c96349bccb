"""Why a job waits for its key: full, paused, too fast, asked to wait, or behind a circuit breaker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from duly import Backoff, Breaker, Duly, RateLimited, State
from duly.domain.clock import from_us
from duly.why.answer import Reason
from tests.helpers import eventually
from tests.store.raw import Raw
from tests.why.look import Gate, blocker, do, held, reasons

pytestmark = pytest.mark.requirement("C15")


def test_a_full_key_names_the_jobs_that_hold_it_and_how_many_come_before(jobs: Duly, gate: Gate) -> None:
    @jobs.task(concurrency_key=lambda args: args.host, per_key=1)
    def fetch(host: str) -> None:
        gate.wait()

    with held(jobs, gate):
        first = fetch.enqueue("example.com")
        gate.has_started()
        second, third = fetch.enqueue("example.com"), fetch.enqueue("example.com")
        eventually(lambda: jobs.counts().parked == {"key": 2})
        why = third.why()
        assert (why.reason, why.answer.scope, why.answer.name) == (Reason.LIMIT_FULL, "key", "fetch/example.com")
        (holder,) = why.answer.holders
        assert (holder.job_id, holder.place, holder.worker_id) == (first.id, "running", jobs.workers()[0].id)
        assert why.answer.details == {"slots": 1, "held": 1, "ahead": 1}
        assert second.why().answer.details["ahead"] == 0
        assert why.next == "duly limits set --key fetch/example.com --concurrency 2"
        assert "1 job with this key comes before" in why.text
        assert why.details["key"] == "fetch/example.com"
        assert fetch.enqueue("other.com").why().reason in (Reason.STARTING, Reason.RUNNING), "another key is free"
        gate.has_started()
        do(jobs, second.why())
        gate.has_started()
        assert second.refresh().state is State.RUNNING, "raised as advised, it let one more run"
        gate.over.set()
        third.wait(10)


def test_a_limit_of_a_tenants_own_key_is_found(jobs: Duly, gate: Gate) -> None:
    @jobs.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> None:
        gate.wait()

    with held(jobs, gate):
        fetch.using(tenant="acme").enqueue("example.com")
        gate.has_started()
        job = fetch.using(tenant="acme").enqueue("example.com")
        eventually(lambda: jobs.counts().parked == {"key": 1})
        why = job.why()
        assert (why.reason, why.answer.name) == (Reason.LIMIT_FULL, "fetch@acme/example.com")
        assert why.answer.details["slots"] == 1, "what its group says"


def test_a_paused_key_says_by_whom(jobs: Duly) -> None:
    @jobs.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> int:
        return 1

    with jobs.worker():
        jobs.pause(key="fetch/example.com", by="ann", reason="they complained")
        job = fetch.enqueue("example.com")
        eventually(lambda: jobs.counts().parked == {"key": 1})
        why = job.why()
        assert (why.reason, why.answer.scope, why.answer.name) == (Reason.PAUSED, "key", "fetch/example.com")
        assert (why.answer.by, why.answer.because) == ("ann", "they complained")
        assert why.next == "duly resume --key fetch/example.com"
        do(jobs, why)
        assert job.wait(10) == 1


def test_a_key_whose_rate_is_used_up_says_when_the_next_may_start(jobs: Duly, raw: Raw) -> None:
    @jobs.task(concurrency_key=lambda args: args.host, rate_per_key="1/1h")
    def fetch(host: str) -> None: ...

    with jobs.worker():
        fetch.enqueue_many([{"host": "example.com"}] * 2)
        job = fetch.enqueue("example.com")
        eventually(
            lambda: jobs.counts().ended == {"succeeded": 1}
        )  # a run that came late is given back, and with it its start
        eventually(lambda: job.why().reason is Reason.RATE_USED_UP)
        why = job.why()
        assert (why.reason, why.answer.scope, why.answer.name) == (Reason.RATE_USED_UP, "key", "fetch/example.com")
        assert why.until == from_us(raw.one("SELECT opens_at FROM duly.keys"))
        assert why.until is not None
        assert why.until > datetime.now(UTC) + timedelta(minutes=58)
        assert why.answer.details["rate"] == "1/h"
        assert why.next == "duly limits set --key fetch/example.com --rate 2/h --burst 1"


def test_a_key_that_was_asked_to_wait_says_until_when_and_why(jobs: Duly) -> None:
    @jobs.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> None:
        raise RateLimited(retry_after=1800, reason="HTTP 429")

    with jobs.worker():
        first = fetch.enqueue("example.com")
        eventually(lambda: first.refresh().state is State.SCHEDULED)
        second = fetch.enqueue("example.com")
        eventually(lambda: jobs.counts().parked == {"key": 1})
        why = second.why()
        assert (why.reason, why.answer.scope, why.answer.name) == (Reason.BLOCKED, "key", "fetch/example.com")
        assert "HTTP 429" in (why.answer.because or "")
        assert why.until is not None
        assert timedelta(minutes=28) < why.until - datetime.now(UTC) <= timedelta(minutes=30)
        assert reasons(first.why()) == ["snoozed", "blocked"], "it raised it itself"


def test_a_task_that_raised_rate_limited_is_asked_to_wait_as_a_whole(jobs: Duly) -> None:
    @jobs.task
    def fetch() -> None:
        raise RateLimited(retry_after=1800, reason="HTTP 429")

    with jobs.worker():
        first = fetch.enqueue()
        eventually(lambda: first.refresh().state is State.SCHEDULED)
        why = fetch.enqueue().why()
        assert (why.reason, why.answer.scope, why.answer.name) == (Reason.BLOCKED, "task", "fetch")
        assert "HTTP 429" in why.text


def test_an_open_breaker_says_why_it_opened_and_when_it_tries_again(jobs: Duly) -> None:
    @jobs.task(
        concurrency_key=lambda args: args.host,
        breaker=Breaker(rate=0.5, least=2, cooldown="30m"),
        retry=Backoff.fixed("10h", max_attempts=2),
    )
    def fetch(host: str) -> None:
        raise ConnectionError("down")

    with jobs.worker():
        for job in [fetch.enqueue("example.com"), fetch.enqueue("example.com")]:
            eventually(lambda job=job: job.refresh().state is State.SCHEDULED)  # type: ignore[misc]
        job = fetch.enqueue("example.com")
        eventually(lambda: jobs.counts().parked == {"key": 1})
        why = job.why()
        assert (why.reason, why.answer.scope, why.answer.name) == (Reason.BREAKER_OPEN, "key", "fetch/example.com")
        assert reasons(why) == ["breaker_open"]
        assert why.answer.because == "circuit breaker: 2 of 2 runs failed"
        assert why.until is not None
        assert timedelta(minutes=28) < why.until - datetime.now(UTC) <= timedelta(minutes=30)
        assert why.next == "duly runs --task fetch"
        do(jobs, why)


def test_a_breaker_that_tries_one_job_names_it(jobs: Duly, gate: Gate) -> None:
    failing = True

    @jobs.task(
        concurrency_key=lambda args: args.host,
        per_key=3,
        breaker=Breaker(rate=0.5, least=1, cooldown=0.2),
        retry=Backoff.fixed("10h", max_attempts=2),
    )
    def fetch(host: str) -> None:
        if failing:
            raise ConnectionError("down")
        gate.wait()

    with held(jobs, gate):
        first = fetch.enqueue("example.com")
        eventually(lambda: first.refresh().state is State.SCHEDULED)
        failing = False
        probe = fetch.enqueue("example.com")
        gate.has_started()
        job = fetch.enqueue("example.com")
        eventually(lambda: jobs.counts().parked == {"key": 1})
        why = job.why()
        assert why.reason is Reason.BREAKER_PROBING
        assert [each.job_id for each in why.answer.holders] == [probe.id]
        gate.over.set()
        job.wait(10)


def test_a_job_with_a_key_that_has_just_come_waits_for_a_worker_to_look(jobs: Duly) -> None:
    @jobs.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> int:
        return 1

    job = fetch.enqueue("example.com")
    assert reasons(job.why()) == ["no_worker"]
    with jobs.worker():
        assert job.wait(10) == 1


def test_a_key_that_is_full_because_its_queue_is_paused_says_that_first(jobs: Duly) -> None:
    @jobs.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> None: ...

    with jobs.worker():
        jobs.pause(queue="default", by="ann")
        first, second = fetch.enqueue("example.com"), fetch.enqueue("example.com")
        eventually(lambda: jobs.counts().parked == {"key": 1})
        why = second.why()
        assert reasons(why) == ["paused", "limit_full"]
        assert [(each.job_id, each.place) for each in blocker(why, Reason.LIMIT_FULL).holders] == [
            (first.id, "waiting")
        ]
