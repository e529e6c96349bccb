"""One database for the application's tables and for duly's, so that one transaction can change both.

A file, `feeds.db`, or the PostgreSQL database that `DULY_URL` names.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from duly import Duly

jobs = Duly(os.environ.get("DULY_URL") or "sqlite:///feeds.db")

# The last four columns of `feeds` are a mirror of its job: see `tasks.py`.
TABLES = (
    """CREATE TABLE IF NOT EXISTS feeds (
        id TEXT PRIMARY KEY, url TEXT NOT NULL UNIQUE, title TEXT, etag TEXT, last_modified TEXT,
        hub_url TEXT, websub_until TIMESTAMPTZ,
        next_fetch_at TIMESTAMPTZ, last_fetch_at TIMESTAMPTZ,
        consecutive_failures INTEGER NOT NULL DEFAULT 0, last_error TEXT)""",
    """CREATE TABLE IF NOT EXISTS subscriptions (
        feed_id TEXT NOT NULL REFERENCES feeds (id), reader TEXT NOT NULL,
        subscribed_at TIMESTAMPTZ NOT NULL, unsubscribed_at TIMESTAMPTZ, PRIMARY KEY (feed_id, reader))""",
    """CREATE TABLE IF NOT EXISTS entries (
        feed_id TEXT NOT NULL REFERENCES feeds (id), guid TEXT NOT NULL, title TEXT NOT NULL, link TEXT,
        PRIMARY KEY (feed_id, guid))""",
)


@contextmanager
def transaction() -> Iterator[Any]:
    """Open a transaction: kept if the block ends well, undone if it raises. Of sqlite3, or of psycopg."""
    url = jobs.settings.url
    if url.startswith("postgresql:"):
        import psycopg

        with psycopg.connect(url) as postgres:
            yield postgres
        return
    file = unquote(url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # duly does it for the whole file, in turn with its writes
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            yield connection


def query(connection: Any, sql: str, **params: object) -> list[tuple[Any, ...]]:
    """Run a statement with :name parameters on either kind of connection, and return its rows."""
    if isinstance(connection, sqlite3.Connection):
        params = {name: as_text(value) if isinstance(value, datetime) else value for name, value in params.items()}
    else:
        sql = re.sub(r":(\w+)", r"%(\1)s", sql)
    cursor = connection.execute(sql, params)
    return list(cursor.fetchall()) if cursor.description else []


def as_text(moment: datetime) -> str:
    """A time as SQLite keeps it; duly's mirror writes the same form."""
    return moment.astimezone(UTC).isoformat(sep=" ")


def as_moment(value: Any) -> datetime | None:
    """A time as either database gives it back."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


@jobs.on_start
def create_tables() -> None:
    """Make what is missing. Any number of processes may do so at once."""
    jobs.migrate()
    with transaction() as connection:
        if not isinstance(connection, sqlite3.Connection):
            connection.execute("SELECT pg_advisory_xact_lock(20251)")  # CREATE TABLE IF NOT EXISTS alone may collide
        for table in TABLES:
            connection.execute(table)
