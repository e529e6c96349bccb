"""Numbered, forward-only migrations: which exist, their text, and whether a database's version fits this code."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

from duly.domain.errors import SchemaMissing, SchemaTooNew, SchemaTooOld
from duly.store.call import Dialect

_TABLE = re.compile(r"^CREATE TABLE duly\.(\w+).*\bPRIMARY KEY\b", re.S)
_DROPPED = re.compile(r"^DROP TABLE duly\.(\w+)")
_INDEX = re.compile(r"^(?:CREATE (?:UNIQUE )?|(DROP ))INDEX (?:IF EXISTS )?(?:duly\.)?(\w+)")
_NAME = re.compile(r"^(\d{4})_(\w+)\.(sqlite|postgres)\.sql$")
_PIECE = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)|'(?:[^']|'')*'|"(?:[^"]|"")*"|(?P<tag>\$\w*\$).*?(?P=tag)|;|[^;'"$/-]+|.""",
    re.S,
)


class Migration(NamedTuple):
    """One step of the schema."""

    version: int
    name: str
    sql: str


@lru_cache(maxsize=4)
def migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """Every migration of a dialect, in order."""
    found: list[Migration] = []
    for entry in resources.files("duly.store").joinpath("migrations").iterdir():
        match = _NAME.match(entry.name)
        if match and match.group(3) == dialect:
            found.append(Migration(int(match.group(1)), match.group(2), entry.read_text(encoding="utf-8")))
    return tuple(sorted(found))


def newest(dialect: Dialect) -> int:
    """The schema version this code is written for."""
    return migrations(dialect)[-1].version


def command_for(where: str, schema: str = "duly") -> str:
    """The command that brings a database up to date."""
    return f"duly migrate --url {where}" + ("" if schema == "duly" else f" --schema {schema}")


@lru_cache(maxsize=4)
def indexes(dialect: Dialect) -> dict[str, str | None]:
    """The indexes that the migrations leave, each with its statement; None where its table makes it."""
    found: dict[str, str | None] = {}
    for step in migrations(dialect):
        for statement in statements(step.sql):
            table, index, dropped = _TABLE.match(statement), _INDEX.match(statement), _DROPPED.match(statement)
            if dropped:
                found.pop(f"{dropped[1]}_pkey", None)
            if table:  # on SQLite they are part of the table, or named by SQLite
                found[f"{table[1]}_pkey"] = None
            if index and index[1]:
                found.pop(index[2], None)
            elif index:
                found[index[2]] = statement
    return found


def check_version(found: int | None, dialect: Dialect, where: str, schema: str = "duly") -> None:
    """Refuse a schema that does not fit this code, naming the command that mends it."""
    wanted = newest(dialect)
    command = command_for(where, schema)
    if found is None:
        raise SchemaMissing(f"{where} has no tables of duly yet. Run: {command}")
    if found < wanted:
        raise SchemaTooOld(f"{where} has schema version {found}, this duly needs {wanted}. Run: {command}")
    if found > wanted:
        raise SchemaTooNew(
            f"{where} has schema version {found}, this duly knows {wanted}. "
            "Upgrade duly on this machine: pip install --upgrade duly"
        )


def statements(sql: str) -> list[str]:
    """Split a migration into its statements. A semicolon in quotes or in a function's `$$` body ends none."""
    parts = [""]
    for piece in _PIECE.finditer(sql):
        if piece.group() == ";":
            parts.append("")
        elif piece["comment"] is None:
            parts[-1] += piece.group()
    return [part.strip() for part in parts if part.strip()]
