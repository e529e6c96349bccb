"""Payloads in every field that a job, tenant, schedule, error or log can carry, opened in Chromium: nothing runs."""

from __future__ import annotations

from typing import Any

from duly import Duly
from tests.web.payloads import PAYLOADS, Poisoned

Site = tuple[Duly, str]
TOUCH_EVERYTHING = """() => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  for (const element of document.querySelectorAll("main *")) {
    element.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
    if (element.focus) element.focus();
  }
}"""


def test_nothing_that_a_job_carries_runs(site: Site, tab_of: Any) -> None:
    jobs, address = site
    poisoned = Poisoned(jobs)
    assert len(PAYLOADS) >= 40
    tab = tab_of(address)
    outside: list[str] = []
    tab.page.on("request", lambda request: None if request.url.startswith(address) else outside.append(request.url))
    for path in poisoned.pages():
        tab.open(path)
        assert tab.page.evaluate("window.xss") is None, path
        tab.page.evaluate(TOUCH_EVERYTHING)
        assert tab.page.evaluate("window.xss") is None, path
        assert tab.violations == [], path
    assert outside == []
    not_found = "Failed to load resource: the server responded with a status of 40"
    assert [each for each in tab.wrong if not each.startswith(not_found)] == []
    text = tab.open(f"/jobs/{poisoned.job}").page.locator("main").inner_text()
    for payload in PAYLOADS[:24]:
        assert payload in text, payload


def test_nothing_that_comes_live_runs(site: Site, tab_of: Any) -> None:
    jobs, address = site
    tabs = [tab_of(address).open(path) for path in ("/", "/queues", "/workers", "/tenants", "/jobs")]
    for tab in tabs:
        tab.page.wait_for_selector(".pulse.on")
    Poisoned(jobs)
    tabs[0].says("is paused")
    for tab in tabs:
        tab.page.wait_for_timeout(300)
        assert tab.page.evaluate("window.xss") is None
        tab.check()
