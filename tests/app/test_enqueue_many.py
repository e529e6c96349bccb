"""Many jobs in one call: all or none, quickly, each as if it had come alone."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from duly import ArgumentError, Backoff, Duly, State, Unique
from tests.helpers import opened


def test_a_hundred_thousand_jobs_are_stored_in_one_call(jobs: Duly) -> None:
    @jobs.task
    def work(n: int) -> None: ...

    def calls() -> Iterator[dict[str, int]]:
        yield from ({"n": n} for n in range(100_000))

    started = time.monotonic()
    stored = work.enqueue_many(calls())
    took = time.monotonic() - started
    assert len({job.id for job in stored}) == 100_000
    assert all(job.created for job in stored)
    assert [job.id for job in stored] == sorted(job.id for job in stored)
    ((_, _, task, waiting, _),) = jobs.counts().waiting
    assert (task, waiting) == ("work", 100_000)
    assert [jobs.get(stored[n].id).args["n"] for n in (0, 54_321, 99_999)] == [0, 54_321, 99_999]
    assert took < 30, f"{took:.1f} s: this machine takes 1 to 2 s"


def test_one_bad_call_among_many_stores_none(jobs: Duly) -> None:
    @jobs.task
    def work(n: int) -> None: ...

    with pytest.raises(ArgumentError, match="call 700"):
        work.enqueue_many([{"n": n if n != 700 else "x"} for n in range(1000)])
    assert jobs.list() == []


@pytest.mark.everywhere
def test_every_option_arrives_with_every_job(jobs: Duly) -> None:
    @jobs.task
    def work(n: int) -> None: ...

    task = work.using(
        queue="bulk",
        tenant="ac\\me ü",
        priority=30,
        delay=600,
        expires=60,
        retry=Backoff.fixed(5, max_attempts=7),
        timeout=3,
        tags=["x\\y", "ü"],
        enqueued_by="ann\\",
    )
    alone = task.enqueue(0).to_dict()
    for job in task.enqueue_many([{"n": 1}, {"n": 2}]):
        found = job.to_dict()
        assert job.state is State.SCHEDULED
        assert job.record.expires_at is not None
        assert job.record.run_at is not None
        assert job.record.expires_at - job.record.run_at == 60_000_000
        assert (job.record.timeout_us, job.record.retry) == (3_000_000, Backoff.fixed(5).to_data())
        for name in ("queue", "tenant", "priority", "max_attempts", "tags", "enqueued_by", "state"):
            assert found[name] == alone[name], name


def test_jobs_of_one_call_run_in_the_order_given(jobs: Duly) -> None:
    ran: list[int] = []

    @jobs.task
    def work(n: int) -> None:
        ran.append(n)

    work.enqueue_many([{"n": n} for n in range(200)])
    with jobs.worker(thread_slots=1):
        for job in jobs.list(limit=1):
            job.wait(10)
    assert ran == list(range(200))


@pytest.mark.requirement("B5", "C3")
@pytest.mark.everywhere
def test_many_jobs_with_unique_keys_know_the_ones_that_are_there(jobs: Duly) -> None:
    @jobs.task
    def work(n: int) -> None: ...

    (first,) = work.using(unique=True).enqueue_many([{"n": 5}])
    answers = work.using(unique=True).enqueue_many([{"n": n % 10} for n in range(25)])
    assert [answer.created for answer in answers] == [n < 10 and n != 5 for n in range(25)]
    assert answers[5].id == answers[15].id == first.id
    assert [answers[n].id for n in range(10)] == [answers[n + 10].id for n in range(10)]
    assert len(jobs.list()) == 10


def test_the_newest_of_many_replaces_the_one_that_waits(jobs: Duly) -> None:
    @jobs.task
    def work(n: int) -> None: ...

    by_key = work.using(unique=Unique(key="k", mode="replace"))
    answers = by_key.enqueue_many([{"n": 1}, {"n": 2}, {"n": 3}])
    assert [answer.created for answer in answers] == [True, False, False]
    assert jobs.get(answers[0].id).args == {"n": 3}
    assert len(jobs.list()) == 1


def test_no_call_at_all_stores_nothing(jobs: Duly) -> None:
    @jobs.task
    def work(n: int) -> None: ...

    assert work.enqueue_many([]) == []
    assert jobs.list() == []


def test_two_objects_of_one_database_see_each_others_jobs(database_url: str) -> None:
    with opened(database_url) as one, opened(database_url) as other:

        @one.task
        def work(n: int) -> None: ...

        work.enqueue_many([{"n": 1}, {"n": 2}])
        assert {job.args["n"] for job in other.list()} == {1, 2}
