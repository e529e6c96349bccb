"""Every page in Chromium, wide and narrow, light and dark, with real data: nothing goes wrong, all can be read."""

from __future__ import annotations

from typing import Any

import pytest

from duly import Duly
from tests.web.chromium.conftest import served, until
from tests.web.seed import Seeded

PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "jobs that failed": "/jobs?state=failed&task=crawl.fetch",
    "jobs that are not there": "/jobs?text=nothing+like+it",
    "a job that failed": "/jobs/{failed}",
    "a job that runs": "/jobs/{running}",
    "a job that waits for a retry": "/jobs/{retrying}",
    "a job with a result": "/jobs/{sent}",
    "schedules": "/schedules",
    "a schedule": "/schedules/{daily}",
    "a schedule that fails": "/schedules/{broken}",
    "queues": "/queues",
    "workers": "/workers",
    "tenants": "/tenants",
    "alerts": "/alerts",
    "audit": "/audit",
    "a new job": "/jobs/new",
    "runs": "/runs",
    "a new schedule": "/schedules/new?task=feed.refresh",
    "a schedule being edited": "/schedules/{daily}/edit",
    "what holds what waits": "/why",
    "usage": "/usage?since=24h&by=tenant,task,queue&period=hour",
    "system": "/system",
    "a check-up": "/system/doctor",
}
QUIET = ("/alerts", "/audit", "/system", "/system/doctor")
"""Pages that do not change by themselves."""
MORE = ("/jobs/new", "/runs", "/schedules/new", "/why", "/usage", "/system", "/system/doctor")
Shown = tuple[Seeded, str]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_is_sound_and_readable(shown: Shown, tab_of: Any, width: int, scheme: str) -> None:
    seeded, address = shown
    tab = tab_of(address, width, scheme)
    for path in PAGES.values():
        tab.open(path.format(**seeded.ids))
        if "text=" not in path and path not in QUIET:
            tab.page.wait_for_selector(".pulse.on")
        tab.check()


@pytest.mark.parametrize("width", [1280, 390])
def test_empty_pages_are_sound_too(site: tuple[Duly, str], tab_of: Any, width: int) -> None:
    tab = tab_of(site[1], width)
    for path in ("/", "/jobs", "/schedules", "/queues", "/workers", "/tenants", "/alerts", "/audit", *MORE):
        tab.open(path).check()


@pytest.mark.parametrize("width", [1280, 390])
def test_what_opens_on_a_click_fits_and_can_be_read(shown: Shown, tab_of: Any, width: int) -> None:
    seeded, address = shown
    tab = tab_of(address, width)
    for path in ("/queues", "/tenants", f"/jobs/{seeded.ids['later']}"):
        tab.open(path)
        for n in range(min(3, tab.page.locator("details.drop").count())):
            tab.page.locator("details.drop > summary").nth(n).click()
            tab.check()
            pop = tab.page.locator("details.drop[open] > .pop").first.bounding_box()
            assert pop["x"] >= 0, path
            assert pop["x"] + pop["width"] <= width, path
            tab.page.keyboard.press("Escape")
            assert tab.page.locator("details.drop[open]").count() == 0


def test_the_theme_can_be_chosen_and_stays(shown: Shown, tab_of: Any) -> None:
    tab = tab_of(shown[1])

    def ground() -> str:
        colour: str = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return colour

    tab.open("/jobs")
    light = ground()
    tab.page.locator("#theme").click()
    tab.page.locator("#theme").click()
    dark = ground()
    assert light != dark
    tab.open("/queues")
    assert ground() == dark
    tab.page.locator("#theme").click()
    assert ground() == light
    tab.check()


def test_times_are_utc_or_local(shown: Shown, tab_of: Any) -> None:
    seeded, address = shown
    tab = tab_of(address, timezone_id="Asia/Kolkata").open(f"/jobs/{seeded.ids['sent']}")
    time = tab.page.locator("time.abs").first
    utc = time.inner_text()
    assert utc.endswith("UTC")
    tab.page.locator("#zone").click()
    assert time.inner_text().endswith("+05:30")
    assert time.inner_text() != utc
    assert "+05:30" in (tab.page.locator("time.rel").first.get_attribute("title") or "")


def test_the_keyboard_is_enough(shown: Shown, tab_of: Any) -> None:
    tab = tab_of(shown[1]).open("/jobs")
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.className") == "skip"
    tab.page.keyboard.press("Enter")
    assert tab.page.evaluate("document.activeElement.id") == "main"
    for _ in range(12):
        tab.page.keyboard.press("Tab")
        style, width = tab.page.evaluate(
            "[getComputedStyle(document.activeElement).outlineStyle, "
            "parseFloat(getComputedStyle(document.activeElement).outlineWidth)]"
        )
        assert style != "none", tab.page.evaluate("document.activeElement.outerHTML")
        assert width >= 1
    tab.open("/jobs")
    tab.page.keyboard.press("/")
    assert tab.page.evaluate("document.activeElement.id") == "search"
    tab.open("/jobs")
    tab.page.keyboard.press("j")
    tab.page.keyboard.press("j")
    tab.page.keyboard.press("k")
    first = tab.page.locator("#rows tbody td.main > a").first
    assert tab.page.evaluate("document.activeElement.href").endswith(first.get_attribute("href"))
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url("**/jobs/*-*")


def test_pages_are_whole_without_a_script(shown: Shown, tab_of: Any) -> None:
    seeded, address = shown
    tab = tab_of(address, java_script_enabled=False)
    for path in PAGES.values():
        tab.page.goto(address + path.format(**seeded.ids))
        assert tab.page.locator("h1").count() == 1
        assert tab.page.locator("button:visible", has_text="Auto").count() == 0
    assert not tab.wrong


def test_pages_live_and_act_under_a_prefix(lite: Duly, tab_of: Any) -> None:
    job = lite["add"].using(delay="1h").enqueue(1)
    with served(lite, "/deep/inside") as address:
        tab = tab_of(address)
        for path in ("/", "/jobs", f"/jobs/{job.id}", "/queues"):
            tab.open(path).page.wait_for_selector(".pulse.on")
            tab.check()
        tab.open(f"/jobs/{job.id}").click("Cancel")
        tab.says("Cancelled.")
        assert tab.page.url == f"{address}/jobs/{job.id}"
    assert job.refresh().state == "cancelled"


# -- live -------------------------------------------------------------------------------------------------------------


def test_the_overview_follows_what_happens(site: tuple[Duly, str], tab_of: Any) -> None:
    jobs, address = site
    tab = tab_of(address).open("/")
    value = tab.page.locator(".tiles .value").first
    assert value.inner_text() == "0"
    for n in range(3):
        jobs["add"].enqueue(n)
    until(lambda: value.inner_text() == "3")
    jobs.pause(queue="mail", reason="because")
    tab.says("Queue mail is paused")
    tab.check()


def test_lists_and_queues_follow_what_happens(site: tuple[Duly, str], tab_of: Any) -> None:
    jobs, address = site
    job = jobs["add"].enqueue(1)
    listed, queues, page = tab_of(address).open("/jobs"), tab_of(address).open("/queues"), tab_of(address)
    page.open(f"/jobs/{job.id}")
    waiting = queues.page.locator("[data-live='queue.default.waiting']")
    assert waiting.inner_text() == "1"
    for tab in (listed, queues, page):
        tab.page.wait_for_selector(".pulse.on")
    jobs.tick(1)
    until(lambda: listed.page.locator("tbody .badge:visible").first.inner_text() == "succeeded")
    until(lambda: waiting.inner_text() == "0")
    until(lambda: page.page.locator("h1 .badge").inner_text() == "succeeded")
    page.says("run 1 succeeded")
    page.check()


def test_a_job_that_ends_before_its_page_listens_is_shown_as_ended(site: tuple[Duly, str], tab_of: Any) -> None:
    jobs, address = site
    job = jobs["add"].enqueue(1)
    tab = tab_of(address)
    tab.page.route("**/live?*", lambda route: (jobs.tick(1), route.continue_()))
    tab.open(f"/jobs/{job.id}")
    tab.page.locator("h1 .badge.succeeded").wait_for()
    tab.check()


def test_progress_moves_while_one_looks(shown: Shown, tab_of: Any) -> None:
    seeded, address = shown
    tab = tab_of(address).open(f"/jobs/{seeded.ids['running']}")
    bar = tab.page.locator("progress")
    before = bar.evaluate("bar => bar.value")
    until(lambda: bar.evaluate("bar => bar.value") > before)
    tab.check()


def test_where_streams_are_held_back_the_page_asks_instead(site: tuple[Duly, str], tab_of: Any) -> None:
    jobs, address = site
    tab = tab_of(address)
    tab.page.route("**/live?*", lambda route: route.fulfill(status=503, body=""))
    tab.open("/")
    jobs["add"].enqueue(1)
    until(lambda: tab.page.locator(".tiles .value").first.inner_text() == "1")
