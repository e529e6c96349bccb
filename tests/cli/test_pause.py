"""`duly pause`, `resume` and `paused`."""

from __future__ import annotations

from duly import Duly, State
from tests.cli.conftest import Project


def test_a_paused_queue_stands_still_until_it_is_resumed(project: Project, jobs: Duly) -> None:
    project.ok("enqueue", "app.py", "add", "x=1")
    said = project.ok("pause", "--queue", "default", "--reason", "deploy", "--by", "alice").out
    assert said == "queue default is paused until resumed. Let it go on: duly resume --queue default\n"
    assert project.ok("tick", "app.py", "--json").json["claimed"] == 0
    shown = project.ok("paused").out
    assert all(word in shown for word in ("queue", "default", "alice", "deploy"))
    assert project.ok("resume", "--queue", "default").out == "queue default goes on\n"
    assert project.ok("tick", "app.py", "--json").json["claimed"] == 1
    assert [job.state for job in jobs.list(task="add")] == [State.SUCCEEDED]


def test_pauses_as_json(project: Project) -> None:
    assert project.ok("paused", "--json").json == []
    assert project.ok("paused").out == "nothing is paused\n"
    paused = project.ok("pause", "--tenant", "acme", "--for", "1h", "--by", "bob", "--json").json
    assert (paused["scope"], paused["name"], paused["by"]) == ("tenant", "acme", "bob")
    assert paused["until"] > paused["since"]
    assert project.ok("paused", "--json").json == [paused]
    assert project.ok("resume", "--tenant", "acme", "--json").json == {
        "scope": "tenant",
        "name": "acme",
        "was_paused": True,
    }
    assert project.ok("resume", "--tenant", "acme").out == "tenant acme was not paused\n"


def test_what_to_pause_must_be_said(project: Project) -> None:
    for words in (["pause"], ["pause", "--queue", "a", "--task", "b"], ["resume"]):
        answer = project.duly(*words)
        assert answer.code == 2, answer
        assert "name one queue, task, tenant or key" in answer.err
    assert "duration" in project.duly("pause", "--queue", "a", "--for", "soon").err
