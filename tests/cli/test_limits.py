"""`duly limits`, `duly quota`, and pauses of keys."""

from __future__ import annotations

import pytest

from duly import Duly
from tests.cli.conftest import Project


def test_limits_are_set_shown_and_taken_back(project: Project, jobs: Duly) -> None:
    assert project.ok("limits", "list").out == "nothing is limited\n"
    assert project.ok("limits", "list", "--json").json == []
    said = project.ok("limits", "set", "--task", "add", "--concurrency", "3", "--rate", "100/s", "--burst", "20").out
    assert said == "task add: concurrency 3, rate 100/s, burst 20\n"
    project.ok("limits", "set", "--queue", "mail", "--most-waiting", "500")
    project.ok("limits", "set", "--tenant", "acme", "--concurrency", "0")
    project.ok("limits", "set", "--keys", "fetch", "--rate", "5/10s")
    lines = [line.split() for line in project.ok("limits", "list").out.splitlines()]
    assert lines[0][:3] == ["WHAT", "NAME", "RUN"]
    text = "\n".join(" ".join(line) for line in lines)
    assert "each key of fetch - 5/10s, 1 at once - by hand - -" in text
    assert "queue mail - - 500 by hand - -" in text
    assert "task add 3 100/s, 20 at once - by hand - -" in text
    assert "tenant acme 0 - - by hand - -" in text
    found = {(each["scope"], each["name"]): each for each in project.ok("limits", "list", "--json").json}
    assert found["task", "add"] == {
        "scope": "task",
        "name": "add",
        "concurrency": 3,
        "rate": "100/s",
        "burst": 20,
        "most_waiting": None,
        "refuses": False,
        "by_hand": True,
        "blocked_until": None,
        "blocked_reason": None,
    }
    assert project.ok("limits", "unset", "--task", "add").out == "task add: what the code says counts again\n"
    for words in (["--queue", "mail"], ["--tenant", "acme"], ["--keys", "fetch"]):
        project.ok("limits", "unset", *words)
    assert jobs.limits() == []


def test_what_was_set_as_json(project: Project) -> None:
    answer = project.ok("limits", "set", "--queue", "mail", "--concurrency", "2", "--json").json
    assert answer == {
        "scope": "queue",
        "name": "mail",
        "concurrency": 2,
        "rate": None,
        "burst": None,
        "most_waiting": None,
    }
    assert project.ok("limits", "unset", "--queue", "mail", "--json").json == {"scope": "queue", "name": "mail"}


def test_one_key_has_its_own_word(project: Project, jobs: Duly) -> None:
    project.ok("limits", "set", "--key", "fetch/example.com", "--concurrency", "2")
    [row] = [each for each in project.ok("limits", "list", "--json").json if each["name"] == "fetch/example.com"]
    assert (row["scope"], row["concurrency"]) == ("key", 2)
    assert "fetch/example.com" in project.ok("limits", "list").out
    project.ok("limits", "unset", "--key", "fetch/example.com")
    assert project.ok("limits", "list", "--json").json == []


def test_a_limit_holds_for_the_next_tick(project: Project, jobs: Duly) -> None:
    for _ in range(3):
        project.ok("enqueue", "app.py", "add", "x=1")
    project.ok("limits", "set", "--task", "add", "--concurrency", "0")
    assert project.ok("tick", "app.py", "--json").json["claimed"] == 0
    project.ok("limits", "unset", "--task", "add")
    assert project.ok("tick", "app.py", "--json").json["claimed"] == 3


@pytest.mark.parametrize(
    "words, said",
    [
        (["set"], "name one queue, task, tenant or key"),
        (["set", "--queue", "a", "--task", "b", "--concurrency", "1"], "name one queue, task, tenant or key"),
        (["set", "--queue", "a"], "say how many"),
        (["set", "--queue", "a", "--concurrency", "-1"], "-1"),
        (["set", "--queue", "a", "--concurrency", "many"], "many"),
        (["set", "--queue", "a", "--rate", "fast"], "100/s"),
        (["set", "--queue", "a", "--rate", "1/s", "--burst", "0"], "0"),
        (["set", "--queue", "a", "--burst", "3"], "give rate too"),
        (["set", "--key", "example.com", "--concurrency", "1"], "Write task/key"),
        (["set", "--task", "a", "--most-waiting", "1"], "most_waiting is for queues and tenants"),
        (["set", "--task", "\x1b[31m", "--concurrency", "1"], "task name"),
        (["unset"], "name one queue, task, tenant or key"),
        (["unset", "--key", "x"], "Write task/key"),
    ],
)
def test_nonsense_is_refused_with_the_next_step(project: Project, words: list[str], said: str) -> None:
    answer = project.duly("limits", *words)
    assert answer.code != 0
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert "\x1b[31m" not in answer.err


def test_a_quota_is_set_piece_by_piece_and_taken_back(project: Project, jobs: Duly) -> None:
    assert project.ok("quota", "acme").out == "tenant acme has no quota\n"
    assert project.ok("quota", "acme", "--running", "5").out == "tenant acme: 5 may run\n"
    said = project.ok("quota", "acme", "--per-minute", "600", "--over", "wait").out
    assert said == "tenant acme: 5 may run, 600 per minute; over it: wait\n"
    assert project.ok("quota", "acme", "--json").json == {
        "tenant": "acme",
        "waiting": None,
        "running": 5,
        "per_minute": 600,
        "per_day": None,
        "over": "wait",
    }
    assert "tenant, minute" in project.ok("limits", "list").out
    assert project.ok("quota", "acme", "--none").out == "tenant acme has no quota\n"
    assert jobs.limits() == []


def test_what_is_over_a_quota_is_told_how_to_go_on(project: Project) -> None:
    project.ok("quota", "acme", "--waiting", "1")
    project.ok("enqueue", "app.py", "add", "x=1", "--tenant", "acme")
    answer = project.duly("enqueue", "app.py", "add", "x=1", "--tenant", "acme")
    assert answer.code != 0
    assert "tenant 'acme' has 1 waiting jobs of at most 1" in answer.err
    assert "duly quota acme --waiting N" in answer.err


@pytest.mark.parametrize(
    "words, said",
    [
        (["quota"], "TENANT"),
        (["quota", ""], "tenant must not be empty"),
        (["quota", "acme", "--waiting", "-1"], "-1"),
        (["quota", "acme", "--per-minute", "0"], "0"),
        (["quota", "acme", "--over", "explode"], "explode"),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused(project: Project, words: list[str], said: str) -> None:
    answer = project.duly(*words)
    assert answer.code != 0
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_a_key_is_paused_and_goes_on(project: Project) -> None:
    said = project.ok("pause", "--key", "fetch/example.com", "--for", "1h", "--reason", "they asked", "--by", "ann").out
    assert "key fetch/example.com is paused until" in said
    assert "duly resume --key fetch/example.com" in said
    [pause] = project.ok("paused", "--json").json
    assert (pause["scope"], pause["name"], pause["by"], pause["reason"]) == (
        "key",
        "fetch/example.com",
        "ann",
        "they asked",
    )
    assert "fetch/example.com" in project.ok("paused").out
    assert project.ok("resume", "--key", "fetch/example.com").out == "key fetch/example.com goes on\n"
    assert project.ok("resume", "--key", "fetch/example.com").out == "key fetch/example.com was not paused\n"
    assert "Write task/key" in project.duly("pause", "--key", "example.com").err
