"""The migrations as a script, for people who run them by hand: `duly migrate --sql`."""

from __future__ import annotations

from collections.abc import Iterator

from duly.store.call import Dialect
from duly.store.migrate import REPEAT, Migration, SchemaVersion, Way, pending, statements

_NOW = "CAST(strftime('%s', 'now') AS integer) * 1000000"


def script(dialect: Dialect, *, schema: str = "duly", present: int = 0) -> Iterator[str]:
    """The statements that bring a database of version `present` up to date."""
    if dialect is Dialect.POSTGRES:
        from duly.store.postgres_migrate import migration_sql

        yield from migration_sql(schema, present)
        return
    yield (
        "CREATE TABLE IF NOT EXISTS duly_schema_version "
        "(version integer PRIMARY KEY, name text NOT NULL, applied_at integer NOT NULL)"
    )
    for step in pending(SchemaVersion(present), dialect):
        for statement in statements(step.sql):
            if step.way is not Way.BATCHES:
                yield statement
            elif present:  # new tables have no rows to change
                yield f"{REPEAT}\n{statement}"
        yield _record(step)


def _record(step: Migration) -> str:
    column, value = ("", "") if step.compatible_from is None else (", compatible_from", f", {step.compatible_from}")
    return (
        f"INSERT INTO duly_schema_version (version, name, applied_at{column}) "  # noqa: S608 - our own files
        f"VALUES ({step.version}, '{step.name}', {_NOW}{value})"
    )
