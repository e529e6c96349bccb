"""What a check-up reads: what has not ended and the newest jobs, each once; not all that ever ended.

So that the page of the dashboard opens at once among a million jobs (`benchmarks/dashboard.py` takes the time).
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duly import Duly
from duly.doctor import jobs as of_jobs
from duly.doctor import sqlite as of_sqlite
from duly.domain.clock import SystemClock
from duly.store.call import Call, Dialect, Op, Rows
from duly.store.ops_doctor import misplaced
from duly.store.postgres import PLANNER, PostgresDatabase
from duly.store.sqlite import SqliteDatabase
from duly.store.statements import Compiled
from duly.store.store import Store
from tests.helpers import opened
from tests.speed.counting import check
from tests.store.raw import Raw

ENDED, WAITING, NEWEST = 6_000, 2_000, 3_000
WALKED = {"doctor_nowhere", "doctor_twice", "doctor_jobless"}
FILL = (
    "INSERT INTO duly.jobs (id, task, args, created_at) SELECT {id}, 'send', '{{}}', n FROM {ended}",
    "INSERT INTO duly.ended (id, state, finished_at, token, attempt, crashes)"
    " SELECT {id}, 'succeeded', {now}, 1, 1, 0 FROM {ended}",
    "INSERT INTO duly.jobs (id, task, args, created_at) SELECT {id}, 'send', '{{}}', n FROM {waiting}",
    "INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority)"
    " SELECT 'default', '', 'send', n, {id}, {now}, 0 FROM {waiting}",
)


def fill(raw: Raw, *, ended: range, waiting: range) -> None:
    """Put jobs there, by number: the higher, the newer."""
    values: dict[str, Any] = {"now": SystemClock().now_us()}
    for name, numbers in (("ended", ended), ("waiting", waiting)):
        first, last = numbers.start, numbers.stop - 1
        values[name] = (
            f"generate_series({first}, {last}) n"
            if raw.is_postgres
            else f"(WITH RECURSIVE s(n) AS (SELECT {first} WHERE {first} <= {last} UNION ALL"
            f" SELECT n + 1 FROM s WHERE n < {last}) SELECT n FROM s)"
        )
    padded = "lpad(n::text, 12, '0')" if raw.is_postgres else "printf('%012d', n)"
    values["id"] = f"('00000000-0000-7000-8000-' || {padded})" + ("::uuid" if raw.is_postgres else "")
    for statement in FILL:
        raw.rows(statement.format(**values))


@pytest.fixture
def raw(request: pytest.FixtureRequest) -> Iterator[Raw]:
    """The tables behind the store's back, with jobs that ended, and newer ones that wait."""
    raw = Raw(request.getfixturevalue("pg_url" if "pg_url" in request.fixturenames else "sqlite_url"))
    fill(raw, ended=range(100_000, 100_000 + ENDED), waiting=range(900_000, 900_000 + WAITING))
    yield raw
    raw.close()


# -- jobs and places are gone through side by side --------------------------------------------------------------------


def nodes(plan: dict[str, Any]) -> Iterator[str]:
    yield str(plan["Node Type"])
    for part in plan.get("Plans", ()):
        yield from nodes(part)


@pytest.mark.everywhere
@pytest.mark.parametrize("analysed", [False, True])
def test_postgres_merges_jobs_and_places_in_the_order_of_their_indexes(pg_url: str, raw: Raw, analysed: bool) -> None:
    """Also where statistics are missing. One job after another would be three pages for each place that is asked."""
    compiled = Compiled(Dialect.POSTGRES, "pyformat", "duly", server_clock=True)
    found: dict[str, dict[str, Any]] = {}

    def answered(connection: psycopg.Connection, call: Call) -> Rows:
        sql, order = compiled.get(call.name)
        params = {name: call.params[name] for name in order}
        if call.name != "walk_in_order":
            explained = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}".encode(), params).fetchone()
            assert explained is not None
            found[call.name] = explained[0][0]["Plan"]
        return connection.execute(sql.encode(), params).fetchall()

    if analysed:
        raw.rows("ANALYZE")
    with psycopg.connect(pg_url, options=PLANNER) as connection:
        run(misplaced(Dialect.POSTGRES, NEWEST), lambda call: answered(connection, call))
    assert set(found) >= WALKED
    for name in WALKED:
        used, shown = set(nodes(found[name])), json.dumps(found[name], indent=1)
        assert used <= {"Limit", "Unique", "Aggregate", "Append", "Merge Append", "Merge Join", "Materialize"} | {
            "Index Only Scan", "Index Scan", "Subquery Scan", "Result",
        }, f"{name}:\n{shown}"  # fmt: skip
        read = found[name]["Shared Hit Blocks"] + found[name]["Shared Read Blocks"]
        check(f"pages that {name} reads for each job", read / NEWEST, 2.5, shown)


def test_sqlite_merges_jobs_and_places_in_the_order_of_their_indexes(sqlite_url: str, raw: Raw) -> None:
    compiled = Compiled(Dialect.SQLITE, "question", "duly", server_clock=False)
    found: dict[str, str] = {}

    def answered(connection: sqlite3.Connection, call: Call) -> Rows:
        sql, order = compiled.get(call.name)
        params = [call.params[name] for name in order]
        lines = connection.execute(f"EXPLAIN QUERY PLAN {sql}", params).fetchall()
        found[call.name] = "\n".join(str(line[3]) for line in lines)
        return connection.execute(sql, params).fetchall()

    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
        run(misplaced(Dialect.SQLITE, NEWEST), lambda call: answered(connection, call))
    connection.close()
    assert set(found) >= WALKED
    for name in WALKED:
        assert "MERGE (" in found[name], f"{name}:\n{found[name]}"
        # What several walks found is put together so: next to nothing.
        sorts = re.findall(r".*TEMP B-TREE", found[name].replace("UNION USING TEMP B-TREE", ""))
        assert not sorts, f"{name}:\n{found[name]}"
        assert "CORRELATED" not in found[name], f"{name}:\n{found[name]}"


def run(op: Op[Any], answered: Any) -> None:
    """Drive an operation."""
    try:
        call = next(op)
        while True:
            assert isinstance(call, Call)
            call = op.send(answered(call))
    except StopIteration:
        pass


# -- the check-up as a whole ------------------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_jobs, "LOOKED_AT", NEWEST)
    monkeypatch.setattr(of_sqlite, "SMALL_FILE", 0)  # a larger one is not read through either


def is_well(jobs: Duly) -> bool:
    [places] = [each for each in jobs.doctor() if (each.area, each.check) == ("jobs", "places")]
    return places.evidence["looked_at"] == NEWEST


@pytest.mark.usefixtures("few")
def test_what_a_check_up_reads_does_not_grow_with_what_has_ended_on_postgres(
    pg_url: str, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: dict[str, int] = {}
    execute = PostgresDatabase._execute

    def explained(self: PostgresDatabase, connection: psycopg.Connection, call: Call) -> Rows:
        sql, order = self._compiled.get(call.name)
        if not sql.startswith("SET"):
            text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}"
            row = connection.execute(
                text.encode(), {name: call.params[name] for name in order}, prepare=False
            ).fetchone()
            assert row is not None
            plan = json.loads(row[0])[0]["Plan"]
            pages[call.name] = pages.get(call.name, 0) + plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return execute(self, connection, call)

    with opened(pg_url) as jobs:
        assert is_well(jobs)  # and everything that a first statement reads has been read
        monkeypatch.setattr(PostgresDatabase, "_execute", explained)
        assert is_well(jobs)
        before = dict(pages)
        fill(raw, ended=range(200_000, 200_000 + 3 * ENDED), waiting=range(0))
        pages.clear()
        assert is_well(jobs)
    grown = {name: (before.get(name, 0), n) for name, n in pages.items() if n > 1.1 * before.get(name, 0) + 30}
    assert not grown, f"pages read before and after {3 * ENDED:,} more jobs had ended: {grown}"


@pytest.mark.usefixtures("few")
def test_what_a_check_up_reads_does_not_grow_with_what_has_ended_on_sqlite(sqlite_url: str, raw: Raw) -> None:
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    def connect(file: str) -> sqlite3.Connection:
        connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        connection.set_progress_handler(step, 1)
        return connection

    with opened(sqlite_url) as jobs:
        jobs.store = Store(SqliteDatabase(Path(sqlite_url.removeprefix("sqlite:///")), SystemClock(), connect=connect))
        assert is_well(jobs)
        steps = 0
        assert is_well(jobs)
        before, steps = steps, 0
        fill(raw, ended=range(200_000, 200_000 + 3 * ENDED), waiting=range(0))
        assert is_well(jobs)
        check(f"steps after {3 * ENDED:,} more jobs had ended, of what they were before", steps / before, 1.1)


def test_what_is_to_run_is_counted_once_and_what_has_ended_is_not(jobs: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    get = Compiled.get

    def noted(self: Compiled, name: str) -> tuple[str, tuple[str, ...]]:
        asked.append(name)
        return get(self, name)

    monkeypatch.setattr(Compiled, "get", noted)
    jobs.doctor()
    counted = [name for name in asked if name.startswith("count_") or name == "doctor_waiting"]
    assert sorted(counted) == ["count_recurring", "count_scheduled", "doctor_waiting"]
