"""Migrations that do not exist, as a later release might have them; written once for both databases."""

from __future__ import annotations

from duly.store.call import Dialect
from duly.store.migrate import FIRST_RELEASE, Migration, newest
from duly.store.statements import rewrite

COMPATIBLE = f"-- compatible from {newest(Dialect.SQLITE):04d}\n"
"""What a migration says that the code as it is may work with."""

COLUMN = COMPATIBLE + "ALTER TABLE duly.jobs ADD COLUMN colour text;"
INDEX = COMPATIBLE + "CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_by_colour ON duly.jobs (colour, id);"
TABLE = COMPATIBLE + "CREATE TABLE duly.colours (name text PRIMARY KEY, seen integer NOT NULL DEFAULT 0);"
FILL = (
    COMPATIBLE
    + "-- in batches\n"
    + "UPDATE duly.jobs SET colour = 'red' WHERE id IN (SELECT id FROM duly.jobs "
    + "WHERE id > :after AND created_at < :began AND colour IS NULL ORDER BY id LIMIT {rows}) RETURNING id;"
)


def later(dialect: Dialect, *texts: str) -> list[Migration]:
    """Number made-up migrations after those that there are, in the words of a database."""
    first = newest(dialect) + 1
    assert first > FIRST_RELEASE
    return [Migration(first + n, f"later_{n}", worded(dialect, text)) for n, text in enumerate(texts)]


def worded(dialect: Dialect, text: str) -> str:
    """Put a migration into the words of a database."""
    if dialect is Dialect.POSTGRES:
        return text
    plain = text.replace(" CONCURRENTLY", "")
    return rewrite(plain, param=lambda name: f":{name}", table="duly_", casts=False)
