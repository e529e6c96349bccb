"""Waking up: an idle worker starts a new job at once, whoever stored it, and a delayed one on time."""

from __future__ import annotations

import itertools
import sqlite3
import statistics
import threading
import time
from contextlib import closing
from typing import Any

import psycopg
import pytest

from duly import Backoff, Duly, Task
from duly.domain.ids import uuid7_many
from tests.databases import Kind
from tests.helpers import Ledger, eventually, never, opened, worker_process
from tests.store.raw import Raw
from tests.worker.tasks import declare


@pytest.fixture
def started_at() -> dict[str, float]:
    return {}


@pytest.fixture
def note(jobs: Duly, started_at: dict[str, float]) -> Task[[str], None]:
    @jobs.task
    def note(name: str) -> None:
        started_at[name] = time.monotonic()

    return note


def gone_idle(jobs: Duly) -> None:
    """Wait until the worker has gone to sleep."""
    eventually(lambda: any(worker.idle for worker in jobs.workers()))
    time.sleep(0.2)


@pytest.mark.everywhere
def test_an_idle_worker_of_another_process_starts_a_new_job_at_once(
    jobs: Duly, database_url: str, ledger: Ledger
) -> None:
    tasks = declare(jobs, ledger)
    waits = []
    with worker_process(database_url, ledger):
        tasks.note.enqueue("warm").wait(10)
        gone_idle(jobs)
        for n in range(15):
            asked = time.monotonic()
            tasks.note.enqueue(str(n))
            (entry,) = eventually(lambda n=n: ledger.entries(name=str(n)), every=0.001)  # type: ignore[misc]
            waits.append(entry.at - asked)
    assert statistics.median(waits) < 0.1, "the poll comes every 10 s: only a wake-up can be so quick"
    assert max(waits) < 1.0


def test_an_idle_worker_wakes_for_many_jobs_and_for_one_with_a_key(
    jobs: Duly, note: Task[[str], None], started_at: dict[str, float]
) -> None:
    with jobs.worker():
        gone_idle(jobs)
        asked = time.monotonic()
        note.enqueue_many([{"name": "many"}])
        eventually(lambda: "many" in started_at)
        note.using(unique="k").enqueue("keyed")
        eventually(lambda: "keyed" in started_at)
        assert started_at["keyed"] - asked < 1.0


@pytest.mark.requirement("B7", "C5")
def test_a_delayed_job_starts_on_time(jobs: Duly, note: Task[[str], None], started_at: dict[str, float]) -> None:
    with jobs.worker():
        gone_idle(jobs)
        asked = time.monotonic()
        for delay in (0.9, 0.3, 0.6):
            note.using(delay=delay).enqueue(str(delay))
        eventually(lambda: len(started_at) == 3)
    for delay in (0.3, 0.6, 0.9):
        assert -0.02 < started_at[str(delay)] - asked - delay < 0.4


def test_a_job_delayed_by_another_process_starts_on_time(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger):
        tasks.note.enqueue("warm").wait(10)
        gone_idle(jobs)
        asked = time.monotonic()
        tasks.note.using(delay=0.5).enqueue("late")
        (entry,) = eventually(lambda: ledger.entries(name="late"))
    assert 0.48 < entry.at - asked < 1.0


def test_a_retry_starts_on_time_though_nobody_wakes_the_worker(jobs: Duly) -> None:
    runs: list[float] = []

    @jobs.task(retry=Backoff.fixed(0.4))
    def flaky() -> None:
        runs.append(time.monotonic())
        if len(runs) < 3:
            raise OSError

    with jobs.worker():
        flaky.enqueue().wait(5)
    assert all(0.39 < later - earlier < 0.9 for earlier, later in itertools.pairwise(runs))


def test_a_job_in_a_callers_transaction_starts_at_once_after_the_commit(
    jobs: Duly, database_url: str, note: Task[[str], None], started_at: dict[str, float]
) -> None:
    with jobs.worker():
        gone_idle(jobs)
        with transaction(database_url) as connection:
            job = note.using(connection=connection).enqueue("inside")
            never(lambda: started_at, 0.3)
            committed = time.monotonic()
        eventually(lambda: "inside" in started_at)
        assert started_at["inside"] - committed < 0.6
        job.wait(5)


def transaction(url: str) -> _Transaction:
    return _Transaction(url)


class _Transaction:
    """A caller's own transaction by the plain driver; committed at the end of the block."""

    def __init__(self, url: str) -> None:
        self._connection: sqlite3.Connection | psycopg.Connection
        if url.startswith("sqlite"):
            self._connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=10)
        else:
            self._connection = psycopg.connect(url)

    def __enter__(self) -> sqlite3.Connection | psycopg.Connection:
        if isinstance(self._connection, sqlite3.Connection):
            self._connection.execute("BEGIN IMMEDIATE")
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.commit()
        self._connection.close()


@pytest.mark.parametrize("change", ["retry", "reschedule", "set_state"])
def test_what_an_operator_does_wakes_the_worker(
    jobs: Duly, note: Task[[str], None], started_at: dict[str, float], change: str
) -> None:
    job = note.using(delay=3600).enqueue("one")
    with jobs.worker():
        gone_idle(jobs)
        asked = time.monotonic()
        if change == "set_state":
            jobs.set_state(job.id, "queued")
        else:
            getattr(jobs, change)(job.id)
        eventually(lambda: "one" in started_at)
        assert started_at["one"] - asked < 1.0


def test_a_foreign_writer_that_sends_no_hint_is_noticed_soon_on_sqlite(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(sqlite_url) as consumer, opened(sqlite_url) as producer:
        seen = threading.Event()

        @consumer.task
        def work() -> None:
            seen.set()

        @producer.task(name="work")
        def stub() -> None: ...

        with consumer.worker():
            gone_idle(consumer)
            monkeypatch.setattr(producer.store.database, "poke", lambda *_: None)
            asked = time.monotonic()
            stub.enqueue()
            assert seen.wait(5)
            assert time.monotonic() - asked < 1.0


def test_without_notifications_a_job_still_starts_within_a_second(database_url: str) -> None:
    """As behind a pooler in transaction mode: the worker looks by itself every 200 ms."""
    with opened(database_url, notify=False) as jobs:
        seen = threading.Event()

        @jobs.task
        def work() -> None:
            seen.set()

        with jobs.worker():
            gone_idle(jobs)
            asked = time.monotonic()
            work.enqueue()
            assert seen.wait(5)
            assert time.monotonic() - asked < 1.0


def test_an_idle_worker_leaves_the_database_alone(
    jobs: Duly, database_kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    @jobs.task
    def work() -> None: ...

    with jobs.worker():
        work.enqueue().wait(5)
        gone_idle(jobs)
        time.sleep(1.2)
        calls: list[str] = []
        real: Any = type(jobs.store.database)._execute  # type: ignore[attr-defined]

        def counted(self: object, connection: object, call: object, *rest: object) -> object:
            calls.append(getattr(call, "name", "copy"))
            return real(self, connection, call, *rest)

        monkeypatch.setattr(type(jobs.store.database), "_execute", counted)
        time.sleep(2.0)
        assert len(calls) <= (4 if database_kind.is_postgres else 12), calls


@pytest.mark.deep
def test_an_idle_worker_asks_for_little_in_half_a_minute(jobs: Duly, database_kind: Kind) -> None:
    """With the look for alerts, the search for lapsed leases and all that.

    On SQLite a look for jobs is four statements, every five seconds and whenever anybody wrote, even this worker itself
    that it lives: some 46 of them here. No round trips.
    """

    @jobs.task
    def work() -> None: ...

    with jobs.worker():
        work.enqueue().wait(5)
        gone_idle(jobs)
        time.sleep(3)
        before = jobs.store.database.calls
        time.sleep(30)
        assert jobs.store.database.calls - before <= 30 * (0.7 if database_kind.is_postgres else 2)


def test_the_last_job_of_a_burst_is_not_left_until_the_next_poll(jobs: Duly) -> None:
    """The gap between the last look and falling asleep: many times, with enqueues at random moments in it."""
    ran: list[int] = []

    @jobs.task
    async def work(n: int) -> None:
        ran.append(n)

    with jobs.worker():
        for n in range(60):
            work.enqueue(n)
            time.sleep((n % 12) / 1000)
        eventually(lambda: len(ran) == 60, within=4)


@pytest.mark.requirement("E4", "E5")
def test_what_becomes_due_wakes_the_worker_that_knows_the_task_whoever_promotes_it(database_url: str) -> None:
    ran: list[int] = []
    with opened(database_url) as one, opened(database_url) as other:

        @one.task
        def mine() -> None: ...

        @other.task
        def theirs(number: int) -> None:
            ran.append(number)

        with one.worker(), other.worker():
            for number in range(10):
                other.enqueue("theirs", {"number": number}, delay=0.5 + number / 10)
                one.enqueue("mine", delay=0.5 + number / 10)
            eventually(lambda: sorted(ran) == list(range(10)), within=5.0)


def test_what_becomes_due_wakes_another_worker_where_the_one_that_promotes_it_has_no_room(database_url: str) -> None:
    free = threading.Event()
    ran: list[str] = []
    with opened(database_url) as one, opened(database_url) as other:

        @one.task
        def work(number: int) -> None:
            ran.append("one")
            free.wait(20)

        @other.task(name="work")
        def work_elsewhere(number: int) -> None:
            ran.append("other")

        try:
            with one.worker(thread_slots=1):
                one.enqueue("work", {"number": 0})
                eventually(lambda: ran == ["one"])
                with other.worker():
                    for number in range(5):
                        one.enqueue("work", {"number": number}, delay=0.7 + number / 10)
                    eventually(lambda: ran == ["one"] + ["other"] * 5, within=5.0)
                    free.set()
        finally:
            free.set()


def test_jobs_that_become_due_all_the_time_do_not_keep_each_other_from_starting(jobs: Duly, database_url: str) -> None:
    """There is always one more that has just become due: those before it must start all the same."""
    started: list[float] = []

    @jobs.task
    def work() -> None:
        started.append(time.time())

    first = time.time() + 1.5
    ids = uuid7_many(10_000)
    due = [int((first + n * 0.0001) * 1e6) for n in range(len(ids))]
    with closing(Raw(database_url)) as raw:
        stored = ", ".join(f"('{each}', 'work', 0)" for each in ids)
        raw.rows(f"INSERT INTO duly.jobs (id, task, created_at) VALUES {stored}")
        placed = ", ".join(f"('{each}', {at}, 'default', '', 'work', 0)" for each, at in zip(ids, due, strict=True))
        raw.rows(f"INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority) VALUES {placed}")
    with jobs.worker():
        eventually(lambda: started, within=15)
    assert started[0] - first < 0.5, "not only when the last had become due, a second later"
