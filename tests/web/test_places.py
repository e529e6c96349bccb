"""Queues, tasks, tenants and the installation over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from duly import Duly
from tests.helpers import eventually
from tests.web.browser import Browser, browse, error_of


def by_name(items: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in items}


def test_queues_are_counted_paused_and_edited(api: Browser, jobs: Duly) -> None:
    for n in range(3):
        jobs["add"].enqueue(n)
    jobs["add"].using(delay=60).enqueue(1)
    queue = by_name(api.ok(api.get("/api/admin/queues"))["items"])["default"]
    assert (queue["waiting"], queue["scheduled"], queue["running"], queue["fair"]) == (3, 1, 0, True)
    assert queue["oldest_waiting_seconds"] >= 0
    assert queue["aging"] == "1h50m"
    closed = api.ok(api.post("/api/admin/queues/default/pause", {"reason": "flood", "duration": "1h"}))
    assert (closed["paused"]["reason"], closed["paused"]["by"]) == ("flood", "DULY_TOKEN")
    assert jobs.tick(10).claimed == 0
    assert [(each["scope"], each["name"]) for each in api.ok(api.get("/api/admin/paused"))["items"]] == [
        ("queue", "default")
    ]
    assert api.ok(api.post("/api/admin/queues/default/resume"))["was_paused"] is True
    assert api.ok(api.post("/api/admin/queues/default/resume"))["was_paused"] is False
    key = {"scope": "key", "name": "add/example.com"}
    assert api.ok(api.put("/api/admin/paused", {**key, "reason": "slow"}))["scope"] == "key"
    assert api.ok(api.send("DELETE", "/api/admin/paused", json=key))["was_paused"] is True
    edited = api.ok(api.put("/api/admin/queues/default", {"fair": False, "aging": "strict"}))
    assert (edited["fair"], edited["aging"], edited["aging_seconds"]) == (False, "strict", None)
    assert api.ok(api.put("/api/admin/queues/default", {"aging": "30m"}))["aging_seconds"] == 1800
    assert api.ok(api.put("/api/admin/queues/default", {"aging": "default"}))["aging"] == "1h50m"
    assert error_of(api.put("/api/admin/queues/default", {}))[0] == 400
    assert error_of(api.get("/api/admin/queues/nope")) == (404, "not_found")
    assert error_of(api.get("/api/admin/queues/no%20pe")) == (404, "not_found")


@pytest.mark.requirement("C2")
def test_what_a_job_has_risen_to_by_waiting_is_shown(api: Browser, jobs: Duly) -> None:
    from tests.store.raw import Raw

    job = jobs["add"].using(priority=10).enqueue(1)
    raw = Raw(jobs.settings.url)
    raw.rows("UPDATE duly.waiting SET run_at = run_at - 3300000000")  # 55 of 110 minutes
    raw.close()
    shown = api.ok(api.get(f"/api/admin/jobs/{job.id}"))
    assert (shown["priority"], shown["effective_priority"]) == (10, 60)


def test_tasks_are_listed_with_how_they_are_called(api: Browser, jobs: Duly) -> None:
    jobs["send"].enqueue("ann")
    tasks = by_name(api.ok(api.get("/api/admin/tasks"))["items"])
    assert (tasks["send"]["waiting"], tasks["send"]["queue"], tasks["send"]["known"]) == (1, "mail", True)
    assert tasks["add"]["call"] == "add(x, y)"
    api.ok(api.post("/api/admin/tasks/send/pause"))
    assert by_name(api.ok(api.get("/api/admin/tasks"))["items"])["send"]["paused"]["scope"] == "task"


def test_tenants_have_weights_pauses_and_usage(api: Browser, jobs: Duly) -> None:
    jobs["add"].using(tenant="acme").enqueue(1)
    jobs["add"].using(tenant="zeta/ü").enqueue(1)
    jobs.tick(1)
    assert api.ok(api.put("/api/admin/tenants/acme", {"weight": 3}))["weight"] == 3
    api.ok(api.post("/api/admin/tenants/acme/pause", {"reason": "unpaid"}))
    tenants = by_name(api.ok(api.get("/api/admin/tenants"))["items"])
    assert set(tenants) == {"acme", "zeta/ü"}
    assert tenants["acme"]["paused"]["reason"] == "unpaid"
    assert sum(each["last_day"]["runs"] for each in tenants.values()) == 1
    assert api.ok(api.get("/api/admin/tenants/acme"))["weight"] == 3
    assert error_of(api.get("/api/admin/tenants/nobody")) == (404, "not_found")
    assert api.ok(api.get("/api/admin/tenants?limit=1&offset=1"))["total"] == 2


@pytest.mark.requirement("B9")
def test_usage_is_added_up(api: Browser, jobs: Duly) -> None:
    jobs["add"].using(tenant="acme").enqueue(1)
    jobs["add"].enqueue(1)
    jobs.tick(10)
    items = api.ok(api.get("/api/admin/usage?by=tenant&since=1h"))["items"]
    assert [(each["tenant"], each["runs"]) for each in items] == [("", 1), ("acme", 1)]
    [day] = api.ok(api.get("/api/admin/usage?by=&period=day&tenant=acme"))["items"]
    assert day["runs"] == 1
    assert error_of(api.get("/api/admin/usage?by=colour"))[0] == 400
    assert error_of(api.get("/api/admin/usage?timezone=Mars"))[0] == 400
    assert error_of(api.get("/api/admin/usage?since=2030-01-01&until=2029-01-01"))[0] == 400


def test_workers_and_the_doctor_answer(api: Browser, jobs: Duly) -> None:
    with jobs.worker():
        [worker] = api.ok(api.get("/api/admin/workers"))["items"]
        assert worker["alive"] is True
        assert {"add", "send"} <= set(worker["tasks"])
        assert eventually(lambda: api.ok(api.get("/api/admin/workers"))["items"][0]["memory_bytes"], 10) > 10 * 2**20
        assert by_name(api.ok(api.get("/api/admin/queues"))["items"])["default"]["workers"] == 1
    report = api.ok(api.get("/api/admin/doctor"))
    assert report["severity"] in ("ok", "info", "warning")
    assert {each["area"] for each in report["items"]} >= {"installation", "database"}


def test_who_asks_is_told_what_they_may(lite: Duly) -> None:
    api = browse(lite, read_only=True)
    assert api.ok(api.get("/api/admin/me")) == {
        "name": "DULY_TOKEN",
        "scopes": ["read"],
        "tenant": None,
        "read_only": True,
    }


def test_a_database_without_an_app_takes_jobs_as_they_are(sqlite_url: str) -> None:
    from tests.helpers import opened

    with opened(sqlite_url) as jobs:
        api = browse(jobs)
        job = api.ok(api.post("/api/jobs", {"task": "anything", "args": {"n": 1}, "tags": ["ü"], "unique": "k"}), 201)
        assert (job["task"], job["args"], job["tags"], job["queue"]) == ("anything", {"n": 1}, ["ü"], "default")
        assert error_of(api.post("/api/jobs", {"task": "any thing"}))[0] == 400
        assert error_of(api.post("/api/jobs", {"task": "anything", "unique": True}))[0] == 400


def test_limits_are_set_listed_and_taken_back(api: Browser, jobs: Duly) -> None:
    path = "/api/admin/limits"
    said = api.ok(api.put(path, {"scope": "queue", "name": "mail", "concurrency": 2, "rate": "100/s", "burst": 5}))
    assert (said["concurrency"], said["rate"]) == (2, "100/s")
    [limit] = [each for each in api.ok(api.get(path))["items"] if each["scope"] == "queue"]
    assert (limit["name"], limit["concurrency"], limit["burst"]) == ("mail", 2, 5)
    assert limit["by_hand"] is True
    assert api.send("DELETE", path, json={"scope": "queue", "name": "mail"}).status_code == 200
    assert [each for each in jobs.limits() if each.scope == "queue"] == []
    for wrong in (
        {"scope": "queue", "name": "mail"},
        {"scope": "sea", "name": "mail", "concurrency": 1},
        {"scope": "queue", "name": "ma il", "concurrency": 1},
        {"scope": "queue", "name": "mail", "rate": "often"},
        {"scope": "task", "name": "add", "most_waiting": 1},
        {"scope": "key", "name": "add", "concurrency": 1},
    ):
        assert error_of(api.put(path, wrong))[0] == 400, wrong


def test_a_tenant_has_a_quota_and_what_is_over_it_is_refused(api: Browser, jobs: Duly) -> None:
    path = "/api/admin/tenants/acme/quota"
    assert api.ok(api.put(path, {"waiting": 1, "per_day": 10})) == {
        "tenant": "acme",
        "waiting": 1,
        "running": None,
        "per_minute": None,
        "per_day": 10,
        "over": "refuse",
    }
    assert api.ok(api.get(path))["waiting"] == 1
    body = {"task": "add", "args": {"x": 1}, "tenant": "acme"}
    assert api.post("/api/jobs", body).status_code == 201
    assert error_of(api.post("/api/jobs", body)) == (429, "quota_exceeded")


def test_alerts_are_listed_and_acknowledged(api: Browser, jobs: Duly) -> None:
    assert api.ok(api.get("/api/admin/alerts?ended=true"))["items"] == []
    path = "/api/admin/alerts/0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12/acknowledge"
    assert error_of(api.post(path)) == (404, "not_found")
