"""Loads the named statements of `sql/*.sql` and puts them into the words of one database library.

A statement is written once, with `:name` parameters and `duly.table` names; where the dialects differ it is
written once for each, marked `[postgres]` or `[sqlite]`. What several statements share is a `part`, put in by a line
`@name`. Not here: any SQL of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache

from duly.domain.errors import ConfigurationError
from duly.store.call import Dialect
from duly.store.texts import texts

POSTGRES_NOW = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"
CLOCKS = ("now", "lease_now")
MOST_FOREIGN = 1_000

_HEADER = re.compile(r"^-- (name|part): (\w+)(?: \[(\w+)\])? (\S.*)$", re.M)
_PART = re.compile(r"^@(\w+)$", re.M)
_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/)"""
    r"""|(?P<cast>::\s*\w+(?:\[\])?)"""
    r"""|(?<![:\w]):(?P<param>[a-zA-Z_]\w*)"""
    r"""|(?P<table>\bduly\.(?=[a-z]))|(?P<percent>%)""",
    re.S,
)
_SCHEMA = re.compile(r"^[a-z_][a-z0-9_]{0,62}$")

Marker = Callable[[str], str]


def check_schema(name: str) -> str:
    """Refuse a PostgreSQL schema name that would need quoting."""
    if not _SCHEMA.match(name):
        raise ConfigurationError(
            f"schema {name!r} is not a name duly accepts: use lower-case letters, digits and _ (at most 63), "
            "not starting with a digit"
        )
    return name


def rewrite(sql: str, *, param: Marker, table: str, casts: bool, percent: str = "%") -> str:
    """Put a statement into other words, leaving quoted text and comments untouched."""

    def replace(found: re.Match[str]) -> str:
        kind = found.lastgroup
        if kind == "param":
            return param(found.group("param"))
        if kind == "table":
            return table
        if kind == "cast":
            return found.group() if casts else ""
        if kind == "percent":
            return percent
        return found.group().replace("%", percent)

    return _TOKEN.sub(replace, sql)


@lru_cache(maxsize=MOST_FOREIGN)
def names_in(sql: str) -> tuple[str, ...]:
    """The `:name` parameters of a statement in the application's words, without those that are always given."""
    found: dict[str, None] = {}

    def note(name: str) -> str:
        found[name] = None
        return ""

    rewrite(sql, param=note, table="", casts=True)
    return tuple(name for name in found if name not in CLOCKS)


def literal(value: object) -> str:
    """A value as PostgreSQL text that takes its type from where it stands."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


@lru_cache(maxsize=4)
def load(dialect: Dialect) -> dict[str, str]:
    """Read every named statement of one dialect."""
    found: dict[str, dict[str, str]] = {"name": {}, "part": {}}
    for _, text in texts("sql"):
        headers = list(_HEADER.finditer(text))
        for header, following in zip(headers, [*headers[1:], None], strict=True):
            kind, name, only = header.group(1, 2, 3)
            if only is None or only == dialect:
                end = following.start() if following else len(text)
                if name in found[kind]:
                    raise ConfigurationError(f"two statements are named {name} for {dialect}")
                found[kind][name] = text[header.end() : end].strip()
    parts = found["part"]
    return {name: _PART.sub(lambda part: parts[part.group(1)], sql) for name, sql in found["name"].items()}


class Compiled:
    """The statements of one dialect in the words of one library, each compiled when first used.

    `get(name)` is the text, and the parameter names in the order they must be sent (for libraries that take them by
    position; with question marks a name is there as often as it is used).
    """

    def __init__(self, dialect: Dialect, style: str, schema: str, *, server_clock: bool) -> None:
        self._source = load(dialect)
        self._dialect = dialect
        self._style = style
        self._table = "duly_" if dialect is Dialect.SQLITE else f'"{check_schema(schema)}".'
        self._server_clock = server_clock
        self._ready: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._foreign: dict[str, tuple[str, tuple[str, ...]]] = {}

    def get(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Return the text of a statement and its parameters in order."""
        ready = self._ready.get(name)
        if ready is None:
            ready = self._ready[name] = self.compile(self._source[name])
        return ready

    def foreign(self, sql: str) -> tuple[str, tuple[str, ...]]:
        """The same for a statement in the application's words."""
        ready = self._foreign.get(sql)
        if ready is None:
            if len(self._foreign) >= MOST_FOREIGN:
                self._foreign.clear()
            ready = self._foreign[sql] = self.compile(sql)
        return ready

    def compile(self, sql: str) -> tuple[str, tuple[str, ...]]:
        """Compile any text written in our words (a named statement, or a caller's condition)."""
        order: list[str] = []

        def mark(name: str) -> str:
            if self._server_clock and name in CLOCKS:
                return POSTGRES_NOW
            if self._style == "question":  # sqlite3, libsql. Not ?1: Python 3.12 to 3.12.3 take it for a name, and warn
                order.append(name)
                return "?"
            if name not in order:
                order.append(name)
            return f"${order.index(name) + 1}" if self._style == "dollar" else f"%({name})s"  # asyncpg; psycopg

        casts = self._dialect is Dialect.POSTGRES
        percent = "%%" if self._style == "pyformat" else "%"
        text = rewrite(sql, param=mark, table=self._table, casts=casts, percent=percent)
        return text, tuple(order)
