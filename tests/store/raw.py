"""Looks into the tables behind the store's back, in the store's own words (`duly.jobs`), on whichever database."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.types.string import TextLoader

from duly.store import libsql
from duly.store.statements import rewrite

PLACES = ("scheduled", "waiting", "parked", "running", "ended")


class Raw:
    """A second connection to the database at `url`, opened when first used."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection: psycopg.Connection | sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._asked: list[str] = []
        self._to_ask: list[str] = []
        self._known: dict[str, list[tuple[Any, ...]]] = {}

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith("postgresql:")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        with self._lock:
            if self._connection is None:
                self._connection = self._connect()
            if isinstance(self._connection, psycopg.Connection):
                self._asked.append(sql)
                if sql in self._known:
                    return self._known[sql]
                text = rewrite(sql, param=_none, table='"duly".', casts=True)
                cursor = self._connection.execute(text.encode())
                return cursor.fetchall() if cursor.description else []
            return self._connection.execute(rewrite(sql, param=_none, table="duly_", casts=False)).fetchall()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """For a look during which nothing changes: ask PostgreSQL at once what was asked at the last such look."""
        if isinstance(self._connection, psycopg.Connection) and self._to_ask:
            texts = [rewrite(sql, param=_none, table='"duly".', casts=True) for sql in self._to_ask]
            cursor = self._connection.execute(";".join(texts).encode())
            for sql in self._to_ask:
                self._known[sql] = cursor.fetchall()
                cursor.nextset()
        self._asked = []
        try:
            yield
        finally:
            self._to_ask = list(dict.fromkeys(self._asked))
            self._known = {}

    def one(self, sql: str) -> Any:
        """The first value of the first row."""
        return self.rows(sql)[0][0]

    def count(self, table: str) -> int:
        return int(self.one(f"SELECT count(*) FROM duly.{table}"))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> psycopg.Connection | sqlite3.Connection:
        if self.is_postgres:
            connection = psycopg.connect(self.url, autocommit=True)
            connection.adapters.register_loader("uuid", TextLoader)
            return connection
        scheme, _, path = self.url.partition(":///")
        if scheme == "libsql":  # two SQLite libraries on one file in one process would undo each other's locks
            return libsql.connect(path)
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def _none(name: str) -> str:
    raise AssertionError(f"no parameters here, not :{name}")
