"""Who is bound to a tenant sees, counts and touches nothing of another's, and cannot tell that there is any."""

from __future__ import annotations

import re
from typing import Any

import pytest

from duly import Duly
from duly.web.api.routes import ROWS
from tests.web.browser import Browser, browse, error_of
from tests.web.running import one_running

pytestmark = pytest.mark.requirement("S7", "E9")
SECRET = "zeta-secret"
ALL = ["admin"]


def bound(api: Browser, jobs: Duly, scopes: list[str] = ALL) -> Browser:
    return api.with_token(jobs.create_token("acme's", scopes, tenant="acme").secret)


def fill(jobs: Duly, tenant: str) -> dict[str, str]:
    """One job in every state, a schedule, a pause, a weight and a queue of a tenant."""
    word = f"{tenant}-secret"
    own = jobs["send"].using(queue=f"{tenant}-queue")
    ids = {"done": own.using(tenant=tenant).enqueue(word).id}
    jobs.tick(1, queues=f"{tenant}-queue")
    ids["waiting"] = jobs["send"].using(tenant=tenant, tags=[word], unique=word).enqueue(word).id
    ids["scheduled"] = own.using(tenant=tenant, delay="1h").enqueue(word).id
    cancelled = own.using(tenant=tenant).enqueue(word)
    ids["cancelled"] = cancelled.id
    with jobs.acting_as(word):
        cancelled.cancel(word)
    ids["running"] = one_running(jobs, tenant)
    ids["schedule"] = jobs["send"].recur(word, tenant=tenant, name=word, cron="@daily", args={"to": word}).id
    jobs.pause(tenant=tenant, reason=word)
    jobs.set_weight(tenant, 7)
    return ids


def test_nothing_of_another_tenant_is_in_any_answer(api: Browser, jobs: Duly) -> None:
    zeta = fill(jobs, "zeta")
    acme = bound(api, jobs)
    for row in ROWS:
        if row.method != "GET":
            continue
        for job_id in (zeta["done"], zeta["schedule"]):
            path = row.path.replace("{id}", job_id).replace("{name}", "zeta")
            path += "?expression=@daily" if "expression" in row.query else ""
            answer = acme.get(path)
            assert "zeta" not in re.sub(r"there is no \w+ '[^']*'", "", answer.text), (row.path, answer.text)
            assert not [each for each in zeta.values() if each in answer.text and each != job_id], row.path
            if "{" in row.path:  # what is about all of them, such as an alert, no tenant may see
                assert error_of(answer) == ((403, "forbidden") if row.verb.everyone else (404, "not_found"))
    assert api.ok(acme.get("/api/admin/jobs/stats"))["complete"] is True
    counted = api.ok(acme.get("/api/admin/jobs/stats"))
    assert {value for name, value in counted.items() if name != "complete"} == {0}
    for params in ({"tenant": "zeta"}, {"text": SECRET}, {"tag": SECRET}, {"queue": "zeta-queue"}):
        assert api.ok(acme.get("/api/admin/jobs", **params))["items"] == []
    assert api.ok(acme.get("/api/admin/runs", tenant="zeta"))["items"] == []
    assert api.ok(acme.get("/api/admin/usage", tenant="zeta"))["items"] == []
    assert api.ok(acme.get("/api/admin/audit", tenant="zeta"))["items"] == []
    assert api.ok(acme.get("/api/admin/audit", job=zeta["cancelled"]))["items"] == []
    assert api.ok(acme.get("/api/admin/scheduled-jobs", tenant="zeta"))["items"] == []


def test_nothing_of_another_tenant_can_be_touched(api: Browser, jobs: Duly) -> None:
    zeta = fill(jobs, "zeta")
    acme = bound(api, jobs)
    before = {name: jobs.get(job_id).to_dict() for name, job_id in zeta.items()}
    bodies: dict[str, Any] = {
        "status": {"status": "queued"},
        "priority": {"priority": 1},
        "run-at": {"delay": 1},
        "toggle": {"enabled": False},
        "scheduled-jobs": {"priority": 3},
        "tenants": {"weight": 2},
    }
    for row in ROWS:
        if row.method == "GET" or "{" not in row.path:
            continue
        parts = row.path.split("/")
        for job_id in zeta.values():
            path = row.path.replace("{id}", job_id).replace("{name}", "zeta")
            body = bodies.get(parts[-2] if parts[-1].startswith("{") else parts[-1], {})
            answer = acme.send(row.method, path, json=body if row.body is not None else None)
            assert answer.status_code in (403, 404), (row.method, path, answer.text)
            assert "-secret" not in answer.text
    for body in ({"job_ids": list(zeta.values())}, {"filter": {"tenant": "zeta", "state": "queued"}}):
        for method, path, more in (
            ("POST", "retry", {}),
            ("POST", "cancel", {}),
            ("POST", "delete", {}),
            ("PUT", "status", {"status": "failed"}),
            ("PUT", "priority", {"priority": 99}),
        ):
            answer = acme.send(method, f"/api/admin/jobs/bulk/{path}", json={**body, **more})
            assert api.ok(answer)["count"] == 0
            assert {each["why"] for each in answer.json()["refused"]} <= {"it is gone"}
    assert {name: jobs.get(job_id).to_dict() for name, job_id in zeta.items()} == before
    assert [(each.scope, each.name) for each in jobs.paused()] == [("tenant", "zeta")]
    assert jobs.weights() == {"zeta": 7.0}


def test_answers_are_the_same_whether_or_not_there_is_another_tenant(api: Browser, jobs: Duly) -> None:
    ids = fill(jobs, "acme")
    acme = bound(api, jobs)
    paths = [
        "/api/admin/jobs", "/api/admin/jobs?state=queued", "/api/admin/jobs?state=succeeded", "/api/admin/jobs/stats",
        "/api/admin/runs", "/api/admin/scheduled-jobs", "/api/admin/queues", "/api/admin/tenants", "/api/admin/paused",
        "/api/admin/usage", "/api/admin/audit", "/api/admin/scheduled-jobs/load", f"/api/admin/jobs/{ids['done']}",
        "/api/admin/workers", "/api/admin/doctor", "/api/admin/tokens", "/api/admin/me", "/api/admin/tenants/acme",
    ]  # fmt: skip

    def answers() -> list[str]:
        found = []
        for path in paths:
            text = acme.get(path).text
            text = re.sub(r'"oldest_waiting_seconds":[0-9.e-]+', "", text)
            found.append(path + re.sub(r'"(from|starts_at)":"[^"]*"', "", text))
        return found

    before = answers()
    fill(jobs, "zeta")
    assert answers() == before


def test_what_they_make_is_their_tenants(api: Browser, jobs: Duly) -> None:
    acme = bound(api, jobs)
    job = api.ok(acme.post("/api/jobs", {"task": "add", "args": {"x": 1}}), 201)
    assert job["tenant"] == "acme"
    assert error_of(acme.post("/api/jobs", {"task": "add", "args": {"x": 1}, "tenant": "zeta"})) == (403, "forbidden")
    schedule = {"task": "add", "args": {"x": 1}, "cron_expression": "@daily", "name": "mine"}
    made = api.ok(acme.post("/api/admin/scheduled-jobs", schedule), 201)
    assert made["tenant"] == "acme"
    assert error_of(acme.post("/api/admin/scheduled-jobs", {**schedule, "tenant": "zeta"})) == (403, "forbidden")
    assert api.ok(acme.post(f"/api/admin/jobs/{job['id']}/cancel"))["state"] == "cancelled"
    assert api.ok(acme.post("/api/admin/tenants/acme/pause", {"reason": "ours"}))["paused"]["reason"] == "ours"
    assert api.ok(acme.post("/api/admin/tenants/acme/resume"))["was_paused"] is True


def test_what_is_shared_is_not_theirs_to_change(api: Browser, jobs: Duly) -> None:
    acme = bound(api, jobs)
    for method, path, body in (
        ("POST", "/api/admin/queues/default/pause", None),
        ("POST", "/api/admin/tasks/add/pause", None),
        ("PUT", "/api/admin/queues/default", {"fair": False}),
        ("PUT", "/api/admin/tenants/acme", {"weight": 1000}),
        ("POST", "/api/jobs/tick", None),
        ("GET", "/api/admin/workers", None),
        ("GET", "/api/admin/doctor", None),
        ("GET", "/api/admin/tokens", None),
        ("POST", "/api/admin/tokens", {"name": "more"}),
    ):
        assert error_of(acme.send(method, path, json=body)) == (403, "forbidden"), path
    assert len(jobs.tokens()) == 1


def test_a_unique_key_of_another_tenant_is_not_met(api: Browser, jobs: Duly) -> None:
    jobs["add"].using(tenant="zeta", unique="k").enqueue(1)
    body = {"task": "add", "args": {"x": 1}, "unique": "k"}
    assert api.ok(bound(api, jobs).post("/api/jobs", body), 201)["created"] is True


def test_who_may_only_enqueue_learns_nothing_of_what_is_there(api: Browser, jobs: Duly) -> None:
    somebody = bound(api, jobs, ["enqueue"])
    made = api.ok(somebody.post("/api/jobs", {"task": "add", "args": {"x": 1}}), 201)
    assert set(made) == {"id", "created"}
    assert somebody.get(f"/api/admin/jobs/{made['id']}").status_code == 403


def test_a_count_of_what_ended_is_bounded_and_says_so(lite: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    from duly.web.service import jobs as service

    api = browse(lite)
    monkeypatch.setattr(service, "LOOK_TO_COUNT", 3)
    for n in range(5):
        lite["add"].using(tenant="acme").enqueue(n).cancel()
    stats = api.ok(bound(api, lite).get("/api/admin/jobs/stats"))
    assert (stats["cancelled"], stats["complete"]) == (3, False)
