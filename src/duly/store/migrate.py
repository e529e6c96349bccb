"""Numbered, forward-only migrations: which exist, their text, and whether a database's version fits this code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from duly.domain.errors import SchemaInUse, SchemaMissing, SchemaTooNew, SchemaTooOld
from duly.store.call import Dialect
from duly.store.texts import texts

_TABLE = re.compile(r"^CREATE TABLE duly\.(\w+).*\bPRIMARY KEY\b", re.S)
_DROPPED = re.compile(r"^DROP TABLE duly\.(\w+)")
_INDEX = re.compile(r"^(?:CREATE (?:UNIQUE )?|(DROP ))INDEX (?:CONCURRENTLY )?(?:IF (?:NOT )?EXISTS )?(?:duly\.)?(\w+)")
_CONCURRENTLY = re.compile(r"^(?:CREATE (?:UNIQUE )?|DROP )INDEX CONCURRENTLY ")
_COMPATIBLE = re.compile(r"^-- compatible from (\d{4})$", re.M)
_BATCHES = re.compile(r"^-- in batches$", re.M)
_NAME = re.compile(r"^(\d{4})_(\w+)\.(sqlite|postgres)\.sql$")
_PIECE = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)|'(?:[^']|'')*'|"(?:[^"]|"")*"|(?P<tag>\$\w*\$).*?(?P=tag)|;|[^;'"$/-]+|.""",
    re.S,
)


FIRST_RELEASE = 11
"""The last migration of the first release. Those after it meet tables that are full and in use: decision 0024."""
REPEAT = "-- Repeat this with the largest of the keys that it returned for :after, until it returns none:"
FIRST_KEY = "00000000-0000-0000-0000-000000000000"
LIVES_US = 60_000_000
"""A worker that was not seen for this long is not one that a migration has to wait for."""


class Way(StrEnum):
    """How a migration is carried out."""

    TRANSACTION = "a transaction"
    INDEX = "an index, concurrently"
    BATCHES = "batches"


class Migration(NamedTuple):
    """One step of the schema."""

    version: int
    name: str
    sql: str

    @property
    def compatible_from(self) -> int | None:
        """The oldest version whose code may work on the tables that this leaves; None: only that which knows it."""
        found = _COMPATIBLE.search(self.sql)
        return int(found[1]) if found else None

    @property
    def needs(self) -> int:
        """Which version code must know at least to work on the tables that this leaves."""
        return self.version if self.compatible_from is None else self.compatible_from

    @property
    def way(self) -> Way:
        """How it is carried out."""
        if _BATCHES.search(self.sql):
            return Way.BATCHES
        if any(_CONCURRENTLY.match(statement) for statement in statements(self.sql)):
            return Way.INDEX
        return Way.TRANSACTION


class SchemaVersion(NamedTuple):
    """What the tables say of themselves."""

    version: int
    compatible_from: int | None = None
    """Which version code must know at least; asked only of tables that are newer than this code."""


class Behind(NamedTuple):
    """A worker that lives, and that a migration would leave behind."""

    host: str
    pid: int
    version: str
    knows: int


@lru_cache(maxsize=4)
def migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """Every migration of a dialect, in order."""
    found: list[Migration] = []
    for name, text in texts("migrations"):
        match = _NAME.match(name)
        if match and match.group(3) == dialect:
            found.append(Migration(int(match.group(1)), match.group(2), text))
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


def fits(found: SchemaVersion | None, dialect: Dialect) -> bool:
    """Whether this code may work on these tables: they are its own, or newer ones that say so."""
    wanted = newest(dialect)
    if found is None or found.version <= wanted:
        return found is not None and found.version == wanted
    return found.compatible_from is not None and found.compatible_from <= wanted


def check_version(found: SchemaVersion | None, dialect: Dialect, where: str, schema: str = "duly") -> None:
    """Refuse a schema that does not fit this code, naming the command that mends it."""
    if fits(found, dialect):
        return
    wanted = newest(dialect)
    command = command_for(where, schema)
    if found is None:
        raise SchemaMissing(f"{where} has no tables of duly yet. Run: {command}")
    if found.version < wanted:
        raise SchemaTooOld(f"{where} has schema version {found.version}, this duly needs {wanted}. Run: {command}")
    raise SchemaTooNew(too_new(where, found, wanted))


def too_new(where: str, found: SchemaVersion, wanted: int) -> str:
    """What to say of tables that this code is too old for."""
    needs = found.version if found.compatible_from is None else found.compatible_from
    least = "" if needs == found.version else f" and takes code that knows {needs} or newer"
    return (
        f"{where} has schema version {found.version}{least}, this duly knows {wanted}. "
        "Upgrade duly on this machine: pip install --upgrade duly"
    )


def pending(found: SchemaVersion | None, dialect: Dialect) -> list[Migration]:
    """The migrations that tables have not had yet."""
    return [step for step in migrations(dialect) if step.version > (found.version if found else 0)]


def refuse_to_leave(behind: Sequence[Behind], needs: int, where: str) -> None:
    """Refuse a migration while workers live that could not work on its tables."""
    if not behind:
        return
    names = ", ".join(f"{each.host} pid {each.pid} (duly {each.version})" for each in behind[:5])
    more = f" and {len(behind) - 5} more" if len(behind) > 5 else ""
    raise SchemaInUse(
        f"{where} was not migrated: workers that know schema version {min(behind, key=lambda each: each.knows).knows} "
        f"work on it, and the new tables take {needs} or newer: {names}{more}. "
        "Upgrade them to the release before this one first, or stop them (one that was killed is forgotten in a minute)"
    )


def batch(statement: str, after: str, began_us: int) -> str:
    """One batch of a statement that is repeated: what comes after a key, of what was there before an instant."""
    return statement.replace(":after", f"'{after}'").replace(":began", str(began_us))


def statements(sql: str) -> list[str]:
    """Split a migration into its statements. A semicolon in quotes or in a function's `$$` body ends none."""
    parts = [""]
    for piece in _PIECE.finditer(sql):
        if piece.group() == ";":
            parts.append("")
        elif piece["comment"] is None:
            parts[-1] += piece.group()
    return [part.strip() for part in parts if part.strip()]
