"""Hooks: at start and stop, around every run, after the last failure; one that raises harms only what it must."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from duly import Backoff, Cancel, ConfigurationError, Duly, JobFailed, Snooze, State, current_job
from tests.helpers import eventually


@pytest.fixture
def jobs(lite: Duly) -> Duly:
    """None of this depends on the database."""
    return lite


def test_start_and_stop_hooks_run_once_each_in_order(jobs: Duly) -> None:
    said: list[str] = []

    @jobs.on_start
    def open_pool() -> None:
        said.append("open pool")

    @jobs.on_start
    def warm_up() -> None:
        said.append("warm up")

    @jobs.on_stop
    def close_pool() -> None:
        said.append("close pool")

    @jobs.task
    def work() -> None:
        said.append("work")

    job = work.enqueue()
    with jobs.worker():
        job.wait(5)
        assert said == ["open pool", "warm up", "work"]
    assert said == ["open pool", "warm up", "work", "close pool"]


def test_async_start_and_stop_hooks_run_on_the_loop_of_the_handlers(jobs: Duly) -> None:
    loops: dict[str, object] = {}

    @jobs.on_start
    async def connect() -> None:
        await asyncio.sleep(0)
        loops["start"] = asyncio.get_running_loop()

    @jobs.on_stop
    async def disconnect() -> None:
        await asyncio.sleep(0)
        loops["stop"] = asyncio.get_running_loop()

    @jobs.task
    async def work() -> None:
        loops["work"] = asyncio.get_running_loop()

    with jobs.worker():
        work.enqueue().wait(5)
    assert loops["start"] is loops["work"] is loops["stop"]


def test_async_start_hooks_run_also_where_no_task_is_async(jobs: Duly) -> None:
    said: list[str] = []

    @jobs.on_start
    async def connect() -> None:
        await asyncio.sleep(0)
        said.append("start")

    @jobs.task
    def work() -> None: ...

    with jobs.worker():
        work.enqueue().wait(5)
    assert said == ["start"]


def test_a_start_hook_that_raises_stops_the_start_and_leaves_nothing(jobs: Duly) -> None:
    @jobs.task
    def work() -> int:
        return 1

    @jobs.on_start
    def broken() -> None:
        raise OSError("no licence")

    job = work.enqueue()
    worker = jobs.worker()
    with pytest.raises(OSError, match="no licence"):
        worker.start()
    worker.stop()
    assert jobs.workers() == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("duly-")]
    jobs.registry.on_start.clear()
    with jobs.worker():
        assert job.wait(5) == 1


def test_a_stop_hook_that_raises_does_not_keep_the_others_from_running(jobs: Duly) -> None:
    said: list[str] = []

    @jobs.on_stop
    def broken() -> None:
        raise SystemExit(3)

    @jobs.on_stop
    def fine() -> None:
        said.append("fine")

    with jobs.worker():
        pass
    assert said == ["fine"]
    assert jobs.workers() == []


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_middleware_surrounds_every_run_first_registered_outermost(jobs: Duly, kind: str) -> None:
    said: list[str] = []

    @jobs.middleware
    def outer(job: Any) -> Iterator[None]:
        said.append(f"outer in {job.task}")
        try:
            yield
        finally:
            said.append("outer out")

    @jobs.middleware
    @contextmanager
    def inner(job: Any) -> Iterator[None]:
        said.append(f"inner in {job.id == current_job().id}")
        yield
        said.append("inner out")

    def work() -> int:
        said.append("work")
        return 7

    async def awork() -> int:
        await asyncio.sleep(0)
        return work()

    task = jobs.declare(work if kind == "def" else awork, {"name": "work"})
    with jobs.worker():
        assert task.enqueue().wait(5) == 7
    assert said == ["outer in work", "inner in True", "work", "inner out", "outer out"]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_middleware_sees_the_error_and_may_not_be_skipped_by_it(jobs: Duly, kind: str) -> None:
    seen: list[str] = []

    @jobs.middleware
    def watch(job: Any) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    def work(how: str) -> None:
        raise {"value": ValueError("x"), "snooze": Cancel("c"), "exit": SystemExit(2)}[how]

    async def awork(how: str) -> None:
        work(how)

    task = jobs.declare(work if kind == "def" else awork, {"name": "work", "retry": Backoff.none()})
    with jobs.worker():
        stored = [task.enqueue(how) for how in ("value", "snooze", "exit")]
        for job in stored:
            eventually(lambda job=job: job.refresh().state.terminal)  # type: ignore[misc]
    assert sorted(seen) == ["Cancel", "SystemExit", "ValueError"]
    assert [job.state for job in stored] == [State.FAILED, State.CANCELLED, State.FAILED]


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("where", ["before", "after", "without yield"])
def test_middleware_that_raises_fails_the_run_and_not_the_worker(jobs: Duly, kind: str, where: str) -> None:
    on = [True]

    @jobs.middleware
    def broken(job: Any) -> Iterator[None]:
        if on and where == "without yield":
            return
        if on and where == "before":
            raise OSError("before")
        yield
        if on and where == "after":
            raise OSError("after")

    def work() -> int:
        return 1

    async def awork() -> int:
        return 1

    task = jobs.declare(work if kind == "def" else awork, {"name": "work", "retry": Backoff.none()})
    with jobs.worker():
        with pytest.raises(JobFailed, match=where if where != "without yield" else "yield"):
            task.enqueue().wait(5)
        on.clear()
        assert task.enqueue().wait(5) == 1


def test_middleware_that_swallows_the_error_lets_the_run_succeed_without_a_result(jobs: Duly) -> None:
    @jobs.middleware
    def forgiving(job: Any) -> Iterator[None]:
        with suppress(ValueError):
            yield

    @jobs.task
    def work() -> int:
        raise ValueError("never mind")

    with jobs.worker():
        assert work.enqueue().wait(5) is None


def test_async_middleware_is_refused_where_it_is_registered(jobs: Duly) -> None:
    async def wrong(job: Any) -> Any:
        yield

    async def worse(job: Any) -> None: ...

    for function in (wrong, worse):
        with pytest.raises(ConfigurationError, match="middleware"):
            jobs.middleware(function)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_failure_hooks_are_told_once_after_the_last_run(jobs: Duly, kind: str) -> None:
    told: list[tuple[str, str, int, str]] = []

    def mine(job: Any, error: BaseException) -> None:
        told.append(("task", job.id, job.attempt, str(error)))

    @jobs.on_failure
    def everybodys(job: Any, error: BaseException) -> None:
        told.append(("global", job.id, job.attempt, str(error)))

    def work() -> None:
        raise ValueError("no")

    async def awork() -> None:
        raise ValueError("no")

    task = jobs.declare(
        work if kind == "def" else awork,
        {"name": "work", "retry": Backoff.fixed(0, max_attempts=3), "on_failure": mine},
    )
    with jobs.worker():
        job = task.enqueue()
        with pytest.raises(JobFailed):
            job.wait(5)
    assert told == [("task", job.id, 3, "no"), ("global", job.id, 3, "no")]


def test_failure_hooks_hear_nothing_of_what_is_no_failure(jobs: Duly) -> None:
    told: list[object] = []

    @jobs.on_failure
    def note(job: Any, error: BaseException) -> None:
        told.append(error)

    runs: list[int] = []

    @jobs.task(retry=Backoff.fixed(0))
    def work(how: str) -> None:
        runs.append(1)
        if how == "retried" and len(runs) < 3:
            raise ValueError
        if how == "cancelled":
            raise Cancel("x")
        if how == "snoozed":
            raise Snooze(timedelta(hours=1))

    with jobs.worker():
        work.enqueue("retried").wait(5)
        for how, state in (("cancelled", State.CANCELLED), ("snoozed", State.SCHEDULED)):
            job = work.enqueue(how)
            eventually(lambda job=job, state=state: job.refresh().state is state)  # type: ignore[misc]
    assert told == []


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("error", [OSError("hook"), SystemExit(4), KeyboardInterrupt()], ids=repr)
def test_a_failure_hook_that_raises_changes_nothing(jobs: Duly, kind: str, error: BaseException) -> None:
    told: list[str] = []

    @jobs.on_failure
    def broken(job: Any, reason: BaseException) -> None:
        raise error

    @jobs.on_failure
    def fine(job: Any, reason: BaseException) -> None:
        told.append(str(reason))

    def work(n: int) -> int:
        return 1 // n

    async def awork(n: int) -> int:
        return 1 // n

    task = jobs.declare(work if kind == "def" else awork, {"name": "work", "retry": Backoff.none()})
    with jobs.worker(thread_slots=1, async_slots=1):
        with pytest.raises(JobFailed, match="division"):
            task.enqueue(0).wait(5)
        assert task.enqueue(1).wait(5) == 1
    assert told == ["integer division or modulo by zero"]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_failure_hook_may_be_async(jobs: Duly, kind: str) -> None:
    told = threading.Event()

    @jobs.on_failure
    async def tell(job: Any, reason: BaseException) -> None:
        await asyncio.sleep(0.01)
        told.set()

    def work() -> int:
        raise ValueError

    async def awork() -> int:
        raise ValueError

    task = jobs.declare(work if kind == "def" else awork, {"name": "work", "retry": Backoff.none()})
    with jobs.worker():
        task.enqueue()
        assert told.wait(5)
