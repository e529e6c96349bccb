"""Fills in a form of a page as a browser does: with all that it holds already, and what somebody writes into it."""

from __future__ import annotations

from html.parser import HTMLParser

import httpx

from tests.web.browser import HOST, Browser


class Form(HTMLParser):
    """The fields of one form of a page, and where it posts to; and what stands in elements with an id."""

    def __init__(self, html: str, ending: str) -> None:
        super().__init__(convert_charrefs=True)
        self.ending = ending
        self.action = ""
        self.values: dict[str, str] = {}
        self.attributes: dict[str, dict[str, str]] = {}
        self.labelled: set[str] = set()
        self.texts: dict[str, str] = {}
        self.is_open: dict[str, bool] = {}
        self._inside = False
        self._label = False
        self._area = ""
        self._select = ""
        self._id = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = has.get("action", "").endswith(self.ending)
            self.action = has["action"] if self._inside else self.action
        if not self._inside:
            return
        self._id = has.get("id", "") if tag == "p" else self._id
        if tag == "details":
            self.is_open[has.get("id", "")] = "open" in has
        if tag == "label":
            self._label = True
        name = has.get("name", "")
        if tag in ("input", "textarea", "select"):
            self.attributes[name] = has
            if self._label:
                self.labelled.add(name)
        if tag == "input" and (has.get("type") != "checkbox" or "checked" in has):
            self.values[name] = has.get("value", "")
        if tag == "textarea":
            self._area = name
            self.values[name] = ""
        if tag == "select":
            self._select = name
        if tag == "option" and ("selected" in has or self._select not in self.values):
            self.values[self._select] = has.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
        if tag == "label":
            self._label = False
        if tag == "p":
            self._id = ""
        if tag == "textarea":
            self._area = ""

    def handle_data(self, data: str) -> None:
        if self._area:
            self.values[self._area] += data
        if self._id:
            self.texts[self._id] = self.texts.get(self._id, "") + data


def form_on(browser: Browser, path: str, ending: str) -> Form:
    """The form of a page that posts to an address with this ending."""
    shown = browser.send("GET", path)
    assert shown.status_code == 200, shown.text
    form = Form(shown.text, ending)
    assert form.action, f"{path} has no form for {ending}"
    if "set-cookie" in shown.headers:
        browser.headers["cookie"] = shown.headers["set-cookie"].split(";")[0]
    return form


def post(browser: Browser, form: Form, **written: str) -> httpx.Response:
    """Write into a form and send it."""
    fields = {**form.values, "step": "save", **written}
    return browser.send("POST", form.action, data=fields, headers={"origin": f"http://{HOST}"})
