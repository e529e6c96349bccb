"""What a database is and can do without us: its version and settings, the way there and back, bare rows."""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from duly.store.database import Database
from duly.store.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from duly.store.postgres import PostgresDatabase

TRIPS = 50
DURABILITY = ("fsync", "synchronous_commit", "full_page_writes", "synchronous_standby_names", "data_checksums")
BODY = '{"n": 1, "to": "somebody@example.org", "subject": "a job as most are, of a hundred bytes or so"}'


class Facts(NamedTuple):
    """Which database it is; how long one round trip takes, None where there is none."""

    name: str
    settings: dict[str, str]
    round_trip_us: float | None


class Bare(Protocol):
    """A table by the bare driver."""

    facts: Facts

    def insert(self, number: int) -> None:
        """Store one small row and commit."""
        ...

    def insert_many(self, numbers: Sequence[int]) -> None:
        """Store rows in the quickest way there is, and commit."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


def bare(database: Database, *, synchronous: str) -> Bare:
    """Connect to a database that may be written to as one likes, and make a table in it."""
    if isinstance(database, SqliteDatabase):
        return BareSqlite(database, synchronous)
    from duly.store.postgres import PostgresDatabase

    assert isinstance(database, PostgresDatabase)
    return BarePostgres(database)


class BarePostgres:
    """By psycopg: a prepared INSERT that commits by itself, and COPY."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._connection = database.connect()
        table = f"{database.schema}.bare"
        self._insert = f"INSERT INTO {table} (id, body) VALUES (%s, %s)".encode()  # noqa: S608  # a name of our making
        self._copy = f"COPY {table} (id, body) FROM STDIN".encode()
        self._connection.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, body text NOT NULL)".encode())
        self.facts = self._ask()

    def _ask(self) -> Facts:
        connection, took = self._connection, []
        for _ in range(TRIPS):
            began = time.perf_counter()
            connection.execute("SELECT 1").fetchone()
            took.append(time.perf_counter() - began)
        rows = connection.execute(
            "SELECT name, setting FROM pg_settings WHERE name = ANY (%s) AND setting <> ''", (list(DURABILITY),)
        ).fetchall()
        settings = {str(name): str(setting) for name, setting in rows}
        version = connection.info.parameter_status("server_version") or "?"
        ordered = {name: settings[name] for name in DURABILITY if name in settings}
        return Facts(f"PostgreSQL {version}", ordered, statistics.median(took) * 1e6)

    def insert(self, number: int) -> None:
        self._connection.execute(self._insert, (number, BODY), prepare=True)

    def insert_many(self, numbers: Sequence[int]) -> None:
        with self._connection.cursor() as cursor, cursor.copy(self._copy) as out:
            out.write("".join([f"{number}\t{BODY}\n" for number in numbers]))

    def close(self) -> None:
        self._connection.close()


class BareSqlite:
    """By sqlite3, with the settings that our own connections have."""

    def __init__(self, database: SqliteDatabase, synchronous: str) -> None:
        self._connection = sqlite3.connect(database.path, isolation_level=None)
        execute = self._connection.execute
        mode = execute("PRAGMA journal_mode=WAL").fetchone()[0]
        execute(f"PRAGMA synchronous={synchronous.upper()}")
        execute("CREATE TABLE bare (id integer PRIMARY KEY, body text NOT NULL)")
        settings = {"journal_mode": str(mode).upper(), "synchronous": synchronous.upper()}
        self.facts = Facts(f"SQLite {sqlite3.sqlite_version}", settings, None)

    def insert(self, number: int) -> None:
        self._connection.execute("INSERT INTO bare VALUES (?, ?)", (number, BODY))

    def insert_many(self, numbers: Sequence[int]) -> None:
        rows: list[tuple[Any, ...]] = [(number, BODY) for number in numbers]
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO bare VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()
