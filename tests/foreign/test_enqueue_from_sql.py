"""The statements of docs/howto/enqueue-from-sql.md do what the page says, as they stand there."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from duly.domain.clock import SystemClock, to_us
from duly.domain.ids import timestamp_of, uuid7
from duly.domain.rank import DEFAULT_HORIZON_US, rank
from duly.domain.records import Claimed, Counts, Filter, JobRecord, Lane
from duly.domain.states import State
from duly.store.migrate import statements
from duly.store.postgres import PostgresDatabase
from duly.store.postgres_wake import channel_of, hint_of
from duly.store.store import Store
from tests.foreign.callers import sqlite_path

PAGE = Path(__file__).parents[2] / "docs/howto/enqueue-from-sql.md"
TEN_MINUTES = 600 * 1_000_000


def blocks(heading: str) -> list[str]:
    """The SQL under one heading of the page."""
    text = PAGE.read_text(encoding="utf-8")
    section = re.split(r"^#+ (.*)$", text, flags=re.M)
    return re.findall(r"```sql\n(.*?)```", section[section.index(heading) + 1], re.S)


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with closing(Store.open(database_url)) as store:
        yield store


@pytest.fixture
def postgres(pg_url: str) -> Iterator[Store]:
    with closing(Store.open(pg_url)) as store:
        yield store


def claim(store: Store, *, queue: str = "default", tenant: str = "") -> list[Claimed]:
    return store.claim(queue, [Lane(tenant, "send_welcome")], 2_000, worker_id=uuid7(), lease_us=15_000_000)


def run_on_postgres(url: str, block: str) -> str:
    """Run one block in one transaction. Returns the first value of the first answer that has one."""
    with psycopg.connect(url) as connection:
        answers = [connection.execute(statement) for statement in statements(block)]
        return str(next(answer.fetchone() for answer in answers if answer.description))


def run_by_hand(url: str, number: int) -> None:
    """Run the page's own statements for this database: the one for now, or the one for later."""
    if url.startswith("postgres"):
        run_on_postgres(url, blocks("Without the function")[number])
        return
    with closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as connection:
        job = {"id": uuid7()}
        for statement in statements(blocks("SQLite")[number]):
            connection.execute(statement, job if ":id" in statement else {})


@pytest.mark.everywhere
def test_job_that_is_due_now_is_claimed(store: Store, database_url: str) -> None:
    run_by_hand(database_url, 0)
    [job] = claim(store)
    assert (job.task, job.args, job.attempt, job.max_attempts) == ("send_welcome", '{"user_id": 42}', 1, 5)
    assert job.rank == rank(job.run_at, 0, DEFAULT_HORIZON_US)
    assert abs(SystemClock().now_us() - job.created_at) < 60_000_000


@pytest.mark.everywhere
def test_job_for_later_is_scheduled(store: Store, database_url: str) -> None:
    run_by_hand(database_url, 1)
    [job] = store.find(Filter())
    assert job.state is State.SCHEDULED
    assert job.run_at == job.created_at + TEN_MINUTES
    assert claim(store) == []
    assert store.retry(job.id) == ("queued", None)
    assert [each.id for each in claim(store)] == [job.id]


def test_repeating_it_on_sqlite_fails_and_changes_nothing(sqlite_url: str) -> None:
    job = {"id": uuid7()}
    with closing(Store.open(sqlite_url)) as store, closing(sqlite3.connect(sqlite_path(sqlite_url))) as connection:
        connection.isolation_level = None
        for statement in statements(blocks("SQLite")[0]):
            connection.execute(statement, job if ":id" in statement else {})
        begin, insert, *_ = statements(blocks("SQLite")[0])
        connection.execute(begin)
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(insert, job)
        connection.execute("ROLLBACK")
        assert [each.id for each in claim(store)] == [job["id"]]


# -- the function on PostgreSQL -------------------------------------------------------------------------------


@pytest.mark.everywhere
def test_function_stores_a_job_that_is_claimed(postgres: Store, pg_url: str) -> None:
    answer = run_on_postgres(pg_url, blocks("PostgreSQL")[0])
    [job] = claim(postgres)
    assert job.id in answer
    assert (job.args, job.max_attempts, job.priority) == ('{"user_id": 42}', 5, 0)
    assert abs(timestamp_of(job.id).timestamp() * 1e6 - job.created_at) < 60_000_000


@pytest.mark.everywhere
def test_function_takes_options_and_may_be_repeated(postgres: Store, pg_url: str) -> None:
    for _ in range(2):
        run_on_postgres(pg_url, blocks("PostgreSQL")[1])
    [job] = postgres.find(Filter())
    assert job.id == "0198f2a0-0000-7000-8000-000000000042"
    assert (job.queue, job.tenant, job.priority, job.max_attempts) == ("mail", "acme", 50, 3)
    assert (job.enqueued_by, job.state) == ("billing", State.SCHEDULED)
    assert job.run_at == job.created_at + TEN_MINUTES


def test_function_for_a_thousand_jobs(postgres: Store, pg_url: str) -> None:
    run_on_postgres(pg_url, blocks("PostgreSQL")[2])
    assert len({job.args for job in claim(postgres)}) == 1_000


def call(url: str, arguments: str) -> JobRecord:
    """Call the function and return what it stored."""
    with closing(Store.open(url)) as store, psycopg.connect(url) as connection:
        row = connection.execute(f"SELECT duly.enqueue('send_welcome', {arguments})").fetchone()
        assert row is not None
        assert isinstance(row[0], UUID)
        connection.commit()
        found = store.get(str(row[0]))
        assert found is not None
        return found


def noon_of(year: int) -> int:
    """12:00 on the first of May, two hours east of Greenwich."""
    return to_us(datetime(year, 5, 1, 10, tzinfo=UTC), "noon")


def test_function_gives_a_job_its_time(pg_url: str) -> None:
    at = call(pg_url, "run_at => timestamptz '2031-05-01 12:00+02'")
    assert (at.state, at.run_at) == (State.SCHEDULED, noon_of(2031))
    past = call(pg_url, "run_at => timestamptz '2021-05-01 12:00+02'")
    assert (past.state, past.run_at) == (State.QUEUED, noon_of(2021))
    now = call(pg_url, "delay => interval '0'")
    assert (now.state, now.run_at) == (State.QUEUED, now.created_at)


@pytest.mark.parametrize("horizon_us", [None, 1_000_000])
def test_function_ranks_by_priority_as_python_does(postgres: Store, pg_url: str, horizon_us: int | None) -> None:
    if horizon_us is not None:
        postgres.set_horizon("default", horizon_us)
    call(pg_url, "priority => 30")
    [job] = claim(postgres)
    assert job.rank == rank(job.run_at, 30, horizon_us or DEFAULT_HORIZON_US)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("'[1]'", "args is a JSON array"),
        ("'{\"a\": '", "invalid input syntax for type json"),
        ("queue => ''", "is no name"),
        ("queue => 'no spaces'", "is no name"),
        ("priority => 101", "check constraint"),
        ("max_attempts => 0", "check constraint"),
        ("delay => interval '-1 s'", "delay -00:00:01 is negative"),
        ("delay => interval '1 s', run_at => now()", "or is given beside run_at"),
        ("queue => NULL", "null value"),
        ("job_id => 'x'", "invalid input syntax for type uuid"),
    ],
)
def test_function_refuses_what_python_would_refuse(postgres: Store, pg_url: str, arguments: str, words: str) -> None:
    with pytest.raises(psycopg.DatabaseError, match=re.escape(words)):
        call(pg_url, arguments)
    assert postgres.counts() == Counts()


def test_function_notifies_workers(pg_url: str) -> None:
    with psycopg.connect(pg_url, autocommit=True) as listener:
        listener.execute(f"LISTEN {channel_of('duly')}")
        call(pg_url, "tenant => 'acme'")
        call(pg_url, "delay => interval '1 h'")
        call(pg_url, f"tenant => '{'x' * 400}'")
        hints = [hint_of(note.payload) for note in listener.notifies(timeout=2, stop_after=3)]
    assert [(hint.kind, hint.tenant, hint.task) for hint in hints] == [
        ("jobs", "acme", "send_welcome"),
        ("due", "", "send_welcome"),
        ("look", "", ""),
    ]


def test_function_in_a_schema_of_another_name(pg_url: str) -> None:
    with closing(PostgresDatabase(pg_url, SystemClock(), schema="other")) as database:
        database.migrate()
        with psycopg.connect(pg_url, autocommit=True) as connection:
            connection.execute(f"LISTEN {channel_of('other')}")
            connection.execute("SELECT other.enqueue('send_welcome')")
            assert [note.channel for note in connection.notifies(timeout=2, stop_after=1)] == ["duly_other"]
        assert len(claim(Store(database))) == 1
