"""A tenant learns why its own job waits, and nothing of anybody else's: no id, no name, no machine, no operator."""

from __future__ import annotations

import json

import pytest

from duly import Duly, JobNotFound
from duly.why.answer import Reason
from duly.why.hide import ASK
from tests.helpers import eventually
from tests.why.look import Gate, held, reasons

pytestmark = [pytest.mark.requirement("C15"), pytest.mark.requirement("E9")]


def test_a_job_of_another_tenant_is_not_found(jobs: Duly) -> None:
    @jobs.task
    def send() -> None: ...

    job = send.using(tenant="umbrella").enqueue()
    with pytest.raises(JobNotFound):
        jobs.why(job.id, tenant="acme")
    assert jobs.why(job.id, tenant="umbrella").reason is Reason.NO_WORKER


def test_a_limit_that_others_hold_names_none_of_them(jobs: Duly, gate: Gate) -> None:
    @jobs.task
    def send() -> None:
        gate.wait()

    jobs.set_limit(queue="default", concurrency=2)
    with held(jobs, gate):
        theirs = send.using(tenant="umbrella").enqueue()
        gate.has_started()
        own = send.using(tenant="acme").enqueue()
        gate.has_started()
        job = send.using(tenant="acme").enqueue()
        why = jobs.why(job.id, tenant="acme")
        assert why.reason is Reason.LIMIT_FULL
        assert {each.job_id for each in why.answer.holders} == {own.id, None}
        assert "and 1 more" in why.text
        assert why.next == ASK
        _says_nothing_of(why.to_dict(), theirs.id, "umbrella", jobs)
        assert theirs.id in json.dumps(jobs.why(job.id).to_dict()), "an operator sees them"


def test_a_key_that_others_share_tells_nothing_of_them(jobs: Duly, gate: Gate) -> None:
    @jobs.task(concurrency_key=lambda args: args.host, key_group="hosts")
    def fetch(host: str) -> None:
        gate.wait()

    with held(jobs, gate):
        theirs = fetch.using(tenant="umbrella").enqueue("example.com")
        gate.has_started()
        job = fetch.using(tenant="acme").enqueue("example.com")
        eventually(lambda: jobs.counts().parked == {"key": 1})
        why = jobs.why(job.id, tenant="acme")
        assert (why.reason, why.answer.name) == (Reason.LIMIT_FULL, "hosts/example.com")
        assert "held by 1 job of others" in why.text
        _says_nothing_of(why.to_dict(), theirs.id, "umbrella", jobs)
        (group,) = jobs.why_waiting(tenant="acme")
        _says_nothing_of(group.to_dict(), theirs.id, "umbrella", jobs)


def test_what_operators_wrote_about_a_shared_queue_is_not_told_and_about_ones_own_is(jobs: Duly) -> None:
    @jobs.task
    def send() -> None: ...

    jobs.pause(queue="default", by="ann", reason="umbrella floods it")
    jobs.pause(tenant="acme", by="bob", reason="unpaid")
    with jobs.worker():
        job = send.using(tenant="acme").enqueue()
        why = jobs.why(job.id, tenant="acme")
        assert reasons(why) == ["paused", "paused"]
        assert {(each.scope, each.by, each.because) for each in why.blockers} == {
            ("queue", None, None),
            ("tenant", "bob", "unpaid"),
        }
        _says_nothing_of(why.to_dict(), "umbrella", "ann", jobs)


def test_the_tasks_that_workers_know_are_not_told(jobs: Duly) -> None:
    @jobs.task
    def send() -> None: ...

    job = send.using(tenant="acme").enqueue()
    jobs.registry.tasks.clear()

    @jobs.task
    def secret_of_umbrella() -> None: ...

    with jobs.worker():
        why = jobs.why(job.id, tenant="acme")
        assert why.reason is Reason.UNKNOWN_TASK
        _says_nothing_of(why.to_dict(), "umbrella", "secret", jobs)


def test_a_command_about_ones_own_job_is_told(jobs: Duly) -> None:
    @jobs.task
    def send() -> None: ...

    job = send.using(tenant="acme", delay=60).enqueue()
    assert jobs.why(job.id, tenant="acme").next == f"duly jobs retry {job.id}"


def _says_nothing_of(answer: object, job_id: str, name: str, jobs: Duly) -> None:
    text = json.dumps(answer)
    assert job_id not in text
    assert name not in text
    for worker in jobs.workers():
        assert worker.id not in text
        assert f'"{worker.process.host}"' not in text
        assert f'"pid": {worker.process.pid}' not in text
