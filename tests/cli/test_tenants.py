"""`duly tenants`, `duly queues`, `duly roles`, and the job commands within one tenant."""

from __future__ import annotations

import pytest

from duly import Duly, State
from tests.cli.conftest import Project


def enqueue(project: Project, tenant: str, *words: str) -> str:
    return str(project.ok("enqueue", "app.py", "add", "x=1", "--tenant", tenant, *words, "--json").json["id"])


def test_tenants_are_listed_with_what_they_have(project: Project, jobs: Duly) -> None:
    assert project.duly("tenants").code == 0
    assert project.ok("tenants").out == "no tenants yet\n"
    assert project.ok("tenants", "--json").json == []
    for tenant in ("acme", "acme", "globex"):
        enqueue(project, tenant)
    assert project.ok("tenants", "weight", "acme", "3").out == "tenant acme has weight 3\n"
    project.ok("pause", "--tenant", "globex")
    project.ok("tenants", "weight", "idle", "0.5")
    listed = project.ok("tenants", "--json").json
    assert [(each["tenant"], each["weight"], each["waiting"], each["running"]) for each in listed] == [
        ("acme", 3, 2, 0),
        ("globex", 1, 1, 0),
        ("idle", 0.5, 0, 0),
    ]
    assert [each["paused_at"] is None for each in listed] == [True, False, True]
    shown = project.ok("tenants").out
    assert all(word in shown for word in ("TENANT", "WEIGHT", "acme", "globex", "since", "0.5"))
    after = project.ok("tenants", "list", "--after", "acme", "--json").json
    assert [each["tenant"] for each in after] == ["globex", "idle"]
    assert "--after acme" in project.ok("tenants", "--limit", "1").err
    assert jobs.weights() == {"acme": 3.0, "idle": 0.5}
    assert [each.action for each in jobs.audit(tenant="acme")] == ["set_weight"]


def test_one_tenant_is_shown(project: Project) -> None:
    enqueue(project, "acme")
    enqueue(project, "acme", "--delay", "1h")
    project.ok("pause", "--tenant", "acme", "--reason", "not paid", "--by", "bob")
    shown = project.ok("tenants", "show", "acme").out
    assert "paused     since" in shown
    assert "by bob: not paid" in shown
    data = project.ok("tenants", "show", "acme", "--json").json
    assert (data["waiting"], data["scheduled"], data["running"], data["limits"]) == (1, 1, 0, [])


@pytest.mark.parametrize("words", [["acme", "0"], ["acme", "many"], ["acme", "nan"], ["", "2"], ["acme"]])
def test_a_weight_that_cannot_be_is_refused(project: Project, words: list[str]) -> None:
    answer = project.duly("tenants", "weight", *words)
    assert answer.code == 2, answer


def test_queues_are_fair_or_not_and_age(project: Project, jobs: Duly) -> None:
    assert project.ok("queues").out == "no queues yet\n"
    enqueue(project, "acme")
    assert project.ok("queues", "fair", "mail", "off").out == "tenants go by rank alone in queue mail\n"
    assert project.ok("queues", "aging", "mail", "strict").out == "queue mail ages by nothing: strict priority\n"
    assert project.ok("queues", "aging", "default", "30m", "--json").json == {"queue": "default", "aging": "30m"}
    assert project.ok("queues", "--json").json == [
        {"queue": "default", "fair": True, "aging_seconds": 1800.0, "strict": False},
        {"queue": "mail", "fair": False, "aging_seconds": None, "strict": True},
    ]
    assert jobs.store.gates.unfair_queues() == {"mail"}
    assert project.ok("queues", "fair", "mail", "on", "--json").json == {"queue": "mail", "fair": True}
    assert jobs.store.gates.unfair_queues() == set()
    for words in (["fair", "mail", "maybe"], ["fair", "a b", "on"], ["aging", "mail", "soon"], ["unfair"]):
        assert project.duly("queues", *words).code == 2, words


def test_job_commands_within_a_tenant_do_not_find_anothers(project: Project, jobs: Duly) -> None:
    own, other = enqueue(project, "acme"), enqueue(project, "globex")
    for words in (
        ["show"], ["cancel"], ["retry"], ["delete"], ["boost"], ["reschedule", "--delay", "1h"],
    ):  # fmt: skip
        for name in (other, other[-8:]):
            answer = project.duly("jobs", *words, name, "--tenant", "acme")
            assert answer.code == 1, (words, answer)
            assert "no job" in answer.err, (words, answer)
    for words in (["priority", other, "3"], ["state", other, "failed"]):
        assert project.duly("jobs", *words, "--tenant", "acme").code == 1
    assert jobs.get(other).state is State.QUEUED
    assert jobs.get(other).priority == 0
    assert project.ok("jobs", "boost", own, "--tenant", "acme", "--json").json["priority"] == 10
    assert project.ok("jobs", "priority", own[-8:], "5", "--tenant", "acme").out == f"{own} has priority 5\n"
    project.ok("jobs", "reschedule", own, "--delay", "1h", "--tenant", "acme")
    assert jobs.get(own).state is State.SCHEDULED
    assert project.ok("jobs", "state", own, "success", "--tenant", "acme").out == f"{own} is succeeded\n"
    assert project.duly("jobs", "state", own, "sleeping").code == 2
    assert project.ok("jobs", "show", own, "--tenant", "acme", "--json").json["id"] == own
    stats = project.ok("stats", "--tenant", "globex", "--json").json
    assert stats["tenant"] == "globex"
    assert stats["tasks"][0]["waiting"] == 1
    assert stats["ended"]["succeeded"] == 0
    assert project.ok("stats", "--json").json["ended"]["succeeded"] == 1


def test_roles_are_shown_and_printed_as_sql(project: Project) -> None:
    shown = project.ok("roles").out
    assert all(f"duly_{role}" in shown for role in ("read", "enqueue", "worker", "operator", "tenant"))
    printed = project.ok("roles", "--sql", "--tenant", "acme=acme_app").out
    assert printed.startswith("BEGIN;\n")
    assert printed.endswith("COMMIT;\n")
    assert "acme_app" in printed
    statements = project.ok("roles", "--sql", "--schema", "jobs", "--json").json["statements"]
    assert any('"jobs".waiting' in each for each in statements)
    assert not any('"duly"' in each for each in statements)
    for words in (["--tenant", "acme=x"], ["--sql", "--tenant", "acme"], ["--sql", "--tenant", "acme=pg_x"]):
        assert project.duly("roles", *words).code == 2, words
