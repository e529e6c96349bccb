"""Many jobs at once over HTTP: by ids as promised, by filter, counted first, and what could not be done."""

from __future__ import annotations

from typing import Any

import pytest

from duly import Duly, State
from duly.web.service import bulk
from tests.web.browser import Browser, error_of
from tests.web.running import one_running

BULK = "/api/admin/jobs/bulk"
MISSING = "0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12"


def states(jobs: Duly, ids: list[str]) -> list[str]:
    return [str(jobs.get(job_id).state) for job_id in ids]


@pytest.mark.requirement("C9")
def test_bulk_status_and_retry_take_job_ids(api: Browser, jobs: Duly) -> None:
    ids = [jobs["add"].enqueue(n).id for n in range(4)]
    done = api.ok(api.put(f"{BULK}/status", {"job_ids": ids[:2], "status": "failed"}))
    assert (done["count"], sorted(done["ids"]), done["refused"]) == (2, ids[:2], [])
    assert api.ok(api.put(f"{BULK}/status", {"job_ids": ids[2:], "status": "success"}))["count"] == 2
    assert states(jobs, ids) == ["failed", "failed", "succeeded", "succeeded"]
    again = api.ok(api.post(f"{BULK}/retry", {"job_ids": [*ids, MISSING]}))
    assert again["count"] == 4
    assert again["refused"] == [{"id": MISSING, "why": "it is gone"}]
    assert states(jobs, ids) == ["queued"] * 4
    assert api.ok(api.put(f"{BULK}/status", {"job_ids": ids, "status": "queued"}))["count"] == 4
    assert error_of(api.put(f"{BULK}/status", {"job_ids": ids, "status": "running"})) == (409, "conflict")


@pytest.mark.requirement("C9")
def test_what_runs_is_refused_and_the_rest_is_done(api: Browser, jobs: Duly) -> None:
    running, waiting = one_running(jobs), jobs["add"].enqueue(1).id
    done = api.ok(api.put(f"{BULK}/status", {"job_ids": [running, waiting], "status": "failed"}))
    assert (done["ids"], done["refused"]) == ([waiting], [{"id": running, "why": "it is running"}])


def test_a_filter_is_counted_first_and_then_done(api: Browser, jobs: Duly) -> None:
    ids = [jobs["add"].enqueue(n).id for n in range(3)]
    jobs["send"].enqueue("ann")
    body: dict[str, Any] = {"filter": {"task": "add"}, "dry_run": True}
    counted = api.ok(api.post(f"{BULK}/cancel", body))
    assert (counted["count"], counted["dry_run"], sorted(counted["ids"])) == (3, True, ids)
    assert states(jobs, ids) == ["queued"] * 3
    done = api.ok(api.post(f"{BULK}/cancel", {**body, "dry_run": False, "reason": "over"}))
    assert (done["count"], done["more"]) == (3, False)
    assert states(jobs, ids) == ["cancelled"] * 3
    assert jobs.get(ids[0]).reason == "over"
    assert api.ok(api.post(f"{BULK}/delete", {"filter": {"state": "cancelled"}}))["count"] == 3
    assert [job.task for job in jobs.list()] == ["send"]


def test_priority_is_put_for_many(api: Browser, jobs: Duly) -> None:
    ids = [jobs["add"].enqueue(1).id, jobs["add"].using(delay=60).enqueue(1).id]
    ended = jobs["add"].enqueue(1)
    ended.cancel()
    assert api.ok(api.put(f"{BULK}/priority", {"filter": {"task": "add"}, "priority": 40}))["count"] == 2
    assert [jobs.get(job_id).priority for job_id in ids] == [40, 40]
    late = api.ok(api.put(f"{BULK}/priority", {"job_ids": [ended.id], "priority": 1}))
    assert late["refused"] == [{"id": ended.id, "why": "it no longer waits"}]


def test_no_more_than_so_many_are_done_at_once_and_the_answer_says_so(
    api: Browser, jobs: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MOST", 3)
    for n in range(5):
        jobs["add"].enqueue(n)
    monkeypatch.setattr(bulk, "MOST_PAGE", 2)
    body = {"filter": {"state": "queued"}}
    assert api.ok(api.post(f"{BULK}/cancel", {**body, "dry_run": True}))["more"] is True
    first = api.ok(api.post(f"{BULK}/cancel", body))
    assert (first["count"], first["more"]) == (3, True)
    assert api.ok(api.post(f"{BULK}/cancel", body))["count"] == 2
    assert jobs.list(state=State.QUEUED) == []


@pytest.mark.parametrize(
    "path, body",
    [
        ("retry", {}),
        ("retry", {"job_ids": []}),
        ("retry", {"job_ids": ["x"], "filter": {"state": "failed"}}),
        ("retry", {"filter": {}}),
        ("cancel", {"filter": {"state": "jammed"}}),
        ("delete", {"filter": {"task": "add"}}),
        ("delete", {"filter": {"nope": "add"}}),
        ("retry", {"job_ids": [MISSING] * 10_001}),
    ],
)
def test_what_says_not_which_jobs_is_refused(lite_api: Browser, path: str, body: dict[str, Any]) -> None:
    assert error_of(lite_api.post(f"{BULK}/{path}", body))[0] == 400


def test_each_job_of_many_is_in_the_audit(api: Browser, jobs: Duly) -> None:
    ids = [jobs["add"].enqueue(n).id for n in range(3)]
    api.put(f"{BULK}/priority", {"job_ids": ids, "priority": 9})
    api.put(f"{BULK}/status", {"job_ids": ids, "status": "failed"})
    found = [(each.action, each.who, each.job_id) for each in jobs.audit()]
    assert sorted(found) == sorted(
        (action, "DULY_TOKEN", job_id) for action in ("set_priority", "set_state") for job_id in ids
    )
