"""Migrations of tables that are in use: each by itself, whole or not at all, and nobody waits long for one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from duly.domain.errors import DatabaseError, DatabaseUnavailable
from duly.domain.ids import uuid7, uuid7_many
from duly.domain.records import NewJob
from duly.store import postgres_migrate
from duly.store.migrate import newest
from duly.store.store import Store
from tests.helpers import eventually
from tests.store.raw import Raw
from tests.upgrades.conftest import Add
from tests.upgrades.steps import COLUMN, COMPATIBLE, FILL, INDEX, TABLE

LONGEST = 3.0
"""P16: nobody waits longer for a migration."""


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = Store.open(database_url)
    store.counts()
    yield store
    store.close()


def fill(store: Store, n: int) -> None:
    store.enqueue_many(NewJob(id=uuid7(), task="t", args="{}"), [(job_id, "{}", None) for job_id in uuid7_many(n)])


def versions(raw: Raw) -> list[tuple[int, int | None]]:
    named = "WHERE name LIKE 'later%' ORDER BY version"
    rows = raw.rows(f"SELECT version, compatible_from FROM duly.schema_version {named}")
    return [(int(version), found) for version, found in rows]


@contextmanager
def migrating(store: Store) -> Iterator[Future[list[int]]]:
    """A migration under way on another thread; its error, if any, is raised at the end."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(store.migrate)
        yield future
        future.result(60)


@pytest.mark.everywhere
def test_every_kind_of_migration_is_applied_and_recorded(store: Store, raw: Raw, add: Add) -> None:
    fill(store, 25)
    before = newest(store.dialect)
    added = add(COLUMN, TABLE, FILL.format(rows=10), INDEX)
    assert store.migrate() == added
    assert versions(raw) == [(version, before) for version in added]
    assert raw.one("SELECT count(*) FROM duly.jobs WHERE colour = 'red'") == 25
    assert raw.one("SELECT count(*) FROM duly.colours") == 0
    if raw.is_postgres:
        assert raw.one("SELECT indisvalid FROM pg_index WHERE indexrelid = 'duly.jobs_by_colour'::regclass")
    assert store.migrate() == []


@pytest.mark.everywhere
def test_new_tables_get_all_migrations_at_once(empty_database_url: str, add: Add) -> None:
    added = add(COLUMN, TABLE, FILL.format(rows=10), INDEX)
    store = Store.open(empty_database_url)
    assert store.migrate()[-len(added) :] == added
    store.close()


def test_what_was_applied_before_an_error_stays_and_the_rest_is_done_next_time(
    store: Store, raw: Raw, add: Add
) -> None:
    first, *_ = add(
        COLUMN, COMPATIBLE + "ALTER TABLE duly.jobs ADD COLUMN shape text; ALTER TABLE duly.none ADD x text;"
    )
    with pytest.raises(DatabaseError):
        store.migrate()
    assert [version for version, _ in versions(raw)] == [first]
    added = add(COLUMN, COMPATIBLE + "ALTER TABLE duly.jobs ADD COLUMN shape text;")  # what failed left nothing
    assert store.migrate() == added[1:]


def test_between_two_batches_others_write(store: Store, raw: Raw, add: Add, database_url: str) -> None:
    fill(store, 3_000)
    add(COLUMN, FILL.format(rows=100))
    other = Store.open(database_url)
    written = 0
    with migrating(other) as migration:
        while not migration.done():
            store.enqueue(NewJob(id=uuid7(), task="t", args="{}"))
            written += 1
    other.close()
    assert written > 3
    assert raw.count("jobs") == 3_000 + written
    assert raw.one("SELECT count(*) FROM duly.jobs WHERE colour = 'red'") >= 3_000, "those from before, at the least"


def test_many_may_migrate_at_once_also_when_an_index_is_built(store: Store, add: Add) -> None:
    fill(store, 500)
    added = add(COLUMN, INDEX, TABLE)
    with ThreadPoolExecutor(8) as pool:
        applied = list(pool.map(lambda _: store.migrate(), range(8)))
    if store.dialect == "postgres":
        assert [each for each in applied if each] == [added]
    else:  # on SQLite whoever has the lock takes the next step
        assert sorted(version for each in applied for version in each) == added


# -- PostgreSQL: nobody waits long ------------------------------------------------------------------------------------


@pytest.fixture
def pg_store(pg_url: str) -> Iterator[Store]:
    store = Store.open(pg_url)
    store.counts()
    yield store
    store.close()


def test_a_migration_behind_a_long_transaction_lets_others_pass_and_tries_again(
    pg_store: Store, pg_url: str, add: Add
) -> None:
    added = add(COLUMN)
    other = Store.open(pg_url)
    waits = []
    with psycopg.connect(pg_url) as long:
        long.execute("SELECT count(*) FROM duly.jobs")  # and no commit: a report, a backup
        with ThreadPoolExecutor(1) as pool:
            migration = pool.submit(other.migrate)
            until = time.monotonic() + 4
            while time.monotonic() < until:
                begun = time.monotonic()
                pg_store.enqueue(NewJob(id=uuid7(), task="t", args="{}"))
                waits.append(time.monotonic() - begun)
                time.sleep(0.01)
            assert not migration.done()
            long.rollback()
            assert migration.result(30) == added
    other.close()
    assert max(waits) > 0.5, "nobody waited: the migration never came so far"
    assert max(waits) < LONGEST
    assert sum(wait > 0.5 for wait in waits) >= 2, "it did not try again"


def test_a_migration_that_never_gets_its_lock_says_so(
    pg_store: Store, pg_url: str, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_migrate, "TRIES", 2)
    monkeypatch.setattr(postgres_migrate, "LOCK_SECONDS", 0.1)
    (version,) = add(COLUMN)
    with psycopg.connect(pg_url) as long:
        long.execute("SELECT count(*) FROM duly.jobs")
        with pytest.raises(DatabaseUnavailable, match=rf"in 2 tries migration {version:04d} later_0 got no lock"):
            pg_store.migrate()
        long.rollback()
    assert pg_store.migrate() == [version]


def test_a_migration_that_would_hold_its_locks_for_long_is_rolled_back(
    pg_store: Store, pg_url: str, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_migrate, "TRIES", 1)
    before = newest(pg_store.dialect)
    add(COLUMN + "SELECT pg_sleep(1.5); SELECT pg_sleep(1.5);")  # together too long, each by itself not
    with ThreadPoolExecutor(1) as pool:
        migration = pool.submit(pg_store.migrate)
        raw = Raw(pg_url)
        holds = "SELECT 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND relation = 'duly.jobs'::regclass"
        eventually(lambda: raw.rows(holds))
        begun = time.monotonic()
        raw.rows("SELECT count(*) FROM duly.jobs")
        assert 1.0 < time.monotonic() - begun < LONGEST
        with pytest.raises(DatabaseUnavailable, match=r"did not end within 2\.5 s"):
            migration.result(10)
    assert raw.one("SELECT max(version) FROM duly.schema_version") == before
    assert not raw.rows("SELECT 1 FROM information_schema.columns WHERE column_name = 'colour'")
    raw.close()


def test_an_index_that_was_left_unfinished_is_built_anew(pg_store: Store, pg_url: str, add: Add) -> None:
    fill(pg_store, 10)
    raw = Raw(pg_url)
    with pytest.raises(psycopg.errors.UniqueViolation):
        raw.rows("CREATE UNIQUE INDEX CONCURRENTLY jobs_by_colour ON duly.jobs (task)")
    valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'duly.jobs_by_colour'::regclass"
    assert raw.one(valid) is False
    added = add(COLUMN, INDEX)
    assert pg_store.migrate() == added
    assert raw.one(valid) is True
    raw.close()


def test_who_waits_for_the_turn_does_not_hold_up_an_index_that_is_being_built(
    pg_store: Store, pg_url: str, add: Add
) -> None:
    """One that waited inside PostgreSQL would have a snapshot, and the index would wait for that: both for ever."""
    fill(pg_store, 10)
    add(COLUMN)
    pg_store.migrate()
    _, index = add(COLUMN, INDEX)
    other, raw = Store.open(pg_url), Raw(pg_url)
    with psycopg.connect(pg_url) as writer, ThreadPoolExecutor(2) as pool:
        writer.execute("UPDATE duly.jobs SET priority = 1")  # and no commit yet: the index waits for it
        first = pool.submit(pg_store.migrate)
        builds = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'CREATE INDEX CONC%'"
        eventually(lambda: raw.rows(builds), 10)
        second = pool.submit(other.migrate)
        asks = "SELECT 1 FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE '%pg_try_advisory_xact%'"
        eventually(lambda: raw.rows(asks), 10, every=0.001)
        assert not first.done()
        writer.commit()
        assert first.result(30) == [index]
        assert second.result(30) == []
    raw.close()
    other.close()
