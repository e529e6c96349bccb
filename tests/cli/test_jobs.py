"""`duly jobs`: list, show, and what can be done to one job or many."""

from __future__ import annotations

from typing import Any

import pytest

from duly import Duly, State
from tests.cli.conftest import Project
from tests.helpers import eventually


@pytest.fixture
def mixed(project: Project, jobs: Duly) -> dict[str, str]:
    """One job in each state but running."""
    ids = {}
    ids["failed"] = project.ok("enqueue", "app.py", "send", "to=nobody", "--json").json["id"]
    ids["succeeded"] = project.ok("enqueue", "app.py", "add", "x=1", "--json").json["id"]
    for _ in range(3):
        project.ok("tick", "app.py")
    eventually(lambda: [project.ok("tick", "app.py"), jobs.get(ids["failed"]).state is State.FAILED][1])
    ids["queued"] = project.ok("enqueue", "app.py", "add", "x=2", "--tag", "red", "--json").json["id"]
    ids["scheduled"] = project.ok(
        "enqueue", "app.py", "add", "x=3", "--delay", "1h", "--tenant", "acme", "--json"
    ).json["id"]
    ids["cancelled"] = project.ok("enqueue", "app.py", "add", "x=4", "--delay", "1h", "--json").json["id"]
    project.ok("jobs", "cancel", ids["cancelled"])
    return ids


def listed(project: Project, *options: str) -> list[str]:
    return [job["id"] for job in project.ok("jobs", "list", "--json", *options).json]


def test_an_empty_database_says_so(project: Project) -> None:
    assert project.ok("jobs", "list").out == "no jobs yet\n"
    assert project.ok("jobs", "list", "--task", "add").out == "no such jobs\n"
    assert project.ok("jobs", "list", "--json").json == []


def test_jobs_are_listed_newest_first_with_what_matters(project: Project, mixed: dict[str, str]) -> None:
    lines = project.ok("jobs", "list").out.splitlines()
    assert lines[0].split() == ["JOB", "TASK", "STATE", "QUEUE", "TRIES", "ENQUEUED", "DETAIL"]
    by_state = {line.split()[2]: line for line in lines[1:]}
    assert set(by_state) == set(mixed)
    for state, job_id in mixed.items():
        assert by_state[state].startswith(job_id[-12:])
    assert "ValueError: no such address: nobody" in by_state["failed"]
    assert "(in 1 h)" in by_state["scheduled"]
    assert "ago)" in by_state["succeeded"] or "(now)" in by_state["succeeded"]
    assert "2/2" in by_state["failed"]


def test_filters_choose(project: Project, mixed: dict[str, str]) -> None:
    for state, job_id in mixed.items():
        assert listed(project, "--state", state) == [job_id]
    assert listed(project, "--state", "success") == [mixed["succeeded"]]
    assert listed(project, "--state", "pending") == [mixed["queued"]]
    assert listed(project, "--task", "send") == [mixed["failed"]]
    assert listed(project, "--queue", "mail") == [mixed["failed"]]
    assert listed(project, "--tenant", "acme") == [mixed["scheduled"]]
    assert listed(project, "--tag", "red") == [mixed["queued"]]
    assert listed(project, "--text", "nobody") == [mixed["failed"]]


def test_pages_follow_each_other(project: Project, mixed: dict[str, str]) -> None:
    first = project.ok("jobs", "list", "--limit", "2")
    newest = sorted(mixed.values(), reverse=True)
    assert f"--before {newest[1][-12:]}" in first.err
    assert listed(project, "--limit", "2", "--before", newest[1][-12:]) == newest[2:4]


@pytest.mark.requirement("C10")
def test_show_tells_everything_about_a_job(project: Project, mixed: dict[str, str]) -> None:
    text = project.ok("jobs", "show", mixed["failed"]).out
    for words in (
        f"send  {mixed['failed']}  failed",
        '{"to":"nobody"}',
        "attempts  2 of 2",
        "by duly enqueue",
        "Timeline",
        "run 1 started on",
        "run 2 failed after",
        "Run 1",
        "Traceback (most recent call last)",
        "ValueError: no such address: nobody",
        "WARNING shop: sending to nobody",
    ):
        assert words in text
    data = project.ok("jobs", "show", mixed["failed"], "--json").json
    assert [run["outcome"] for run in data["runs"]] == ["failed", "failed"]
    assert data["runs"][0]["log"]
    done = project.ok("jobs", "show", mixed["succeeded"]).out
    assert "result    3" in done
    assert project.ok("jobs", "show", mixed["succeeded"], "--json").json["result"] == 3
    assert "(in 1 h)" in project.ok("jobs", "show", mixed["scheduled"]).out
    assert "Z  enqueued" in project.ok("jobs", "show", mixed["scheduled"], "--utc").out


def test_show_tells_how_far_a_running_job_is(project: Project, jobs: Duly) -> None:
    @jobs.task
    def patient(seconds: float) -> None:
        from duly import current_job

        current_job().progress(0.4, "halfway, nearly")
        current_job().wait_cancelled(seconds)

    with jobs.worker():
        job = patient.enqueue(20.0)
        eventually(lambda: job.refresh().progress == 0.4)
        assert "progress  40% halfway, nearly" in project.ok("jobs", "show", job.id).out
        assert "40% halfway, nearly" in project.ok("jobs", "list").out
        assert project.duly("jobs", "retry", job.id).code == 1
        assert project.duly("jobs", "delete", job.id).code == 1
        assert "its worker was asked to stop it" in project.ok("jobs", "cancel", job.id[-8:]).out
        eventually(lambda: job.refresh().state.terminal)


def test_the_end_of_an_id_is_enough_if_only_one_job_has_it(project: Project, mixed: dict[str, str], jobs: Duly) -> None:
    job_id = mixed["queued"]
    assert project.ok("jobs", "show", job_id[-8:], "--json").json["id"] == job_id
    assert project.ok("jobs", "show", job_id.upper(), "--json").json["id"] == job_id
    short = project.duly("jobs", "show", job_id[-4:])
    assert short.code == 1
    assert "last 6 or more characters" in short.err


def test_an_end_that_two_ids_share_is_refused(project: Project, jobs: Duly) -> None:
    from duly.domain.records import NewJob

    for head in ("0190f3c4-7b1e", "0190f3c4-7b1f"):
        jobs.store.enqueue(NewJob(id=f"{head}-7c3a-9f00-2a4b6c8d0e12", task="add", args="{}"))
    answer = project.duly("jobs", "show", "2a4b6c8d0e12")
    assert answer.code == 1
    assert "2 ids end in 2a4b6c8d0e12" in answer.err


def test_a_failed_job_is_retried(project: Project, mixed: dict[str, str], jobs: Duly) -> None:
    assert project.ok("jobs", "retry", mixed["failed"]).out == f"{mixed['failed']} queued again\n"
    assert jobs.get(mixed["failed"]).state is State.QUEUED
    assert jobs.get(mixed["failed"]).attempts == 0


def test_named_jobs_are_acted_on_each_and_refusals_are_said(
    project: Project, mixed: dict[str, str], jobs: Duly
) -> None:
    answer = project.duly("jobs", "cancel", mixed["queued"], mixed["succeeded"], mixed["scheduled"])
    assert answer.code == 1
    assert answer.out.count("cancelled") == 2
    assert "has already ended" in answer.err
    assert jobs.get(mixed["scheduled"]).state is State.CANCELLED
    data = project.duly("jobs", "delete", mixed["queued"], mixed["succeeded"], "--json").json
    assert data == {"count": 2, "deleted": [mixed["queued"], mixed["succeeded"]], "refused": []}
    assert project.duly("jobs", "show", mixed["succeeded"]).code == 1


def test_a_single_refusal_is_an_error(project: Project, mixed: dict[str, str]) -> None:
    answer = project.duly("jobs", "cancel", mixed["succeeded"])
    assert answer.code == 1
    assert answer.err == f"duly: job {mixed['succeeded']} has already ended: it is succeeded\n"


def test_a_dry_run_only_says_which(project: Project, mixed: dict[str, str], jobs: Duly) -> None:
    answer = project.ok("jobs", "retry", "--task", "send", "--dry-run")
    assert answer.out.startswith("would retry 1 job\n")
    assert mixed["failed"][-12:] in answer.out
    assert project.ok("jobs", "cancel", "--queue", "default", "--dry-run", "--json").json["count"] == 2
    assert project.ok("jobs", "delete", mixed["queued"], "--dry-run").out == "would delete 1 job\n"
    assert jobs.get(mixed["failed"]).state is State.FAILED
    assert project.ok("jobs", "retry", "--task", "nothing").out == "no such jobs\n"


def test_by_filter_it_asks_and_without_a_terminal_it_wants_yes(
    project: Project, mixed: dict[str, str], jobs: Duly
) -> None:
    answer = project.duly("jobs", "retry", "--task", "send")
    assert answer.code == 2
    assert "Retry 1 job? Say --yes, or see which with --dry-run" in answer.err
    assert jobs.get(mixed["failed"]).state is State.FAILED


@pytest.mark.parametrize("said, state", [("y", State.QUEUED), ("n", State.FAILED)])
def test_in_a_terminal_it_asks(
    project: Project, mixed: dict[str, str], jobs: Duly, monkeypatch: pytest.MonkeyPatch, said: str, state: State
) -> None:
    monkeypatch.setattr("duly.cli.bulk.can_ask", lambda: True)
    answer = project.duly("jobs", "retry", "--task", "send", stdin=f"{said}\n")
    assert answer.code == (0 if said == "y" else 1)
    assert "Retry 1 job? [y/N]" in answer.err
    assert jobs.get(mixed["failed"]).state is state


def test_bulk_verbs_do_their_default_states(project: Project, mixed: dict[str, str], jobs: Duly) -> None:
    assert project.ok("jobs", "retry", "--queue", "mail", "--yes").out == "1 job retried\n"
    assert project.ok("jobs", "cancel", "--task", "add", "--yes", "--json").json["count"] == 2
    assert jobs.get(mixed["succeeded"]).state is State.SUCCEEDED
    assert project.ok("jobs", "delete", "--state", "cancelled", "-y").out == "3 jobs deleted\n"
    assert sorted(listed(project)) == sorted([mixed["failed"], mixed["succeeded"]])


def test_bulk_goes_on_past_one_page(project: Project, jobs: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    @jobs.task
    def add(x: int) -> None: ...

    monkeypatch.setattr("duly.cli.bulk.MOST_LISTED", 50)
    add.enqueue_many([{"x": n} for n in range(220)])
    assert project.ok("jobs", "cancel", "--task", "add", "--dry-run").out.startswith("would cancel 50 or more jobs")
    assert project.ok("jobs", "cancel", "--task", "add", "--yes").out == "220 jobs cancelled\n"


def test_priority_and_boost(project: Project, mixed: dict[str, str], jobs: Duly) -> None:
    assert project.ok("jobs", "priority", mixed["queued"], "95").out == f"{mixed['queued']} has priority 95\n"
    assert project.ok("jobs", "boost", mixed["queued"], "--json").json["priority"] == 100
    assert jobs.get(mixed["queued"]).priority == 100
    assert project.duly("jobs", "priority", mixed["failed"], "5").code == 1


NASTY = "\x1b]0;owned\x07\x1b[2J\rline\nnext\u202e\x9b31m"


@pytest.mark.parametrize("command", [["jobs", "list"], ["jobs", "show"], ["runs"], ["jobs", "cancel", "--dry-run"]])
def test_nothing_that_a_job_carries_can_steer_the_terminal(project: Project, jobs: Duly, command: list[str]) -> None:
    @jobs.task
    def send(to: str) -> None:
        import logging

        from duly import current_job

        logging.getLogger(NASTY).warning(NASTY)
        current_job().progress(0.5, NASTY)
        raise type(NASTY.replace("\n", ""), (Exception,), {})(NASTY)

    job: Any = send.using(max_attempts=1, tags=["plain"]).enqueue(NASTY)
    jobs.tick()
    assert job.refresh().state is State.FAILED
    if command == ["jobs", "show"]:
        command = [*command, job.id]
    if "cancel" in command:
        send.using(delay=60).enqueue(NASTY)
        command = [*command, "--task", "send"]
    text = project.ok(*command).out
    assert not set(text) & set("\x1b\x07\r\u202e\x9b\x00\x7f")
    assert "\\x1b" in text or "\\\\u001b" in text or "\\u001b" in text
    as_json = project.ok(*command, "--json")
    assert as_json.out.isascii()
    assert "\x1b" not in as_json.out


# -- many at once, and once more --------------------------------------------------------------------------------------


def test_the_priority_and_the_state_of_many(sqlite_project: Project) -> None:
    ids = [
        sqlite_project.ok("enqueue", "app.py", "add", f"x={n}", "--delay", "1h", "--json").json["id"] for n in range(3)
    ]
    asked = sqlite_project.ok("jobs", "priority", "40", "--task", "add", "--dry-run", "--json").json
    assert asked == {"count": 3, "ids": ids[::-1], "dry_run": True}
    changed = sqlite_project.ok("jobs", "priority", "40", "--task", "add", "--yes", "--json").json
    assert (sorted(changed["changed"]), changed["refused"]) == (ids, [])
    assert {each["priority"] for each in sqlite_project.ok("jobs", "list", "--json").json} == {40}
    sqlite_project.ok("jobs", "priority", ids[0], ids[1], "60")
    assert sorted(each["priority"] for each in sqlite_project.ok("jobs", "list", "--json").json) == [40, 60, 60]
    assert sqlite_project.duly("jobs", "priority", "101", "--task", "add", "--yes").code == 2
    assert sqlite_project.duly("jobs", "state", "failed", "--task", "add", "--yes").code == 2  # in which state?
    ended = sqlite_project.ok("jobs", "state", "failed", "--task", "add", "--state", "scheduled", "--yes", "--json")
    assert sorted(ended.json["changed"]) == ids
    assert {each["state"] for each in sqlite_project.ok("jobs", "list", "--json").json} == {"failed"}


@pytest.mark.parametrize("how", [(), ("--app", "app.py")])
def test_a_copy_of_a_job(sqlite_project: Project, how: tuple[str, ...]) -> None:
    given = ("--priority", "7", "--tenant", "acme", "--tag", "red", "--unique", "k")
    first = sqlite_project.ok("enqueue", "app.py", "add", "x=5", "--delay", "1h", *given, "--json").json["id"]
    copy = sqlite_project.ok("jobs", "copy", first, *how, "--json").json["id"]
    assert copy != first
    found = {each["id"]: each for each in sqlite_project.ok("jobs", "list", "--json").json}
    names = ("task", "args", "priority", "tenant", "tags", "queue")
    assert {name: found[copy][name] for name in names} == {name: found[first][name] for name in names}
    assert (found[copy]["state"], found[copy]["unique_key"]) == ("queued", None)
