"""The tables themselves, for migrations: what there is, put back to nothing, and compared."""

from __future__ import annotations

import sqlite3

from tests.crash_matrix.state import Dump, PostgresState, SqliteState


class PostgresSchema(PostgresState):
    """Everything in our schema; nothing, at first."""

    def keep(self) -> None:
        self.put_back()

    def put_back(self) -> None:
        self._run("DROP SCHEMA IF EXISTS duly CASCADE")

    def dump(self) -> Dump:
        columns = "SELECT table_name || '.' || column_name || ' ' || data_type FROM information_schema.columns WHERE table_schema = 'duly'"  # noqa: E501
        indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'duly'"
        functions = (
            "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'duly'"
        )
        versions = "SELECT version::text FROM duly.schema_version"
        found = {"columns": self._list(columns), "indexes": self._list(indexes), "functions": self._list(functions)}
        return found | {"versions": self._list(versions) if found["columns"] else []}

    def _list(self, sql: str) -> list[str]:
        return sorted(str(row[0]) for row in self._connection.execute(sql.encode()))


class SqliteSchema(SqliteState):
    """Everything in a file; nothing, at first."""

    def keep(self) -> None:
        self.put_back()

    def put_back(self) -> None:
        for more in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + more).unlink(missing_ok=True)

    def dump(self) -> Dump:
        connection = self._open()
        try:
            schema = [str(row[0]) for row in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")]
            try:
                versions = [str(row[0]) for row in connection.execute("SELECT version FROM duly_schema_version")]
            except sqlite3.OperationalError:
                versions = []
            return {"schema": sorted(schema), "versions": sorted(versions)}
        finally:
            connection.close()
