"""`duly alerts`: what is wrong, for people and for programs."""

from __future__ import annotations

import pytest

from duly import Duly
from tests.cli.conftest import Project

ALARMING = """
[alerts]
depth = 0
no_worker = false
clear_after = 0
"""


@pytest.fixture
def alarmed(project: Project) -> Project:
    """A project in which a job waits, and that is one too many."""
    project.write("duly.toml", ALARMING)
    project.ok("enqueue", "app.py", "send", "to=me")
    return project


def test_without_any_it_says_so(project: Project) -> None:
    project.ok("migrate")
    assert project.ok("alerts").out == "no alert is active\n"
    assert project.ok("alerts", "--all").out == "no alerts\n"
    assert project.ok("alerts", "--json").json == []


@pytest.mark.requirement("C13")
def test_what_is_active_and_what_was(alarmed: Project, jobs: Duly) -> None:
    checked = alarmed.duly("alerts", "check")
    assert checked.code == 1
    shown = alarmed.ok("alerts").out
    assert "1 job waits in queue mail" in shown
    assert "active" in shown
    [alert] = alarmed.ok("alerts", "--json").json
    assert (alert["rule"], alert["subject"], alert["ended_at"]) == ("depth", "queue mail", None)
    one = alarmed.ok("alerts", "show", alert["id"][-6:]).out
    assert "depth: more jobs wait than the threshold" in one
    assert "told      log, that it started" in one
    [job] = jobs.list()
    jobs.cancel(job.id)
    assert alarmed.duly("alerts", "check").code == 0
    assert alarmed.ok("alerts").out == "no alert is active\n"
    assert "ended" in alarmed.ok("alerts", "--all").out


@pytest.mark.requirement("C13")
def test_silencing_and_acknowledging_are_kept_in_the_audit(alarmed: Project) -> None:
    alarmed.duly("alerts", "check")
    [alert] = alarmed.ok("alerts", "--json").json
    said = alarmed.ok("alerts", "silence", "--rule", "depth", "--for", "2h", "--reason", "we know")
    assert said.out.startswith("nobody is told of depth until ")
    listed = alarmed.ok("alerts")
    assert "silenced" in listed.out
    assert "nobody is told of depth until" in listed.err
    assert alarmed.ok("alerts", "ack", alert["id"][-12:]).out == "noted\n"
    assert alarmed.ok("alerts", "ack", alert["id"]).out.startswith("nothing to note")
    assert alarmed.ok("alerts", "unsilence").out == "it ended\n"
    assert "seen" in alarmed.ok("alerts").out
    actions = [each["action"] for each in alarmed.ok("audit", "--json").json]
    assert actions == ["unsilence", "acknowledge", "silence"]


def test_what_is_wrong_is_said(alarmed: Project) -> None:
    assert "name a rule" in alarmed.duly("alerts", "silence").err
    assert alarmed.duly("alerts", "silence", "--rule", "dept").code == 2
    answer = alarmed.duly("alerts", "ack", "nonsense")
    assert answer.code == 1
    assert "nonsense is no alert. See: duly alerts --all" in answer.err
    assert "no command 'silense'" in alarmed.duly("alerts", "silense").err


def test_help_lists_the_rules(project: Project) -> None:
    shown = project.ok("alerts", "--help").out
    assert "failed_rate" in shown
    assert "too many runs fail" in shown
