"""Unique indexes and primary keys that carry a promise: the database itself refuses a second row."""

from __future__ import annotations

from tests.guards.guard import Guard
from tests.guards.removing import Edit, Schema, Statement

PLACE = "I1 I4"
TEST = "tests/guards/test_schema.py::test_the_database_refuses_a_second_row"
KINDS = {"postgres": ("PostgreSQL", "pg18"), "sqlite": ("SQLite", "sqlite")}


def _table(file: str, table: str, cut: str, put: str = "") -> dict[str, tuple[Edit, ...]]:
    """How a key is taken out of a table, by dialect: on SQLite the table gets a row id in its place."""
    whole = {"postgres": f"CREATE TABLE duly.{table} (", "sqlite": f"CREATE TABLE duly_{table} ("}
    edits: dict[str, tuple[Edit, ...]] = {}
    for dialect, within in whole.items():
        name = f"{file}.{dialect}.sql"
        text = cut.replace("uuid PRIMARY", "text NOT NULL PRIMARY") if dialect == "sqlite" else cut
        edits[dialect] = (Schema(name, text, put, within=within),)
        if dialect == "sqlite" and table != "parked":
            edits[dialect] += (Schema(name, ") WITHOUT ROWID", ")", within=within),)
    return edits


def _id(table: str, spaces: int, file: str = "0001_core") -> dict[str, tuple[Edit, ...]]:
    """The same for a primary key that is the id."""
    gap = " " * spaces
    found = _table(file, table, f"id{gap}uuid PRIMARY KEY")
    for dialect, edits in found.items():
        first = edits[0]
        assert isinstance(first, Schema)
        kind = "uuid" if dialect == "postgres" else "text NOT NULL"
        found[dialect] = (
            Schema(first.file, f"id{gap}{kind} PRIMARY KEY", f"id{gap}{kind}", within=first.within),
            *edits[1:],
        )
    return found


def _index(file: str, index: str) -> dict[str, tuple[Edit, ...]]:
    return {
        "postgres": (Schema(f"{file}.postgres.sql", f"CREATE UNIQUE INDEX {index} ", f"CREATE INDEX {index} "),),
        "sqlite": (Schema(f"{file}.sqlite.sql", f"CREATE UNIQUE INDEX duly_{index} ", f"CREATE INDEX duly_{index} "),),
    }


_CONFLICT = {
    "postgres": (
        Statement("enqueue_due [postgres]", "ON CONFLICT (id) DO NOTHING"),
        Statement("enqueue_at [postgres]", "ON CONFLICT (id) DO NOTHING"),
    ),
    "sqlite": (Statement("insert_job [sqlite]", "ON CONFLICT (id) DO NOTHING"),),
}
_JOBS = _id("jobs", 11)
_JOBS["postgres"] = (Schema("0001_core.postgres.sql", "id           uuid PRIMARY KEY,\n    task ", "id           uuid,\n    task "),)
_JOBS["sqlite"] = (
    Schema("0001_core.sqlite.sql", "id           text NOT NULL PRIMARY KEY", "id           text NOT NULL", within="CREATE TABLE duly_jobs ("),
    Schema("0001_core.sqlite.sql", ") WITHOUT ROWID", ")", within="CREATE TABLE duly_jobs ("),
)
_WAITING = {
    "postgres": (
        Schema("0001_core.postgres.sql", "id       uuid PRIMARY KEY", "id       uuid", within="CREATE TABLE duly.waiting ("),
    ),
    "sqlite": (
        Schema("0001_core.sqlite.sql", "id       text NOT NULL UNIQUE", "id       text NOT NULL", within="CREATE TABLE duly_waiting ("),
    ),
}

_ROWS: tuple[tuple[str, str, str, dict[str, tuple[Edit, ...]]], ...] = (
    ("jobs", "F14 I1 P7", "a repeated enqueue makes two jobs of one id", _JOBS),
    ("scheduled", PLACE, "a job is scheduled twice", _id("scheduled", 7)),
    ("waiting", PLACE, "a job waits twice, and is run twice", _WAITING),
    ("parked", PLACE, "a job is set aside twice", _id("parked", 8)),
    ("running", PLACE, "two workers hold one job", _id("running", 12)),
    ("ended", "I2 P3", "a job ends twice", _id("ended", 10)),
    ("runs", "I2 P3", "two ends of one run are on record", _table("0001_core", "runs", "    log         text,\n    PRIMARY KEY (job_id, token)", "    log         text")),
    ("unique_keys", "F27 I7 P13", "two jobs hold one unique key", _table("0001_core", "unique_keys", "    next_id uuid,\n    PRIMARY KEY (tenant, key)", "    next_id uuid")),
    ("schedules", "I4", "one recurring job has two schedules", _id("schedules", 11, "0002_recurring")),
    ("schedules by key", "F27 I8", "one key has two recurring jobs", _index("0002_recurring", "schedules_by_key")),
    ("schedules by name", "F27", "one name is two recurring jobs", _index("0002_recurring", "schedules_by_name")),
    ("recurring", "I4", "a recurring job stands in two ways", _id("recurring", 14, "0002_recurring")),
    ("admitted", "I9", "a job counts twice for its key", _table("0005_limits", "admitted", "    look   boolean NOT NULL DEFAULT false,\n    PRIMARY KEY (key, job_id)", "    look   boolean NOT NULL DEFAULT false")),
    ("tokens by hash", "P17", "one secret is two principals", {
        "postgres": (Schema("0008_tokens.postgres.sql", "NOT NULL UNIQUE", "NOT NULL"),),
        "sqlite": (Schema("0008_tokens.sqlite.sql", "NOT NULL UNIQUE", "NOT NULL"),),
    }),
    ("alerts that are active", "F24", "one thing is alerted twice", _index("0009_alerts", "alerts_active")),
    ("notices", "F24", "somebody is told twice", _index("0009_alerts", "alert_notices_once")),
)  # fmt: skip

_SQLITE_TEXT = {
    "unique_keys": ("    next_id text,\n    PRIMARY KEY (tenant, key)", "    next_id text"),
    "admitted": ("    look   integer NOT NULL DEFAULT 0,\n    PRIMARY KEY (key, job_id)", "    look   integer NOT NULL DEFAULT 0"),
}


def _edits(name: str, dialect: str, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    if dialect == "sqlite" and name in _SQLITE_TEXT:
        first = edits[0]
        assert isinstance(first, Schema)
        old, new = _SQLITE_TEXT[name]
        edits = (Schema(first.file, old, new, within=first.within), *edits[1:])
    return edits


SCHEMA = tuple(
    Guard(
        name=f"unique: {name} ({kind})",
        protects=protects,
        without=without,
        edits=_edits(name, dialect, by_dialect[dialect]),
        tests=(f"{TEST}[{database}-{name}]",),
    )
    for name, protects, without, by_dialect in _ROWS
    for dialect, (kind, database) in KINDS.items()
)
