"""The databases that the tests stand on: usable by every library, one per test, gone with the session."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import psycopg
import pytest
import sqlalchemy

from tests import pool
from tests.databases import Databases, Kind, postgres_binaries
from tests.postgres import PostgresServer, StopMode, copied_installation

ROOT = Path(__file__).parents[1]


def execute(url: str, *statements: str) -> object:
    """Run statements, each committed; return the first value of the last one's answer, if it has one."""
    if url.startswith("sqlite:///"):
        lite = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        try:
            row = [lite.execute(statement).fetchone() for statement in statements][-1]
        finally:
            lite.close()
        return row and row[0]
    with psycopg.connect(url, autocommit=True) as connection:
        cursors = [connection.execute(statement.encode()) for statement in statements]
        row = cursors[-1].fetchone() if cursors[-1].description else None
        return row and row[0]


@pytest.mark.everywhere
def test_each_database_takes_a_table_and_gives_back_a_row(database_url: str, database_kind: Kind) -> None:
    assert database_url.startswith("postgresql://" if database_kind.is_postgres else "sqlite:////")
    assert execute(database_url, "CREATE TABLE t (n int)", "INSERT INTO t VALUES (7)", "SELECT n FROM t") == 7


@pytest.mark.everywhere
@pytest.mark.parametrize("round_number", [1, 2])
def test_a_test_never_sees_what_the_one_before_it_wrote(database_url: str, round_number: int) -> None:
    execute(database_url, "CREATE TABLE left_behind (n int)")


def test_an_empty_database_has_no_table(empty_database_url: str, database_kind: Kind) -> None:
    catalogue = "pg_tables WHERE schemaname <> 'pg_catalog' AND schemaname <> 'information_schema'"
    tables = catalogue if database_kind.is_postgres else "sqlite_master"
    assert execute(empty_database_url, f"SELECT count(*) FROM {tables}") == 0


def test_a_database_for_one_kind_only_is_of_that_kind(sqlite_url: str, pg_url: str, pg_kind: Kind) -> None:
    assert str(execute(sqlite_url, "SELECT sqlite_version()")).startswith("3.")
    assert str(execute(pg_url, "SHOW server_version")).startswith(pg_kind.removeprefix("pg"))


def test_other_postgres_libraries_read_the_url(pg_url: str) -> None:
    async def ask_asyncpg() -> object:
        connection = await asyncpg.connect(pg_url)
        try:
            return await connection.fetchval("SELECT 7")
        finally:
            await connection.close()

    assert asyncio.run(ask_asyncpg()) == 7
    engine = sqlalchemy.create_engine(pg_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("SELECT 7")).scalar_one() == 7
    engine.dispose()


def test_a_connection_left_open_is_an_error(
    databases: Databases, pg_kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "LEAK_SECONDS", 0.1)
    database = databases.fresh(pg_kind)
    with psycopg.connect(database.__enter__(), autocommit=True) as leak:
        leak.execute("SELECT 'the culprit'")
        with pytest.raises(AssertionError, match="the culprit"):
            database.__exit__(None, None, None)


@pytest.mark.parametrize("mode", ["fast", "immediate", "kill"])
def test_a_server_keeps_committed_rows_over_an_outage(pg_server: PostgresServer, mode: StopMode) -> None:
    execute(pg_server.url(), "CREATE TABLE t (n int)", "INSERT INTO t VALUES (7)")
    pg_server.stop(mode)
    with pytest.raises(psycopg.OperationalError):
        execute(pg_server.url(), "SELECT 1")
    pg_server.start()
    assert execute(pg_server.url(), "SELECT n FROM t") == 7


def test_a_killed_session_leaves_no_server(pg_kind: Kind) -> None:
    program = (
        "import sys, time; from tests.databases import *\n"
        "server = start_postgres(Kind(sys.argv[1]))\n"
        "print(server.pid, server.directory, flush=True); time.sleep(60)"
    )
    session = subprocess.Popen(
        [sys.executable, "-c", program, pg_kind],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with session:
        assert session.stdout is not None
        pid, directory = session.stdout.readline().split()
        os.killpg(session.pid, signal.SIGKILL)
    wait_until(lambda: not Path(directory).exists())
    wait_until(lambda: not is_running(int(pid)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as somebody else")
def test_a_server_that_its_user_cannot_reach_is_copied(tmp_path: Path) -> None:
    bin_dir = postgres_binaries(Kind.PG18)
    assert bin_dir is not None
    copy = copied_installation(bin_dir, tmp_path, "nobody")
    asked = subprocess.run([copy / "initdb", "--version"], capture_output=True, text=True, check=True)
    assert "18" in asked.stdout


def test_a_thread_left_running_fails_its_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
    pytester.makeconftest("from tests.conftest import no_thread_of_ours_is_left  # noqa: F401")
    pytester.makepyfile(
        """
        import threading

        over = threading.Event()

        def test_leaves_a_thread():
            threading.Thread(target=over.wait, name="duly-forgotten", daemon=True).start()

        def test_leaves_none():
            thread = threading.Thread(target=str, name="duly-short")
            thread.start()
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:duly")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*threads are still running: duly-forgotten*"])


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not is_zombie(pid)


def is_zombie(pid: int) -> bool:
    """Ended, though nobody has asked how: in a container the first process may never ask."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
