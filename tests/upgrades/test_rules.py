"""Every migration after the first release keeps the rules of decision 0024, and the rules refuse what they should."""

from __future__ import annotations

import re

import pytest

from duly.store.call import Dialect
from duly.store.migrate import FIRST_RELEASE, Migration, migrations, newest, statements
from duly.store.statements import load
from tests.upgrades.releases import RELEASES, fingerprint
from tests.upgrades.rules import broken, names
from tests.upgrades.steps import COLUMN, COMPATIBLE, FILL, INDEX, TABLE, worded

RELEASED = max((release.schema for release in RELEASES.values()), default=FIRST_RELEASE)
LATER = newest(Dialect.POSTGRES) + 1


@pytest.mark.parametrize("dialect", Dialect)
def test_every_migration_after_the_first_release_keeps_the_rules(dialect: Dialect) -> None:
    steps = migrations(dialect)
    wrong = {}
    for n, step in enumerate(steps):
        if step.version > FIRST_RELEASE:
            earlier = (release.schema for release in RELEASES.values() if release.schema < step.version)
            before = max(earlier, default=FIRST_RELEASE)
            wrong[step.version, step.name] = broken(step, dialect, released=before, known=names(steps[:n]))
    assert {step: rules for step, rules in wrong.items() if rules} == {}


def test_migrations_that_were_released_are_as_they_were() -> None:
    for version, release in RELEASES.items():
        assert FIRST_RELEASE <= release.schema <= newest(Dialect.SQLITE), version
        assert fingerprint(release.schema) == release.fingerprint, f"a migration that {version} brought was changed"


def test_until_the_first_release_every_migration_is_part_of_it() -> None:
    assert RELEASES or newest(Dialect.SQLITE) == FIRST_RELEASE, "FIRST_RELEASE in store/migrate.py goes along"


def test_a_change_of_a_migration_changes_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(3)
    real = migrations

    def changed(dialect: Dialect) -> tuple[Migration, ...]:
        return tuple(step._replace(sql=step.sql + " ") if step.version == 3 else step for step in real(dialect))

    monkeypatch.setattr("tests.upgrades.releases.migrations", changed)
    assert fingerprint(3) != before
    assert fingerprint(2) == fingerprint(2)


def judged(text: str, dialect: Dialect) -> list[str]:
    step = Migration(LATER, "later", worded(dialect, text))
    return broken(step, dialect, released=RELEASED, known=names(migrations(dialect)))


GOOD = {
    "nothing at all": COMPATIBLE,
    "a column": COLUMN,
    "columns with constants": COMPATIBLE
    + "ALTER TABLE duly.jobs ADD COLUMN a integer NOT NULL DEFAULT 0, ADD COLUMN b text DEFAULT 'x';",
    "a table with an index": TABLE + "CREATE UNIQUE INDEX colours_seen ON duly.colours (seen);",
    "rows of a new table": TABLE + "INSERT INTO duly.colours (name) VALUES ('red');",
    "an index": INDEX,
    "batches": FILL.format(rows=1_000),
    "an excused drop": COMPATIBLE
    + "-- exception: additive: since 0.2 nobody reads or writes the column\nALTER TABLE duly.jobs DROP COLUMN headers;",
}

BAD = {
    "says nothing of who may work on it": ("compatible", "ALTER TABLE duly.jobs ADD COLUMN colour text;"),
    "leaves the last release behind": (
        "compatible",
        f"-- compatible from {LATER:04d}\nALTER TABLE duly.jobs ADD COLUMN colour text;",
    ),
    "drops a column": ("additive", "ALTER TABLE duly.jobs DROP COLUMN headers;"),
    "drops a table": ("additive", "DROP TABLE duly.tokens;"),
    "drops a function": ("additive", "DROP FUNCTION duly.gate_room;"),
    "renames a column": ("additive", "ALTER TABLE duly.jobs RENAME COLUMN headers TO heads;"),
    "renames a table": ("additive", "ALTER TABLE duly.jobs RENAME TO work;"),
    "changes a type": ("rewrite", "ALTER TABLE duly.jobs ALTER COLUMN priority TYPE integer;"),
    "has a default that is reckoned for each row": (
        "rewrite",
        "ALTER TABLE duly.jobs ADD COLUMN token uuid DEFAULT gen_random_uuid();",
    ),
    "numbers the rows": ("rewrite", "ALTER TABLE duly.jobs ADD COLUMN n bigint GENERATED ALWAYS AS IDENTITY;"),
    "asks old code for a value": ("nullable", "ALTER TABLE duly.jobs ADD COLUMN colour text NOT NULL;"),
    "asks all rows for a value": ("rewrite", "ALTER TABLE duly.jobs ALTER COLUMN headers SET NOT NULL;"),
    "checks all rows": ("constraint", "ALTER TABLE duly.jobs ADD CONSTRAINT short CHECK (length(task) < 99);"),
    "checks a new column": ("constraint", "ALTER TABLE duly.jobs ADD COLUMN n integer DEFAULT 1 CHECK (n > 0);"),
    "refers to another table": (
        "constraint",
        "ALTER TABLE duly.runs ADD FOREIGN KEY (job_id) REFERENCES duly.jobs (id);",
    ),
    "changes all rows at once": ("batches", "UPDATE duly.jobs SET headers = '{}';"),
    "copies all rows at once": ("batches", "INSERT INTO duly.ended SELECT * FROM duly.ended;"),
    "deletes all rows at once": ("batches", "DELETE FROM duly.rollups;"),
    "batches that never end": (
        "bounded-batch",
        "-- in batches\nUPDATE duly.jobs SET tags = '' WHERE id IN (SELECT id FROM duly.jobs WHERE tags IS NULL);",
    ),
    "batches and more": ("one-statement", FILL.format(rows=9) + "ALTER TABLE duly.jobs ADD COLUMN shape text;"),
    "old code may break it": ("unique", "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS x ON duly.jobs (task, id);"),
    "takes locks of its own": ("known-statement", "LOCK TABLE duly.jobs; ALTER TABLE duly.jobs ADD COLUMN x text;"),
    "sets limits of its own": ("known-statement", "SET lock_timeout = '1h'; ALTER TABLE duly.jobs ADD COLUMN x text;"),
    "empties a table": ("known-statement", "TRUNCATE duly.rollups;"),
    "an exception without a reason": (
        "additive",
        "-- exception: additive: why\nALTER TABLE duly.jobs DROP COLUMN headers;",
    ),
    "an exception for nothing": (
        "needless-exception rewrite",
        "-- exception: rewrite: there was one here once\nALTER TABLE duly.jobs ADD COLUMN colour text;",
    ),
}

BAD_ON_POSTGRES = {
    "builds an index under a lock": ("concurrently", "CREATE INDEX x ON duly.jobs (task);"),
    "cannot be repeated": ("concurrently", "CREATE INDEX CONCURRENTLY x ON duly.jobs (task);"),
    "drops an index under a lock": ("concurrently", "DROP INDEX duly.jobs_by_tenant;"),
    "an index and more": ("one-statement", INDEX + "ALTER TABLE duly.jobs ADD COLUMN shape text;"),
    "changes what old code calls": (
        "same-function",
        "CREATE OR REPLACE FUNCTION duly.gate_room() RETURNS int AS $$ x $$;",
    ),
    "hides what old code calls": ("same-function", "CREATE FUNCTION duly.gate_room(a int) RETURNS int AS $$ x $$;"),
}


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("name", GOOD)
def test_a_migration_that_keeps_the_rules_is_let_pass(name: str, dialect: Dialect) -> None:
    assert judged(GOOD[name], dialect) == []


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("name", [*BAD, *BAD_ON_POSTGRES])
def test_a_migration_that_breaks_a_rule_is_refused(name: str, dialect: Dialect) -> None:
    if name in BAD_ON_POSTGRES and dialect is not Dialect.POSTGRES:
        pytest.skip("a rule of PostgreSQL alone")
    rule, text = (BAD | BAD_ON_POSTGRES)[name]
    said = COMPATIBLE if rule != "compatible" and COMPATIBLE not in text else ""
    assert judged(said + text, dialect) == [rule]


@pytest.mark.parametrize("dialect", Dialect)
def test_no_statement_takes_columns_by_their_position(dialect: Dialect) -> None:
    """A later release adds columns: `SELECT *` from a table, or an INSERT that names none, would see them."""
    wrong = []
    for name, sql in load(dialect).items():
        text = " ".join(sql.split())
        if re.search(r"INSERT (OR \w+ )?INTO duly\.\w+( AS \w+)? (VALUES|SELECT|DEFAULT)", text, re.I):
            wrong.append(f"{name}: INSERT without columns")
        if re.match(r"SELECT \* FROM duly\.\w+", text, re.I):
            wrong.append(f"{name}: SELECT *")
        if re.match(r"(UPDATE|DELETE|INSERT)\b.* RETURNING \*$", text, re.I):
            wrong.append(f"{name}: RETURNING *")
    assert wrong == []


def test_the_migrations_of_the_first_release_would_not_all_pass() -> None:
    """The rules see something: what was done before anybody had tables could not be done now."""
    found = {
        rule
        for step in migrations(Dialect.POSTGRES)[:FIRST_RELEASE]
        for rule in broken(step, Dialect.POSTGRES, released=RELEASED)
    }
    assert {"rewrite", "additive", "concurrently", "batches", "compatible"} <= found
    assert all(statements(step.sql) for step in migrations(Dialect.POSTGRES))
