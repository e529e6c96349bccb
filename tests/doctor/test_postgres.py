"""The check-up of a PostgreSQL server: each trouble made for real where a test can, else by its numbers."""

from __future__ import annotations

import time
from contextlib import ExitStack

import psycopg
import pytest

from duly import Duly
from duly.doctor import postgres
from duly.doctor.finding import Severity
from duly.store.ops_doctor import Server, Slot
from tests import pgbouncer
from tests.doctor.look import bad, findings, only
from tests.helpers import opened
from tests.postgres import PostgresServer
from tests.store.raw import Raw

pytestmark = pytest.mark.requirement("C15")
SERVER = Server("18.1", 180_001, 0, False, "on", "on", "on", "on", 100, 10, 0)


# -- what keeps dead rows -------------------------------------------------------------------------------------------


def test_a_session_left_idle_in_a_transaction_is_told_with_its_pid(
    pg: Duly, pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LONG_IDLE_US", 100_000)
    with psycopg.connect(pg_url, application_name="forgetful") as connection:
        connection.execute("SELECT 1")
        time.sleep(1.1)
        finding = only(pg, "database", "transactions")
        assert (finding.severity, finding.evidence["pid"]) == (Severity.WARNING, connection.info.backend_pid)
        assert "forgetful" in finding.what
        assert f"pg_terminate_backend({connection.info.backend_pid})" in str(finding.next)
    assert only(pg, "database", "transactions").severity is Severity.OK


def test_a_statement_that_runs_for_long_is_told(pg: Duly, pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "LONG_TRANSACTION_US", 100_000)
    with psycopg.connect(pg_url) as connection:
        connection.execute("SELECT pg_sleep(1.1)")
        finding = only(pg, "database", "transactions")  # open for long, idle for a moment only
        assert "is at work in it" in finding.what


def test_a_user_who_may_not_see_the_others_is_told_so(pg: Duly, pg_url: str, raw: Raw) -> None:
    raw.rows("DROP ROLE IF EXISTS duly_poor")
    raw.rows("CREATE ROLE duly_poor LOGIN")
    schema = "duly"  # as a name of its own: the tables' prefix is put in for the word with a dot
    for right in (f"USAGE ON SCHEMA {schema}", f"SELECT ON ALL TABLES IN SCHEMA {schema}"):
        raw.rows(f"GRANT {right} TO duly_poor")
    try:
        with opened(pg_url.replace("postgres@", "duly_poor@")) as poor:
            hidden = [each for each in findings(poor, "database", "transactions") if each.severity is Severity.INFO]
            assert hidden
            assert "pg_read_all_stats" in str(hidden[0].next)
    finally:
        raw.rows("DROP OWNED BY duly_poor")
        raw.rows("DROP ROLE duly_poor")


def test_prepared_transactions_slots_and_a_server_without_autovacuum_are_told(
    pg_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LONG_TRANSACTION_US", 0)
    with psycopg.connect(pg_server.url(), autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET max_prepared_transactions = 5")
        admin.execute("ALTER SYSTEM SET autovacuum = off")
    pg_server.stop()
    pg_server.start()
    with opened(pg_server.url()) as jobs:
        jobs.migrate()
        with psycopg.connect(pg_server.url(), autocommit=True) as admin:
            admin.execute("SELECT pg_create_physical_replication_slot('standby', true)")
            with admin.transaction():
                admin.execute("CREATE TABLE t (x integer)")
                admin.execute("PREPARE TRANSACTION 'half done'")
            prepared = only(jobs, "database", "prepared")
            assert (prepared.severity, prepared.evidence["gid"]) == (Severity.WARNING, "half done")
            assert "ROLLBACK PREPARED 'half done'" in str(prepared.next)
            assert only(jobs, "database", "autovacuum").next == "set autovacuum = on"
            [slot] = [each for each in findings(jobs, "database", "slots") if each.severity is Severity.INFO]
            assert slot.evidence["slot"] == "standby"
            admin.execute("ROLLBACK PREPARED 'half done'")
        assert only(jobs, "database", "prepared").severity is Severity.OK


def test_a_slot_that_holds_back_vacuum_or_much_of_the_log_is_a_warning() -> None:
    found = list(postgres.slots([Slot("old", "physical", True, 5_000_000, 0, 0)]))
    assert [(each.severity, each.evidence["xmin_age"]) for each in found] == [(Severity.WARNING, 5_000_000)]
    found = list(postgres.slots([Slot("left", "logical", False, 0, 0, 5 << 30)]))
    assert "keeps 5 GiB" in found[0].what
    assert [each.severity for each in postgres.slots([Slot("fine", "physical", True, 100, 0, 0)])] == [Severity.OK]


def test_dead_rows_and_a_table_without_autovacuum_are_told(pg: Duly, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "MANY_DEAD", 100)
    assert only(pg, "database", "dead_rows").severity is Severity.OK
    raw.rows("ALTER TABLE duly.waiting SET (autovacuum_enabled = off)")
    raw.rows(
        "INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority)"
        " SELECT 'q', '', 't', n, gen_random_uuid(), n, 0 FROM generate_series(1, 500) n"
    )
    raw.rows("DELETE FROM duly.waiting")
    raw.rows("SELECT pg_stat_force_next_flush()")
    raw.rows("SELECT 1")
    assert only(pg, "database", "autovacuum").evidence == {"table": "waiting"}
    dead = only(pg, "database", "dead_rows")
    assert (dead.severity, dead.evidence["table"], dead.evidence["dead"]) == (Severity.WARNING, "waiting", 500)
    assert "never vacuumed" in dead.what
    raw.rows("ALTER TABLE duly.waiting RESET (autovacuum_enabled)")
    raw.rows("VACUUM duly.waiting")
    raw.rows("SELECT pg_stat_force_next_flush()")
    assert only(pg, "database", "dead_rows").severity is Severity.OK


# -- what is missing or runs out ------------------------------------------------------------------------------------


@pytest.mark.everywhere
def test_the_migrations_leave_every_index_that_is_looked_for(pg: Duly) -> None:
    assert bad(pg.doctor()) == []
    assert only(pg, "database", "indexes").severity is Severity.OK


def test_a_missing_and_an_invalid_index_are_told_with_the_statement(pg: Duly, raw: Raw) -> None:
    raw.rows("DROP INDEX duly.ended_by_state")
    raw.rows("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'duly.waiting_lane'::regclass")
    raw.rows("ALTER TABLE duly.tenants DROP CONSTRAINT tenants_pkey")
    found = {each.evidence["index"]: each for each in findings(pg, "database", "indexes")}
    assert {name: each.evidence["state"] for name, each in found.items()} == {
        "ended_by_state": "missing",
        "waiting_lane": "invalid",
        "tenants_pkey": "missing",
    }
    assert str(found["ended_by_state"].next).startswith("run CREATE INDEX CONCURRENTLY ended_by_state ON duly.ended")
    assert str(found["waiting_lane"].next).startswith("run DROP INDEX duly.waiting_lane; CREATE UNIQUE INDEX ")


def test_a_server_that_may_lose_commits_is_worth_knowing(pg: Duly) -> None:
    told = {each.evidence["setting"]: each.severity for each in findings(pg, "database", "durability")}
    assert told == {"fsync": Severity.INFO, "full_page_writes": Severity.INFO}  # as the tests' server is set up
    assert list(postgres.durability(SERVER)) == []


def test_connections_that_run_out_an_old_server_and_a_standby_are_told(pg: Duly) -> None:
    assert only(pg, "database", "connections").evidence["max_connections"] == 200
    assert postgres.connections(SERVER._replace(connections=81)).severity is Severity.WARNING
    assert postgres.connections(SERVER._replace(connections=79)).severity is Severity.OK
    assert postgres.version(SERVER._replace(version_number=140_000)).severity is Severity.WARNING
    assert postgres.version(SERVER._replace(standby=True)).severity is Severity.ERROR


def test_sizes_are_told(pg: Duly) -> None:
    finding = only(pg, "database", "sizes")
    tables = finding.evidence["tables"]
    assert isinstance(tables, dict)
    assert {"jobs", "waiting", "recurring"} <= set(tables)
    assert int(str(finding.evidence["bytes"])) > 100_000


@pytest.mark.skipif(pgbouncer.program() is None, reason="PgBouncer is not installed")
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_pooler_is_noticed_and_its_mode_told(pg_url: str, mode: str) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(pgbouncer.pooler(pg_url, mode, 5))
        with opened(url) as jobs:
            finding = only(jobs, "database", "pooler")
            assert (finding.severity, finding.evidence["mode"]) == (Severity.INFO, mode)


def test_without_a_pooler_none_is_told(pg: Duly) -> None:
    assert findings(pg, "database", "pooler") == []
