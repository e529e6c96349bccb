"""Registering at run time: from a start hook, from several threads, in several processes that come and go."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest

from duly import AlreadyRegistered, Duly, NotRegistered
from duly.worker.context import Run
from tests.helpers import eventually, opened

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def pair(database_url: str) -> Iterator[tuple[Duly, Duly]]:
    """Two that share a database as two processes would."""
    with opened(database_url) as one, opened(database_url) as other:
        yield one, other


def nothing() -> None: ...


@pytest.mark.requirement("E1", "E10")
def test_a_start_hook_may_register(database_url: str) -> None:
    ran = threading.Event()
    with opened(database_url) as jobs:
        jobs.on_start(lambda: jobs.register("acme", "report", START, "50ms", ran.set))
        jobs.start()
        try:
            assert ran.wait(5)
        finally:
            jobs.stop()


@pytest.mark.requirement("E2")
def test_a_function_may_unregister_itself(database_url: str) -> None:
    with opened(database_url) as jobs:
        jobs.register("acme", "once", START, "50ms", lambda: jobs.unregister("acme", "once"))
        jobs.start()
        try:
            eventually(lambda: not jobs.recurring_jobs())
        finally:
            jobs.stop()
        with pytest.raises(NotRegistered):
            jobs.unregister("acme", "once")


@pytest.mark.requirement("E2")
def test_what_was_removed_and_made_anew_elsewhere_is_removed_by_whoever_registered_it_first(
    pair: tuple[Duly, Duly],
) -> None:
    one, other = pair
    one.register("acme", "report", START, "1h", nothing)
    other.register("acme", "report", START, "1h", nothing)
    other.unregister("acme", "report")
    other.register("acme", "report", START, "1h", nothing)

    one.unregister("acme", "report")
    assert other.recurring_jobs() == []


@pytest.mark.requirement("E1", "E10")
def test_a_database_that_is_slow_to_register_one_job_holds_up_nobody_who_needs_no_database(sqlite_url: str) -> None:
    with opened(sqlite_url) as jobs, closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as slow:
        slow.execute("BEGIN IMMEDIATE")
        thread = in_thread(lambda: jobs.register("acme", "report", START, "1h", nothing))
        try:
            time.sleep(0.2)
            assert already(jobs)
            assert thread.is_alive(), "it waits for the database"
            with pytest.raises(NotRegistered):
                jobs.unregister("acme", "another")
        finally:
            slow.rollback()
            thread.join(10)
        assert [job.key for job in jobs.recurring_jobs()] == ["report"]


@pytest.mark.requirement("E1")
def test_what_could_not_be_registered_can_be_tried_again(database_url: str) -> None:
    with opened(database_url) as jobs:
        jobs.register("acme", "first", START, "1h", nothing, name="report")
        with pytest.raises(Exception, match="belongs to recurring job"):
            jobs.register("acme", "second", START, "1h", nothing, name="report")
        assert jobs.register("acme", "second", START, "1h", nothing).created


@pytest.mark.requirement("E6", "E10")
def test_a_registered_job_may_have_a_timeout_and_goes_on_after_it(database_url: str) -> None:
    begun: list[str] = []

    def slow(job: Run) -> None:
        begun.append("slow")
        assert job.wait_cancelled(20)

    async def slow_on_the_loop() -> None:
        begun.append("loop")
        await asyncio.sleep(20)

    with opened(database_url) as jobs:
        jobs.register("acme", "slow", START, "500ms", slow, timeout="100ms")
        jobs.register("acme", "loop", START, "500ms", slow_on_the_loop, timeout=0.1)
        jobs.start()
        try:
            eventually(lambda: begun.count("slow") >= 3 and begun.count("loop") >= 3, within=10)
        finally:
            jobs.stop(0)
        for job in jobs.recurring_jobs():
            assert job.last_error is not None
            assert job.last_error.startswith("TimeoutError")


def already(jobs: Duly) -> bool:
    """Whether a second registration is refused, without a word to the database."""
    try:
        jobs.register("acme", "report", START, "1h", nothing)
    except AlreadyRegistered:
        return True
    return False


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread
