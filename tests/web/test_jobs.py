"""Jobs over HTTP: the promised paths and bodies, and the rest of what operators do to one job."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import Duly, State
from tests.web.browser import Browser, error_of

MISSING = "0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12"
JOBS = "/api/admin/jobs"


def enqueue(api: Browser, task: str = "add", **given: Any) -> str:
    body = {"task": task, "args": {"x": 1} if task == "add" else {"to": "ann"}, **given}
    return str(api.ok(api.post("/api/jobs", body), 201)["id"])


@pytest.mark.requirement("C9")
def test_stats_count_jobs_by_status(api: Browser, jobs: Duly) -> None:
    for _ in range(3):
        enqueue(api)
    enqueue(api, "send", args={"to": "nobody"})
    enqueue(api, delay="1h")
    jobs.tick(1, queues="mail")
    stats = api.ok(api.get(f"{JOBS}/stats"))
    assert {name: stats[name] for name in ("queued", "running", "failed", "completed")} == {
        "queued": 3,
        "running": 0,
        "failed": 1,
        "completed": 0,
    }
    assert stats["scheduled"] == 1
    jobs.tick(10)
    assert api.ok(api.get(f"{JOBS}/stats"))["completed"] == 3


@pytest.mark.requirement("C9", "B1")
@pytest.mark.parametrize("word", ["queued", "pending"])
def test_jobs_are_listed_by_status_with_limit_and_offset(api: Browser, word: str) -> None:
    ids = [enqueue(api) for _ in range(5)]
    pages = [api.ok(api.get(JOBS, status=word, limit=2, offset=offset))["items"] for offset in (0, 2, 4)]
    assert [[job["id"] for job in page] for page in pages] == [ids[:2:-1], ids[2:0:-1], ids[:1]]
    assert api.ok(api.get(JOBS, status="success"))["items"] == []
    assert len(api.ok(api.get(JOBS))["items"]) == 5


@pytest.mark.requirement("C10")
def test_a_job_shows_how_it_fared(api: Browser, jobs: Duly) -> None:
    job_id = enqueue(api, "send", args={"to": "nobody"}, tags=["a"], priority=7)
    jobs.tick(1, queues="mail")
    job = api.ok(api.get(f"{JOBS}/{job_id}"))
    assert job["state"] == "failed"
    assert job["enqueued_by"] == "DULY_TOKEN"
    assert (job["retry_count"], job["max_retries"], job["next_retry_at"]) == (0, 0, None)
    assert job["duration_ms"] > 0
    assert job["last_attempt_at"] == job["started_at"] < job["finished_at"]
    assert job["last_error"] == "ValueError: no such address: nobody, password "
    assert (job["priority"], job["tags"], job["queue"]) == (7, ["a"], "mail")
    [run] = api.ok(api.get(f"{JOBS}/{job_id}/runs"))["items"]
    assert run["outcome"] == "failed"
    assert "Traceback" in run["traceback"]
    assert "sending to nobody" in run["log"][0]


@pytest.mark.requirement("C10", "C4")
def test_a_job_that_waits_for_a_retry_says_when_that_is(api: Browser, jobs: Duly) -> None:
    @jobs.task
    def flaky() -> None:
        raise OSError

    job_id = enqueue(api, "flaky", args={})
    jobs.tick(1)
    job = api.ok(api.get(f"{JOBS}/{job_id}"))
    assert job["state"] == "scheduled"
    assert job["next_retry_at"] == job["run_at"] > job["created_at"]
    assert job["attempts"] == 1


@pytest.mark.requirement("C9")
def test_status_is_put_by_hand(api: Browser, jobs: Duly) -> None:
    first, second, third = (enqueue(api) for _ in range(3))
    assert api.ok(api.put(f"{JOBS}/{first}/status", {"status": "success"}))["state"] == "succeeded"
    assert api.ok(api.put(f"{JOBS}/{second}/status", {"status": "failed"}))["state"] == "failed"
    assert error_of(api.put(f"{JOBS}/{third}/status", {"status": "crawling"})) == (409, "conflict")
    assert error_of(api.put(f"{JOBS}/{first}/status", {"status": "failed"})) == (409, "conflict")
    assert api.ok(api.put(f"{JOBS}/{first}/status", {"status": "queued"}))["state"] == "queued"
    assert jobs.get(first).state is State.QUEUED
    assert error_of(api.put(f"{JOBS}/{MISSING}/status", {"status": "queued"})) == (404, "not_found")
    assert error_of(api.put(f"{JOBS}/{first}/status", {"status": "jammed"})) == (400, "invalid")


@pytest.mark.requirement("C9")
def test_a_running_job_is_not_requeued(api: Browser, jobs: Duly) -> None:
    from tests.web.running import one_running

    job_id = one_running(jobs)
    assert api.ok(api.get(f"{JOBS}/{job_id}"))["state"] == "running"
    for status in ("queued", "success", "failed", "running"):
        assert error_of(api.put(f"{JOBS}/{job_id}/status", {"status": status})) == (409, "conflict")
    assert error_of(api.post(f"{JOBS}/{job_id}/retry")) == (409, "conflict")
    assert error_of(api.delete(f"{JOBS}/{job_id}")) == (409, "conflict")
    assert api.ok(api.post(f"{JOBS}/{job_id}/cancel", {"reason": "enough"}))["outcome"] == "asked"
    assert jobs.get(job_id).record.cancel_at is not None


@pytest.mark.requirement("C9", "C1")
def test_priority_is_put_and_boosted_to_100_at_most(api: Browser) -> None:
    job_id = enqueue(api)
    assert api.ok(api.put(f"{JOBS}/{job_id}/priority", {"priority": 50}))["priority"] == 50
    assert api.ok(api.post(f"{JOBS}/{job_id}/boost", {"boost": 20}))["priority"] == 70
    assert api.ok(api.post(f"{JOBS}/{job_id}/boost", {"boost": 90}))["priority"] == 100
    for wrong in (-1, 101, "50", 1.5, None, True):
        assert error_of(api.put(f"{JOBS}/{job_id}/priority", {"priority": wrong})) == (400, "invalid")


@pytest.mark.requirement("C9")
def test_retry_queues_a_job_again_with_no_attempts(api: Browser, jobs: Duly) -> None:
    job_id = enqueue(api, "send", args={"to": "nobody"})
    jobs.tick(1, queues="mail")
    job = api.ok(api.post(f"{JOBS}/{job_id}/retry"))
    assert (job["state"], job["attempts"], job["retry_count"]) == ("queued", 0, 0)


def test_a_job_is_cancelled_deleted_and_copied(api: Browser, jobs: Duly) -> None:
    job_id = enqueue(api, args={"x": 5}, queue="other", priority=3, tags=["t"])
    copy = api.ok(api.post(f"{JOBS}/{job_id}/copy"), 201)
    assert copy["id"] != job_id
    assert (copy["args"], copy["queue"], copy["priority"], copy["tags"]) == ({"x": 5}, "other", 3, ["t"])
    cancelled = api.ok(api.post(f"{JOBS}/{job_id}/cancel"))
    assert (cancelled["state"], cancelled["outcome"]) == ("cancelled", "cancelled")
    assert error_of(api.post(f"{JOBS}/{job_id}/cancel")) == (409, "conflict")
    assert api.ok(api.delete(f"{JOBS}/{job_id}")) == {"id": job_id, "deleted": True}
    assert error_of(api.get(f"{JOBS}/{job_id}")) == (404, "not_found")


def test_a_job_gets_another_time(api: Browser) -> None:
    job_id = enqueue(api)
    at = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)
    later = api.ok(api.put(f"{JOBS}/{job_id}/run-at", {"run_at": at.isoformat()}))
    assert later["state"] == "scheduled"
    assert abs(datetime.fromisoformat(later["run_at"]) - at) < timedelta(seconds=5)
    assert api.ok(api.put(f"{JOBS}/{job_id}/run-at", {"delay": 0}))["state"] == "queued"
    assert error_of(api.put(f"{JOBS}/{job_id}/run-at", {})) == (400, "invalid")
    assert error_of(api.put(f"{JOBS}/{job_id}/run-at", {"run_at": "2031-02-03T04:05"})) == (400, "invalid")


@pytest.mark.requirement("D3", "B7", "S5")
def test_a_job_is_enqueued_with_its_options(api: Browser, jobs: Duly) -> None:
    once = {"task": "add", "args": {"x": 1}, "unique": "k", "tenant": "acme", "max_attempts": 2, "delay": "1h"}
    first, again = (api.ok(api.post("/api/jobs", once), 201) for _ in range(2))
    assert (first["created"], again["created"]) == (True, False)
    assert again["id"] == first["id"]
    job = jobs.get(first["id"])
    assert (job.tenant, job.max_attempts, job.state) == ("acme", 2, State.SCHEDULED)
    assert error_of(api.post("/api/jobs", {"task": "ad"})) == (400, "unknown_task")
    assert error_of(api.post("/api/jobs", {"task": "os.system"})) == (400, "unknown_task")
    wrong = api.post("/api/jobs", {"task": "add", "args": {"x": "one"}})
    assert error_of(wrong) == (400, "invalid_arguments")
    assert "argument x" in wrong.json()["error"]["message"]


@pytest.mark.requirement("B8")
def test_a_tick_runs_due_jobs_here(api: Browser, jobs: Duly) -> None:
    ids = [enqueue(api) for _ in range(3)]
    assert api.ok(api.post("/api/jobs/tick", {"max": 2})) == {"ok": True, "claimed": 2, "settled": 2}
    assert api.ok(api.post("/api/jobs/tick"))["ok"] is True
    assert {jobs.get(job_id).state for job_id in ids} == {State.SUCCEEDED}
    assert api.ok(api.post("/api/jobs/tick")) == {"ok": True, "claimed": 0, "settled": 0}


def test_recent_runs_of_all_jobs_are_listed(api: Browser, jobs: Duly) -> None:
    enqueue(api)
    enqueue(api, "send")
    jobs.tick(10, queues=["default", "mail"])
    assert {run["task"] for run in api.ok(api.get("/api/admin/runs"))["items"]} == {"add", "send"}
    assert [run["task"] for run in api.ok(api.get("/api/admin/runs", task="send"))["items"]] == ["send"]


@pytest.mark.requirement("S11")
def test_every_change_is_in_the_audit_with_who_made_it(api: Browser) -> None:
    job_id = enqueue(api)
    api.put(f"{JOBS}/{job_id}/priority", {"priority": 9})
    api.post(f"{JOBS}/{job_id}/cancel", {"reason": "no more"})
    api.post("/api/admin/queues/mail/pause", {"reason": "flood"})
    found = api.ok(api.get("/api/admin/audit"))["items"]
    assert [(each["action"], each["who"], each["via"]) for each in found] == [
        ("pause", "DULY_TOKEN", "api"),
        ("cancel", "DULY_TOKEN", "api"),
        ("set_priority", "DULY_TOKEN", "api"),
    ]
    assert found[1]["reason"] == "no more"
    assert found[2]["after"] == {"priority": 9}
    assert [each["action"] for each in api.ok(api.get("/api/admin/audit", job=job_id))["items"]] == [
        "cancel",
        "set_priority",
    ]


@pytest.mark.parametrize(
    "path",
    [
        "?limit=0", "?limit=1001", "?limit=x", "?limit=1&limit=2", "?offset=-1", "?offset=9999999", "?status=jammed",
        "?cursor=x", "?nope=1", "?since=yesterday", "?cursor=" + MISSING + "&offset=1", "?limit=%00", "?text=%00",
    ],
)  # fmt: skip
def test_a_list_refuses_what_it_does_not_understand(lite_api: Browser, path: str) -> None:
    status, code = error_of(lite_api.get(JOBS + path))
    assert (status, code) == (400, "invalid")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"x"', b"{}", b'{"task": 1}', b'{"task": ""}', b'{"task": "add", "args": []}',
        b'{"task": "add", "more": 1}', b'{"task": "add", "task": "add"}', b'{"task": "add", "args": {"x": NaN}}',
        b'{"task": "\xff"}', b'{"task": "add", "delay": -1}', b'{"task": "add", "delay": "soon"}',
        b'{"task": "add", "args": {"x": 1}, "run_at": "now"}', b'{"task": "add", "args": {"x": 1}, "priority": 101}',
        b'{"task": "add", "args": {"x": 1}, "tenant": "a\\u0000b"}', b"[" * 100_000,
        b'{"task": "add", "args": {"x": 1}, "tags": [""]}', b'{"task": "add", "args": {"x": "\\ud800"}}',
    ],
)  # fmt: skip
def test_nonsense_is_refused_in_the_one_shape_of_errors(lite_api: Browser, body: bytes) -> None:
    answer = lite_api.send("POST", "/api/jobs", content=body, headers={"content-type": "application/json"})
    assert error_of(answer)[0] == 400


def test_only_json_is_read(lite_api: Browser) -> None:
    answer = lite_api.send("POST", "/api/jobs", content=b'{"task": "add"}', headers={"content-type": "text/plain"})
    assert error_of(answer) == (415, "unsupported_media_type")


def test_unknown_paths_and_methods_have_the_same_shape(lite_api: Browser) -> None:
    assert error_of(lite_api.get("/api/nothing")) == (404, "not_found")
    answer = lite_api.delete("/api/admin/jobs/stats")
    assert error_of(answer) == (405, "method_not_allowed")
    assert re.split(r",\s*", answer.headers["allow"])
    assert error_of(lite_api.send("TRACE", "/api/admin/jobs")) == (405, "method_not_allowed")


def test_what_goes_wrong_in_the_database_is_not_shown(lite: Duly, lite_api: Browser, monkeypatch: Any) -> None:
    from duly import DatabaseUnavailable

    def fail() -> None:
        raise DatabaseUnavailable("cannot connect to postgresql://me@10.1.2.3/secret")

    monkeypatch.setattr(lite.store, "counts", fail)
    answer = lite_api.get(f"{JOBS}/stats")
    assert error_of(answer) == (503, "unavailable")
    assert "10.1.2.3" not in answer.text


def test_a_bug_is_answered_without_its_traceback(lite: Duly, lite_api: Browser, monkeypatch: Any) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(lite.store, "counts", fail)
    answer = lite_api.get(f"{JOBS}/stats")
    assert error_of(answer) == (500, "internal")
    assert "secret" not in answer.text


@pytest.mark.requirement("C15")
def test_why_a_job_does_not_run(api: Browser, jobs: Duly) -> None:
    job_id = enqueue(api, delay="1h")
    found = api.ok(api.get(f"{JOBS}/{job_id}/why"))
    assert (found["reason"], found["job_id"], found["state"]) == ("not_due", job_id, "scheduled")
    waiting = enqueue(api)
    jobs.pause(task="add", reason="a look first", by="ann")
    found = api.ok(api.get(f"{JOBS}/{waiting}/why"))
    assert {each["reason"] for each in found["blockers"]} >= {"paused"}
    groups = api.ok(api.get("/api/admin/why"))["items"]
    assert [each["jobs"] for each in groups if each["example"] == waiting] == [1]
    assert error_of(api.get(f"{JOBS}/{MISSING}/why"))[0] == 404
