"""libSQL (the `libsql` package) behind the seam of `sqlite.py`: what that asks of a `sqlite3.Connection`, no more.

What the package does differently, as of 0.1.11: whole numbers beyond 32 bits are bound as floating point, so they go
as text inside a CAST; rows of a statement that has none are None; every error is a ValueError.
Not here: remote databases and replicas. The file is the database.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from typing import Any, cast

from duly.domain.errors import ConfigurationError

_MARK = re.compile(r"\?")
_CONSTRAINT = re.compile(r"constraint failed", re.I)


def connect(path: str) -> sqlite3.Connection:
    """Open a libSQL file in autocommit mode, for any thread."""
    try:
        import libsql
    except ImportError as error:
        raise ConfigurationError("a libsql:/// address needs the package libsql. Run: pip install libsql") from error
    try:
        inner = libsql.connect(path, isolation_level=None)
    except ValueError as error:
        raise sqlite3.OperationalError(f"unable to open database file: {error}") from error
    return cast(sqlite3.Connection, LibsqlConnection(inner))


class LibsqlConnection:
    """The part of `sqlite3.Connection` that the store uses."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return bool(self._inner.in_transaction)

    def execute(self, sql: str, params: Sequence[object] = ()) -> LibsqlRows:
        """Run one statement, with a ? for each parameter, and nowhere else."""
        wide = [type(value) is int and not -(2**31) <= value < 2**31 for value in params]
        if any(wide):
            marks = iter(wide)
            sql = _MARK.sub(lambda mark: "CAST(? AS INTEGER)" if next(marks) else "?", sql)
            params = [str(value) if each else value for value, each in zip(params, wide, strict=True)]
        try:
            return LibsqlRows(self._inner.execute(sql, tuple(params)))
        except ValueError as error:
            raise _as_sqlite(error) from error

    def close(self) -> None:
        """Close the connection."""
        self._inner.close()


class LibsqlRows:
    """The part of `sqlite3.Cursor` that the store uses."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def fetchall(self) -> list[tuple[object, ...]]:
        """Every row."""
        try:
            return self._inner.fetchall() or []
        except ValueError as error:
            raise _as_sqlite(error) from error

    def fetchone(self) -> tuple[object, ...] | None:
        """The first row."""
        rows = self.fetchall()
        return rows[0] if rows else None


def _as_sqlite(error: ValueError) -> sqlite3.Error:
    text = str(error)
    kind = sqlite3.IntegrityError if _CONSTRAINT.search(text) else sqlite3.OperationalError
    return kind(text)
