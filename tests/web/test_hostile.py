"""Names, arguments and filters that try to be something else: markup, SQL, control characters."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest

from duly import Duly
from tests.web.browser import HOST, TOKEN, Browser, error_of, serve

PAYLOADS = (
    "<script>alert(1)</script>",
    "</title><img src=x onerror=alert(1)>",
    '"><svg/onload=alert(1)>',
    "javascript:alert(1)",
    "{{7*7}}${7*7}<%= 7*7 %>",
    "' OR 1=1 --",
    "'; DROP TABLE duly_jobs; --",
    "$1 :name %s %(x)s ?",
    "\\'; SELECT pg_sleep(9); --",
    "%00%0d%0aSet-Cookie: a=b",
    "../../etc/passwd",
    "\u202egnp.exe\u2066",
    "Ω≈ç√∫ 𝕏 😀",
    "a" * 128,
)
LISTS = ("/api/admin/jobs", "/api/admin/runs", "/api/admin/scheduled-jobs", "/api/admin/tenants", "/api/admin/audit")


@pytest.mark.requirement("S3", "S6")
def test_what_was_stored_comes_back_as_it_was_and_as_json(api: Browser, jobs: Duly) -> None:
    for payload in PAYLOADS:
        body = {"task": "send", "args": {"to": payload}, "tenant": payload, "tags": [payload], "unique": payload}
        job = api.ok(api.post("/api/jobs", body), 201)
        assert (job["args"]["to"], job["tenant"], job["tags"]) == (payload, payload, [payload])
        schedule = {"task": "send", "args": {"to": payload}, "name": payload, "description": payload}
        made = api.ok(api.post("/api/admin/scheduled-jobs", {**schedule, "cron_expression": "@daily"}), 201)
        assert (made["name"], made["description"]) == (payload, payload)
        api.ok(api.post(f"/api/admin/jobs/{job['id']}/cancel", {"reason": payload}))
        found = api.ok(api.get("/api/admin/jobs", tenant=payload, tag=payload, state="cancelled"))["items"]
        assert [each["id"] for each in found] == [job["id"]]
        assert found[0]["reason"] == payload
    for path in LISTS:
        answer = api.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert {each["name"] for each in api.ok(api.get("/api/admin/tenants"))["items"]} <= set(PAYLOADS)


@pytest.mark.requirement("S6")
@pytest.mark.parametrize("name", ["task", "queue", "tenant", "tag", "text", "since", "until", "cursor", "state"])
def test_no_filter_is_more_than_a_value(api: Browser, jobs: Duly, name: str) -> None:
    jobs["add"].enqueue(1)
    for payload in PAYLOADS:
        answer = api.get("/api/admin/jobs", **{name: payload})
        assert answer.status_code in (200, 400)
        if answer.status_code == 200:
            assert answer.json()["items"] == []
        else:
            error_of(answer)
    assert len(jobs.list()) == 1


@pytest.mark.requirement("S6")
def test_names_in_paths_are_no_more_than_names(api: Browser) -> None:
    for payload in PAYLOADS:
        quoted = httpx.QueryParams({"x": payload})
        word = str(quoted).removeprefix("x=").replace("+", "%20")
        for path in (f"/api/admin/queues/{word}", f"/api/admin/tenants/{word}", f"/api/admin/jobs/{word}"):
            answer = api.get(path)
            assert answer.status_code == 404
            assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"])
def test_what_no_database_can_store_is_refused(api: Browser, text: str) -> None:
    for body in (
        {"task": "add", "args": {"x": 1}, "tenant": text},
        {"task": "add", "args": {"x": 1}, "tags": [text]},
        {"task": "send", "args": {"to": text}},
        {"task": "add", "args": {"x": 1}, "unique": text},
    ):
        import json

        content = json.dumps(body).encode()
        answer = api.send("POST", "/api/jobs", content=content, headers={"content-type": "application/json"})
        assert error_of(answer)[0] == 400


def test_a_slow_database_does_not_hold_up_the_loop(lite: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is synchronous: it is asked on a thread, and meanwhile the loop answers others."""
    started, go_on = threading.Event(), threading.Event()

    def slow() -> Any:
        started.set()
        assert go_on.wait(10)
        return counts()

    counts = lite.store.counts
    monkeypatch.setattr(lite.store, "counts", slow)
    app = serve(lite)

    async def go() -> tuple[int, int]:
        transport = httpx.ASGITransport(app)
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}", headers=headers) as client:
            waits = asyncio.create_task(client.get("/api/admin/jobs/stats"))
            while not started.is_set():
                await asyncio.sleep(0.001)
            quick = await client.get("/api/admin/me")
            assert not waits.done()
            go_on.set()
            return quick.status_code, (await waits).status_code

    assert asyncio.run(go()) == (200, 200)
