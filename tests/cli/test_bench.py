"""`duly bench`: measures in a place of its own, says so first, and leaves nothing behind however it ends."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duly import Duly
from duly.bench import measure
from duly.store.scratch import PREFIX
from tests.cli.conftest import Project
from tests.databases import Kind
from tests.helpers import eventually

QUICK = ("bench", "--jobs", "100", "--seconds", "0.4")


def left_behind(url: str) -> list[str]:
    """What is there of any measurement."""
    if url.startswith("sqlite"):
        return [path.name for path in Path(url.removeprefix("sqlite:///")).parent.glob(f"{PREFIX}*")]
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)", (PREFIX,))
        return [str(row[0]) for row in rows]


def everything(url: str) -> dict[str, list[Any]]:
    """All rows of the tables in use."""
    if not url.startswith("sqlite"):
        with psycopg.connect(url) as connection:
            found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'duly'").fetchall()
            return {
                str(name): connection.execute(f"SELECT * FROM duly.{name} ORDER BY 1".encode()).fetchall()
                for (name,) in found
            }
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as lite:
        names = [row[0] for row in lite.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: lite.execute(f"SELECT * FROM {name}").fetchall() for name in names}


@pytest.fixture
def foreign(jobs: Duly, database_url: str) -> dict[str, list[Any]]:
    """Jobs that others stored, in the default queue and in one of the very name that is measured with."""

    @jobs.task
    def theirs(n: int) -> None: ...

    theirs.enqueue_many([{"n": n} for n in range(20)])
    theirs.using(delay=0.05).enqueue(20)
    theirs.using(queue="duly-bench-async").enqueue(21)
    return everything(database_url)


def test_it_measures_each_part_and_leaves_all_as_it_was(
    project: Project, foreign: dict[str, list[Any]], database_kind: Kind
) -> None:
    found = project.ok(*QUICK, "--yes", "--json").json
    assert found["version"].startswith("PostgreSQL" if database_kind.is_postgres else "SQLite")
    assert "synchronous_commit" in found["settings"] or found["settings"]["synchronous"] == "FULL"
    assert (found["round_trip_ms"] is not None) == database_kind.is_postgres
    parts = {each["name"]: each for each in found["measured"]}
    assert list(parts) == [
        "bare: one row and a commit",
        "enqueue, one by one",
        "bare: many rows and a commit",
        "enqueue_many",
        "drain, async def, 1 process",
        "drain, def, 1 process",
        "pick-up by an idle worker",
    ]
    pick_up = parts.pop("pick-up by an idle worker")
    assert all(each["per_second"] > 0 for each in parts.values())
    assert parts["drain, def, 1 process"]["jobs"] == 100
    assert parts["drain, async def, 1 process"]["jobs"] == 101 + parts["enqueue, one by one"]["jobs"]
    assert not any(each["repeated"] or each["cut"] for each in parts.values())
    assert 0 <= pick_up["p50_ms"] <= pick_up["p99_ms"]
    assert pick_up["jobs"] >= measure.FEWEST_PINGS
    assert everything(project.url) == foreign
    assert left_behind(project.url) == []


def test_several_processes_drain_together(project: Project) -> None:
    found = project.ok(*QUICK, "--yes", "--json", "--processes", "2").json
    (drain,) = [each for each in found["measured"] if each["name"] == "drain, def, 2 processes"]
    assert (drain["jobs"], drain["repeated"]) == (100, 0)


def test_it_says_what_it_will_do_and_then_what_it_found(sqlite_project: Project) -> None:
    said = sqlite_project.ok(*QUICK, "--yes").out
    intent, _, table = said.partition("\nSQLite ")
    assert "makes a file of its own" in intent
    assert "up to 505 jobs" in intent
    assert "3,735 rows" in intent
    assert "% of the bare driver" in table
    assert "100 jobs, each ran once" in table
    assert table.rstrip().endswith("All that was made is gone again.")


# -- nothing without a yes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_where_nobody_can_be_asked_it_wants_a_yes(project: Project, more: tuple[str, ...]) -> None:
    answer = project.duly(*QUICK, *more)
    assert (answer.code, "Say --yes" in answer.err) == (2, True)
    assert left_behind(project.url) == []


@pytest.mark.parametrize("word, code", [("n", 1), ("y", 0)])
def test_a_person_is_asked(sqlite_project: Project, monkeypatch: pytest.MonkeyPatch, word: str, code: int) -> None:
    monkeypatch.setattr("duly.cli.bench.can_ask", lambda: True)
    made: list[str] = []
    monkeypatch.setattr("duly.cli.bench._run", lambda app, scratch, plan: made.append(scratch.url))
    assert sqlite_project.duly(*QUICK, stdin=f"{word}\n").code == code
    assert len(made) == (code == 0)
    assert left_behind(sqlite_project.url) == []


def test_who_may_not_make_a_schema_is_told_what_is_missing(bare: Project, pg_url: str) -> None:
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE bench_guest LOGIN")
        try:
            answer = bare.duly(*QUICK, "--yes", "--url", pg_url.replace("postgres@", "bench_guest@"))
        finally:
            connection.execute("DROP ROLE bench_guest")
    assert answer.code == 3
    assert "bench_guest may not make a schema" in answer.err
    assert "GRANT CREATE ON DATABASE" in answer.err


# -- however it ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["_one_by_one", "_drain_def"])
def test_after_an_error_nothing_is_left(project: Project, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    def broken(self: measure.Parts) -> list[measure.Measured]:
        raise OSError("no more")

    monkeypatch.setattr(measure.Parts, part, broken)
    answer = project.duly(*QUICK, "--yes")
    assert (answer.code, "no more" in answer.err) == (1, True)
    assert left_behind(project.url) == []


def test_a_worker_that_cannot_start_is_an_error_with_what_it_said(
    sqlite_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.bench.processes.READY", "something else")
    monkeypatch.setattr(measure, "settings_for", lambda app, scratch: {"url": scratch.url})
    monkeypatch.setattr("duly.bench.measure.Parts._told", lambda self, log, queue: {"settings": {"nonsense": 1}})
    answer = sqlite_project.duly(*QUICK, "--yes")
    assert answer.code == 1
    assert "a worker process that was to be measured ended with code 1" in answer.err
    assert left_behind(sqlite_project.url) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["at the beginning", "in a drain"])
def test_after_an_interruption_nothing_is_left(
    project: Project, foreign: dict[str, list[Any]], number: signal.Signals, when: str
) -> None:
    """Before the first figure, and while worker processes drain; told twice, as impatient people do."""
    started = project.start("bench", "--jobs", "100000", "--seconds", "2", "--yes")
    if when == "at the beginning":
        eventually(lambda: left_behind(project.url), within=20)
    else:
        started.says("enqueue_many  ", within=40)
        eventually(lambda: children_of(started.process.pid), within=20)
    started.signal(number)
    started.signal(number)
    assert started.ends() == 130, started.output
    assert "interrupted" in started.output
    assert left_behind(project.url) == []
    assert everything(project.url) == foreign


def test_killed_outright_its_workers_go_with_it_and_the_next_run_names_what_stayed(
    project: Project, database_kind: Kind
) -> None:
    started = project.start("bench", "--jobs", "100000", "--seconds", "2", "--yes")
    started.says("enqueue_many  ", within=40)
    eventually(lambda: children_of(started.process.pid), within=20)
    children = children_of(started.process.pid)
    started.signal(signal.SIGKILL)
    started.ends()
    eventually(lambda: not any(is_alive(child) for child in children), within=20)
    (left,) = left_behind(project.url)
    answer = project.duly(*QUICK)
    assert (answer.code, left in answer.err) == (2, True), "it says so before it asks"
    assert ("DROP SCHEMA" if database_kind.is_postgres else "rm -r") in answer.err
    assert left_behind(project.url) == [left]
    if database_kind.is_postgres:
        with psycopg.connect(project.url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {left} CASCADE".encode())


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
