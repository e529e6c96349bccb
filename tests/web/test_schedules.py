"""Recurring jobs over HTTP: the promised paths and bodies, and what operators do beyond."""

from __future__ import annotations

from typing import Any

import pytest

from duly import Duly
from tests.web.browser import Browser, browse, error_of

SCHEDULED = "/api/admin/scheduled-jobs"
DAILY: dict[str, Any] = {
    "name": "daily-askreddit",
    "description": "Daily crawl of AskReddit",
    "task": "add",
    "args": {"x": 1},
    "cron_expression": "@daily",
    "enabled": True,
    "priority": 10,
}


@pytest.mark.requirement("C9", "C7")
def test_a_schedule_is_made_as_promised(api: Browser, jobs: Duly) -> None:
    made = api.ok(api.post(SCHEDULED, DAILY), 201)
    assert {name: made[name] for name in DAILY} == DAILY
    assert made["next_run_at"] is not None
    assert made["last_run_at"] is None
    assert made["created_by"] == "DULY_TOKEN"
    assert made["text"] == "at 00:00 every day, UTC"
    assert len(made["next_times"]) == 5
    assert api.ok(api.get(f"{SCHEDULED}/{made['id']}"))["name"] == "daily-askreddit"
    assert [each["id"] for each in api.ok(api.get(SCHEDULED))["items"]] == [made["id"]]
    assert error_of(api.post(SCHEDULED, DAILY)) == (409, "conflict")
    assert error_of(api.post(SCHEDULED, {**DAILY, "key": "another"})) == (409, "conflict")
    assert [each.action for each in jobs.audit()] == ["add"]


@pytest.mark.requirement("C9", "C7")
def test_a_schedule_is_edited_toggled_run_and_deleted(api: Browser, jobs: Duly) -> None:
    job_id = api.ok(api.post(SCHEDULED, DAILY), 201)["id"]
    changes = {
        "name": "hourly-worldnews",
        "description": "Hourly crawl of WorldNews",
        "cron_expression": "@hourly",
        "enabled": True,
        "priority": 20,
    }
    edited = api.ok(api.put(f"{SCHEDULED}/{job_id}", changes))
    assert {name: edited[name] for name in changes} == changes
    off = api.ok(api.post(f"{SCHEDULED}/{job_id}/toggle", {"enabled": False}))
    assert (off["enabled"], off["disabled_by"]) == (False, "DULY_TOKEN")
    assert off["next_run_at"] == edited["next_run_at"]
    assert error_of(api.post(f"{SCHEDULED}/{job_id}/run")) == (409, "conflict")
    assert api.ok(api.put(f"{SCHEDULED}/{job_id}", {"enabled": True}))["enabled"] is True
    api.ok(api.post(f"{SCHEDULED}/{job_id}/run"))
    jobs.tick(1)
    [run] = api.ok(api.get(f"{SCHEDULED}/{job_id}/runs"))["items"]
    assert (run["outcome"], run["result"]) == ("succeeded", 3)
    assert api.ok(api.delete(f"{SCHEDULED}/{job_id}"))["deleted"] is True
    assert error_of(api.get(f"{SCHEDULED}/{job_id}")) == (404, "not_found")
    assert [each.action for each in jobs.audit()] == ["delete", "run_now", "enable", "disable", "edit", "add"]


@pytest.mark.requirement("C7")
@pytest.mark.parametrize(
    "change, code",
    [
        ({"cron_expression": "0 25 * * *"}, "invalid_schedule"),
        ({"cron_expression": "@evry 5m"}, "invalid_schedule"),
        ({"cron_expression": "0 0 30 2 *"}, "invalid_schedule"),
        ({"timezone": "Mars/Olympus"}, "invalid"),
        ({"task": "nope"}, "unknown_task"),
        ({"args": {"x": "one"}}, "invalid_arguments"),
        ({"priority": 101}, "invalid"),
        ({"cron_expression": None}, "invalid"),
        ({"every": "5m"}, "invalid"),
        ({"start_at": "tomorrow"}, "invalid"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_with_the_reason(
    lite_api: Browser, change: dict[str, Any], code: str
) -> None:
    answer = lite_api.post(SCHEDULED, {**DAILY, **change})
    status, found = error_of(answer)
    assert status == 400
    assert found in (code, "invalid")
    assert lite_api.ok(lite_api.get(SCHEDULED))["items"] == []


def test_the_refusal_of_a_rule_says_where(lite_api: Browser) -> None:
    answer = lite_api.post(SCHEDULED, {**DAILY, "cron_expression": "0 25 * * *"})
    assert error_of(answer) == (400, "invalid_schedule")
    assert "position" in answer.json()["error"]["hint"]


@pytest.mark.requirement("C9")
def test_schedules_are_listed_by_limit_offset_and_cursor(api: Browser) -> None:
    for n in range(5):
        api.ok(api.post(SCHEDULED, {**DAILY, "name": f"s{n}", "enabled": n % 2 == 0}), 201)
    names = [each["name"] for each in api.ok(api.get(SCHEDULED))["items"]]
    assert names == [f"s{n}" for n in range(5)]
    assert [each["name"] for each in api.ok(api.get(SCHEDULED, limit=2, offset=2))["items"]] == ["s2", "s3"]
    first = api.ok(api.get(SCHEDULED, limit=2))
    rest = api.ok(api.get(SCHEDULED, limit=10, cursor=first["next_cursor"]))
    assert [each["name"] for each in rest["items"]] == ["s2", "s3", "s4"]
    assert [each["name"] for each in api.ok(api.get(SCHEDULED, enabled="false"))["items"]] == ["s1", "s3"]


def test_a_rule_is_previewed_and_the_load_of_a_day_shown(api: Browser) -> None:
    preview = api.ok(api.get(f"{SCHEDULED}/preview?expression=0+9+*+*+mon-fri&timezone=Europe/Berlin&n=3"))
    assert preview["timezone"] == "Europe/Berlin"
    assert len(preview["times"]) == 3
    assert error_of(api.get(f"{SCHEDULED}/preview"))[0] == 400
    assert error_of(api.get(f"{SCHEDULED}/preview?expression=nonsense")) == (400, "invalid_schedule")
    api.ok(api.post(SCHEDULED, {**DAILY, "cron_expression": "@every 10m"}), 201)
    load = api.ok(api.get(f"{SCHEDULED}/load?hours=2"))
    assert [hour["ticks"] for hour in load["hours"]] in ([6, 6], [6, 5], [5, 6])
    assert load["complete"] is True


def test_masked_arguments_that_come_back_are_left_as_they_were(lite: Duly) -> None:
    api = browse(lite)
    body = {**DAILY, "task": "send", "args": {"to": "ann", "password": "swordfish"}}
    job_id = api.ok(api.post(SCHEDULED, body), 201)["id"]
    shown = api.ok(api.get(f"{SCHEDULED}/{job_id}"))["args"]
    assert shown == {"to": "ann", "password": "•••"}
    api.ok(api.put(f"{SCHEDULED}/{job_id}", {"args": {**shown, "to": "bob"}}))
    assert lite.recurring_by_id(job_id).args == {"to": "bob", "password": "swordfish"}
    audit = api.get("/api/admin/audit")
    assert "bob" in audit.text
    assert "swordfish" not in audit.text
