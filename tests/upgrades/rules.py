"""The rules of a migration that meets tables in use (decision 0024), judged by its text alone.

A rule that is broken for a reason is named in the file: `-- exception: <rule>: <why>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from duly.store.call import Dialect
from duly.store.migrate import Migration, Way, statements

_EXCEPTION = re.compile(r"^-- exception: ([\w-]+): (\S.{9,})$", re.M)
_CREATE = re.compile(
    r"CREATE (?:OR REPLACE )?(TABLE|VIEW|FUNCTION|PROCEDURE)(?: IF NOT EXISTS)? (?:duly[._])?(\w+)", re.I
)
_COLUMN = re.compile(
    r"\bADD (?:COLUMN )?(?!CONSTRAINT\b|CHECK\b|FOREIGN\b|UNIQUE\b|PRIMARY\b)(\w+) ([^,]*(?:\([^)]*\)[^,]*)*)", re.I
)
_CONSTANT = re.compile(r"\bDEFAULT (?:-?\d+(?:\.\d+)?|'[^']*'|true|false|NULL)(?![\w(])", re.I)
_KNOWN = ("CREATE TABLE", "CREATE INDEX", "CREATE UNIQUE INDEX", "CREATE FUNCTION", "CREATE PROCEDURE", "CREATE VIEW",
          "CREATE OR REPLACE", "ALTER TABLE", "UPDATE", "INSERT", "DELETE", "DROP", "COMMENT ON")  # fmt: skip


def broken(step: Migration, dialect: Dialect, *, released: int, known: frozenset[str] = frozenset()) -> list[str]:
    """The rules that a migration breaks. `released`: the version of the last release; `known`: what exists by then."""
    excused = {match[1] for match in _EXCEPTION.finditer(step.sql)}
    found = sorted(set(_broken(step, dialect, released, known)))
    useless = [f"needless-exception {rule}" for rule in sorted(excused - set(found))]
    return [rule for rule in found if rule not in excused] + useless


def names(steps: tuple[Migration, ...]) -> frozenset[str]:
    """The tables, views and functions that migrations make."""
    text = "\n".join(step.sql for step in steps)
    return frozenset(found[2] for found in _CREATE.finditer(text))


def _broken(step: Migration, dialect: Dialect, released: int, known: frozenset[str]) -> Iterator[str]:
    parts = statements(step.sql)
    if step.compatible_from is None or step.compatible_from > released:
        yield "compatible"  # workers of the last release must be able to go on
    if step.compatible_from is not None and step.compatible_from > step.version:
        yield "compatible"
    if step.way is not Way.TRANSACTION and len(parts) != 1:
        yield "one-statement"  # what is not a transaction is repeated if it was cut short: it must be one thing
    made = names((step,)) - known
    for statement in parts:
        yield from _of_statement(" ".join(statement.split()), step, dialect, known, made)


def _of_statement(
    sql: str, step: Migration, dialect: Dialect, known: frozenset[str], made: frozenset[str]
) -> Iterator[str]:
    upper = sql.upper()
    if not upper.startswith(_KNOWN):
        yield "known-statement"
    if re.match(r"SET |RESET |BEGIN|COMMIT|ROLLBACK|LOCK |VACUUM|CLUSTER|REINDEX|TRUNCATE", upper):
        yield "known-statement"  # locks and time limits are the migrator's
    if upper.startswith(("CREATE INDEX", "CREATE UNIQUE INDEX", "DROP INDEX")):
        yield from _of_index(sql, step, dialect, made)
    if upper.startswith("ALTER TABLE"):
        yield from _of_alter(sql)
    if re.match(r"DROP (?!INDEX)", upper):
        yield "additive"
    if upper.startswith("CREATE OR REPLACE") or (
        (found := _CREATE.match(sql)) and found[1].upper() in ("FUNCTION", "PROCEDURE", "VIEW") and found[2] in known
    ):
        yield "same-function"  # old code calls it too
    if upper.startswith(("UPDATE", "INSERT", "DELETE")):
        yield from _of_rows(sql, step, made)


def _of_index(sql: str, step: Migration, dialect: Dialect, made: frozenset[str]) -> Iterator[str]:
    upper = sql.upper()
    on = re.search(r" ON (?:duly[._])?(\w+)", sql)
    if upper.startswith("DROP"):
        if dialect is Dialect.POSTGRES and "CONCURRENTLY IF EXISTS" not in upper:
            yield "concurrently"
    elif on and on[1] in made:
        return  # nobody uses a table that was just made
    elif dialect is Dialect.POSTGRES and "CONCURRENTLY IF NOT EXISTS" not in upper:
        yield "concurrently"
    if upper.startswith("CREATE UNIQUE"):
        yield "unique"  # what old code writes may break it


def _of_alter(sql: str) -> Iterator[str]:
    upper = sql.upper()
    if re.search(r"\bRENAME\b", upper) or re.search(r"\bDROP (?!DEFAULT)", upper):
        yield "additive"
    if re.search(r"\b(TYPE|SET NOT NULL|SET TABLESPACE|SET LOGGED|SET UNLOGGED|SET ACCESS METHOD)\b", upper):
        yield "rewrite"
    if re.search(r"\bADD (CONSTRAINT|CHECK|FOREIGN|UNIQUE|PRIMARY)\b", upper) and "NOT VALID" not in upper:
        yield "constraint"
    if "VALIDATE CONSTRAINT" in upper and len(re.findall(r"\bADD\b", upper)):
        yield "constraint"
    for _, definition in _COLUMN.findall(sql):
        _no_text = definition.upper()
        if "NOT NULL" in _no_text and "DEFAULT" not in _no_text:
            yield "nullable"
        if "DEFAULT" in _no_text and not _CONSTANT.search(definition):
            yield "rewrite"
        if re.search(r"\b(CHECK|REFERENCES|UNIQUE|PRIMARY KEY)\b", _no_text):
            yield "constraint"
        if re.search(r"\b(GENERATED|SERIAL|BIGSERIAL|IDENTITY)\b", _no_text):
            yield "rewrite"


def _of_rows(sql: str, step: Migration, made: frozenset[str]) -> Iterator[str]:
    about = re.match(r"(?:UPDATE|INSERT INTO|DELETE FROM) (?:duly[._])?(\w+)", sql, re.I)
    if about and about[1] in made:
        return
    if step.way is not Way.BATCHES:
        yield "batches"
    elif not all(part in sql for part in (":after", ":began", "RETURNING", "LIMIT", "ORDER BY")):
        yield "bounded-batch"  # else it may never end while others write, or take longer with every batch
