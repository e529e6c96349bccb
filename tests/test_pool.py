"""A PostgreSQL database that was used before is as a new one, whatever the test before did with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from tests import pool as pool_module
from tests.databases import BY_DEFAULT, Kind, is_installed, prepare, start_postgres
from tests.pool import PostgresDatabases

A_JOB = "SELECT duly.enqueue('send')"
AN_ACTION = "INSERT INTO duly.audit (at, via, action) VALUES (1, 'sql', 'retry')"
NAMES = """
    SELECT oid::regclass::text FROM pg_class
    WHERE (relkind = 'S' OR relkind = 'r' AND NOT relisshared) AND relnamespace <> 'information_schema'::regnamespace
    ORDER BY 1
"""
OF_THE_DATABASE = """
    SELECT to_jsonb(d) - '{oid,datname,datfrozenxid,datminmxid}'::text[], shobj_description(d.oid, 'pg_database'),
        (SELECT array_agg(setconfig) FROM pg_db_role_setting WHERE setdatabase = d.oid),
        (SELECT array_agg(subject) FROM (SELECT refobjid::text FROM pg_shdepend WHERE dbid = d.oid) s (subject)),
        pg_stat_get_db_deadlocks(d.oid)
    FROM pg_database d WHERE datname = current_database()
"""
COUNTED = """
    SELECT relname, n_tup_ins, n_tup_upd, n_tup_del, n_live_tup, n_dead_tup, seq_scan, idx_scan, vacuum_count,
        analyze_count, n_mod_since_analyze
    FROM pg_stat_user_tables WHERE relname <> 'schema_version' ORDER BY relname
"""


@pytest.fixture(scope="module", params=[kind for kind in BY_DEFAULT if kind.is_postgres and is_installed(kind)])
def pool(request: pytest.FixtureRequest) -> Iterator[PostgresDatabases]:
    """The databases of a server of our own: there is only one at a time, so the next test would get the same again."""
    kind: Kind = request.param
    with closing(PostgresDatabases(start_postgres(kind), prepare)) as pool:
        yield pool


@pytest.fixture(scope="module")
def new(pool: PostgresDatabases) -> dict[str, object]:
    """What a new database holds."""
    with pool.fresh(prepared=True) as url:
        return contents(url)


def contents(url: str) -> dict[str, object]:
    """Every row: of the tables and sequences, of the system catalogues, of what the server keeps about the database."""
    with psycopg.connect(url, autocommit=True) as connection:
        counted = connection.execute(COUNTED).fetchall()
        names = [str(name) for (name,) in connection.execute(NAMES).fetchall()]
        rows = connection.execute(" UNION ALL ".join(map(rows_of, names)).encode()).fetchall()
        kept = connection.execute(OF_THE_DATABASE).fetchone()
    return {name: (number, total) for name, number, total in rows} | {"counted": counted, "database": kept}


def rows_of(name: str) -> str:
    match name:
        case "pg_class":  # but where the files lie, and how old they are
            row = "(to_jsonb(t) - '{relfilenode,relfrozenxid,relminmxid}'::text[])::text"
        case _ if name.endswith("_seq"):
            row = "(last_value, is_called)::text"
        case _:
            row = "t::text"
    return f"SELECT '{name}', count(*), sum(hashtextextended({row}, 0)) FROM {name} t"


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.replace("THIS", connection.info.dbname).encode())


def oid(url: str) -> object:
    """Which database this is, whatever its name."""
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchall()


@pytest.mark.parametrize(
    "statements",
    [
        [],
        [A_JOB],
        [A_JOB, AN_ACTION, "DELETE FROM duly.jobs"],
        [A_JOB, "VACUUM duly.jobs"],
        ["VACUUM duly.jobs"],
        ["SELECT nextval('duly.audit_id_seq') FROM generate_series(1, 100)"],
        ["SELECT count(duly.enqueue('send')) FROM generate_series(1, 2000)"],
    ],
    ids=lambda statements: "; ".join(statements)[:60] or "nothing",
)
def test_a_database_with_rows_is_emptied_and_used_again(
    pool: PostgresDatabases, new: dict[str, object], statements: list[str]
) -> None:
    with pool.fresh(prepared=True) as first:
        run(first, *statements)
        used = oid(first)
        assert (contents(first) == new) == (not statements)
    with pool.fresh(prepared=True) as second:
        assert oid(second) == used
        assert contents(second) == new


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE left_behind (n int)",
        "CREATE TABLE left_behind (n int); SELECT pg_stat_reset()",
        "CREATE TABLE left_behind (n int); SELECT pg_stat_reset_single_table_counters('pg_class'::regclass)",
        "CREATE SCHEMA left_behind",
        "CREATE SEQUENCE left_behind_seq",
        "CREATE TYPE left_behind AS ENUM ('a')",
        "CREATE FUNCTION left_behind() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION left_behind() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';"
        "CREATE EVENT TRIGGER left_behind ON ddl_command_end EXECUTE FUNCTION left_behind()",
        "CREATE FUNCTION left_behind() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW;END';"
        "CREATE TRIGGER left_behind BEFORE INSERT ON duly.jobs FOR EACH ROW EXECUTE FUNCTION left_behind()",
        "CREATE PUBLICATION left_behind",
        "CREATE TEMPORARY TABLE left_behind (n int)",
        "DROP INDEX duly.scheduled_by_time",
        "DROP SCHEMA duly CASCADE",
        "ALTER TABLE duly.jobs ADD COLUMN left_behind int",
        "ALTER TABLE duly.jobs SET (autovacuum_enabled = off)",
        "ALTER SEQUENCE duly.audit_id_seq INCREMENT BY 5",
        "GRANT SELECT ON duly.jobs TO PUBLIC",
        "COMMENT ON TABLE duly.jobs IS 'left behind'",
        f"{A_JOB}; ANALYZE duly.jobs",
        "SELECT lo_from_bytea(0, 'left behind')",
        "DELETE FROM duly.schema_version",
        "ALTER DATABASE THIS SET default_transaction_isolation = 'serializable'",
        "ALTER ROLE postgres IN DATABASE THIS SET work_mem = '1MB'",
        "ALTER DATABASE THIS CONNECTION LIMIT 50",
        "COMMENT ON DATABASE THIS IS 'left behind'",
    ],
)  # fmt: skip
def test_what_else_a_test_changes_is_gone_with_its_database(
    pool: PostgresDatabases, new: dict[str, object], statement: str
) -> None:
    with pool.fresh(prepared=True) as first:
        run(first, *statement.split("; "))
        if "DROP SCHEMA" not in statement:
            assert contents(first) != new
    with pool.fresh(prepared=True) as second:
        assert contents(second) == new


@pytest.mark.parametrize(
    "statement",
    [
        "LISTEN duly",
        "SELECT pg_advisory_lock(7)",
        "PREPARE left_behind AS SELECT 1",
        "SET work_mem = '1MB'",
        "BEGIN; LOCK duly.jobs",
        "CREATE TEMPORARY TABLE left_behind (n int)",
    ],
)
def test_a_session_left_open_fails_its_test_and_ends(
    pool: PostgresDatabases, new: dict[str, object], statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "LEAK_SECONDS", 0.05)
    database = pool.fresh(prepared=True)
    with psycopg.connect(database.__enter__(), autocommit=True) as leak:
        leak.execute(statement.encode())
        with pytest.raises(AssertionError, match="connections were left open"):
            database.__exit__(None, None, None)
        with pytest.raises(psycopg.OperationalError):
            leak.execute("SELECT 1")
    monkeypatch.undo()
    with pool.fresh(prepared=True) as second:
        assert contents(second) == new
        with psycopg.connect(second) as connection:
            assert connection.execute("SELECT * FROM pg_locks WHERE locktype = 'advisory'").fetchall() == []
            assert connection.execute("SELECT * FROM pg_prepared_statements").fetchall() == []
            assert connection.execute("SELECT * FROM pg_listening_channels()").fetchall() == []


@pytest.mark.parametrize(
    "change, what, undo",
    [
        ("CREATE ROLE left_behind", "role left_behind", "DROP ROLE left_behind"),
        ("ALTER ROLE postgres CONNECTION LIMIT 50", "role postgres", "ALTER ROLE postgres CONNECTION LIMIT -1"),
        ("ALTER ROLE postgres SET work_mem = '1MB'", "{work_mem=1MB} of role", "ALTER ROLE postgres RESET ALL"),
        ("ALTER SYSTEM SET work_mem = '1MB'", "setting work_mem = 1MB", "ALTER SYSTEM RESET ALL"),
        (
            "SELECT pg_create_physical_replication_slot('left_behind')",
            "slot left_behind",
            "SELECT pg_drop_replication_slot('left_behind')",
        ),
    ],
)
def test_what_is_left_on_the_server_fails_the_test(pool: PostgresDatabases, change: str, what: str, undo: str) -> None:
    for statement in (change, undo):
        database = pool.fresh(prepared=True)
        run(database.__enter__(), statement)
        with pytest.raises(AssertionError, match=re.escape(what)):
            database.__exit__(None, None, None)
    with pool.fresh(prepared=True):
        pass  # told once


def test_the_database_of_a_test_that_failed_is_not_used_again(pool: PostgresDatabases, new: dict[str, object]) -> None:
    database = pool.fresh(prepared=True)
    failed = oid(database.__enter__())
    assert not database.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    with pool.fresh(prepared=True) as second:
        assert oid(second) != failed


def test_a_process_that_a_test_forgot_does_not_come_back(pool: PostgresDatabases) -> None:
    with pool.fresh(prepared=True) as first:
        used = oid(first)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(first)
    with pool.fresh(prepared=True) as second:
        assert oid(second) == used


def test_two_at_a_time_are_two(pool: PostgresDatabases, new: dict[str, object]) -> None:
    with pool.fresh(prepared=True) as first, pool.fresh(prepared=True) as second:
        run(first, A_JOB)
        assert contents(second) == new
    with pool.fresh(prepared=True) as first, pool.fresh(prepared=True) as second:
        assert contents(first) == contents(second) == new
    pool._free.pop()  # one again


def test_what_a_session_wrote_just_before_its_end_is_found(pool: PostgresDatabases, new: dict[str, object]) -> None:
    for _ in range(10):
        with pool.fresh(prepared=True) as url:
            run(url, A_JOB, "CREATE TABLE left_behind (n int)")
    with pool.fresh(prepared=True) as url:
        assert contents(url) == new
