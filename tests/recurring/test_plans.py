"""Finding, enabling and disabling a recurring job among many is a matter of index probes."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import psycopg
import pytest

from duly import Duly
from duly.store.call import Call, Dialect
from duly.store.statements import Compiled
from tests.stepping import watched
from tests.store.raw import Raw

MANY = 100_000
LATER = 9_000_000_000_000_000
OF_SQLITE = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY})"
ID = {
    True: "('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid",
    False: "'00000000-0000-7000-8000-' || printf('%012d', i)",
}


def fill(raw: Raw) -> None:
    """Many recurring jobs of two tasks, half of them disabled, by SQL."""
    numbers = f"generate_series(1, {MANY}) AS i" if raw.is_postgres else "n"
    first = "" if raw.is_postgres else OF_SQLITE
    job_id = ID[raw.is_postgres]
    true, false = ("true", "false") if raw.is_postgres else ("1", "0")
    key = "i::text" if raw.is_postgres else "CAST(i AS text)"
    raw.rows(
        f"INSERT INTO duly.jobs (id, task, queue, tenant, args, priority, max_attempts, created_at)"
        f" {first} SELECT {job_id}, 'fetch', 'default', '', '{{}}', 0, 1000000, 0 FROM {numbers}"
    )
    raw.rows(
        f"INSERT INTO duly.schedules (id, tenant, task, key, rule, anchor_at, created_at, updated_at) {first}"
        f" SELECT {job_id}, '', 'fetch', {key}, '{{\"rules\": [\"@every 1h\"]}}', 0, 0, 0 FROM {numbers}"
    )
    raw.rows(
        f"INSERT INTO duly.recurring (id, enabled, next_run_at, tick_at) {first}"
        f" SELECT {job_id}, CASE WHEN i % 2 = 0 THEN {true} ELSE {false} END, {LATER}, {LATER} FROM {numbers}"
    )
    raw.rows(
        f"INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority, token, attempt, crashes, hold) {first}"
        f" SELECT {job_id}, 9000000000000000, 'default', '', 'fetch', 0, 0, 0, 0, 4 FROM {numbers} WHERE i % 2 = 0"
    )


@pytest.mark.requirement("A10")
def test_one_among_many_is_found_enabled_and_disabled_by_index(jobs: Duly, raw: Raw) -> None:
    fill(raw)
    ops, calls = jobs.store.recurring, list[Call]()
    record = jobs.store.run(lambda: watched(ops.find("", "fetch", "77777"), calls))
    assert record.key == "77777"
    assert not record.enabled
    jobs.store.run(lambda: watched(ops.set_enabled(record.id, True, by=None, reason=None), calls))
    jobs.store.run(lambda: watched(ops.set_enabled(record.id, False, by=None, reason="no"), calls))
    jobs.store.run(lambda: watched(ops.find_name("", "nobody"), calls))
    names = {call.name for call in calls}
    assert {"find_recurring", "get_recurring", "lock_recurring", "set_recurring", "place_recurring"} <= names
    seen = {call.name: call for call in calls}
    explain = explain_postgres if raw.is_postgres else explain_sqlite
    for name, plan in explain(jobs.settings.url, list(seen.values())).items():
        assert not re.search(r"Seq Scan on (jobs|schedules|recurring|scheduled)\b|SCAN duly_(?!mirrors)", plan), (
            name,
            plan,
        )


def explain_postgres(url: str, calls: list[Call]) -> dict[str, str]:
    compiled = Compiled(Dialect.POSTGRES, "pyformat", "duly", server_clock=True)
    plans = {}
    with psycopg.connect(url, options="-c plan_cache_mode=force_generic_plan") as connection:
        connection.execute("ANALYZE")
        for call in calls:
            sql, order = compiled.get(call.name)
            params = {name: call.params[name] for name in order}
            rows = connection.execute(("EXPLAIN " + sql).encode(), params).fetchall()
            plans[call.name] = "\n".join(str(row[0]) for row in rows)
        connection.rollback()
    return plans


def explain_sqlite(url: str, calls: list[Call]) -> dict[str, str]:
    compiled = Compiled(Dialect.SQLITE, "question", "duly", server_clock=False)
    plans = {}
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        for call in calls:
            sql, order = compiled.get(call.name)
            params = tuple(call.params.get(name, 0) for name in order)
            rows = connection.execute("EXPLAIN QUERY PLAN " + sql, params).fetchall()
            plans[call.name] = "\n".join(str(row[3]) for row in rows)
    return plans


@pytest.mark.requirement("A10")
def test_pages_of_many_are_listed_by_index(jobs: Duly, raw: Raw) -> None:
    fill(raw)
    first = jobs.recurring_jobs(limit=10)
    second = jobs.recurring_jobs(limit=10, after=first[-1])
    assert [job.key for job in first] == sorted(str(n) for n in range(1, MANY + 1))[:10]
    assert [job.key for job in second] == sorted(str(n) for n in range(1, MANY + 1))[10:20]
    assert [job.enabled for job in jobs.recurring_jobs(limit=3, enabled=True)] == [True] * 3
