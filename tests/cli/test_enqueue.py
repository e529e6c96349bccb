"""`duly enqueue`: arguments, options, checks, and what is said where nobody could run it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from duly import Duly, State
from tests.cli.conftest import Project


@pytest.mark.requirement("D3")
def test_a_job_is_stored_by_name_and_arguments(project: Project, jobs: Duly) -> None:
    answer = project.ok("enqueue", "app.py", "add", "x=1", "y=40")
    [job] = jobs.list()
    assert answer.out == f"enqueued: add {job.id} (queued)\n"
    assert (job.task, job.args, job.queue, job.enqueued_by) == ("add", {"x": 1, "y": 40}, "default", "duly enqueue")


def test_values_are_json_where_the_parameter_takes_it_else_text(sqlite_project: Project) -> None:
    sqlite_project.write(
        "typed.py",
        "from datetime import datetime\nfrom uuid import UUID\nfrom typing import Any\nfrom duly import Duly\n"
        "jobs = Duly()\n"
        "@jobs.task\ndef go(name: str, n: int | None, on: bool, many: list[int], at: datetime, key: UUID, any: Any = 0)"
        " -> None: ...\n",
    )
    key = "0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12"
    args = ["name=42", "n=null", "on=true", "many=[1,2]", "at=2030-01-01T00:00:00+00:00", f"key={key}", "any=free text"]
    answer = sqlite_project.ok("enqueue", "typed.py", "go", *args, "--json").json
    assert answer["args"] == {
        "name": "42",
        "n": None,
        "on": True,
        "many": [1, 2],
        "at": "2030-01-01T00:00:00+00:00",
        "key": key,
        "any": "free text",
    }


def test_arguments_may_come_as_one_json_object(project: Project) -> None:
    answer = project.ok("enqueue", "app.py", "add", "--args", '{"x": 1}', "y=5", "--json").json
    assert answer["args"] == {"x": 1, "y": 5}
    assert answer["created"] is True
    assert answer["state"] == "queued"


def test_every_option_is_stored(project: Project, jobs: Duly) -> None:
    options = ["--delay", "5m", "--priority", "70", "--queue", "slow", "--tenant", "acme", "--tag", "a", "--tag", "b"]
    project.ok("enqueue", "app.py", "add", "x=1", *options)
    [job] = jobs.list()
    assert (job.state, job.priority, job.queue, job.tenant, job.tags) == (
        State.SCHEDULED,
        70,
        "slow",
        "acme",
        ["a", "b"],
    )
    assert job.run_at is not None
    assert timedelta(minutes=4) < job.run_at - datetime.now(UTC) < timedelta(minutes=6)


def test_a_time_may_be_given(project: Project, jobs: Duly) -> None:
    project.ok("enqueue", "app.py", "add", "x=1", "--run-at", "2035-01-31T08:00:00+01:00")
    assert jobs.list()[0].run_at == datetime(2035, 1, 31, 7, tzinfo=UTC)


def test_a_unique_key_leads_to_the_job_that_is_there(project: Project, jobs: Duly) -> None:
    first = project.ok("enqueue", "app.py", "add", "x=1", "--unique", "one", "--json").json
    again = project.ok("enqueue", "app.py", "add", "x=2", "--unique", "one")
    assert again.out == f"already there: add {first['id']} (queued)\n"
    assert len(jobs.list()) == 1


def test_without_an_app_it_is_stored_unchecked_with_a_warning(project: Project, jobs: Duly) -> None:
    options = ["--priority", "5", "--tag", "x", "--unique", "k", "--tenant", "acme", "--delay", "1h"]
    answer = project.ok("enqueue", "resize", "width=3", "name=cat", "--url", project.url, *options)
    [job] = jobs.list()
    assert (job.task, job.args, job.priority, job.tags, job.tenant) == (
        "resize",
        {"width": 3, "name": "cat"},
        5,
        ["x"],
        "acme",
    )
    assert job.unique_key == "resize::k"
    assert job.state is State.SCHEDULED
    assert "no code checked the arguments of resize" in answer.err
    again = project.ok("enqueue", "resize", "--url", project.url, *options)
    assert "already there" in again.out


def test_where_no_worker_runs_it_says_so(project: Project) -> None:
    answer = project.ok("enqueue", "app.py", "add", "x=1")
    assert "no worker is running; it stays queued. Start one: duly worker app.py" in answer.err


def test_a_task_that_no_live_worker_knows_is_named(project: Project, jobs: Duly) -> None:
    @jobs.task
    def known() -> None: ...

    with jobs.worker():
        unknown = project.ok("enqueue", "resize", "--url", project.url)
        assert "no live worker knows task resize; it stays queued" in unknown.err
        elsewhere = project.ok("enqueue", "known", "--url", project.url, "--queue", "other")
        assert "no live worker takes from queue other; it stays queued" in elsewhere.err
        fine = project.ok("enqueue", "known", "--url", project.url)
        assert "stays" not in fine.err
    assert jobs.get(json.loads(project.ok("jobs", "list", "--task", "resize", "--json").out)[0]["id"]).state == "queued"


def test_waiting_shows_the_result(project: Project, jobs: Duly) -> None:
    @jobs.task
    def add(x: int, y: int) -> int:
        return x + y

    with jobs.worker():
        assert project.ok("enqueue", "app.py", "add", "x=1", "y=2", "--wait").out.endswith(" succeeded: 3\n")
        assert project.ok("enqueue", "app.py", "add", "x=1", "y=2", "--wait", "--json").json["result"] == 3


def test_waiting_for_a_job_that_fails_ends_with_1(project: Project, jobs: Duly) -> None:
    @jobs.task(queue="mail")
    def send(to: str) -> None:
        raise ValueError("bad \x1b[2J news")

    with jobs.worker():
        answer = project.duly("enqueue", "app.py", "send", "to=me", "--wait")
        assert answer.code == 1
        assert "ValueError: bad \\x1b[2J news" in answer.err
        as_json = project.duly("enqueue", "app.py", "send", "to=me", "--wait", "--json")
        assert as_json.code == 1
        assert as_json.json["state"] == "failed"


def test_waiting_has_an_end(project: Project) -> None:
    answer = project.duly("enqueue", "app.py", "add", "x=1", "--wait", "--timeout", "100ms")
    assert answer.code == 1
    assert "has not ended" in answer.err
