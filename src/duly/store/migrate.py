"""Numbered, forward-only migrations: which exist, their text, and whether a database's version fits this code."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

from duly.domain.errors import SchemaMissing, SchemaTooNew, SchemaTooOld
from duly.store.call import Dialect

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


def check_version(found: int | None, dialect: Dialect, where: str, schema: str = "duly") -> None:
    """Refuse a schema that does not fit this code, naming the command that mends it."""
    wanted = newest(dialect)
    command = f"duly migrate --url {where}" + ("" if schema == "duly" else f" --schema {schema}")
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
