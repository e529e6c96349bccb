"""Quotas of tenants and caps of queues: too much is refused at enqueue with a clear word, or waits, as was said."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import aiosqlite
import psycopg
import pytest

from duly import Duly, Task
from duly.domain.errors import DulyError, InvalidOption, QueueFull, QuotaExceeded
from duly.store import caps
from duly.testing import TestClock, drain
from tests.helpers import opened
from tests.store.raw import Raw

pytestmark = pytest.mark.requirement("E9")

Note = Task[[int], None]


@pytest.fixture
def still(database_url: str, raw: Raw, clock: TestClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Duly]:
    """By a clock that stands, and without trust in an earlier count: what is refused is refused at once."""
    monkeypatch.setattr(caps, "TRUST", -1.0)
    with opened(database_url, clock=clock) as jobs:
        yield jobs


@pytest.fixture
def note(still: Duly) -> Note:
    @still.task
    def note(n: int) -> None: ...

    return note


def fill(enqueue: Callable[[], object], most: int = 50) -> int:
    """Enqueue until it is refused; return how many were not."""
    for n in range(most):
        try:
            enqueue()
        except (QueueFull, QuotaExceeded):
            return n
    return most


def test_a_queue_holds_no_more_than_may_wait_in_it(still: Duly, note: Note) -> None:
    still.set_limit(queue="default", most_waiting=3)
    assert fill(lambda: note.enqueue(1)) == 3
    with pytest.raises(QueueFull, match=r"queue 'default' holds 3 waiting jobs of at most 3.*--most-waiting"):
        note.enqueue(1)
    note.using(queue="other").enqueue(1)
    drain(still, queues="default", limit=1)
    assert fill(lambda: note.enqueue(1)) == 1


def test_jobs_that_stand_aside_for_a_key_wait_too(still: Duly) -> None:
    @still.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> None: ...

    still.set_limit(queue="default", most_waiting=4)
    assert fill(lambda: fetch.enqueue("a")) == 4
    still.unset_limit(queue="default")
    still.set_quota("acme", waiting=2)
    assert fill(lambda: fetch.using(tenant="acme").enqueue("a")) == 2


def test_many_at_once_are_refused_whole(still: Duly, note: Note) -> None:
    still.set_limit(queue="default", most_waiting=10)
    note.enqueue_many([{"n": n} for n in range(8)])
    with pytest.raises(QueueFull, match="3 jobs would be too many"):
        note.enqueue_many([{"n": n} for n in range(3)])
    assert len(still.list()) == 8
    note.enqueue_many([{"n": n} for n in range(2)])


def test_a_tenant_has_no_more_waiting_than_it_may(still: Duly, note: Note) -> None:
    still.set_quota("acme", waiting=3)
    acme = note.using(tenant="acme")
    other = note.using(tenant="acme", queue="other")
    acme.enqueue(1)
    other.enqueue(1)
    assert fill(lambda: acme.enqueue(1)) == 1, "counted over all its queues"
    with pytest.raises(
        QuotaExceeded, match=r"tenant 'acme' has 3 waiting jobs of at most 3.*duly quota acme --waiting"
    ):
        other.enqueue(1)
    note.enqueue(1)
    note.using(tenant="umbrella").enqueue(1)


def test_no_more_of_a_tenant_run_than_may(still: Duly, note: Note) -> None:
    still.set_quota("acme", running=2)
    assert still.quota("acme").running == 2
    assert fill(lambda: note.using(tenant="acme").enqueue(1), 5) == 5, "more wait"
    [limit] = still.limits()
    assert (limit.scope, limit.name, limit.says.slots) == ("tenant", "acme", 2)


@pytest.mark.parametrize("scope, seconds", [("minute", 60), ("day", 86_400)])
def test_more_than_the_quota_of_a_time_is_refused_until_the_next_begins(
    still: Duly, note: Note, clock: TestClock, scope: str, seconds: int
) -> None:
    clock.advance(20)
    still.set_quota("acme", per_minute=5 if scope == "minute" else None, per_day=5 if scope == "day" else None)
    acme = note.using(tenant="acme")
    assert fill(lambda: acme.enqueue(1)) == 5
    with pytest.raises(
        QuotaExceeded, match=rf"may enqueue 5 jobs per {scope}, and 5 are used.*--per-{scope}"
    ) as caught:
        acme.enqueue(1)
    assert caught.value.retry_after == timedelta(seconds=seconds - 20)
    clock.advance(seconds - 21)
    assert fill(lambda: acme.enqueue(1)) == 0
    clock.advance(1)
    assert fill(lambda: acme.enqueue(1)) == 5


def test_what_is_refused_by_the_day_is_not_taken_off_the_minute(still: Duly, note: Note, clock: TestClock) -> None:
    still.set_quota("acme", per_minute=5, per_day=3)
    acme = note.using(tenant="acme")
    assert fill(lambda: acme.enqueue(1)) == 3
    for _ in range(4):
        with pytest.raises(QuotaExceeded, match="per day"):
            acme.enqueue(1)
    still.set_quota("acme", per_minute=5, per_day=100)
    assert fill(lambda: acme.enqueue(1)) == 2


def test_what_is_over_the_quota_waits_if_that_was_said(still: Duly, note: Note, clock: TestClock) -> None:
    still.set_quota("acme", per_minute=3, over="wait")
    acme = note.using(tenant="acme")
    assert fill(lambda: acme.enqueue(1), 8) == 8
    assert len(drain(still).runs) == 3
    clock.advance(30)
    assert len(drain(still).runs) == 0
    clock.advance(30)
    assert len(drain(still).runs) == 3
    assert len(drain(still, until_done=True).runs) == 2


def test_a_quota_is_shown_changed_and_taken_back(still: Duly, note: Note) -> None:
    assert still.quota("acme").to_dict() == {
        "tenant": "acme",
        "waiting": None,
        "running": None,
        "per_minute": None,
        "per_day": None,
        "over": "refuse",
    }
    said = still.set_quota("acme", waiting=1, running=2, per_minute=3, per_day=4, over="wait")
    assert still.quota("acme") == said
    still.set_limit(tenant="acme", concurrency=7, rate="5/s")
    still.set_quota("acme", running=3)
    assert [(each.scope, each.says.slots, each.says.rate_n) for each in still.limits()] == [("tenant", 3, 5)]
    still.unset_limit(tenant="acme")
    still.set_quota("acme")
    assert still.limits() == []
    assert fill(lambda: note.using(tenant="acme").enqueue(1), 5) == 5


@pytest.mark.parametrize("over", ["refuse", "wait"])
def test_what_was_used_of_a_quota_stays_used_when_it_is_changed(still: Duly, note: Note, over: str) -> None:
    still.set_quota("acme", per_minute=5, over=over)

    def used() -> int:
        if over == "refuse":
            return fill(lambda: note.using(tenant="acme").enqueue(1), 20)
        for _ in range(20):
            note.using(tenant="acme").enqueue(1)
        return len(drain(still).runs)

    assert used() == 5
    still.set_quota("acme", per_minute=7, over=over)
    assert used() == 2
    still.set_quota("acme", per_minute=3, over=over)
    assert used() == 0


@pytest.mark.parametrize(
    "options, match",
    [
        ({"tenant": ""}, "tenant must not be empty"),
        ({"waiting": -1}, "waiting must be a whole number from 0"),
        ({"running": 1.5}, "running must be a whole number"),
        ({"per_minute": 0}, "per_minute must be a whole number from 1"),
        ({"per_day": True}, "per_day must be a whole number"),
        ({"over": "explode"}, "over must be 'refuse' or 'wait'"),
    ],
)
def test_nonsense_is_refused(lite: Duly, options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidOption, match=match):
        lite.set_quota(**{"tenant": "acme", **options})


@pytest.mark.parametrize(
    "options, match",
    [
        ({}, "name one"),
        ({"queue": "a", "task": "b", "concurrency": 1}, "name one"),
        ({"queue": "a"}, "say how many"),
        ({"queue": "", "concurrency": 1}, "must not be empty"),
        ({"task": "a b", "concurrency": 1}, "task name"),
        ({"task": "a", "most_waiting": 1}, "most_waiting is for queues and tenants"),
        ({"key": "a", "concurrency": 1}, "Write task/key"),
        ({"keys": "a/b", "concurrency": 1}, "task name"),
        ({"queue": "a", "concurrency": -1}, "concurrency must be a whole number from 0"),
        ({"queue": "a", "rate": "fast"}, "rate"),
        ({"queue": "a", "burst": 5}, "burst"),
        ({"key": "a/b", "most_waiting": 3}, "most_waiting"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(lite: Duly, options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidOption, match=match):
        lite.set_limit(**options)
    assert lite.limits() == []


def test_a_quota_is_exact_however_many_enqueue_at_once(still: Duly, note: Note) -> None:
    still.set_quota("acme", per_minute=40, per_day=1_000)
    ready = threading.Barrier(6)

    def enqueue() -> int:
        ready.wait(20)
        return fill(lambda: note.using(tenant="acme").enqueue(1), 20)

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(lambda _: enqueue(), range(6))) == 40
    assert len(still.list(limit=100)) == 40


def test_a_cap_holds_within_what_comes_in_a_second(database_url: str, clock: TestClock, raw: Raw) -> None:
    """Several processes that trust their last count may go over it, each by no more than a quarter of what was left."""
    with opened(database_url, clock=clock) as one, opened(database_url, clock=clock) as two:
        one.set_limit(queue="default", most_waiting=100)
        tasks = []
        for jobs in (one, two):

            @jobs.task
            def note(n: int) -> None: ...

            tasks.append(note)
        stored = sum(fill(lambda task=task: task.enqueue(1), 300) for _ in range(2) for task in tasks)  # type: ignore[misc]
        assert 100 <= stored <= 125


def test_another_process_that_has_been_enqueuing_learns_of_a_cap(
    database_url: str, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caps, "READ_EVERY", 0.0)
    with opened(database_url, clock=clock) as one, opened(database_url, clock=clock) as two:

        @two.task
        def note(n: int) -> None: ...

        assert fill(lambda: note.enqueue(1), 5) == 5
        one.set_limit(queue="default", most_waiting=5)
        assert fill(lambda: note.enqueue(1)) == 0


@pytest.mark.parametrize("what", ["queue", "minute"])
def test_the_async_ways_are_refused_as_well(still: Duly, note: Note, what: str) -> None:
    if what == "queue":
        still.set_limit(queue="default", most_waiting=2)
    else:
        still.set_quota("acme", per_minute=2)
    acme = note.using(tenant="acme")

    async def enqueue() -> None:
        await acme.aenqueue(1)
        await acme.aenqueue_many([{"n": 1}])
        with pytest.raises(DulyError, match=r"too many|per minute"):
            await acme.aenqueue(1)
        with pytest.raises(DulyError, match=r"too many|per minute"):
            await acme.aenqueue_many([{"n": 1}] * 2)

    asyncio.run(enqueue())
    assert len(still.list()) == 2


@pytest.mark.parametrize("what", ["queue", "minute"])
def test_the_callers_connection_is_no_way_round(still: Duly, note: Note, database_url: str, what: str) -> None:
    if what == "queue":
        still.set_limit(queue="default", most_waiting=2)
    else:
        still.set_quota("acme", per_minute=2)
    note.using(tenant="acme").enqueue_many([{"n": 1}] * 2)
    connection: Any = (
        psycopg.connect(database_url)
        if database_url.startswith("postgresql")
        else sqlite3.connect(database_url.removeprefix("sqlite:///"))
    )
    try:
        with pytest.raises((QueueFull, QuotaExceeded)):
            note.using(tenant="acme", connection=connection).enqueue(1)
        with pytest.raises((QueueFull, QuotaExceeded)):
            note.using(tenant="acme", connection=connection).enqueue_many([{"n": 1}])
    finally:
        connection.close()
    assert len(still.list()) == 2


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_caller_that_has_written_already_can_enqueue_under_a_quota(
    still: Duly, note: Note, database_url: str, asynchronous: bool
) -> None:
    """On SQLite nobody else could write to the quota meanwhile. A rollback gives it back there."""
    still.set_quota("acme", per_minute=2)
    acme = note.using(tenant="acme")
    if asynchronous:
        asyncio.run(enqueue_beside_own_writes(acme, database_url))
    elif database_url.startswith("postgresql"):
        with psycopg.connect(database_url) as connection:
            connection.execute("CREATE TEMP TABLE mine (n integer)")
            acme.using(connection=connection).enqueue(1)
    else:
        own = sqlite3.connect(database_url.removeprefix("sqlite:///"))
        own.execute("CREATE TABLE mine (n integer)")
        own.execute("INSERT INTO mine VALUES (1)")
        acme.using(connection=own).enqueue(1)
        own.rollback()
        own.execute("INSERT INTO mine VALUES (1)")
        acme.using(connection=own).enqueue_many([{"n": 1}])
        own.commit()
        own.close()
    assert len(still.list()) == 1
    assert fill(lambda: acme.enqueue(1)) == 1


async def enqueue_beside_own_writes(acme: Note, database_url: str) -> None:
    if database_url.startswith("postgresql"):
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            await connection.execute("CREATE TEMP TABLE mine (n integer)")
            await acme.using(connection=connection).aenqueue(1)
        return
    async with aiosqlite.connect(database_url.removeprefix("sqlite:///")) as own:
        await own.execute("CREATE TABLE mine (n integer)")
        await own.execute("INSERT INTO mine VALUES (1)")
        await acme.using(connection=own).aenqueue(1)
        await own.commit()


def test_what_is_not_limited_costs_nothing(still: Duly, note: Note, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue without a cap is not counted because another one has one."""
    still.set_limit(queue="other", most_waiting=1)
    note.enqueue(1)
    counted: list[object] = []
    monkeypatch.setattr(caps, "_count", counted.append)
    for _ in range(5):
        note.enqueue(1)
    assert counted == []
