"""`duly usage` and `duly audit`."""

from __future__ import annotations

import csv
import getpass
import io
from datetime import UTC, datetime, timedelta

import pytest

from duly import Duly
from tests.cli.conftest import Project

ME = getpass.getuser()


def ran(project: Project) -> None:
    """Three runs of two tasks, one of them for a tenant."""
    project.ok("enqueue", "app.py", "add", "x=1")
    project.ok("enqueue", "app.py", "add", "x=2", "--tenant", "acme")
    project.ok("enqueue", "app.py", "send", "to=me")
    project.ok("tick", "app.py")


# -- usage ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("B9")
def test_usage_is_shown_as_text_json_and_csv(project: Project) -> None:
    assert project.ok("usage").out == "nothing ran\n"
    assert project.ok("usage", "--json").json == []
    ran(project)
    lines = project.ok("usage").out.splitlines()
    assert lines[0].split() == [
        "SINCE", "TENANT", "TASK", "RUNS", "SUCCEEDED", "FAILED", "RETRIED", "CANCELLED", "CRASHED", "RAN", "WAITED",
    ]  # fmt: skip
    found = project.ok("usage", "--json").json
    assert {(each["tenant"], each["task"], each["succeeded"]) for each in found} >= {("", "add", 1), ("acme", "add", 1)}
    rows = list(csv.DictReader(io.StringIO(project.ok("usage", "--csv").out)))
    assert [{name: "" if value is None else str(value) for name, value in each.items()} for each in found] == rows
    (total,) = project.ok("usage", "--by", "", "--tenant", "acme", "--json").json
    assert (total["runs"], total["tenant"]) == (1, None)


@pytest.mark.requirement("B9")
def test_usage_is_divided_by_period_and_bounded(project: Project) -> None:
    ran(project)
    today = datetime.now(UTC).date()
    days = project.ok("usage", "--since", "7d", "--period", "day", "--by", "task", "--task", "add").out.splitlines()
    assert days[0].split()[:3] == ["DAY", "TASK", "RUNS"]
    assert days[1].split()[:3] == [today.isoformat(), "add", "2"]
    assert project.ok("usage", "--until", "2d").out == "nothing ran\n"
    assert project.ok("usage", "--since", "2020-01-01", "--until", "2020-02-01").out == "nothing ran\n"
    tomorrow = (today + timedelta(days=1)).isoformat()
    assert len(project.ok("usage", "--since", today.isoformat(), "--until", tomorrow, "--json").json) == 3


@pytest.mark.parametrize(
    "words",
    [
        ("--by", "tennant"),
        ("--period", "week"),
        ("--since", "yesterday"),
        ("--timezone", "Europe/Berln"),
        ("--timezone", "Asia/Kolkata", "--period", "day"),
        ("--json", "--csv"),
    ],
    ids=str,
)
def test_wrong_usage_is_refused(sqlite_project: Project, words: tuple[str, ...]) -> None:
    answer = sqlite_project.duly("usage", *words)
    assert answer.code in (1, 2)
    assert answer.err.startswith("duly: ")


# -- audit ------------------------------------------------------------------------------------------------------------


def test_what_was_done_on_the_command_line_is_kept_as_done_by_who_ran_it(project: Project, jobs: Duly) -> None:
    assert project.ok("audit").out == "nothing was done yet\n"
    job_id = project.ok("enqueue", "app.py", "add", "x=1", "--delay", "1h", "--json").json["id"]
    project.ok("jobs", "priority", job_id, "9")
    project.ok("jobs", "boost", job_id)
    project.ok("jobs", "cancel", job_id)
    project.ok("jobs", "retry", "--state", "cancelled", "--yes")
    project.ok("schedules", "add", "app.py", "add", "x=1", "--key", "k", "--every", "1h")
    project.ok("schedules", "edit", "add/k", "--every", "2h")
    project.ok("schedules", "disable", "add/k", "--by", "ada", "--reason", "too much")
    project.ok("schedules", "enable", "add/k")
    project.ok("schedules", "run", "add/k")
    project.ok("schedules", "remove", "add/k", "--yes")
    project.ok("jobs", "delete", job_id)
    found = project.ok("audit", "--json").json
    assert [(each["action"], each["who"], each["via"]) for each in found] == [
        ("delete", ME, "cli"),
        ("delete", ME, "cli"),
        ("run_now", ME, "cli"),
        ("enable", ME, "cli"),
        ("disable", "ada", "cli"),
        ("edit", ME, "cli"),
        ("add", ME, "cli"),
        ("retry", ME, "cli"),
        ("cancel", ME, "cli"),
        ("boost", ME, "cli"),
        ("set_priority", ME, "cli"),
    ]
    text = project.ok("audit", "--utc").out
    assert "priority 0 -> 9" in text
    assert "state scheduled -> cancelled" in text
    assert "enabled true -> false" in text
    assert "(too much)" in text
    assert "add/k" in text
    assert [each["action"] for each in project.ok("audit", "--job", job_id, "--limit", "2", "--json").json] == [
        "delete", "retry",
    ]  # fmt: skip
    assert len(project.ok("audit", "--by", "ada", "--since", "1h", "--json").json) == 1
    assert len(project.ok("audit", "--action", "delete", "--json").json) == 2
    assert project.ok("audit", "--by", "bob").out == "nothing was done\n"
    page = project.duly("audit", "--limit", "4")
    assert f"--before {found[3]['id']}" in page.err
    older = project.ok("audit", "--before", str(found[3]["id"]), "--json").json
    assert older == found[4:]


def test_what_a_worker_or_a_tick_does_is_no_operators_action(project: Project) -> None:
    ran(project)
    assert project.ok("audit", "--json").json == []


def test_a_name_cannot_steer_the_terminal(sqlite_project: Project, sqlite_jobs: Duly) -> None:
    job_id = sqlite_project.ok("enqueue", "app.py", "add", "x=1", "--json").json["id"]
    sqlite_jobs.cancel(job_id, "\x1b[31mred")
    assert "\x1b" not in sqlite_project.ok("audit").out
