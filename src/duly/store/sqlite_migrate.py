"""Carries out migrations on SQLite in steps, so that others write between them (decision 0024).

A step is one transaction of the only writer: all of a new database, or one migration, or one batch of one. Not here:
locks and connections (`sqlite`), which migrations there are (`migrate`).
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from duly.store import migrate
from duly.store.call import Dialect
from duly.store.migrate import Behind, Migration, SchemaVersion, Way


@dataclass(slots=True)
class Progress:
    """How far a migration in batches has come."""

    version: int = 0
    after: str = migrate.FIRST_KEY
    began_us: int = 0


def migrate_some(
    writer: sqlite3.Connection, now_us: int, where: str, progress: Progress | None = None
) -> list[int] | None:
    """Take one step. Returns the versions it completed (none: a batch), or None when nothing is missing.

    Whoever calls it holds the lock, rolls back what an error left open, and gives the same `progress` again.
    """
    writer.execute("BEGIN IMMEDIATE")
    present = read_version(writer)
    if present is not None and present.version > migrate.newest(Dialect.SQLITE):
        migrate.check_version(present, Dialect.SQLITE, where)
    missing = migrate.pending(present, Dialect.SQLITE)
    if not missing:
        writer.execute("ROLLBACK")
        return None
    if present is None:
        done = _make(writer, missing, now_us)
    else:
        _refuse_to_leave(writer, present, missing, now_us, where)
        done = _apply(writer, missing[0], now_us, progress or Progress())
    writer.execute("COMMIT")
    return done


def read_version(connection: sqlite3.Connection) -> SchemaVersion | None:
    """What the tables say of themselves; None if there are none. Newer ones are also asked how old code may be."""
    try:
        row = connection.execute("SELECT max(version) FROM duly_schema_version").fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return None
        raise
    if not row or row[0] is None:
        return None
    version = int(row[0])
    if version <= migrate.newest(Dialect.SQLITE):
        return SchemaVersion(version)
    row = connection.execute("SELECT max(COALESCE(compatible_from, version)) FROM duly_schema_version").fetchone()
    return SchemaVersion(version, int(row[0]))


def _make(writer: sqlite3.Connection, missing: list[Migration], now_us: int) -> list[int]:
    writer.execute(
        "CREATE TABLE IF NOT EXISTS duly_schema_version "
        "(version integer PRIMARY KEY, name text NOT NULL, applied_at integer NOT NULL)"
    )
    for step in missing:
        for statement in migrate.statements(step.sql) if step.way is not Way.BATCHES else ():
            writer.execute(statement)
        _record(writer, step, now_us)
    return [step.version for step in missing]


def _apply(writer: sqlite3.Connection, step: Migration, now_us: int, progress: Progress) -> list[int]:
    for statement in migrate.statements(step.sql):
        if step.way is not Way.BATCHES:
            writer.execute(statement)
            continue
        if progress.version != step.version:
            progress.version, progress.after, progress.began_us = step.version, migrate.FIRST_KEY, now_us
        keys = writer.execute(migrate.batch(statement, progress.after, progress.began_us)).fetchall()
        if keys:
            progress.after = max(str(row[0]) for row in keys)
            return []
    _record(writer, step, now_us)
    return [step.version]


def _refuse_to_leave(
    writer: sqlite3.Connection, present: SchemaVersion, missing: list[Migration], now_us: int, where: str
) -> None:
    needs = max(step.needs for step in missing)
    if present.version < migrate.FIRST_RELEASE or needs <= migrate.FIRST_RELEASE:
        return
    rows = writer.execute(
        "SELECT host, pid, version, knows FROM duly_workers WHERE knows < ? AND seen_at > ? ORDER BY seen_at DESC",
        (needs, now_us - migrate.LIVES_US),
    ).fetchall()
    migrate.refuse_to_leave([Behind(*row) for row in rows], needs, where)


def _record(writer: sqlite3.Connection, step: Migration, now_us: int) -> None:
    """Say that a migration was applied."""
    values: list[object] = [step.version, step.name, now_us]
    column, mark = "", ""
    if step.compatible_from is not None:
        column, mark = ", compatible_from", ", ?"
        values.append(step.compatible_from)
    writer.execute(
        f"INSERT INTO duly_schema_version (version, name, applied_at{column}) VALUES (?, ?, ?{mark})",  # noqa: S608 - our own words
        values,
    )
