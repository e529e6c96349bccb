"""All that the tables hold: kept, put back, and compared."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any, Protocol

import psycopg

from duly.store.lockfile import LockFile

Dump = dict[str, list[str]]
"""By table, every row as JSON, in order."""
UNCOMPARED = {
    "audit": {"id"},  # a number that was drawn for nothing is not drawn again
    "alerts": {"id"},  # made anew at each try
    "alert_notices": {"id", "alert_id", "body"},
    "alert_silences": {"id"},
}
PATIENCE = 10.0


class State(Protocol):
    """The tables of one database."""

    def keep(self) -> None:
        """Remember the tables as they are."""
        ...

    def put_back(self) -> None:
        """Have the tables as they were kept."""
        ...

    def dump(self) -> Dump:
        """Everything that is in them."""
        ...

    def check_let_go(self) -> None:
        """Fail if anybody still holds a transaction or a lock."""
        ...

    def close(self) -> None: ...


def comparable(table: str, row: dict[str, Any], *, timeless: bool = False) -> str:
    """A row as text; `timeless`: without what the server's clock says."""
    left_out = UNCOMPARED.get(table, set()) | {
        name for name in row if timeless and (name.endswith("_at") or name == "rank")
    }
    return json.dumps({name: row[name] for name in sorted(row) if name not in left_out}, default=str)


def difference(wanted: Dump, found: Dump) -> str:
    """What is not the same, in words."""
    lines = []
    for table in sorted({*wanted, *found}):
        here, there = wanted.get(table, []), found.get(table, [])
        lines += [f"  - {table} {row}" for row in here if row not in there or here.count(row) > there.count(row)]
        lines += [f"  + {table} {row}" for row in there if row not in here or there.count(row) > here.count(row)]
    return "\n".join(lines)


class PostgresState:
    """The tables of a PostgreSQL database; what is kept is in a schema beside them."""

    def __init__(self, url: str, *, timeless: bool = False) -> None:
        self._timeless = timeless
        self._connection = psycopg.connect(url, autocommit=True, application_name="crash matrix")
        self._connection.execute("CREATE SCHEMA IF NOT EXISTS kept")
        self._tables: list[str] = []
        self._filled: list[str] = []

    def terminate(self, pid: int) -> None:
        """End a process of the server, and wait until it is gone."""
        self._connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))

    def keep(self) -> None:
        rows = self._connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'duly' AND tablename <> 'schema_version' ORDER BY 1"
        )
        self._tables = [str(row[0]) for row in rows]
        self._filled = [table for table, rows in self.dump().items() if rows]
        for table in self._filled:
            self._run(f"DROP TABLE IF EXISTS kept.{table}", f"CREATE TABLE kept.{table} AS TABLE duly.{table}")

    def put_back(self) -> None:
        deletes = [f"DELETE FROM duly.{table}" for table in self._tables]
        inserts = [
            f"INSERT INTO duly.{table} OVERRIDING SYSTEM VALUE SELECT * FROM kept.{table}" for table in self._filled
        ]
        self._run("BEGIN", *deletes, *inserts, "COMMIT")

    def tidy(self) -> None:
        """Have the server forget what was deleted."""
        for table in self._tables:
            self._run(f"VACUUM duly.{table}")

    def dump(self) -> Dump:
        union = " UNION ALL ".join(f"SELECT '{table}', to_jsonb(t)::text FROM duly.{table} t" for table in self._tables)
        found: Dump = {table: [] for table in self._tables}
        for table, row in self._connection.execute(union.encode(), prepare=False):
            found[table].append(comparable(table, json.loads(row), timeless=self._timeless))
        return {table: sorted(rows) for table, rows in found.items()}

    def wait_until_alone(self) -> None:
        """Wait until the server has noticed that everybody else is gone."""
        self._none_left("TRUE", "a connection that nobody has any more is still open")

    def check_let_go(self) -> None:
        self._none_left("state <> 'idle'", "a transaction was left open")

    def _none_left(self, which: str, complaint: str) -> None:
        sql = (
            "SELECT state, query FROM pg_stat_activity WHERE datname = current_database() "
            f"AND backend_type = 'client backend' AND application_name = 'duly' AND {which}"
        )
        deadline = time.monotonic() + PATIENCE
        while left := self._connection.execute(sql.encode()).fetchall():
            assert time.monotonic() < deadline, f"{complaint}: {left}"
            time.sleep(0.001)

    def _run(self, *statements: str) -> None:
        self._connection.execute(";".join(statements).encode())

    def close(self) -> None:
        self._run("DROP SCHEMA kept CASCADE")
        self._connection.close()


class SqliteState:
    """An SQLite file; what is kept is a copy of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept = path.with_name("kept.db")

    def keep(self) -> None:
        connection = self._open()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        shutil.copyfile(self.path, self._kept)

    def put_back(self) -> None:
        for more in ("-wal", "-shm"):
            self.path.with_name(self.path.name + more).unlink(missing_ok=True)
        shutil.copyfile(self._kept, self.path)

    def dump(self) -> Dump:
        connection = self._open()
        try:
            connection.row_factory = sqlite3.Row
            names = connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'duly!_%' ESCAPE '!' ORDER BY 1"
            )
            tables = [str(row[0]).removeprefix("duly_") for row in names]
            return {
                table: sorted(comparable(table, dict(row)) for row in connection.execute(f"SELECT * FROM duly_{table}"))
                for table in tables
                if table != "schema_version"
            }
        finally:
            connection.close()

    def check_let_go(self) -> None:
        connection = self._open()
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        finally:
            connection.close()
        lock = LockFile(self.path.with_name(self.path.name + "-duly.lock"))
        with lock.held(0.0):
            pass
        lock.close()

    def check_sound(self) -> None:
        connection = self._open()
        try:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        finally:
            connection.close()

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None, timeout=0.0)

    def close(self) -> None:
        """Nothing is left open."""
