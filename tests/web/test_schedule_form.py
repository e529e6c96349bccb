"""The form of a schedule: each option that it has arrives, stays, goes, and is refused at its field."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import Duly
from duly.recurring import RecurringJob
from duly.web.api.routes import SCHEDULE
from duly.web.pages.schedule_values import EMPTY, FIELDS, LABELS, MORE, OF_NEW
from tests.web.browser import Browser, browse
from tests.web.forms import Form, form_on, post
from tests.web.test_pages import people

Seen = Callable[[RecurringJob], object]
BERLIN = {"rules": "30 2 * * *", "timezone": "Europe/Berlin", "task": "add", "args": '{"x": 1}'}
"""A time that the clocks skip and repeat."""


def us(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> int:
    return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()) * 1_000_000


OPTIONS: dict[str, tuple[str, object, object, Seen]] = {
    # the field: what is written, what is stored then, what is stored when it is emptied, where
    "start_at": ("2090-07-31 08:00", us(2090, 7, 31, 6), None, lambda job: job.schedule.start_us),
    "until": ("2091-01-31 08:00:30", us(2091, 1, 31, 7, 0, 30), None, lambda job: job.schedule.until_us),
    "exclude": ("2090-12-26, 2090-12-25\n2091-01-01", ("2090-12-25", "2090-12-26", "2091-01-01"), (),
                lambda job: job.schedule.exclude),
    "jitter": ("1h30m", 5_400_000_000, 0, lambda job: job.schedule.jitter_us),
    "dst_gap": ("skip", "skip", "next", lambda job: job.schedule.gap),
    "dst_overlap": ("twice", "twice", "first", lambda job: job.schedule.overlap),
    "grace": ("2h", 7_200_000_000, 60_000_000, lambda job: job.record.grace_us),
    "cap": ("7", 7, 100, lambda job: job.record.cap),
    "failure": ("backoff", "backoff", "advance", lambda job: job.record.failure),
    "pause_after": ("4", 4, None, lambda job: job.record.pause_after),
}  # fmt: skip


def made_by(jobs: Duly, browser: Browser, **written: str) -> RecurringJob:
    answer = post(browser, form_on(browser, "/schedules/new", "/new"), **{**BERLIN, **written})
    assert answer.status_code == 303, answer.text
    return jobs.recurring_by_id(answer.headers["location"].rsplit("/", 1)[-1])


def edited(browser: Browser, job: RecurringJob, page: str = "/schedules/{}", **written: str) -> RecurringJob:
    answer = post(browser, form_on(browser, page.format(job.id), "/edit"), **written)
    assert answer.status_code == 303, answer.text
    return job.refresh()


def refused(browser: Browser, form: Form, **written: str) -> Form:
    answer = post(browser, form, **written)
    assert answer.status_code == 200, answer.headers
    return Form(answer.text, form.ending)


def test_the_form_has_every_option_that_the_api_has() -> None:
    others = {"cron_expression": "rules", "every": "rules"}
    assert {others.get(name, name) for name in SCHEDULE} <= {*FIELDS, *OF_NEW}
    assert set(OPTIONS) == {*MORE, "pause_after"} - {"no_rule"}


@pytest.mark.requirement("C7")
def test_options_of_the_form_arrive_are_shown_stay_and_go(jobs: Duly) -> None:
    browser = people(jobs)
    job = made_by(jobs, browser, **{name: written for name, (written, *_) in OPTIONS.items()})
    for name, (_, stored, _, seen) in OPTIONS.items():
        assert seen(job) == stored, name
    rule, record = job.record.rule, job.record
    form = form_on(browser, f"/schedules/{job.id}", "/edit")
    for name, (written, *_) in OPTIONS.items():
        shown = "2090-12-25\n2090-12-26\n2091-01-01" if name == "exclude" else written
        assert form.values[name] == shown, name
    edited(browser, job, name="Other")
    assert (job.name, job.record.rule, job.record.next_run_at) == ("Other", rule, record.next_run_at)
    for name, (_, stored, _, seen) in OPTIONS.items():
        assert seen(job) == stored, name
    edited(browser, job, **{name: EMPTY[name] for name in OPTIONS})
    for name, (_, _, usual, seen) in OPTIONS.items():
        assert seen(job) == usual, name


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("page", ["/schedules/{}", "/schedules/{}/edit"])
def test_one_option_is_set_and_emptied_and_no_other_changes(lite: Duly, name: str, page: str) -> None:
    browser = people(lite)
    job = made_by(lite, browser)
    assert not form_on(browser, page.format(job.id), "/edit").is_open["more"]
    before = job.to_dict()
    written, stored, usual, seen = OPTIONS[name]
    assert seen(job) == usual
    edited(browser, job, page, **{name: written})
    assert seen(job) == stored
    changed = {each for each, value in job.to_dict().items() if value != before[each]}
    assert changed - {"text", "next_run_at"} == {name}
    assert form_on(browser, page.format(job.id), "/edit").is_open["more"] is (name in MORE)
    edited(browser, job, page, **{name: EMPTY[name]})
    assert job.to_dict() == before
    assert not form_on(browser, page.format(job.id), "/edit").is_open["more"]


NONSENSE = {
    "start_at": "tomorrow",
    "until": "31.12.2030",
    "exclude": "2030-12-25\nchristmas",
    "jitter": "soon",
    "dst_gap": "perhaps",
    "dst_overlap": "thrice",
    "grace": "-5m",
    "cap": "many",
    "failure": "despair",
    "pause_after": "0",
    "rules": "0 7 * * funday",
    "timezone": "Mars/Olympus",
    "priority": "101",
    "queue": "a queue",
    "args": "{",
    "name": "a\x07bell",
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_refused_at_its_field_with_all_that_was_written(lite: Duly, name: str) -> None:
    browser = people(lite)
    job = made_by(lite, browser)
    before = job.to_dict()
    for form in (form_on(browser, "/schedules/new", "/new"), form_on(browser, f"/schedules/{job.id}", "/edit")):
        written = {**BERLIN, "key": "other", "description": "kept <as> it is", name: NONSENSE[name]}
        again = refused(browser, form, **written)
        said = again.texts[f"wrong-{name}"]
        value = NONSENSE[name].split("\n")[-1]
        assert (repr(value)[1:-1] in said) == (name != "args"), said
        assert again.attributes[name]["aria-invalid"] == "true"
        assert f"wrong-{name}" in again.attributes[name]["aria-describedby"].split()
        assert [each for each in again.texts if each.startswith("wrong-")] == [f"wrong-{name}"]
        assert again.is_open["more"] is (name in MORE)
        for each in (set(written) & set(again.attributes)) - {"dst_gap", "dst_overlap", "failure"}:
            assert again.values[each] == written[each], each
    assert job.refresh().to_dict() == before
    assert len(lite.recurring_jobs()) == 1


def test_what_is_wrong_is_said_by_the_label_with_the_value_and_an_example(lite: Duly) -> None:
    browser = people(lite)
    form = form_on(browser, "/schedules/new", "/new")

    def said(name: str, **written: str) -> str:
        return refused(browser, form, **{**BERLIN, **written}).texts[f"wrong-{name}"]

    assert said("jitter", jitter="soon") == (
        "“Spread over” is not a duration: 'soon', position 1: a number is expected. Write for instance 10m"
    )
    assert said("cap", cap="many") == (
        "“Made up for at most” must be a whole number from 1 to 1,000,000, not 'many'. Write for instance 100"
    )
    assert "2090-01-01 11:00:00+00:00 is not later" in said(
        "until", start_at="2090-01-01 12:00", until="2090-01-01 12:00"
    )
    assert "its schedule is over" in said("until", until="2001-01-01T12:00")
    assert "“Rule”" not in said("rules", rules="")
    assert said("rules", rules="").startswith("when? Write a rule. Write for instance @every 15m")
    assert "“No rule” is ticked" in said("rules", no_rule="yes")
    assert "did you mean Europe/Berlin" in said("timezone", timezone="Europe/Berlim")
    assert said("start_at", start_at="tomorrow") == (
        "“Not before” must be a time, not 'tomorrow'. Write for instance 2030-01-31 08:00"
    )


def test_a_time_is_of_the_zone_of_the_form_and_moves_with_it(lite: Duly) -> None:
    browser = people(lite)
    job = made_by(lite, browser, start_at="2090-01-31 08:00", until="2090-07-31T08:00+00:00")
    assert (job.schedule.start_us, job.schedule.until_us) == (us(2090, 1, 31, 7), us(2090, 7, 31, 8))
    form = form_on(browser, f"/schedules/{job.id}", "/edit")
    assert (form.values["start_at"], form.values["until"]) == ("2090-01-31 08:00", "2090-07-31 10:00")
    edited(browser, job, timezone="Asia/Tokyo")
    assert (job.schedule.start_us, job.schedule.until_us) == (us(2090, 1, 30, 23), us(2090, 7, 31, 1))


def test_what_is_to_the_microsecond_is_shown_and_kept_so(lite: Duly) -> None:
    start = datetime(2090, 1, 31, 8, 0, 1, 234_567, tzinfo=UTC)
    job = lite["add"].recur(
        "x", every="90s", args={"x": 1}, start_at=start, jitter=timedelta(days=1, seconds=61, microseconds=5), grace=0
    )
    before = job.refresh().record
    browser = people(lite)
    form = form_on(browser, f"/schedules/{job.id}", "/edit")
    assert (form.values["start_at"], form.values["jitter"], form.values["grace"]) == (
        "2090-01-31 08:00:01.234567", "1d1m1s5us", "0s",
    )  # fmt: skip
    edited(browser, job, description="new")
    assert (job.record.rule, job.record.grace_us, job.record.description) == (before.rule, 0, "new")


def test_a_time_that_comes_twice_is_shown_with_its_offset(lite: Duly) -> None:
    browser = people(lite)
    job = made_by(lite, browser, start_at="2090-10-29 02:30+01:00", until="2091-10-28 02:30")
    assert (job.schedule.start_us, job.schedule.until_us) == (us(2090, 10, 29, 1, 30), us(2091, 10, 28, 0, 30))
    form = form_on(browser, f"/schedules/{job.id}", "/edit")
    assert (form.values["start_at"], form.values["until"]) == ("2090-10-29 02:30+01:00", "2091-10-28 02:30")
    edited(browser, job, until="2092-01-01")
    assert (job.schedule.start_us, job.schedule.until_us) == (us(2090, 10, 29, 1, 30), us(2091, 12, 31, 23))


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31 23:59", "2090-01-01T00:00:00.1234567Z", "24:00", "²"])
def test_times_at_the_edge_are_answered(lite: Duly, text: str) -> None:
    browser = people(lite)
    for zone in ("Asia/Tokyo", "America/New_York"):
        for name in ("start_at", "until"):
            answer = post(
                browser, form_on(browser, "/schedules/new", "/new"), **{**BERLIN, "timezone": zone, name: text}
            )
            assert answer.status_code in (200, 303)
            if answer.status_code == 303:
                job = lite.recurring_by_id(answer.headers["location"].rsplit("/", 1)[-1])
                assert form_on(browser, f"/schedules/{job.id}", "/edit").values[name]
                job.delete()


def test_without_a_rule_the_code_decides(jobs: Duly) -> None:
    browser = people(jobs)
    job = made_by(jobs, browser, rules="", no_rule="yes")
    assert job.schedule.rules == ()
    form = form_on(browser, f"/schedules/{job.id}", "/edit")
    assert form.is_open["more"]
    edited(browser, job, name="Still none")
    assert (job.schedule.rules, job.name) == ((), "Still none")
    del form.values["no_rule"]
    assert post(browser, form, rules="@hourly").status_code == 303
    assert job.refresh().schedule.rules == ("@hourly",)
    edited(browser, job, rules="", no_rule="yes")
    assert job.schedule.rules == ()


def test_what_is_usual_after_a_failure_follows_the_rule(lite: Duly) -> None:
    browser = people(lite)
    job = made_by(lite, browser)
    assert job.record.failure == "advance"
    assert edited(browser, job, rules="@every 5m").record.failure == "backoff"
    assert edited(browser, job, rules="@daily", failure="backoff").record.failure == "backoff"
    assert edited(browser, job, rules="@weekly").record.failure == "backoff"
    assert edited(browser, job, failure="").record.failure == "advance"


def test_a_field_that_is_not_sent_is_left_as_it_is(lite: Duly) -> None:
    browser = people(lite)
    job = made_by(lite, browser, grace="2h", jitter="1h", name="Sum")
    before = job.to_dict()
    form = form_on(browser, f"/schedules/{job.id}", "/edit")
    form.values = {"csrf_token": form.values["csrf_token"], "priority": "9"}
    assert post(browser, form).status_code == 303
    assert job.refresh().to_dict() == before | {"priority": 9}


def test_every_field_has_a_label(lite: Duly) -> None:
    browser = people(lite)
    form = form_on(browser, "/schedules/new", "/new")
    shown = {name for name, has in form.attributes.items() if has.get("type") != "hidden"}
    assert shown == set(LABELS) | {"enabled"}
    assert shown == form.labelled


# -- the preview ------------------------------------------------------------------------------------------------------


def asked(browser: Browser, **query: str) -> dict[str, Any]:
    answer = browser.get("/schedules/preview", **query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = json.loads(answer.text)
    return found


def test_the_preview_honours_every_option_about_times(jobs: Duly) -> None:
    browser = people(jobs)
    told = asked(
        browser, rules="0 9 * * *", timezone="Europe/Berlin", start_at="2090-12-24T09:00", until="2090-12-28T08:00",
        exclude="2090-12-25\n2090-12-26",
    )  # fmt: skip
    assert [at[:16] for at in told["times"]] == ["2090-12-24T08:00", "2090-12-27T08:00"]
    assert "not on 2090-12-25 and 2090-12-26" in told["text"]
    told = asked(browser, rules="@daily", start_at="2090-12-28T08:00", until="2090-12-24T09:00")
    assert told["wrong"]
    assert told["text"].startswith("“Not after” must be later than start")
    spring = {"rules": "30 2 * * *", "timezone": "Europe/Berlin", "start_at": "2090-03-25T12:00"}
    assert asked(browser, **spring)["times"][0][:16] == "2090-03-26T01:00"
    assert asked(browser, **spring, dst_gap="skip")["times"][0][:16] == "2090-03-27T00:30"
    assert asked(browser, no_rule="yes") == {"text": "when the handler decides", "times": [], "wrong": False}


def test_the_times_that_are_previewed_are_those_that_come(jobs: Duly) -> None:
    browser = people(jobs)
    given = {"rules": "@hourly", "timezone": "UTC", "jitter": "1h", "exclude": "2090-01-01"}
    told = asked(browser, **given, task="add", key="k", tenant="acme")
    job = made_by(jobs, browser, **given, key="k", tenant="acme")
    assert [each.isoformat() for each in job.next_times(5)] == told["times"]
    assert asked(browser, **given, of=job.id)["times"] == told["times"]
    assert asked(browser, **given, task="add", key="other")["times"] != told["times"]
    form = form_on(browser, f"/schedules/{job.id}", "/edit")
    answer = post(browser, form, step="preview", jitter="30m")
    assert "each key shifted by up to 30m" in answer.text
    assert Form(answer.text, "/edit").values["jitter"] == "30m"
    assert job.refresh().schedule.jitter_us == 3_600_000_000


def test_a_preview_tells_nothing_of_another_tenants_schedule(lite: Duly) -> None:
    theirs = lite["add"].recur("k", every="1h", args={"x": 1}, tenant="theirs")
    mine = people(lite, ("operate",), tenant="mine")
    assert mine.get("/schedules/preview", rules="@hourly", of=theirs.id).status_code == 404
    assert people(lite).get("/schedules/preview", rules="@hourly", of=theirs.id).status_code == 200


# -- the same over HTTP -----------------------------------------------------------------------------------------------


def test_the_api_takes_and_shows_the_same_options(jobs: Duly) -> None:
    api, path = browse(jobs), "/api/admin/scheduled-jobs"
    options = {
        "start_at": "2090-01-31T08:00:00+00:00", "until": "2091-01-31T08:00:00+00:00", "exclude": ["2090-12-25"],
        "jitter": 600, "dst_gap": "skip", "dst_overlap": "twice", "grace": 7200, "cap": 7, "failure": "backoff",
        "pause_after": 4,
    }  # fmt: skip
    made = api.ok(api.post(path, {"task": "add", "args": {"x": 1}, "cron_expression": "@daily", **options}), 201)
    assert {name: made[name] for name in options} == options
    assert api.ok(api.put(f"{path}/{made['id']}", {name: made[name] for name in options})) == made
    assert api.ok(api.put(f"{path}/{made['id']}", {"exclude": []}))["exclude"] == []
    assert api.ok(api.put(f"{path}/{made['id']}", {"rules": [], "failure": "advance"}))["rules"] == []
    query = {"expression": "@daily", "start_at": "2090-12-24T00:00:00Z", "exclude": "2090-12-25", "n": 2}
    times = api.ok(api.get(f"{path}/preview", **query))["times"]
    assert [at[:10] for at in times] == ["2090-12-24", "2090-12-26"]
