"""Carries out migrations on PostgreSQL beside those who work: nobody waits longer than 3 s for one (decision 0024).

Not here: which migrations there are, and who may work on what (`migrate`).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from duly.domain.errors import DatabaseUnavailable
from duly.store import migrate
from duly.store.call import Dialect
from duly.store.migrate import Behind, Migration, SchemaVersion, Way

if TYPE_CHECKING:
    from psycopg import Connection

log = logging.getLogger("duly.store")

LOCK_SECONDS = 1.0
"""How long a transaction waits for a lock: whoever comes later waits behind it."""
LONGEST_SECONDS = 2.5
"""How long a transaction may last that may hold locks others wait for. With the time to end it, less than 3 s."""
TRIES = 10
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
"""How long those who queued up behind a try have to get on before the next."""
TURN_SECONDS = 600.0
"""How long to wait for the end of a migration that somebody else is at."""
_INDEX = re.compile(r"^CREATE (?:UNIQUE )?INDEX CONCURRENTLY IF NOT EXISTS (\w+)")


class PostgresMigration:
    """Brings the tables of one schema up to date."""

    def __init__(self, connect: Callable[[], Connection], schema: str, where: str) -> None:
        self._connect = connect
        self._schema = schema
        self._where = where

    def run(self) -> list[int]:
        """Apply what is missing, one migration at a time, alone. Returns the versions applied."""
        with self._connect() as connection:
            present = read_version(connection, self._schema)
        if not self._missing(present):
            return []
        with self._turn() as guard:
            present = read_version(guard, self._schema)
            missing = self._missing(present)
            if present is None:
                guard.execute(f"SET LOCAL lock_timeout = {_ms(LOCK_SECONDS)}")
                for sql in migration_sql(self._schema, 0):
                    guard.execute(sql)
            else:
                self._refuse_to_leave(guard, present, missing)
                # The last statement's portal keeps its snapshot while the transaction idles, and an index would wait
                # for that. A statement by the simple protocol closes it, and leaves none.
                guard.pgconn.exec_(b"SELECT 1")
                for step in missing:
                    self._apply(step)
        return [step.version for step in missing]

    def _missing(self, present: SchemaVersion | None) -> list[Migration]:
        if present is not None and present.version > migrate.newest(Dialect.POSTGRES):
            migrate.check_version(present, Dialect.POSTGRES, self._where, self._schema)
        return migrate.pending(present, Dialect.POSTGRES)

    @contextmanager
    def _turn(self) -> Iterator[Connection]:
        """Be the only one that migrates, by a lock that an otherwise idle transaction holds.

        Who waits asks again and again: a statement that waits has a snapshot, and an index that is built concurrently
        waits for every snapshot older than itself.
        """
        deadline, pause = time.monotonic() + TURN_SECONDS, 0.02
        while True:
            with self._connect() as connection, connection.transaction():
                connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                ours = "SELECT pg_try_advisory_xact_lock(hashtext(%s))"
                row = connection.execute(ours, (f"duly migrate {self._schema}",)).fetchone()
                if row and row[0]:
                    yield connection
                    return
            if time.monotonic() > deadline:
                raise DatabaseUnavailable(
                    f"could not migrate {self._where}: another migration has been at it for {TURN_SECONDS:.0f} s. "
                    "Look for it in pg_stat_activity, and try again when it has ended"
                )
            time.sleep(pause)
            pause = min(pause * 1.5, 1.0)

    def _refuse_to_leave(self, connection: Connection, present: SchemaVersion, missing: list[Migration]) -> None:
        needs = max((step.needs for step in missing), default=0)
        if present.version < migrate.FIRST_RELEASE or needs <= migrate.FIRST_RELEASE:
            return
        rows = connection.execute(
            f'SELECT host, pid, version, knows FROM "{self._schema}".workers WHERE knows < %s '  # noqa: S608 - checked
            "AND seen_at > extract(epoch FROM now()) * 1000000 - %s ORDER BY seen_at DESC",
            (needs, migrate.LIVES_US),
        ).fetchall()
        migrate.refuse_to_leave([Behind(*row) for row in rows], needs, self._where)

    def _apply(self, step: Migration) -> None:
        match step.way:
            case Way.TRANSACTION:
                statements = [*_in_schema(step, self._schema), record(step, self._schema)]
                limit = LONGEST_SECONDS if step.version > migrate.FIRST_RELEASE else None
                self._patiently(step, lambda: self._in_time(statements, limit))
            case Way.INDEX:
                self._build_index(step)
                self._patiently(step, lambda: self._in_time([record(step, self._schema)], LONGEST_SECONDS))
            case Way.BATCHES:
                self._repeat(step)
                self._patiently(step, lambda: self._in_time([record(step, self._schema)], LONGEST_SECONDS))
        log.info("migration %04d %s applied", step.version, step.name)

    def _repeat(self, step: Migration) -> None:
        """Change rows batch by batch, each in a transaction of its own, until there are no more of those of before."""
        (statement,) = _in_schema(step, self._schema)
        with self._connect() as connection:
            row = connection.execute("SELECT (extract(epoch FROM now()) * 1000000)::bigint").fetchone()
        began, after = int(row[0]) if row else 0, migrate.FIRST_KEY
        while True:
            sql = migrate.batch(statement, after, began)
            keys = self._patiently(step, lambda sql=sql: self._in_time([sql], LONGEST_SECONDS))  # type: ignore[misc]
            if not keys:
                return
            after = max(keys)

    def _in_time(self, statements: list[str], limit: float | None) -> list[str]:
        """Run statements in one transaction that gives up in time. Returns what the last one returned, if anything."""
        begun, returned = time.monotonic(), list[str]()
        with self._connect() as connection, connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = {_ms(LOCK_SECONDS)}")
            for sql in statements:
                left = 0 if limit is None else _ms(max(0.001, begun + limit - time.monotonic()))
                connection.execute(f"SET LOCAL statement_timeout = {left}")
                cursor = connection.execute(sql.encode())
                returned = [str(row[0]) for row in cursor.fetchall()] if cursor.description else []
        time.sleep(min(0.1, (time.monotonic() - begun) / 2))  # leaves others their share of the server between batches
        return returned

    def _patiently(self, step: Migration, work: Callable[[], list[str]]) -> list[str]:
        """Try again when others were in the way, with pauses in which those who queued up behind us get on."""
        import psycopg

        pause = FIRST_PAUSE
        for tried in range(1, TRIES + 1):
            try:
                return work()
            except (
                psycopg.errors.LockNotAvailable,
                psycopg.errors.QueryCanceled,
                psycopg.errors.DeadlockDetected,
            ) as error:
                log.info("migration %04d %s, try %d of %d: %s", step.version, step.name, tried, TRIES, error)
                if tried == TRIES:
                    raise DatabaseUnavailable(
                        f"could not migrate {self._where}: in {TRIES} tries migration {step.version:04d} {step.name} "
                        f"got no lock within {LOCK_SECONDS:g} s, or did not end within {LONGEST_SECONDS:g} s. "
                        "Look for transactions that have been open for long (duly doctor), and run it again "
                        "when they have ended or less is going on"
                    ) from error
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        raise AssertionError("unreachable")

    def _build_index(self, step: Migration) -> None:
        """Build an index while others write. What an earlier try left unfinished is dropped first."""
        (statement,) = _in_schema(step, self._schema)
        found = _INDEX.match(statement)
        with self._connect() as connection:
            if found and self._is_valid(connection, found[1]) is False:
                connection.execute(f'DROP INDEX CONCURRENTLY "{self._schema}".{found[1]}'.encode())
            connection.execute(statement.encode())
            if found and not self._is_valid(connection, found[1]):
                raise DatabaseUnavailable(
                    f"could not migrate {self._where}: index {found[1]} was left unfinished. Run duly migrate again"
                )

    def _is_valid(self, connection: Connection, index: str) -> bool | None:
        row = connection.execute(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", (f'"{self._schema}".{index}',)
        ).fetchone()
        return None if row is None else bool(row[0])


def read_version(connection: Connection, schema: str) -> SchemaVersion | None:
    """What the tables say of themselves; None if there are none. Newer ones are also asked how old code may be."""
    found = connection.execute("SELECT to_regclass(%s)", (f'"{schema}".schema_version',)).fetchone()
    if not found or found[0] is None:
        return None
    row = connection.execute(f'SELECT max(version) FROM "{schema}".schema_version').fetchone()  # noqa: S608 - checked
    if not row or row[0] is None:
        return None
    version = int(row[0])
    if version <= migrate.newest(Dialect.POSTGRES):
        return SchemaVersion(version)
    row = connection.execute(
        f'SELECT max(COALESCE(compatible_from, version)) FROM "{schema}".schema_version'  # noqa: S608 - checked
    ).fetchone()
    return SchemaVersion(version, int(row[0]) if row else None)


def record(step: Migration, schema: str) -> str:
    """The statement that says that a migration was applied."""
    column, value = ("", "") if step.compatible_from is None else (", compatible_from", f", {step.compatible_from}")
    return (
        f'INSERT INTO "{schema}".schema_version (version, name{column}) '  # noqa: S608 - our own files
        f"VALUES ({step.version}, '{step.name}'{value})"
    )


def migration_sql(schema: str, present: int) -> Iterator[str]:
    """The statements that bring a schema of version `present` up to date. On a new one an index needs no care."""
    yield f'CREATE SCHEMA IF NOT EXISTS "{schema}"'
    yield (
        f'CREATE TABLE IF NOT EXISTS "{schema}".schema_version '
        "(version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
    )
    for step in migrate.pending(SchemaVersion(present), Dialect.POSTGRES):
        for statement in _in_schema(step, schema):
            if step.way is Way.INDEX and not present:
                yield statement.replace(" CONCURRENTLY", "", 1)
            elif step.way is not Way.BATCHES:
                yield statement
            elif present:  # new tables have no rows to change
                yield f"{migrate.REPEAT}\n{statement}"
        yield record(step, schema)


def _in_schema(step: Migration, schema: str) -> list[str]:
    return [statement.replace("duly.", f'"{schema}".') for statement in migrate.statements(step.sql)]


def _ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))
