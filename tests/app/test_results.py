"""Results: waiting from a thread and from a coroutine, types that come back, failures told as what they were."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest

from duly import Backoff, Cancel, Duly, JobCancelled, JobFailed, JobNotFound, State, WaitTimeout
from tests.helpers import Ledger, eventually, opened, worker_process
from tests.worker.tasks import declare


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Invoice:
    number: UUID
    total: Decimal
    due: datetime
    colours: list[Colour]


INVOICE = Invoice(UUID(int=7), Decimal("12.30"), datetime(2030, 1, 2, tzinfo=UTC), [Colour.RED])


def test_waiting_gives_the_result(jobs: Duly) -> None:
    @jobs.task
    def add(a: int, b: int) -> int:
        return a + b

    with jobs.worker():
        job = add.enqueue(1, 2)
        assert job.wait(5) == 3
        assert job.wait() == 3, "again, without waiting"
        assert job.result() == 3
        assert (job.state, job.attempts) == (State.SUCCEEDED, 1)


def test_a_coroutine_awaits_the_result(jobs: Duly) -> None:
    @jobs.task
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(0.01)
        return a + b

    async def main() -> tuple[int, list[int]]:
        async with jobs.worker():
            first = await (await add.aenqueue(1, 2))
            more = await asyncio.gather(*[await add.aenqueue(n, n) for n in range(5)])
            return first, list(more)

    assert asyncio.run(main()) == (3, [0, 2, 4, 6, 8])


def test_a_result_comes_back_as_the_type_that_the_task_returns(jobs: Duly) -> None:
    @jobs.task
    def invoice() -> Invoice:
        return INVOICE

    @jobs.task
    def table() -> dict[str, tuple[int, Colour | None]]:
        return {"a": (1, Colour.RED), "b": (2, None)}

    @jobs.task
    def nothing() -> None:
        return None

    with jobs.worker():
        assert invoice.enqueue().wait(5) == INVOICE
        assert table.enqueue().wait(5) == {"a": (1, Colour.RED), "b": (2, None)}
        nothing.enqueue().wait(5)


@pytest.mark.everywhere
def test_a_result_that_json_cannot_hold_is_shown_as_text_and_the_job_has_succeeded(jobs: Duly) -> None:
    strange: list[Any] = [object(), {1, 2}, "nul \x00 and \ud800", float("nan"), b"\xff", {3: 4}, lambda: None]

    @jobs.task
    def give(n: int):  # type: ignore[no-untyped-def]
        return strange[n]

    with jobs.worker():
        for n in range(len(strange)):
            job = give.enqueue(n)
            job.wait(5)
            assert job.state is State.SUCCEEDED
            assert len(job.runs) == 1


def test_a_result_that_is_too_large_is_cut_and_the_job_has_succeeded(jobs: Duly) -> None:
    @jobs.task
    def give() -> str:
        return "x" * 50_000_000

    with jobs.worker():
        job = give.enqueue()
        assert "limit" in str(job.wait(15))[:1000]
        assert job.state is State.SUCCEEDED


def test_a_failed_job_raises_with_the_error_it_had(lite: Duly) -> None:
    @lite.task(retry=Backoff.fixed(0, max_attempts=2))
    def divide(a: int) -> float:
        return a / 0

    with lite.worker():
        job = divide.enqueue(1)
        with pytest.raises(JobFailed, match="division by zero") as failed:
            job.wait(5)
    assert failed.value.job_id == job.id
    assert failed.value.kind == "ZeroDivisionError"
    assert "return a / 0" in failed.value.traceback
    assert "2 of 2 runs" in str(failed.value)


def test_a_job_failed_by_hand_raises_without_an_error_of_its_own(jobs: Duly) -> None:
    @jobs.task
    def work() -> None: ...

    job = work.enqueue()
    jobs.set_state(job.id, "failed")
    with pytest.raises(JobFailed, match="ended by hand"):
        job.wait(1)


def test_a_cancelled_job_raises_with_the_reason(jobs: Duly) -> None:
    @jobs.task
    def work(n: int) -> None:
        raise Cancel("the user is gone")

    waiting = work.enqueue(0)
    waiting.cancel("not needed any more")
    with pytest.raises(JobCancelled, match="not needed") as cancelled:
        waiting.wait(1)
    assert cancelled.value.reason == "not needed any more"
    with jobs.worker():
        with pytest.raises(JobCancelled, match="the user is gone"):
            work.enqueue(1).wait(5)
        with pytest.raises(JobCancelled, match="the user is gone"):
            asyncio.run(_awaited(work.enqueue(2)))


async def _awaited(job: Any) -> Any:
    return await job


def test_waiting_ends_when_the_time_is_up(lite: Duly) -> None:
    @lite.task
    def work() -> int:
        return 1

    job = work.enqueue()
    started = time.monotonic()
    with pytest.raises(WaitTimeout, match="queued"):
        job.wait(0.2)
    with pytest.raises(TimeoutError):
        job.wait(timedelta(seconds=0.1))
    assert 0.3 <= time.monotonic() - started < 2
    with pytest.raises(WaitTimeout, match="no result yet"):
        job.result()

    async def main() -> None:
        await asyncio.wait_for(job, 0.1)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    with lite.worker():
        assert job.wait(5) == 1


def test_waiting_for_a_job_that_is_deleted_does_not_go_on_for_ever(jobs: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duly.results.CHECK_EVERY", 0.1)

    @jobs.task
    def work() -> int:
        return 1

    job = work.enqueue()
    with ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(job.wait, 10), pool.submit(lambda: asyncio.run(_awaited(job)))]
        eventually(lambda: jobs.waiters._waiting)
        jobs.delete(job.id)
        for wait in waits:
            with pytest.raises(JobNotFound):
                wait.result(8)
    with pytest.raises(JobNotFound):
        job.wait(1)


def test_a_result_from_another_process_arrives_soon(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger):
        tasks.note.enqueue("warm").wait(10)
        job = tasks.hold.enqueue("one", 0.3)
        job.wait(10)
        (end,) = ledger.entries("end", "one")
        assert time.monotonic() - end.at < 1.0


def test_two_hundred_waiters_cost_few_looks_at_the_database(jobs: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    real = jobs.store.ended_among

    def counted(ids: Any) -> Any:
        looks.append(len(ids))
        return real(ids)

    monkeypatch.setattr(jobs.store, "ended_among", counted)

    @jobs.task
    def work(n: int) -> int:
        return n

    stored = work.enqueue_many([{"n": n} for n in range(200)])

    async def main() -> list[int]:
        everyone = asyncio.gather(*stored)
        await asyncio.sleep(1.5)
        assert len(looks) <= 40, f"{len(looks)} looks for 200 that wait"
        assert max(looks) > 150, "one look is for all"
        with jobs.worker():
            return list(await everyone)

    assert asyncio.run(main()) == list(range(200))
    assert len(looks) <= 80


def test_waiting_in_the_process_of_the_worker_needs_no_look(lite: Duly) -> None:
    seen = threading.Event()

    @lite.task
    def work() -> int:
        assert seen.wait(5)
        return 1

    with lite.worker(), ThreadPoolExecutor(1) as pool:
        job = work.enqueue()
        waiting = pool.submit(job.wait, 5)
        eventually(lambda: lite.waiters._waiting)
        time.sleep(0.6)  # long enough for the looks to be rare
        seen.set()
        started = time.monotonic()
        assert waiting.result(5) == 1
        assert time.monotonic() - started < 0.3


def test_a_waiter_whose_loop_is_gone_harms_nobody(lite: Duly) -> None:
    release = threading.Event()

    @lite.task
    def work(n: int) -> int:
        assert release.wait(5)
        return n

    with lite.worker():
        lost, kept = work.enqueue(1), work.enqueue(2)
        loop = asyncio.new_event_loop()
        task = loop.create_task(lost._await())
        loop.run_until_complete(asyncio.sleep(0.2))
        assert not task.done()
        loop.close()
        release.set()
        assert kept.wait(5) == 2
        assert lost.wait(5) == 1
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task


def test_an_unknown_job_is_not_found(lite: Duly) -> None:
    with pytest.raises(JobNotFound, match="there is no job"):
        lite.get("0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12")
    with pytest.raises(JobNotFound, match="not the id of a job"):
        lite.get("seven")
    with pytest.raises(JobNotFound, match="not the id of a job"):
        lite.get("'; DROP TABLE lite; --")


def test_the_result_is_read_by_another_object_that_does_not_know_the_task(jobs: Duly, database_url: str) -> None:
    @jobs.task
    def invoice() -> Invoice:
        return INVOICE

    with jobs.worker():
        job = invoice.enqueue()
        job.wait(5)
    with opened(database_url) as other:
        assert other.get(job.id).result()["total"] == "12.30"
