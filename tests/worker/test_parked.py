"""Stored arguments that no longer fit the code: the job is set aside with the reason until code fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from duly import Duly, State
from tests.helpers import eventually, opened


@dataclass
class Point:
    """A type of the user's own that may raise when it is made."""

    x: int
    error: ClassVar[BaseException | None] = None

    def __post_init__(self) -> None:
        if self.error is not None:
            raise self.error


def stored_by_old_code(url: str, n: int = 1) -> list[str]:
    with opened(url) as old:

        @old.task
        def send(user_id: int, colour: str = "red") -> str:
            return "old"

        return [job.id for job in send.enqueue_many([{"user_id": k, "colour": "blue"} for k in range(n)])]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_job_whose_arguments_no_longer_fit_is_parked_with_the_reason(database_url: str, kind: str) -> None:
    (job_id,) = stored_by_old_code(database_url)
    ran: list[int] = []
    with opened(database_url) as new:

        def send(user_id: int, size: int) -> None:
            ran.append(user_id)

        async def asend(user_id: int, size: int) -> None:
            ran.append(user_id)

        task = new.declare(send if kind == "def" else asend, {"name": "send"})
        with new.worker():
            eventually(lambda: new.get(job_id).reason)
            task.enqueue(8, size=1).wait(5)
        job = new.get(job_id)
        assert job.state is State.QUEUED
        assert job.attempts == 0, "no attempt is burnt"
        assert job.runs == []
        assert job.reason is not None
        assert "colour" in job.reason
    assert ran == [8]


@pytest.mark.everywhere
def test_code_that_fits_again_takes_the_parked_jobs_back(database_url: str) -> None:
    ids = stored_by_old_code(database_url, 1_500)
    with opened(database_url) as wrong:

        @wrong.task(name="send")
        def newer(user_id: int, size: int) -> None: ...

        with wrong.worker():
            eventually(lambda: wrong.counts().parked == {"arguments": 1_500}, within=30)
        with wrong.worker():
            assert wrong.counts().parked == {"arguments": 1_500}, "the same code does not try again"
    with opened(database_url) as mended:

        @mended.task
        def send(user_id: int, colour: str = "red", size: int = 1) -> str:
            return f"{user_id} {colour}"

        with mended.worker():
            eventually(lambda: mended.counts().ended == {"succeeded": 1_500}, within=30)
        job = mended.get(ids[7])
        assert (job.result(), job.attempts) == ("7 blue", 1)
        assert [run.outcome for run in job.runs] == ["succeeded"]


def test_a_parked_job_can_be_cancelled_deleted_and_retried(database_url: str) -> None:
    cancelled, deleted, retried = stored_by_old_code(database_url, 3)
    with opened(database_url) as new:

        @new.task
        def send(user_id: str) -> None: ...

        with new.worker():
            eventually(lambda: new.counts().parked == {"arguments": 3})
            assert new.cancel(cancelled) == "cancelled"
            new.delete(deleted)
            new.retry(retried)
            eventually(lambda: new.counts().parked == {"arguments": 1})
        assert new.get(cancelled).state is State.CANCELLED
        assert new.get(retried).reason is not None, "it was tried, and parked again"


@pytest.mark.parametrize("error", [ValueError("bad\x00\ud800 " + "x" * 100_000), SystemExit(3)], ids=["odd", "exit"])
def test_a_type_that_raises_while_it_is_read_parks_the_job_and_not_the_worker(
    database_url: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(database_url) as jobs:

        @jobs.task
        def draw(point: Point) -> int:
            return point.x

        @jobs.task
        def fine() -> int:
            return 1

        job = draw.enqueue(Point(3))
        monkeypatch.setattr(Point, "error", error)
        with jobs.worker(thread_slots=1):
            eventually(lambda: job.refresh().reason or job.state.terminal)
            assert fine.enqueue().wait(5) == 1
        assert job.refresh().state is State.QUEUED
        assert 0 < len(job.reason or "") < 20_000


def test_the_parked_are_counted_and_listed_as_queued(jobs: Duly, database_url: str) -> None:
    (job_id,) = stored_by_old_code(database_url)

    @jobs.task
    def send(user_id: str) -> None: ...

    with jobs.worker():
        eventually(lambda: jobs.counts().parked == {"arguments": 1})
    assert [job.id for job in jobs.list(state="queued")] == [job_id]
