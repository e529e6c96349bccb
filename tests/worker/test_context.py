"""`current_job()`: what a handler knows of its job, and that nothing of one job reaches another."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import Backoff, Duly, DulyError, current_job

LANGUAGE: ContextVar[str] = ContextVar("language", default="none")


@pytest.fixture
def jobs(lite: Duly) -> Duly:
    """None of this depends on the database."""
    return lite


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_handler_knows_its_job(jobs: Duly, kind: str) -> None:
    seen: list[dict[str, Any]] = []

    def look() -> None:
        job = current_job()
        names = ("id", "task", "queue", "tenant", "attempt", "max_attempts", "fence", "run_at", "deadline")
        seen.append({name: getattr(job, name) for name in names} | {"cancelled": job.cancelled()})
        if job.attempt == 1:
            raise ValueError

    async def alook() -> None:
        await asyncio.sleep(0)
        look()

    task = jobs.declare(
        look if kind == "def" else alook,
        {"name": "look", "queue": "q", "retry": Backoff.fixed(0, max_attempts=4)},
    )
    with jobs.worker():
        job = task.using(tenant="acme").enqueue()
        job.wait(5)
    first, second = seen
    assert (first["id"], first["task"], first["queue"], first["tenant"]) == (job.id, "look", "q", "acme")
    assert (first["attempt"], second["attempt"], first["max_attempts"]) == (1, 2, 4)
    assert second["fence"] > first["fence"] > 0
    assert first["run_at"] == job.created_at
    assert abs(second["run_at"] - datetime.now(UTC)) < timedelta(minutes=1)
    assert (first["deadline"], first["cancelled"]) == (None, False)


def test_outside_a_job_there_is_none(jobs: Duly) -> None:
    with pytest.raises(DulyError, match="outside a job"):
        current_job()

    @jobs.task
    def work() -> str:
        return current_job().id

    with pytest.raises(DulyError, match="outside a job"):
        work()
    with jobs.worker():
        job = work.enqueue()
        assert job.wait(5) == job.id
    with pytest.raises(DulyError, match="outside a job"):
        current_job()


def test_jobs_side_by_side_each_see_their_own(jobs: Duly) -> None:
    @jobs.task
    async def coroutine(n: int) -> tuple[str, str]:
        before = current_job().id
        await asyncio.sleep(0.01 * (n % 3))
        task = asyncio.ensure_future(asyncio.to_thread(lambda: current_job().id))
        assert await task == before
        return before, current_job().id

    @jobs.task
    def plain(n: int) -> tuple[str, str]:
        before = current_job().id
        threading.Event().wait(0.01 * (n % 3))
        return before, current_job().id

    with jobs.worker():
        stored = [task.enqueue(n) for n in range(30) for task in (coroutine, plain)]
        for job in stored:
            assert job.wait(10) == (job.id, job.id)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_what_one_job_sets_in_its_context_does_not_reach_the_next(jobs: Duly, kind: str) -> None:
    def speak(language: str) -> str:
        found = LANGUAGE.get()
        LANGUAGE.set(language)
        return found

    async def aspeak(language: str) -> str:
        return speak(language)

    task = jobs.declare(speak if kind == "def" else aspeak, {"name": "speak"})
    LANGUAGE.set("of the test")
    with jobs.worker(thread_slots=1, async_slots=1):
        found = [task.enqueue(language).wait(5) for language in ("fr", "de", "it")]
    assert found == ["none"] * 3
    assert LANGUAGE.get() == "of the test"


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_what_middleware_sets_reaches_its_run_only(jobs: Duly, kind: str) -> None:
    @jobs.middleware
    def translate(job: Any) -> Any:
        if job.tenant:
            LANGUAGE.set(job.tenant)
        yield

    def speak() -> str:
        return LANGUAGE.get()

    async def aspeak() -> str:
        await asyncio.sleep(0)
        return LANGUAGE.get()

    task = jobs.declare(speak if kind == "def" else aspeak, {"name": "speak"})
    with jobs.worker(thread_slots=1, async_slots=1):
        assert task.using(tenant="fr").enqueue().wait(5) == "fr"
        assert task.enqueue().wait(5) == "none"
        assert task.using(tenant="de").enqueue().wait(5) == "de"


def test_a_task_of_asyncio_that_outlives_its_job_disturbs_nobody(jobs: Duly) -> None:
    left: list[asyncio.Task[None]] = []

    async def linger() -> None:
        await asyncio.sleep(0.1)
        LANGUAGE.set("lingering")

    @jobs.task
    async def start() -> None:
        left.append(asyncio.get_running_loop().create_task(linger()))

    @jobs.task
    async def speak() -> str:
        await asyncio.sleep(0.15)
        return LANGUAGE.get()

    with jobs.worker():
        start.enqueue().wait(5)
        assert speak.enqueue().wait(5) == "none"
    assert left[0].done()
