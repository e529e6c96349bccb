"""The migrations as a script, for people who run them by hand: `duly migrate --sql`."""

from __future__ import annotations

from collections.abc import Iterator

from duly.store.call import Dialect
from duly.store.migrate import migrations, statements

_INSERT = (
    "INSERT INTO duly_schema_version (version, name, applied_at) "
    "VALUES ({version}, '{name}', CAST(strftime('%s', 'now') AS integer) * 1000000)"
)


def script(dialect: Dialect, *, schema: str = "duly", present: int = 0) -> Iterator[str]:
    """The statements that bring a database of version `present` up to date."""
    if dialect is Dialect.POSTGRES:
        from duly.store.postgres import migration_sql

        yield from migration_sql(schema, present)
        return
    yield (
        "CREATE TABLE IF NOT EXISTS duly_schema_version "
        "(version integer PRIMARY KEY, name text NOT NULL, applied_at integer NOT NULL)"
    )
    for step in migrations(dialect):
        if step.version > present:
            yield from statements(step.sql)
            yield _INSERT.format(version=step.version, name=step.name)
