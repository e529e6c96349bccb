"""Unique indexes and primary keys that carry a promise: the database itself refuses a second row."""

from __future__ import annotations

from tests.guards.guard import Guard
from tests.guards.removing import Edit, Schema

PLACE = "I1 I4"
KINDS = {"postgres": "PostgreSQL", "sqlite": "SQLite"}
CORE, RECURRING, LIMITS, TOKENS, ALERTS = "0001_core", "0002_recurring", "0005_limits", "0008_tokens", "0009_alerts"
Edits = dict[str, tuple[Edit, ...]]


def _table(file: str, table: str, **cuts: tuple[str, str]) -> Edits:
    """How a key is taken out of a table, by dialect: on SQLite, a table without row ids gets them in its place."""
    edits: Edits = {}
    for dialect, (cut, put) in cuts.items():
        name, prefix = f"{file}.{dialect}.sql", "duly." if dialect == "postgres" else "duly_"
        within = f"CREATE TABLE {prefix}{table} ("
        edits[dialect] = (Schema(name, cut, put, within=within),)
        if dialect == "sqlite" and table not in ("parked", "waiting"):
            edits[dialect] += (Schema(name, ") WITHOUT ROWID", ")", within=within),)
    return edits


def _id(file: str, table: str, gap: int) -> Edits:
    """The same for a primary key that is the id."""
    column = "id" + " " * gap
    return _table(
        file,
        table,
        postgres=(f"{column}uuid PRIMARY KEY", f"{column}uuid"),
        sqlite=(f"{column}text NOT NULL PRIMARY KEY", f"{column}text NOT NULL"),
    )


def _last(file: str, table: str, key: str, *, postgres: str, sqlite: str) -> Edits:
    """The same for a primary key that stands after the last column."""
    return _table(
        file,
        table,
        postgres=(f"{postgres},\n    PRIMARY KEY ({key})", postgres),
        sqlite=(f"{sqlite},\n    PRIMARY KEY ({key})", sqlite),
    )


def _index(file: str, index: str) -> Edits:
    return {
        "postgres": (Schema(f"{file}.postgres.sql", f"CREATE UNIQUE INDEX {index} ", f"CREATE INDEX {index} "),),
        "sqlite": (Schema(f"{file}.sqlite.sql", f"CREATE UNIQUE INDEX duly_{index} ", f"CREATE INDEX duly_{index} "),),
    }


_WAITING = _table(
    CORE,
    "waiting",
    postgres=("id       uuid PRIMARY KEY", "id       uuid"),
    sqlite=("id       text NOT NULL UNIQUE", "id       text NOT NULL"),
)
_RUNS = _last(CORE, "runs", "job_id, token", postgres="log         text", sqlite="log         text")
_KEYS = _last(CORE, "unique_keys", "tenant, key", postgres="next_id uuid", sqlite="next_id text")
_ADMITTED = _last(
    LIMITS,
    "admitted",
    "key, job_id",
    postgres="look   boolean NOT NULL DEFAULT false",
    sqlite="look   integer NOT NULL DEFAULT 0",
)
_HASH: Edits = {dialect: (Schema(f"{TOKENS}.{dialect}.sql", "NOT NULL UNIQUE", "NOT NULL"),) for dialect in KINDS}

_ROWS: tuple[tuple[str, str, str, Edits], ...] = (
    ("jobs", "F14 I1 P7", "a repeated enqueue makes two jobs of one id", _id(CORE, "jobs", 11)),
    ("scheduled", PLACE, "a job is scheduled twice", _id(CORE, "scheduled", 7)),
    ("waiting", PLACE, "a job waits twice, and is run twice", _WAITING),
    ("parked", PLACE, "a job is set aside twice", _id(CORE, "parked", 8)),
    ("running", PLACE, "two workers hold one job", _id(CORE, "running", 12)),
    ("ended", "I2 P3", "a job ends twice", _id(CORE, "ended", 10)),
    ("runs", "I2 P3", "two ends of one run are on record", _RUNS),
    ("unique_keys", "F27 I7 P13", "two jobs hold one unique key", _KEYS),
    ("schedules", "I4", "one recurring job has two schedules", _id(RECURRING, "schedules", 11)),
    ("schedules by key", "F27 I8", "one key has two recurring jobs", _index(RECURRING, "schedules_by_key")),
    ("schedules by name", "F27", "one name is two recurring jobs", _index(RECURRING, "schedules_by_name")),
    ("recurring", "I4", "a recurring job stands in two ways", _id(RECURRING, "recurring", 14)),
    ("admitted", "I9", "a job counts twice for its key", _ADMITTED),
    ("tokens by hash", "P17", "one secret is two principals", _HASH),
    ("alerts that are active", "F24", "one thing is alerted twice", _index(ALERTS, "alerts_active")),
    ("notices", "F24", "somebody is told twice", _index(ALERTS, "alert_notices_once")),
)

SCHEMA = tuple(
    Guard(name=f"unique: {name} ({kind})", protects=protects, without=without, edits=edits[dialect])
    for name, protects, without, edits in _ROWS
    for dialect, kind in KINDS.items()
)
