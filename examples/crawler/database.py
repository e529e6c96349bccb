"""One database for the application's table and for duly's, so that one transaction can change both.

A file, `crawler.db`, or the PostgreSQL database that `DULY_URL` names.
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

jobs = Duly(os.environ.get("DULY_URL") or "sqlite:///crawler.db")

PAGES = """
    CREATE TABLE IF NOT EXISTS pages (
        url TEXT PRIMARY KEY, title TEXT, found_at TIMESTAMPTZ NOT NULL, crawled_at TIMESTAMPTZ, gone_at TIMESTAMPTZ)
"""


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
    """A time as SQLite keeps it; duly's sweep compares with the same form."""
    return moment.astimezone(UTC).isoformat(sep=" ")


@jobs.on_start
def create_table() -> None:
    """Make what is missing. Any number of processes may do so at once."""
    jobs.migrate()
    with transaction() as connection:
        if not isinstance(connection, sqlite3.Connection):
            connection.execute("SELECT pg_advisory_xact_lock(20252)")  # CREATE TABLE IF NOT EXISTS alone may collide
        connection.execute(PAGES)
