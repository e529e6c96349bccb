"""Tables are made once however many try, and code that does not fit them says which command mends it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from duly.domain.errors import ConfigurationError, SchemaMissing, SchemaTooNew, SchemaTooOld
from duly.domain.ids import uuid7
from duly.domain.records import Lane, NewJob
from duly.store.call import Dialect
from duly.store.migrate import migrations, newest
from duly.store.store import Store
from tests.store.factory import WORKER
from tests.store.processes import in_processes
from tests.store.raw import Raw

pytestmark = pytest.mark.everywhere


def set_version(url: str, version: int) -> None:
    raw = Raw(url)
    raw.rows("DELETE FROM duly.schema_version WHERE version < (SELECT max(version) FROM duly.schema_version)")
    raw.rows(f"UPDATE duly.schema_version SET version = {version}")
    raw.close()


def works(store: Store) -> bool:
    """Whether a job can go all the way."""
    store.enqueue(NewJob(id=uuid7(), task="t", args="{}"))
    return len(store.claim("default", [Lane("", "t")], 1, worker_id=WORKER, lease_us=1_000_000)) == 1


def test_migrations_are_numbered_upwards_and_alike_for_both_dialects() -> None:
    for dialect in Dialect:
        versions = [step.version for step in migrations(dialect)]
        assert versions[0] == 1
        assert versions == sorted(set(versions))
    assert [step[:2] for step in migrations(Dialect.SQLITE)] == [step[:2] for step in migrations(Dialect.POSTGRES)]


def test_migrating_makes_the_tables_and_then_nothing(empty_database_url: str) -> None:
    store = Store.open(empty_database_url)
    assert store.migrate() == [step.version for step in migrations(store.dialect)]
    assert store.migrate() == []
    assert works(store)
    store.close()


def test_migrating_keeps_what_is_there(empty_database_url: str) -> None:
    store = Store.open(empty_database_url)
    store.migrate()
    job_id = uuid7()
    store.enqueue(NewJob(id=job_id, task="t", args="{}"))
    store.close()
    store = Store.open(empty_database_url)
    assert store.migrate() == []
    assert store.get(job_id) is not None
    store.close()


def test_ten_processes_may_migrate_at_once(empty_database_url: str) -> None:
    answers = in_processes("migrate", 10, empty_database_url)
    assert sorted(map(len, answers)) == [0] * 9 + [len(migrations(Dialect.SQLITE))]
    store = Store.open(empty_database_url)
    assert works(store)
    store.close()


def test_ten_threads_may_migrate_at_once(empty_database_url: str) -> None:
    store = Store.open(empty_database_url)
    with ThreadPoolExecutor(10) as pool:
        applied = list(pool.map(lambda _: store.migrate(), range(10)))
    store.close()
    assert sum(map(bool, applied)) == 1


def test_tables_newer_than_the_code_are_refused(empty_database_url: str) -> None:
    store = Store.open(empty_database_url)
    store.migrate()
    store.close()
    set_version(empty_database_url, 999)
    store = Store.open(empty_database_url)
    for use in (store.counts, lambda: works(store), store.migrate):
        with pytest.raises(SchemaTooNew, match=r"schema version 999.*pip install --upgrade duly"):
            use()
    store.close()


def test_tables_older_than_the_code_are_refused_and_the_command_is_named(empty_database_url: str) -> None:
    store = Store.open(empty_database_url)
    store.migrate()
    store.close()
    set_version(empty_database_url, 0)
    store = Store.open(empty_database_url)
    with pytest.raises(SchemaTooOld, match=f"schema version 0.*Run: duly migrate --url {store.dialect}"):
        store.counts()
    store.close()


def test_tables_that_are_mended_are_used_without_a_new_start(empty_database_url: str) -> None:
    store = Store.open(empty_database_url)
    store.migrate()
    set_version(empty_database_url, 999)
    other = Store.open(empty_database_url)
    with pytest.raises(SchemaTooNew):
        other.counts()
    set_version(empty_database_url, newest(store.dialect))
    assert works(other)
    other.close()
    store.close()


# -- SQLite -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("D1")
def test_an_sqlite_file_is_made_and_migrated_at_first_use(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/new.db")
    assert works(store)
    store.close()


@pytest.mark.requirement("D1")
def test_our_tables_live_beside_an_applications_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    raw = Raw(url)
    raw.rows("CREATE TABLE users (id integer PRIMARY KEY)")
    raw.rows("INSERT INTO users VALUES (7)")
    store = Store.open(url)
    assert works(store)
    assert raw.one("SELECT id FROM users") == 7
    store.close()
    raw.close()


# -- PostgreSQL ---------------------------------------------------------------------------------------------------


def test_a_postgres_database_without_tables_is_not_migrated_in_passing(empty_database_url: str) -> None:
    if empty_database_url.startswith("sqlite"):
        pytest.skip("SQLite migrates itself")
    store = Store.open(empty_database_url)
    with pytest.raises(SchemaMissing, match="Run: duly migrate --url postgresql://"):
        store.counts()
    store.close()


def test_two_schemas_in_one_database_are_two_queues(pg_url: str) -> None:
    here, there = Store.open(pg_url), Store.open(pg_url, schema="other_one")
    with pytest.raises(SchemaMissing, match=r"Run: duly migrate --url postgresql://.* --schema other_one"):
        there.counts()
    assert there.migrate() == [step.version for step in migrations(Dialect.POSTGRES)]
    assert there.migrate() == []
    job_id = uuid7()
    there.enqueue(NewJob(id=job_id, task="t", args="{}"))
    there.enqueue_many(NewJob(id=uuid7(), task="t", args="{}"), [(uuid7(), "{}", None)])
    assert here.get(job_id) is None
    assert works(there)
    assert len(there.counts().waiting) == 1
    assert here.counts().waiting == []
    here.close()
    there.close()


@pytest.mark.parametrize("name", ["Upper", "with space", 'x"; DROP SCHEMA public; --', "", "1st", "x" * 64, "dash-ed"])
def test_a_schema_name_that_would_need_quoting_is_refused(pg_url: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a name duly accepts"):
        Store.open(pg_url, schema=name)
