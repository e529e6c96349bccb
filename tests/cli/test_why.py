"""`duly why`: what a person reads at night, and what a program is told."""

from __future__ import annotations

import pytest

from duly import Duly
from tests.cli.conftest import Project

pytestmark = pytest.mark.requirement("C15")


def test_why_of_one_job_says_what_decides_first_and_what_to_do(project: Project, jobs: Duly) -> None:
    job_id = project.ok("enqueue", "app.py", "send", "to=ann", "--json").json["id"]
    project.ok("pause", "--queue", "mail", "--by", "ann", "--reason", "the server moves")
    said = project.ok("why", job_id, "--utc").out
    first, _, decides, command, _, heading, second, start = said.splitlines()
    assert first.startswith("send")
    assert f"{job_id}  queued in mail" in first
    assert decides.startswith("  Queue 'mail' is paused by ann since ")
    assert decides.endswith("until somebody resumes it: the server moves.")
    assert command == "    -> duly resume --queue mail"
    assert heading == "And then"
    assert second == "  No worker is running."
    assert start == "    -> duly worker app:jobs --queue mail"
    assert project.ok("why", job_id[-12:]).out.splitlines()[0] == first, "by the end of its id"


def test_why_as_json_has_the_code_the_blockers_and_the_next_command(project: Project, jobs: Duly) -> None:
    job_id = project.ok("enqueue", "app.py", "add", "x=1", "--json").json["id"]
    said = project.ok("why", job_id, "--json").json
    assert (said["job_id"], said["state"], said["reason"]) == (job_id, "queued", "no_worker")
    assert said["next"] == "duly worker app:jobs"
    assert [each["reason"] for each in said["blockers"]] == ["no_worker"]
    assert said["text"] == "No worker is running."
    assert said["details"]["position_in_lane"] == 1


def test_why_of_all_that_waits_groups_it_by_queue_and_reason(project: Project, jobs: Duly) -> None:
    for x in range(3):
        project.ok("enqueue", "app.py", "add", f"x={x}")
    mail = project.ok("enqueue", "app.py", "send", "to=ann", "--json").json["id"]
    project.ok("enqueue", "app.py", "send", "to=bob", "--delay", "1h")
    project.ok("pause", "--task", "send", "--by", "ann")
    said = project.ok("why").out
    lines = said.splitlines()
    again = project.ok("why", "--queue").out.splitlines()  # times may have moved on by a second
    assert [line for line in again if ":" not in line] == [line for line in lines if ":" not in line]
    assert lines[0] == "default"
    assert lines[1] == "  no_worker  3 jobs (add)"
    assert "mail" in lines
    assert "  paused  1 job (send)" in lines
    assert "    -> duly resume --task send" in lines
    assert f"    for example: duly why {mail}" in lines
    assert "  not_due  1 job" in lines
    groups = project.ok("why", "--queue", "mail", "--json").json
    assert [(each["queue"], each["reason"], each["jobs"]) for each in groups] == [
        ("mail", "not_due", 1),
        ("mail", "paused", 1),
    ]


def test_why_where_nothing_waits(project: Project, jobs: Duly) -> None:
    project.ok("migrate")
    assert project.ok("why").out == "nothing waits\n"
    assert project.ok("why", "--queue", "mail").out == "nothing waits in queue mail\n"
    assert project.ok("why", "--json").json == []


def test_why_of_a_job_that_there_is_not_and_of_a_job_and_a_queue(project: Project, jobs: Duly) -> None:
    project.ok("migrate")
    answer = project.duly("why", "0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12")
    assert answer.code == 1
    assert "there is no job" in answer.err
    assert project.duly("why", "0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12", "--queue", "mail").code == 2


def test_why_prints_nothing_that_steers_a_terminal(project: Project, jobs: Duly) -> None:
    job_id = project.ok("enqueue", "app.py", "add", "x=1", "--json").json["id"]
    jobs.pause(task="add", by="ann", reason="look \x1b]0;here\x07")
    assert "\x1b" not in project.ok("why", job_id).out
    assert "\x1b" not in project.ok("why").out
