"""Every action of the pages, clicked in Chromium; and then the row that it was about."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from duly import Duly
from duly.job import Job
from tests.web.chromium.conftest import Tab

Site = tuple[Duly, str]


@pytest.fixture
def at(site: Site, tab_of: Any) -> Iterator[tuple[Duly, Tab]]:
    """A tab before a server; nothing may have gone wrong in it at the end."""
    tab = tab_of(site[1])
    yield site[0], tab
    tab.check()


At = tuple[Duly, Tab]


def later(jobs: Duly, **options: Any) -> Job[Any]:
    return jobs["add"].using(**{"delay": "1h", "priority": 5, **options}).enqueue(1)


def audited(jobs: Duly) -> list[tuple[str, str | None]]:
    """What was done and by whom, newest first."""
    return [(each.action, each.who) for each in jobs.audit()]


# -- one job ----------------------------------------------------------------------------------------------------------


def test_cancel(at: At) -> None:
    jobs, tab = at
    job = later(jobs)
    tab.open(f"/jobs/{job.id}").click("Cancel")
    tab.says("Cancelled.")
    assert job.refresh().state == "cancelled"
    assert audited(jobs) == [("cancel", "alice")]


def test_retry(at: At) -> None:
    jobs, tab = at
    job = later(jobs)
    job.cancel()
    tab.open(f"/jobs/{job.id}").click("Retry")
    tab.says("Queued again")
    assert job.refresh().state == "queued"


def test_run_now(at: At) -> None:
    jobs, tab = at
    job = later(jobs)
    tab.open(f"/jobs/{job.id}").click("Run now")
    tab.says("Queued again")
    assert job.refresh().state == "queued"


def test_boost(at: At) -> None:
    jobs, tab = at
    job = later(jobs)
    tab.open(f"/jobs/{job.id}").click("Boost +10")
    tab.says("Its priority is 15 now.")
    assert job.refresh().priority == 15


def test_edit_the_priority_and_the_time(at: At) -> None:
    jobs, tab = at
    job = later(jobs)
    before = job.refresh().run_at
    tab.open(f"/jobs/{job.id}").press("summary:text('Edit')")
    tab.page.get_by_label("Priority").fill("88")
    tab.click("Set")
    tab.says("Its priority is 88 now.")
    tab.press("summary:text('Edit')")
    tab.page.get_by_label("Run in").fill("3h")
    tab.click("Move")
    tab.says("another time")
    assert job.refresh().priority == 88
    assert before is not None
    assert job.run_at is not None
    assert 7_000 < (job.run_at - before).total_seconds() < 7_300
    tab.press("summary:text('Edit')")
    tab.page.get_by_label("or at (UTC)").fill("2090-05-01T12:30")
    tab.click("Move")
    tab.says("another time")
    assert job.refresh().run_at is not None
    assert job.run_at.isoformat().startswith("2090-05-01T12:30")


def test_run_a_copy(at: At) -> None:
    jobs, tab = at
    job = later(jobs)
    tab.open(f"/jobs/{job.id}").click("Run a copy")
    tab.says("This is the copy.")
    [copy] = [each for each in jobs.list() if each.id != job.id]
    assert tab.page.url.endswith(copy.id)
    assert (copy.task, copy.args, copy.enqueued_by) == ("add", job.args, "alice")


def test_delete(at: At) -> None:
    jobs, tab = at
    job = later(jobs)
    tab.open(f"/jobs/{job.id}").press("summary:text('Delete')")
    tab.click("Delete this job")
    tab.says("were deleted")
    assert jobs.list() == []


def test_end_by_hand(at: At) -> None:
    jobs, tab = at
    job = later(jobs)
    tab.open(f"/jobs/{job.id}").press("summary:text('End')")
    tab.click("As succeeded")
    tab.says("It is succeeded now.")
    assert job.refresh().state == "succeeded"
    assert audited(jobs) == [("set_state", "alice")]


def test_enqueue(at: At) -> None:
    jobs, tab = at
    tab.open("/jobs").click("New job", role="link")
    tab.page.get_by_label("Task").select_option("send")
    tab.page.get_by_label("Arguments").fill('{"from": "ada"}')
    tab.click("Enqueue")
    tab.page.locator(".said.bad").wait_for()
    assert jobs.list() == []
    tab.check()
    tab.page.get_by_label("Arguments").fill('{"to": "ada"}')
    tab.page.get_by_label("Priority").fill("9")
    tab.page.get_by_label("Tenant").fill("acme")
    tab.page.get_by_label("Run in").fill("1h")
    tab.page.get_by_label("Unique key").fill("ada")
    tab.page.get_by_label("Tags").fill("red, blue")
    tab.click("Enqueue")
    tab.says("Stored.")
    [job] = jobs.list()
    assert tab.page.url.endswith(job.id)
    assert (job.task, job.args, job.priority, job.tenant) == ("send", {"to": "ada"}, 9, "acme")
    assert (job.state, job.enqueued_by, job.tags) == ("scheduled", "alice", ["red", "blue"])


# -- many jobs --------------------------------------------------------------------------------------------------------


def many(jobs: Duly) -> list[Job[Any]]:
    return [later(jobs, tenant="a" if n < 4 else "b") for n in range(6)]


def test_those_that_are_ticked_are_cancelled(at: At) -> None:
    jobs, tab = at
    many(jobs)
    tab.open("/jobs?tenant=a")
    assert tab.page.locator("#bulk-bar button:enabled").count() == 0
    for n in (0, 2):
        tab.page.locator("input[name=id]").nth(n).check()
    assert tab.page.locator("#ticked").inner_text() == "2 ticked"
    tab.click("Cancel…")
    tab.says("Cancel 2 jobs?")
    assert jobs.counts().ended == {}
    tab.click("Cancel 2 jobs")
    tab.says("2 jobs cancelled.")
    assert jobs.counts().ended == {"cancelled": 2}
    assert "tenant=a" in tab.page.url


def test_all_that_match_are_retried_and_deleted(at: At) -> None:
    jobs, tab = at
    for job in many(jobs):
        job.cancel()
    tab.open("/jobs?state=cancelled&tenant=a").page.get_by_label("all that match").check()
    tab.click("Retry…")
    tab.click("Retry 4 jobs")
    tab.says("4 jobs retried.")
    assert jobs.counts().ended == {"cancelled": 2}
    tab.open("/jobs?state=cancelled").page.get_by_label("all that match").check()
    tab.click("Delete…")
    tab.click("Delete 2 jobs")
    tab.says("2 jobs deleted.")
    assert len(jobs.list()) == 4


def test_the_priority_of_many(at: At) -> None:
    jobs, tab = at
    many(jobs)
    tab.open("/jobs?state=scheduled").press("#tick-all")
    tab.page.get_by_label("Priority").fill("42")
    tab.click("Set…")
    tab.says("Set the priority of 6 jobs to 42?")
    tab.click("Set the priority of 6 jobs")
    tab.says("6 jobs changed.")
    assert {job.priority for job in jobs.list()} == {42}


def test_the_state_of_many(at: At) -> None:
    jobs, tab = at
    many(jobs)
    tab.open("/jobs?state=scheduled&tenant=a").page.get_by_label("all that match").check()
    tab.page.locator("select[name=status]").select_option("failed")
    tab.click("Set state…")
    tab.says("Set the state of 4 jobs to failed?")
    tab.click("Set the state of 4 jobs")
    tab.says("4 jobs changed.")
    assert jobs.counts().ended == {"failed": 4}


def test_jobs_are_found(at: At) -> None:
    jobs, tab = at
    jobs["send"].using(delay="1h", tags=["red"]).enqueue("ada@example.org")
    jobs["send"].using(delay="1h").enqueue("bob@example.org")
    tab.open("/jobs").page.get_by_label("Text in the arguments").fill("ada@")
    tab.click("Filter")
    tab.page.wait_for_url("**text=ada**")
    assert tab.page.locator("#rows tbody tr").count() == 1
    tab.click("Clear", role="link")
    tab.page.wait_for_url("**/jobs")
    assert tab.page.locator("#rows tbody tr").count() == 2
    tab.page.get_by_label("Tag").fill("red")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url("**tag=red**")
    assert tab.page.locator("#rows tbody tr").count() == 1


# -- schedules --------------------------------------------------------------------------------------------------------


def test_a_schedule_is_disabled_enabled_run_and_deleted(at: At) -> None:
    jobs, tab = at
    made = jobs["add"].recur("x", every="1h", args={"x": 1})
    tab.open("/schedules").click("Disable add x")
    tab.says("Disabled.")
    assert not made.refresh().enabled
    tab.click("Enable add x")
    tab.says("Enabled.")
    assert made.refresh().enabled
    tab.open(f"/schedules/{made.id}").click("Run now")
    tab.says("It runs once now")
    jobs.tick(1)
    assert len(made.runs()) == 1
    tab.open(f"/schedules/{made.id}").press("summary:text('Delete')")
    tab.click("Delete this schedule")
    tab.says("were deleted")
    assert jobs.recurring_jobs() == []
    assert [each[0] for each in audited(jobs)] == ["delete", "run_now", "enable", "disable"]


def test_a_schedule_is_edited(at: At) -> None:
    jobs, tab = at
    made = jobs["add"].recur("x", every="1h", args={"x": 1})
    tab.open(f"/schedules/{made.id}").page.get_by_label("Rule, one per line").fill("0 7 * * mon-fri\n@daily")
    tab.page.get_by_label("Time zone").fill("Europe/Berlin")
    tab.page.get_by_label("Priority").fill("9")
    tab.page.locator("textarea[name=args]").fill('{"x": 5}')
    tab.click("Save")
    tab.says("Saved.")
    made.refresh()
    assert made.schedule.rules == ("0 7 * * mon-fri", "@daily")
    assert made.schedule.timezone == "Europe/Berlin"
    assert (made.args, made.record.priority) == ({"x": 5}, 9)
    tab.page.get_by_label("Rule, one per line").fill("0 7 * * funday")
    tab.click("Save")
    tab.page.locator(".said.bad").wait_for()
    assert "funday" in tab.page.locator(".said.bad").inner_text()
    assert made.refresh().schedule.rules == ("0 7 * * mon-fri", "@daily")


def test_a_schedule_is_made(at: At) -> None:
    jobs, tab = at
    tab.open("/schedules").click("New schedule", role="link")
    tab.page.get_by_label("Rule, one per line").fill("0 7 * * mon-fri")
    tab.page.get_by_label("Time zone").fill("Europe/Berlin")
    tab.says("at 07:00 on Monday through Friday, Europe/Berlin")  # while one writes, without a click
    assert tab.page.locator("#preview li").count() == 5
    tab.check()
    tab.page.get_by_label("Rule, one per line").fill("0 7 * * funday")
    tab.page.locator("#preview.wrong").wait_for()
    assert "funday" in tab.page.locator("#preview").inner_text()
    assert tab.page.locator("#preview li").count() == 0
    tab.page.get_by_label("Rule, one per line").fill("0 7 * * mon-fri\n@hourly")
    tab.page.get_by_label("Task").select_option("add")
    tab.page.get_by_label("Key", exact=True).fill("k1")
    tab.page.get_by_label("Tenant").fill("acme")
    tab.page.get_by_label("Priority").fill("7")
    tab.page.get_by_label("Missed runs").select_option("all made up for")
    tab.page.get_by_label("While one runs").select_option("one more after it")
    tab.page.get_by_label("Name", exact=True).fill("Morning sum")
    tab.page.get_by_label("What it is for").fill("for the report")
    tab.page.get_by_label("Arguments").fill('{"x": "three"}')
    tab.page.get_by_label("Disable after").fill("4")
    tab.click("Create")
    tab.page.locator(".said.bad").wait_for()  # what was filled in is still there
    assert jobs.recurring_jobs() == []
    tab.page.get_by_label("Arguments").fill('{"x": 3}')
    tab.click("Create")
    tab.says("Created.")
    [made] = jobs.recurring_jobs()
    assert tab.page.url.endswith(made.id)
    assert (made.task, made.key, made.tenant, made.args) == ("add", "k1", "acme", {"x": 3})
    assert (made.schedule.rules, made.schedule.timezone) == (("0 7 * * mon-fri", "@hourly"), "Europe/Berlin")
    record = made.record
    assert (record.priority, record.name, record.description) == (7, "Morning sum", "for the report")
    assert (record.misfire, record.overlap, record.pause_after) == ("all", "queue", 4)
    assert (made.enabled, record.created_by) == (True, "alice")
    assert audited(jobs) == [("add", "alice")]


def test_a_schedule_is_made_and_edited_without_a_script(site: Site, tab_of: Any) -> None:
    jobs, address = site
    page = tab_of(address, java_script_enabled=False).page
    page.goto(f"{address}/schedules/new?task=add")
    page.get_by_label("Rule, one per line").fill("@every 15m")
    page.get_by_role("button", name="Preview").click()
    assert "every 15m" in page.locator("#preview").inner_text()
    assert page.locator("#preview li").count() == 5
    page.get_by_label("Arguments").fill('{"x": 1}')
    page.get_by_label("Enabled from the start").uncheck()
    page.get_by_role("button", name="Create").click()
    [made] = jobs.recurring_jobs()
    assert (made.task, made.schedule.rules, made.enabled) == ("add", ("@every 15m",), False)
    page.get_by_label("Rule, one per line").fill("@daily")
    page.get_by_role("button", name="Preview").click()
    assert "at 00:00 every day" in page.locator("#preview").inner_text()
    assert made.refresh().schedule.rules == ("@every 15m",)
    page.get_by_label("Name", exact=True).fill("Every night")
    page.get_by_role("button", name="Save").click()
    assert (made.refresh().schedule.rules, made.record.name) == (("@daily",), "Every night")


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (390, "dark")])
def test_more_of_a_schedule_is_folded_away_until_it_is_set(site: Site, tab_of: Any, width: int, scheme: str) -> None:
    jobs, address = site
    tab = tab_of(address, width, scheme).open("/schedules/new?task=add")
    page = tab.page
    assert not page.get_by_label("Not before").is_visible()
    page.get_by_label("Rule, one per line").fill("0 9 * * *")
    page.locator("details.more > summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("2090-12-24 09:00")  # the keyboard is enough
    page.get_by_label("Not on these days").fill("2090-12-25")
    tab.says("not on 2090-12-25")  # while one writes, without a click
    first, second = page.locator("#preview li time.abs").nth(0), page.locator("#preview li time.abs").nth(1)
    assert (first.inner_text(), second.inner_text()) == ("2090-12-24 09:00:00 UTC", "2090-12-26 09:00:00 UTC")
    page.get_by_label("Left out when later than").fill("a while")
    page.get_by_label("Made up for at most").fill("9")
    page.get_by_label("Arguments").fill('{"x": 1}')
    tab.check()
    tab.click("Create")
    page.locator("#wrong-grace").wait_for()
    assert "'a while'" in page.locator("#wrong-grace").inner_text()
    assert page.evaluate("document.activeElement.name") == "grace"
    assert page.get_by_label("Left out when later than").input_value() == "a while"
    assert page.get_by_label("Not on these days").input_value() == "2090-12-25"
    tab.check()
    page.get_by_label("Left out when later than").fill("2h")
    tab.click("Create")
    tab.says("Created.")
    [made] = jobs.recurring_jobs()
    assert (made.schedule.exclude, made.record.grace_us, made.record.cap) == (("2090-12-25",), 7_200_000_000, 9)
    assert page.get_by_label("Not before").input_value() == "2090-12-24 09:00"
    assert page.get_by_label("Not before").is_visible()
    tab.check()
    for label in ("Not before", "Not on these days", "Left out when later than", "Made up for at most"):
        page.get_by_label(label).fill("")
    tab.click("Save")
    tab.says("Saved.")
    assert not page.get_by_label("Not before").is_visible()
    made.refresh()
    assert (made.schedule.start_us, made.schedule.exclude) == (None, ())
    assert (made.record.grace_us, made.record.cap) == (60_000_000, 100)
    tab.check()


def asked_often(route: Any) -> None:
    answer = route.fetch()
    route.fulfill(response=answer, json={**answer.json(), "again_in": 0.2})


def is_told(answer: Any, job_id: str, state: str) -> bool:
    return "/live.json?" in answer.url and answer.json()["jobs"][job_id]["state"] == state


def test_what_is_unfolded_and_chosen_stays_so_when_the_page_follows_what_happens(at: At) -> None:
    jobs, tab = at
    page, made = tab.page, jobs["add"].recur("x", cron="@daily", args={"x": 1})
    page.route("**/live?*", lambda route: route.fulfill(status=204))  # so the page asks, which can be waited for
    page.route("**/live.json?*", asked_often)
    tab.open(f"/schedules/{made.id}").page.wait_for_selector(".pulse.on")
    tab.press("details.more > summary")
    page.evaluate("document.activeElement.blur()")
    made.disable("for now")
    page.locator("h1 .badge.cancelled").wait_for()
    assert page.get_by_label("Not before").is_visible()
    page.get_by_label("Missed runs").select_option("left out")
    page.evaluate("document.activeElement.blur()")
    made.enable()
    with page.expect_response(lambda answer: is_told(answer, made.id, "scheduled")):
        pass
    with page.expect_response("**/live.json?*"):  # by now the page has done what it does when told
        pass
    assert page.get_by_label("Missed runs").input_value() == "skip"
    assert page.locator("h1 .badge.cancelled").is_visible()


# -- queues, tasks, tenants -------------------------------------------------------------------------------------------


def test_a_queue_is_paused_resumed_and_changed(at: At) -> None:
    jobs, tab = at
    jobs["send"].enqueue("ada")
    tab.open("/queues").press("summary[aria-label='Pause mail']")
    tab.page.get_by_label("Why").locator("visible=true").first.fill("moving")
    tab.page.get_by_label("For how long").locator("visible=true").first.fill("2h")
    tab.click("Pause mail")
    tab.says("is paused: nothing of it starts")
    [pause] = jobs.paused()
    assert (pause.scope, pause.name, pause.reason, pause.by) == ("queue", "mail", "moving", "alice")
    assert pause.until is not None
    tab.click("Resume mail")
    tab.says("The queue mail goes on.")
    assert jobs.paused() == []
    tab.press("summary[aria-label='Settings of mail']")
    tab.page.get_by_label("Tenants take turns").locator("visible=true").uncheck()
    tab.page.get_by_label("Ages within").locator("visible=true").fill("strict")
    tab.page.locator("details[open] button").click()
    tab.says("The queue mail was changed.")
    assert jobs.store.queue_options()["mail"][1] is False
    tab.says("Tenants go by rank alone")


def test_limits_are_set_and_taken_back(at: At) -> None:
    jobs, tab = at
    jobs["send"].enqueue("ada")
    tab.open("/queues").press("summary[aria-label='Limit mail']")
    tab.page.get_by_label("Running at once").locator("visible=true").fill("3")
    tab.page.locator("details[open]").get_by_label("Starts").fill("10/s")
    tab.click("Limit mail")
    tab.says("The queue mail is limited")
    tab.says("Limited to 3 at once, 10/s started.")
    [limit] = jobs.limits()
    assert (limit.scope, limit.name, limit.says.slots, str(limit.says.rate)) == ("queue", "mail", 3, "10/s")
    tab.check()
    tab.press("summary[aria-label='Limit mail']")
    tab.click("Take the limit back")
    tab.says("taken back")
    assert jobs.limits() == []


@pytest.mark.parametrize("scope, name", [("task", "send"), ("keys", "send"), ("key", "send/a.example")])
def test_a_task_and_its_keys_are_limited_and_paused(at: At, scope: str, name: str) -> None:
    jobs, tab = at
    tab.open("/queues")
    form = tab.page.locator("section", has_text="Limit a task").last
    form.get_by_label("What").select_option(scope)
    form.get_by_label("Its name").fill(name)
    form.get_by_label("At once").fill("1")
    form.get_by_label("Starts").fill("10/s")
    form.get_by_label("Burst").fill("4")
    form.get_by_role("button").click()
    tab.says("is limited")
    [limit] = jobs.limits()
    assert (limit.scope, limit.says.slots, str(limit.says.rate), limit.says.burst) == (scope, 1, "10/s", 4)
    tab.check()
    tab.click(f"Take back the limit of {name}")
    tab.says("taken back")
    assert jobs.limits() == []
    if scope == "keys":
        return
    form = tab.page.locator("section", has_text="Pause a task").last
    form.get_by_label("What").select_option(scope)
    form.get_by_label("Its name").fill(name)
    form.get_by_role("button").click()
    tab.says(f"The {scope} {name} is paused")
    assert [(each.scope, each.name) for each in jobs.paused()] == [(scope, name)]
    tab.click(f"Resume {name}")
    tab.says("goes on")
    assert jobs.paused() == []


def test_a_quota_is_set(at: At) -> None:
    jobs, tab = at
    later(jobs, tenant="acme")
    tab.open("/tenants").press("summary[aria-label='Change acme']")
    tab.page.get_by_label("Waiting").fill("50")
    tab.page.get_by_label("A day").fill("1000")
    tab.page.get_by_label("What is more").select_option("waits")
    tab.click("Set the quota of acme")
    tab.says("The quota of acme was set.")
    quota = jobs.quota("acme")
    assert (quota.waiting, quota.running, quota.per_day, quota.over) == (50, None, 1000, "wait")
    tab.says("at most 50 waiting, 1,000 a day")


def test_a_tenant_is_paused_resumed_and_weighed(at: At) -> None:
    jobs, tab = at
    later(jobs, tenant="acme")
    tab.open("/tenants").press("summary[aria-label='Change acme']")
    tab.page.get_by_label("Weight").fill("2.5")
    tab.click("Set")
    tab.says("has the weight 2.5 now")
    assert jobs.weights() == {"acme": 2.5}
    tab.press("summary[aria-label='Change acme']")
    tab.page.get_by_label("Why").fill("has not paid")
    tab.click("Pause acme")
    tab.says("is paused")
    assert [(each.scope, each.name, each.reason) for each in jobs.paused()] == [("tenant", "acme", "has not paid")]
    tab.click("Resume acme")
    tab.says("goes on")
    assert jobs.paused() == []
    tab.open("/audit")
    assert tab.page.locator("#rows tbody tr").count() == 3
    tab.page.get_by_label("Action").select_option("pause")
    tab.click("Filter")
    tab.page.wait_for_url("**action=pause**")
    assert tab.page.locator("#rows tbody tr").count() == 1


def test_an_alert_is_seen_silenced_and_heard_again(at: At) -> None:
    jobs, tab = at
    jobs.alerts.configure(depth=1)
    for n in range(3):
        jobs["add"].enqueue(n)
    [alert] = [each for each in jobs.alerts.check() if each.rule == "depth"]
    tab.open("/").says(alert.message)
    tab.open("/alerts")
    tab.check()
    tab.page.locator("button", has_text="I look after it").first.click()
    tab.says("you look after it")
    assert {each.acked_by for each in jobs.alerts()} >= {"alice"}
    tab.page.locator("li.alert summary", has_text="Silence").first.click()
    tab.click("Silence it")
    tab.says("Nobody is told of it for 1h.")
    assert len(jobs.alerts.silences()) == 1
    tab.page.locator("button", has_text="Hear again").click()
    tab.says("People are told again.")
    assert jobs.alerts.silences() == []
    tab.press(".heading summary")
    tab.page.get_by_label("Rule").select_option("poison")
    tab.page.get_by_label("Why").locator("visible=true").fill("known")
    tab.click("Silence them")
    tab.says("Nobody is told of it for 1h.")
    assert [(each.rule, each.subject, each.reason) for each in jobs.alerts.silences()] == [("poison", None, "known")]
    tab.page.locator("li.alert a", has_text=alert.message).click()
    tab.says("Who was told")
    tab.says("log, that it started")
    tab.check()


def test_alerts_are_looked_for_at_once(at: At) -> None:
    jobs, tab = at
    jobs.alerts.configure(depth=1)
    for n in range(3):
        jobs["add"].enqueue(n)
    tab.open("/alerts").click("Look now")
    tab.says("active.")
    assert "depth" in {each.rule for each in jobs.alerts()}


# -- the installation -------------------------------------------------------------------------------------------------


def test_what_is_broken_is_mended(at: At) -> None:
    jobs, tab = at
    job = jobs["add"].enqueue(1)
    with closing(sqlite3.connect(jobs.settings.url.removeprefix("sqlite:///"))) as behind:
        behind.execute("DELETE FROM duly_waiting")
        behind.commit()
    tab.open("/system").click("Check everything", role="link")
    tab.says("1 job is in no place")
    tab.check()
    tab.page.locator("li", has_text="1 job is in no place").get_by_role("button").click()
    tab.says("Mended:")
    assert job.refresh().state == "queued"
    assert audited(jobs) == [("mend", "alice")]
    assert tab.page.get_by_text("is in no place").count() == 0


def test_what_is_old_is_forgotten(at: At) -> None:
    jobs, tab = at
    job = jobs["add"].enqueue(1)
    job.cancel()
    with closing(sqlite3.connect(jobs.settings.url.removeprefix("sqlite:///"))) as behind:
        behind.execute("UPDATE duly_ended SET finished_at = 1")
        behind.commit()
    tab.open("/system").click("Forget what is older now")
    tab.says("1 job forgotten.")
    assert jobs.list() == []
    assert audited(jobs)[0] == ("prune", "alice")


def test_tokens_are_made_and_revoked(at: At) -> None:
    jobs, tab = at
    tab.open("/system").page.get_by_label("Name").fill("ci")
    tab.page.get_by_label("operate").check()
    tab.page.get_by_label("Only this tenant").fill("acme")
    tab.page.get_by_label("Holds for").fill("90d")
    tab.click("Make it")
    tab.says("Copy it now")
    secret = tab.page.locator("pre[aria-label='The new token']").inner_text()
    tab.check()
    [token] = jobs.tokens()
    assert (token.name, token.scopes, token.tenant) == ("ci", "read operate", "acme")
    assert httpx.get(f"{tab.address}/api/admin/me", headers={"authorization": f"Bearer {secret}"}).status_code == 200
    tab.open("/system")
    assert secret not in tab.page.content()
    tab.page.get_by_role("button", name="Revoke the token of ci").click()
    tab.says("lets nobody in any more")
    assert jobs.tokens() == []


def test_forms_do_their_work_without_a_script(site: Site, tab_of: Any) -> None:
    jobs, address = site
    job = later(jobs)
    tab = tab_of(address, java_script_enabled=False)
    tab.page.goto(f"{address}/jobs/{job.id}")
    tab.page.get_by_role("button", name="Cancel", exact=True).click()
    assert "Cancelled." in tab.page.locator(".said").inner_text()
    assert job.refresh().state == "cancelled"
    tab.page.goto(f"{address}/jobs?state=cancelled")
    tab.page.locator("input[name=id]").first.check()
    tab.page.get_by_role("button", name="Retry…").click()
    tab.page.get_by_role("button", name="Retry 1 job").click()
    assert job.refresh().state == "queued"
