"""`duly runs`, `workers`, `stats`, `prune`, `tick` and `migrate`."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from duly import Duly, State
from tests.cli.conftest import Project
from tests.helpers import eventually

# -- tick -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("B8")
def test_a_tick_runs_at_most_so_many_jobs_and_answers_with_counts(project: Project, jobs: Duly) -> None:
    for n in range(5):
        project.ok("enqueue", "app.py", "add", f"x={n}")
    assert project.ok("tick", "--max", "3", "app.py", "--json").json == {"ok": True, "claimed": 3, "settled": 3}
    assert len(jobs.list(state="succeeded")) == 3
    assert project.ok("tick", "app.py").out == "2 jobs claimed, 2 runs ended\n"
    assert project.ok("tick", "app.py", "--json").json == {"ok": True, "claimed": 0, "settled": 0}


@pytest.mark.requirement("B8")
def test_a_tick_promotes_what_is_due_and_retries_what_failed(project: Project, jobs: Duly) -> None:
    project.ok("enqueue", "app.py", "add", "x=1", "--delay", "50ms")
    project.ok("enqueue", "app.py", "send", "to=me")
    time.sleep(0.1)
    project.ok("tick", "app.py")
    time.sleep(0.1)
    project.ok("tick", "app.py")
    assert [job.state for job in jobs.list(task="add")] == [State.SUCCEEDED]
    assert [job.attempts for job in jobs.list(task="send")] == [2]


def test_a_tick_may_keep_to_some_queues(project: Project) -> None:
    project.ok("enqueue", "app.py", "add", "x=1")
    project.ok("enqueue", "app.py", "send", "to=me")
    assert project.ok("tick", "app.py", "--queue", "default", "--json").json["claimed"] == 1


# -- runs, workers ----------------------------------------------------------------------------------------------------


def test_runs_are_listed_with_their_errors(project: Project) -> None:
    assert project.ok("runs").out == "no runs yet\n"
    project.ok("enqueue", "app.py", "add", "x=1")
    project.ok("enqueue", "app.py", "send", "to=me")
    project.ok("tick", "app.py")
    text = project.ok("runs").out
    assert "succeeded" in text
    assert "ValueError: no such address: me" in text
    data = project.ok("runs", "--task", "add", "--json").json
    assert [(run["task"], run["outcome"], run["attempt"]) for run in data] == [("add", "succeeded", 1)]
    assert len(project.ok("runs", "--limit", "1", "--json").json) == 1


def test_workers_are_listed_and_the_dead_are_told_from_the_living(project: Project, jobs: Duly) -> None:
    assert project.ok("workers").out == "no worker is running\n"
    assert project.ok("workers", "--json").json == []

    @jobs.task
    def add(x: int) -> None: ...

    with jobs.worker() as worker:
        [row] = project.ok("workers", "--json").json
        assert (row["id"], row["pid"], row["alive"], row["tasks"]) == (worker.id, os.getpid(), True, ["add"])
        assert row["queues"] == ["default"]
        assert "alive" in project.ok("workers").out
        eventually(lambda: project.ok("workers", "--json").json[0]["memory_bytes"], 10)
        [row] = project.ok("workers", "--json").json
        assert 10 * 2**20 < row["memory_bytes"] < 8 * 2**30
        assert (row["busy"], row["running"]) == (0, [])
        header, line = project.ok("workers").out.splitlines()
        assert header.split()[4:8] == ["TASKS", "BUSY", "MEMORY", "VERSION"]
        assert f"{row['memory_bytes'] / 2**20:.0f} MB" in line
        dead = subprocess.Popen([sys.executable, "-c", "pass"])
        dead.wait()
        from dataclasses import replace

        from duly.domain.ids import uuid7
        from duly.worker.identity import this_process

        gone = replace(this_process(), pid=dead.pid, process_started_at="1")
        jobs.store.add_worker(
            uuid7(), gone, lease_us=15_000_000, queues='["x"]', tasks='["y"]', slots=1, wake=None, version="0"
        )
        states = {each["alive"] for each in project.ok("workers", "--json").json}
        assert states == {True, False} or len(project.ok("workers", "--json").json) == 1  # the living strike it off


# -- stats ------------------------------------------------------------------------------------------------------------


def test_stats_count_by_queue_and_task(project: Project, jobs: Duly) -> None:
    assert "nothing waits, is scheduled or runs" in project.ok("stats").out
    project.ok("enqueue", "app.py", "add", "x=1")
    project.ok("tick", "app.py")
    project.ok("enqueue", "app.py", "add", "x=2")
    project.ok("enqueue", "app.py", "add", "x=2", "--tenant", "acme")
    project.ok("enqueue", "app.py", "add", "x=3", "--delay", "1h")
    project.ok("enqueue", "app.py", "send", "to=me", "--delay", "1h")
    data = project.ok("stats", "--json").json
    rows = {(row["queue"], row["task"]): row for row in data["tasks"]}
    first = rows["default", "add"]
    assert (first["scheduled"], first["waiting"], first["running"]) == (1, 2, 0)
    assert 0 <= first["oldest"] < 60
    assert rows["mail", "send"]["scheduled"] == 1
    assert rows["mail", "send"]["oldest"] is None
    assert data["ended"] == {"succeeded": 1, "failed": 0, "cancelled": 0}
    assert data["workers"]["alive"] == 0
    text = project.ok("stats").out
    assert "QUEUE    TASK  SCHEDULED  WAITING  RUNNING" in text
    assert "none alive; what waits stays until one starts" in text


def test_stats_name_the_tasks_that_no_live_worker_knows(project: Project, jobs: Duly) -> None:
    @jobs.task
    def known() -> None: ...

    project.ok("enqueue", "resize", "--url", project.url)
    with jobs.worker():
        assert project.ok("stats", "--json").json["unknown"] == [{"queue": "default", "task": "resize"}]
        text = project.ok("stats").out
        assert "no live worker knows task resize in queue default" in text
        assert "workers  1 alive" in text


def test_watching_shows_it_again_until_interrupted(sqlite_project: Project) -> None:
    watching = sqlite_project.start("stats", "--watch", "--json")
    eventually(lambda: watching.output.count("\n") >= 2, 20)
    watching.signal(signal.SIGINT)
    assert watching.ends() == 0
    assert '"ended"' in watching.output.splitlines()[0]


def test_a_redraw_covers_what_stood_there() -> None:
    from duly.cli.stats import over_the_last

    assert over_the_last("a\nb") == "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J"


# -- migrate, prune ---------------------------------------------------------------------------------------------------


def test_migrate_makes_the_tables_and_says_when_there_is_nothing_to_do(empty_database_url: str, bare: Project) -> None:
    first = bare.ok("migrate", "--url", empty_database_url)
    assert "applied 1" in first.out
    again = bare.ok("migrate", "--url", empty_database_url)
    assert "already up to date" in again.out
    assert bare.ok("migrate", "--url", empty_database_url, "--json").json["applied"] == []
    assert bare.ok("stats", "--url", empty_database_url, "--json").json["tasks"] == []


def test_migrate_into_another_schema(empty_database_url: str, bare: Project) -> None:
    if empty_database_url.startswith("sqlite"):
        pytest.skip("SQLite has no schemas")
    bare.ok("migrate", "--url", empty_database_url, "--schema", "elsewhere")
    assert bare.ok("stats", "--url", empty_database_url, "--schema", "elsewhere").code == 0
    assert bare.duly("stats", "--url", empty_database_url).code == 3


def test_the_statements_that_are_printed_make_a_database_that_works(empty_database_url: str, bare: Project) -> None:
    script = bare.ok("migrate", "--url", empty_database_url, "--sql").out
    statements = bare.ok("migrate", "--url", empty_database_url, "--sql", "--json").json["statements"]
    if empty_database_url.startswith("sqlite"):
        with sqlite3.connect(urlsplit(empty_database_url).path[1:]) as connection:
            connection.executescript(script)
        connection.close()
    else:
        import psycopg

        with psycopg.connect(empty_database_url) as postgres:
            for statement in statements:
                postgres.execute(statement)
    assert "already up to date" in bare.ok("migrate", "--url", empty_database_url).out
    bare.ok("enqueue", "add", "--url", empty_database_url)
    newest = bare.ok("migrate", "--url", empty_database_url, "--sql", "--from", "9999").out
    assert len(newest) < len(script)


def test_migrate_does_not_open_what_it_only_prints(bare: Project, tmp_path: Path) -> None:
    assert "CREATE TABLE" in bare.ok("migrate", "--url", "postgresql://nobody@127.0.0.1:1/none", "--sql").out
    assert '"other".jobs' in bare.ok("migrate", "--url", "postgresql://127.0.0.1:1/x", "--schema", "other", "--sql").out
    assert "duly_jobs" in bare.ok("migrate", "--sql").out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("C11")
def test_prune_keeps_what_the_environment_says(project: Project, jobs: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    project.ok("enqueue", "app.py", "add", "x=1")
    project.ok("tick", "app.py")
    assert project.ok("prune").out == "0 jobs forgotten\n"
    monkeypatch.setenv("DULY_RETENTION_SUCCEEDED", "0s")
    time.sleep(0.01)
    assert project.ok("prune", "--json").json == {"pruned": 1}
    assert jobs.list() == []
