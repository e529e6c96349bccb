"""Pauses: nothing of a paused queue, task or tenant starts, however much waits, and all of it does afterwards."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import Duly, InvalidOption, State, Task
from tests.helpers import eventually, never


@pytest.fixture
def work(jobs: Duly) -> Task[[str], str]:
    @jobs.task
    def work(name: str) -> str:
        return name

    return work


@pytest.mark.parametrize("what", [{"queue": "slow"}, {"task": "work"}, {"tenant": "acme"}])
def test_nothing_that_is_paused_starts_until_it_is_resumed(
    jobs: Duly, work: Task[[str], str], what: dict[str, Any]
) -> None:
    @jobs.task
    def other(name: str) -> str:
        return name

    jobs.pause(**what, reason="deploy", by="alice")
    with jobs.worker(["slow", "default"]):
        held = [work.using(queue="slow", tenant="acme").enqueue(str(n)) for n in range(3)]
        assert other.using(tenant="else").enqueue("free").wait(5) == "free"
        never(lambda: any(job.refresh().state is not State.QUEUED for job in held), 0.3)
        assert jobs.resume(**what)
        assert [job.wait(5) for job in held] == ["0", "1", "2"]
    assert not jobs.resume(**what), "it was not paused"


def test_a_worker_that_knew_nothing_of_the_pause_claims_nothing(jobs: Duly, work: Task[[str], str]) -> None:
    """The claim itself asks, so there is no moment at which a worker is behind."""
    with jobs.worker():
        assert work.enqueue("before").wait(5) == "before"
        for _ in range(20):
            jobs.pause(task="work")
            job = work.enqueue("x")
            never(lambda job=job: job.refresh().state is not State.QUEUED, 0.02)  # type: ignore[misc]
            jobs.resume(task="work")
            job.wait(5)


def test_what_runs_when_it_is_paused_ends(jobs: Duly) -> None:
    @jobs.task
    def slow() -> str:
        time.sleep(0.3)
        return "done"

    with jobs.worker():
        job = slow.enqueue()
        eventually(lambda: job.refresh().state is State.RUNNING)
        jobs.pause(queue="default")
        assert job.wait(5) == "done"


def test_a_pause_with_an_end_ends_by_itself(jobs: Duly, work: Task[[str], str]) -> None:
    jobs.pause(queue="default", duration=0.6)
    began = time.monotonic()
    with jobs.worker():
        assert work.enqueue("x").wait(5) == "x"
    assert 0.5 < time.monotonic() - began < 2.5
    assert jobs.paused() == []


def test_it_says_who_paused_what_since_when_until_when_and_why(jobs: Duly) -> None:
    until = datetime.now(UTC) + timedelta(hours=1)
    jobs.pause(queue="mail", reason="the relay is down", by="alice", until=until)
    jobs.pause(tenant="acme")
    first = jobs.paused()[0]
    jobs.pause(queue="mail", reason="still", by="bob")
    mail, acme = jobs.paused()
    assert (mail.scope, mail.name, mail.by, mail.reason, mail.until) == ("queue", "mail", "bob", "still", None)
    assert mail.since == first.since, "paused again, it has been paused since the first time"
    assert first.until == int(until.timestamp() * 1e6)
    assert (acme.scope, acme.name, acme.by, acme.reason) == ("tenant", "acme", None, None)


def test_many_waiting_jobs_of_a_paused_tenant_cost_others_nothing(jobs: Duly, work: Task[[str], str]) -> None:
    work.using(tenant="big").enqueue_many([{"name": "x"}] * 20_000)
    began = time.monotonic()
    jobs.pause(tenant="big")
    assert time.monotonic() - began < 1.0, "one row, not twenty thousand"
    with jobs.worker():
        assert work.using(tenant="small").enqueue("y").wait(5) == "y"
    assert sum(row[3] for row in jobs.counts().waiting) == 20_000


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, "name one queue, task, tenant or key"),
        ({"queue": "a", "task": "b"}, "name one queue, task, tenant or key"),
        ({"tenant": ""}, "must not be empty"),
        ({"queue": "no such name!"}, "queue name"),
        ({"queue": "a", "duration": 0}, "longer than nothing"),
        ({"queue": "a", "duration": -1}, "must not be negative"),
        ({"queue": "a", "until": datetime(2020, 1, 1, tzinfo=UTC)}, "has passed"),
        ({"queue": "a", "until": datetime(2030, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"queue": "a", "until": datetime(2099, 1, 1, tzinfo=UTC), "duration": 5}, "not both"),
    ],
)
def test_a_pause_that_makes_no_sense_is_refused(jobs: Duly, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        jobs.pause(**options)
    assert jobs.paused() == []
