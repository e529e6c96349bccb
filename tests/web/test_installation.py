"""Over HTTP: the check-up and its repairs, forgetting what is old, alerts and their silences."""

from __future__ import annotations

import pytest

from duly import Duly
from duly.domain.ids import uuid7
from duly.web.service import system
from tests.store.raw import Raw
from tests.web.browser import Browser, error_of

ALERTS = "/api/admin/alerts"


# -- doctor and prune -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C15")
def test_what_is_broken_is_found_and_mended_by_name(api: Browser, jobs: Duly, raw: Raw) -> None:
    job = jobs["add"].enqueue(1)
    raw.rows("DELETE FROM duly.waiting")
    found = api.ok(api.get("/api/admin/doctor"))
    [broken] = [each for each in found["items"] if each["fixable"]]
    assert found["severity"] == broken["severity"] == "error"
    other = api.ok(api.post("/api/admin/doctor/fix", {"area": "recurring"}))
    assert [each["check"] for each in other["items"] if each["fixable"]] == [broken["check"]]
    mended = api.ok(api.post("/api/admin/doctor/fix", {"area": broken["area"], "check": broken["check"]}))
    [after] = [each for each in mended["items"] if each["fixed"]]
    assert (after["check"], after["fixable"]) == (broken["check"], False)
    assert job.refresh().state == "queued"
    [deed] = jobs.audit()
    assert (deed.action, deed.who, deed.subject) == ("mend", "DULY_TOKEN", f"jobs: {broken['check']}")
    again = api.ok(api.post("/api/admin/doctor/fix"))
    assert not [each for each in again["items"] if each["fixable"] or each["fixed"]]
    assert len(jobs.audit()) == 1


def test_what_is_old_is_forgotten_some_at_a_time(
    api: Browser, jobs: Duly, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "MOST_PRUNED", 3)
    monkeypatch.setattr("duly.maintenance.prune.STEP", 2)
    for n in range(7):
        jobs["add"].enqueue(n).cancel()
    assert api.ok(api.post("/api/admin/prune")) == {"pruned": 0, "more": False}
    raw.rows("UPDATE duly.ended SET finished_at = 1")
    answers = [api.ok(api.post("/api/admin/prune")) for _ in range(3)]
    assert answers == [{"pruned": 4, "more": True}, {"pruned": 3, "more": True}, {"pruned": 0, "more": False}]
    assert jobs.list() == []
    assert {(each.action, each.who) for each in jobs.audit() if each.action != "cancel"} == {("prune", "DULY_TOKEN")}


@pytest.mark.parametrize("path", ["/api/admin/doctor/fix", "/api/admin/prune", f"{ALERTS}/check", f"{ALERTS}/silences"])
def test_who_may_only_read_or_is_bound_to_a_tenant_may_not(api: Browser, jobs: Duly, path: str) -> None:
    reader = api.with_token(jobs.create_token("r", ["read"]).secret)
    bound = api.with_token(jobs.create_token("t", ["operate"], tenant="acme").secret)
    body = {"rule": "depth"} if path.endswith("silences") else None
    for browser in (reader, bound):
        assert error_of(browser.post(path, body)) == (403, "forbidden")
    assert jobs.alerts.silences() == []


# -- alerts -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C13")
def test_alerts_are_looked_for_shown_silenced_and_heard_again(api: Browser, jobs: Duly) -> None:
    jobs.alerts.configure(depth=1)
    for n in range(3):
        jobs["add"].enqueue(n)
    [alert] = [each for each in api.ok(api.post(f"{ALERTS}/check"))["items"] if each["rule"] == "depth"]
    shown = api.ok(api.get(f"{ALERTS}/{alert['id']}"))
    assert shown["message"] == alert["message"]
    assert ("log", "started") in {(each["channel"], each["event"]) for each in shown["told"] if each["done_at"]}
    wanted = {"rule": "depth", "subject": alert["subject"], "duration": "2h", "reason": "an import"}
    said = api.ok(api.post(f"{ALERTS}/silences", wanted), 201)
    assert (said["rule"], said["subject"]) == ("depth", alert["subject"])
    [silence] = api.ok(api.get(f"{ALERTS}/silences"))["items"]
    assert (silence["until"], silence["by"], silence["reason"]) == (said["until"], "DULY_TOKEN", "an import")
    assert api.ok(api.get(f"{ALERTS}/{alert['id']}"))["silenced_until"] == said["until"]
    assert api.ok(api.send("DELETE", f"{ALERTS}/silences", json={"rule": "poison"})) == {"ended": 0}
    assert api.ok(api.send("DELETE", f"{ALERTS}/silences", json={"rule": "depth"})) == {"ended": 1}
    assert api.ok(api.get(f"{ALERTS}/silences"))["items"] == []
    assert [each.action for each in jobs.audit()] == ["unsilence", "silence"]


def test_what_is_wrong_about_a_silence_is_said(lite_api: Browser) -> None:
    for body in ({}, {"rule": "nonsense"}, {"rule": "depth", "duration": "0s"}, {"rule": "depth", "duration": "soon"}):
        assert error_of(lite_api.post(f"{ALERTS}/silences", body))[0] == 400, body
    assert error_of(lite_api.get(f"{ALERTS}/{uuid7()}")) == (404, "not_found")
