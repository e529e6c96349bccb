"""Looks into the tables behind the store's back, in the store's own words (`duly.jobs`), on whichever database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.types.string import TextLoader

from duly.store import libsql
from duly.store.statements import rewrite

PLACES = ("scheduled", "waiting", "parked", "running", "ended")


class Raw:
    """A second connection to the database at `url`, for one statement at a time."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith("postgresql:")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        if self.is_postgres:
            with self._postgres() as connection:
                text = rewrite(sql, param=_none, table='"duly".', casts=True)
                cursor = connection.execute(text.encode())
                return cursor.fetchall() if cursor.description else []
        with self._sqlite() as connection:
            return connection.execute(rewrite(sql, param=_none, table="duly_", casts=False)).fetchall()

    def one(self, sql: str) -> Any:
        """The first value of the first row."""
        return self.rows(sql)[0][0]

    def count(self, table: str) -> int:
        return int(self.one(f"SELECT count(*) FROM duly.{table}"))

    @contextmanager
    def _postgres(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.adapters.register_loader("uuid", TextLoader)
            yield connection

    @contextmanager
    def _sqlite(self) -> Iterator[sqlite3.Connection]:
        scheme, _, path = self.url.partition(":///")
        # Two SQLite libraries on one file in one process would undo each other's locks.
        connection = libsql.connect(path) if scheme == "libsql" else sqlite3.connect(path, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()


def _none(name: str) -> str:
    raise AssertionError(f"no parameters here, not :{name}")
