"""Every page over HTTP, without a browser: it is there, says what it should, as text, under the policy."""

from __future__ import annotations

import hashlib
import hmac
import html
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from duly import Backoff, Duly
from duly.web import Principal
from duly.web.pages import acts
from tests.helpers import opened
from tests.web.browser import HOST, Browser, serve
from tests.web.payloads import PAYLOADS, Poisoned
from tests.web.seed import Seeded

PAGES = (
    "/", "/jobs", "/runs", "/schedules", "/queues", "/why", "/workers", "/tenants", "/usage", "/alerts", "/audit",
    "/system", "/system/doctor",
)  # fmt: skip
FORMS = ("/jobs/new", "/schedules/new")


class Reader(HTMLParser):
    """Takes a page apart: its elements in order, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        return [a for name, a in self.elements if name == tag and wanted.items() <= a.items()]

    def check(self) -> None:
        """What holds for every page."""
        for tag, attributes in self.elements:
            assert "style" not in attributes, (tag, attributes)
            assert tag != "style"
            assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
            for name in ("href", "src", "action", "formaction"):
                assert re.match(r"(/|#|\?)(?!/)", attributes.get(name, "/")), (tag, attributes)
        assert all(script.get("src") for script in self.all("script"))
        assert self.all("html")[0]["lang"] == "en"
        assert len(self.all("main")) == 1
        assert len(self.all("h1")) == 1
        for form in self.all("form", method="post"):
            assert form["action"]
        ids = [a["id"] for _, a in self.elements if "id" in a]
        assert len(ids) == len(set(ids))


@pytest.fixture
def seeded(database_url: str) -> Iterator[Seeded]:
    """Jobs in every state, run by a worker."""
    with opened(database_url) as jobs:
        seeded = Seeded(jobs)
        seeded.fill()
        with seeded.working():
            yield seeded


def people(jobs: Duly, scopes: tuple[str, ...] = ("admin",), tenant: str | None = None, **options: object) -> Browser:
    """A client that the application lets in, as a person with a browser."""
    browser = Browser(serve(jobs, auth=lambda request: Principal.make("alice", scopes, tenant), **options))
    browser.headers = {"accept": "text/html"}
    return browser


def read(browser: Browser, path: str, status: int = 200) -> Reader:
    answer = browser.send("GET", path)
    assert answer.status_code == status, answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    page = Reader(answer.text)
    page.check()
    return page


def submit(browser: Browser, page_path: str, action: str, **fields: str | list[str]) -> str:
    """Post a form of a page as a browser does, with its token; returns where it leads."""
    shown = browser.send("GET", page_path)
    cookie = shown.headers.get("set-cookie", "").split(";")[0]
    page = Reader(shown.text)
    assert page.all("form", method="post", action=action), f"{page_path} has no form for {action}"
    token = page.all("input", name="csrf_token")[0]["value"]
    headers = {"origin": f"http://{HOST}", "cookie": cookie}
    answer = browser.send("POST", action, data={"csrf_token": token, "back": page_path, **fields}, headers=headers)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def test_every_page_shows_what_there_is(seeded: Seeded) -> None:
    browser, ids = people(seeded.jobs), seeded.ids
    assert "Needs attention" in read(browser, "/").text
    assert "13 jobs wait for a worker" in read(browser, "/").text
    assert len(read(browser, "/").all("svg", role="img")) == 4
    assert "mail.send" in read(browser, "/jobs").text
    assert "did not answer within 10 s" in read(browser, "/jobs?state=failed").text
    failed = read(browser, f"/jobs/{ids['failed']}").text
    for words in ("attempts used up", "run 3 failed", "Traceback", "GET https://down.example.net/", "globex"):
        assert words in failed
    sent = read(browser, f"/jobs/{ids['sent']}").text
    assert '"accepted": true' in sent
    assert "250 OK, queued" in sent
    running = read(browser, f"/jobs/{ids['running']}")
    assert running.all("progress")
    schedules = read(browser, "/schedules").text
    assert "at 03:30 every day, Europe/Berlin" in schedules
    assert "every 10m" in schedules
    schedule = read(browser, f"/schedules/{ids['daily']}")
    assert len(schedule.all("time")) >= 10
    assert "the mail server is being moved" in read(browser, "/queues").text
    workers = read(browser, "/workers").text
    assert "alive" in workers
    assert re.search(r"Memory [\d,]+ MB", workers)
    assert "acme" in read(browser, "/tenants").text
    assert "changed our mind" in read(browser, "/audit").text


@pytest.mark.requirement("C10")
def test_a_job_page_says_how_often_by_whom_and_when(seeded: Seeded) -> None:
    browser, ids = people(seeded.jobs), seeded.ids
    sent = read(browser, f"/jobs/{ids['sent']}").text
    for words in ("Last run took", "by cron", "Runs 1 of 5", "Last started", "Ended"):
        assert words in sent
    waits = read(browser, f"/jobs/{ids['retrying']}").text
    for words in ("Next retry", "Runs 1 of 5", "Last started", "was declined"):
        assert words in waits


def test_a_job_page_says_why_the_job_does_not_run(jobs: Duly) -> None:
    job = jobs["send"].enqueue("ada")
    assert "No worker" in read(people(jobs), f"/jobs/{job.id}").text
    jobs.pause(queue="mail", reason="moving")
    page = read(people(jobs), f"/jobs/{job.id}").text
    assert "Why it is not running" in page
    assert "moving" in page
    later = jobs["add"].using(delay="1h").enqueue(1)
    assert "Why it is not running" in read(people(jobs), f"/jobs/{later.id}").text
    later.cancel()
    assert "Why it is not running" not in read(people(jobs), f"/jobs/{later.id}").text


def test_a_page_that_is_not_there_is_a_page(lite: Duly) -> None:
    assert "Nothing here" in read(people(lite), "/jobs/0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12", 404).text
    assert "That does not work" in read(people(lite), "/jobs?state=nonsense", 400).text
    assert "there is nothing here" in read(people(lite), "/nothing/of/the/kind", 404).text
    assert people(lite).send("GET", "/api/nothing").headers["content-type"] == "application/json"


def test_empty_pages_say_what_to_do_first(lite: Duly) -> None:
    browser = people(lite)
    assert "duly enqueue app.py add" in read(browser, "/").text
    assert "duly enqueue app.py" in read(browser, "/jobs").text
    assert "@jobs.recurring" in read(browser, "/schedules").text
    assert "duly worker app.py" in read(browser, "/workers").text
    assert 'using(tenant="acme")' in read(browser, "/tenants").text
    for page in (*PAGES, *FORMS):
        read(browser, page)


def test_pages_work_under_any_prefix(lite: Duly) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    job = lite["add"].enqueue(1)
    browser = people(lite)
    browser.app = Starlette(routes=[Mount("/ops/jobs", browser.app)])
    browser.prefix = "/ops/jobs"
    for page in (*PAGES, *FORMS, f"/jobs/{job.id}"):
        shown = read(browser, page)
        for tag, attributes in shown.elements:
            for name in ("href", "src", "action"):
                target = attributes.get(name, "#")
                assert target.startswith(("/ops/jobs/", "#")), (page, tag, attributes)
    assert browser.send("GET", "/static/duly.css").status_code == 200


def test_the_job_page_says_when_the_job_recurs_and_when_it_does_not(lite: Duly) -> None:
    recurring = lite["add"].recur("x", every="1h", args={"x": 1})
    assert "its schedule" in read(people(lite), f"/jobs/{recurring.id}").text


# -- actions ----------------------------------------------------------------------------------------------------------


def test_a_form_without_a_script_cancels_a_job(jobs: Duly) -> None:
    job = jobs["add"].using(delay="1h").enqueue(1)
    where = submit(people(jobs), f"/jobs/{job.id}", f"/jobs/{job.id}/cancel", reason="not needed")
    assert where == f"/jobs/{job.id}"
    assert job.refresh().state == "cancelled"
    assert [(each.action, each.who, each.reason) for each in jobs.audit()] == [("cancel", "alice", "not needed")]


@pytest.mark.parametrize("verb,fields", [("priority", {"priority": "77"}), ("boost", {}), ("time", {"delay": "2h"})])
def test_a_form_changes_a_job_that_waits(lite: Duly, verb: str, fields: dict[str, str]) -> None:
    job = lite["add"].using(delay="1h", priority=5).enqueue(1)
    before = job.refresh().run_at
    submit(people(lite), f"/jobs/{job.id}", f"/jobs/{job.id}/{verb}", **fields)
    job.refresh()
    assert job.priority == {"priority": 77, "boost": 15, "time": 5}[verb]
    assert (job.run_at != before) == (verb == "time")


def test_a_form_runs_a_copy(lite: Duly) -> None:
    job = lite["add"].using(priority=7).enqueue(1)
    where = submit(people(lite), f"/jobs/{job.id}", f"/jobs/{job.id}/copy")
    copy = lite.get(where.removeprefix("/jobs/"))
    assert copy.id != job.id
    assert (copy.args, copy.priority, copy.enqueued_by) == (job.args, 7, "alice")


def test_what_cannot_be_done_is_said_on_the_page_that_it_came_from(lite: Duly) -> None:
    job = lite["add"].using(delay="1h").enqueue(1)
    browser = people(lite)
    shown = browser.send("GET", f"/jobs/{job.id}")
    token = Reader(shown.text).all("input", name="csrf_token")[0]["value"]
    cookie = shown.headers["set-cookie"].split(";")[0]
    lite.cancel(job.id)
    headers = {"origin": f"http://{HOST}", "cookie": cookie}
    fields = {"csrf_token": token, "back": f"/jobs/{job.id}"}
    answer = browser.send("POST", f"/jobs/{job.id}/cancel", data=fields, headers=headers)
    assert answer.status_code == 303
    said = next(each for each in answer.headers.get_list("set-cookie") if each.startswith("duly_said="))
    page = browser.send("GET", f"/jobs/{job.id}", headers={"cookie": said.split(";")[0]})
    assert "has already ended: it is cancelled" in html.unescape(page.text)
    assert "duly_said=; " in page.headers.get_list("set-cookie")[-1] or any(
        each.startswith("duly_said=;") for each in page.headers.get_list("set-cookie")
    )


def test_many_jobs_are_counted_before_anything_is_done(jobs: Duly) -> None:
    for n in range(7):
        jobs["add"].using(delay="1h", tenant="a" if n < 5 else "b").enqueue(n)
    browser = people(jobs)
    shown = browser.send("GET", "/jobs?tenant=a&state=scheduled")
    cookie = shown.headers["set-cookie"].split(";")[0]
    token = Reader(shown.text).all("input", name="csrf_token")[0]["value"]
    headers = {"origin": f"http://{HOST}", "cookie": cookie}
    fields = {"csrf_token": token, "deed": "cancel", "all": "1", "tenant": "a", "state": "scheduled", "back": "/jobs"}
    counted = browser.send("POST", "/jobs/bulk", data=fields, headers=headers)
    assert "Cancel 5 jobs?" in Reader(counted.text).text
    assert jobs.counts().ended == {}
    done = browser.send("POST", "/jobs/bulk", data={**fields, "sure": "yes"}, headers=headers)
    assert done.status_code == 303
    assert jobs.counts().ended == {"cancelled": 5}


def test_nobody_is_sent_to_another_site_after_an_action(lite: Duly) -> None:
    job = lite["add"].using(delay="1h").enqueue(1)
    for back in ("//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"):
        where = submit(people(lite), f"/jobs/{job.id}", f"/jobs/{job.id}/boost", back=back)
        assert where == "/"


def test_who_may_only_read_sees_no_button_and_can_do_nothing(lite: Duly) -> None:
    job = lite["add"].using(delay="1h").enqueue(1)
    recurs = lite["add"].recur("x", every="1h", args={"x": 1})
    filled = {
        "id": job.id, "priority": "5", "status": "failed", "deed": "retry", "scope": "queue", "name": "x",
        "weight": "2", "task": "add", "args": '{"x": 1}', "rules": "@daily", "rule": "depth", "concurrency": "1",
        "aging": "strict",
    }  # fmt: skip
    for browser in (people(lite, ("read",)), people(lite, read_only=True)):
        for page in (*PAGES, f"/jobs/{job.id}"):
            assert not read(browser, page).all("form", method="post"), page
        for page in FORMS:
            read(browser, page, 403)
        shown = browser.send("GET", "/")
        cookie = shown.headers["set-cookie"].split(";")[0]
        # The token of this session is right, and it does not help.
        token = hmac.new(cookie.split("=")[1].encode(), b"duly csrf", hashlib.sha256).hexdigest()
        for path in acts():
            answer = browser.send(
                "POST",
                path.replace("{id}", recurs.id if path.startswith("/schedules") else job.id),
                data={"csrf_token": token, "back": "/jobs", **filled},
                headers={"origin": f"http://{HOST}", "cookie": cookie},
            )
            assert answer.status_code == 403, (path, answer.text)
    assert job.refresh().state == "scheduled"
    assert (lite.audit(), lite.tokens(), len(lite.list()), len(lite.recurring_jobs())) == ([], [], 2, 1)


def test_a_tenant_sees_nothing_of_others(lite: Duly) -> None:
    mine = lite["add"].using(delay="1h", tenant="mine").enqueue(1)
    other = lite["add"].using(delay="1h", tenant="secretcorp").enqueue(4711)
    lite["add"].recur("secretkey", every="1h", args={"x": 4711}, tenant="secretcorp")
    lite.cancel(other.id, "secretcorp reason")
    lite.pause(tenant="secretcorp")
    browser = people(lite, ("operate",), tenant="mine")
    pages = (
        "/",
        "/jobs",
        "/jobs/new",
        "/runs",
        "/schedules",
        "/schedules/new",
        "/queues",
        "/why",
        "/tenants",
        "/usage",
    )
    for page in (*pages, "/audit", f"/jobs/{mine.id}"):
        shown = browser.send("GET", page)
        assert shown.status_code == 200, page
        assert "secret" not in shown.text, page
        assert "4711" not in shown.text, page
    read(browser, f"/jobs/{other.id}", 404)
    for page in ("/workers", "/alerts", "/system", "/system/doctor"):
        read(browser, page, 403)
    told = browser.send("GET", f"/live.json?page=overview&watch={other.id},{mine.id}").json()
    assert told["jobs"][other.id] is None
    assert told["jobs"][mine.id]["state"] == "scheduled"


def test_hidden_fields_are_hidden_on_every_page(lite: Duly) -> None:
    job = lite["send"].enqueue("nobody", password="swordfish")
    lite.tick(1)
    browser = people(lite, redact=["password"])
    for page in ("/", "/jobs", f"/jobs/{job.id}", "/jobs?state=failed", "/audit"):
        assert "swordfish" not in browser.send("GET", page).text, page
    assert "•••" in browser.send("GET", f"/jobs/{job.id}").text
    again = lite["send"].using(max_attempts=3, retry=Backoff.fixed("1h", max_attempts=3)).enqueue("nobody", "swordfish")
    lite.tick(1)
    assert again.refresh().state == "scheduled"
    shown = browser.send("GET", f"/jobs/{again.id}").text
    assert "swordfish" not in shown
    assert "no such address: nobody" in shown


# -- live -------------------------------------------------------------------------------------------------------------


def test_many_tabs_cost_the_database_one_read(jobs: Duly) -> None:
    import asyncio

    app = people(jobs).app
    hub = app.state.web.hub

    async def look() -> None:
        await asyncio.gather(*(hub.look(None) for _ in range(50)))

    asyncio.run(look())
    asyncio.run(look())
    assert hub.reads == 1


def test_a_tab_that_asks_for_a_job_that_is_gone_costs_no_read_of_its_own(lite: Duly) -> None:
    job = lite["add"].enqueue(1)
    browser = people(lite)
    hub = browser.app.state.web.hub
    lite.delete(job.id)
    for _ in range(5):
        assert browser.send("GET", f"/live.json?page=jobs&watch={job.id}").json()["jobs"] == {job.id: None}
    assert hub.reads <= 2


def test_what_is_live_is_what_the_page_shows(lite: Duly) -> None:
    lite["add"].using(tenant="t").enqueue(1)
    browser = people(lite)
    for page in ("overview", "jobs", "queues", "workers", "tenants"):
        told = browser.send("GET", f"/live.json?page={page}").json()
        assert set(told) == {"texts", "html", "jobs", "otherwise", "again_in"}
        path = "/" if page == "overview" else f"/{page}"
        shown = read(browser, path)
        places = [a["data-live"] for _, a in shown.elements if "data-live" in a]
        parts = [a["data-live-html"] for _, a in shown.elements if "data-live-html" in a]
        assert places or parts
        assert {each for each in parts if not each.startswith("queue.mail")} <= set(told["html"]), page
        for each in places:
            assert each in told["texts"] or each.rsplit(".")[-1] in told["otherwise"], (page, each)
        for piece in told["html"].values():
            Reader(piece)


def test_a_stream_tells_at_once_how_things_stand(lite: Duly) -> None:
    import asyncio

    from duly.web.pages.live import Tab, _stream

    lite["add"].enqueue(1)
    hub = people(lite).app.state.web.hub

    async def first() -> str:
        stream = _stream(hub, Tab("overview", None, "", (), False))
        assert "retry" in await anext(stream)
        said = await anext(stream)
        assert hub.streams == 1
        await stream.aclose()
        return said

    said = asyncio.run(first())
    assert json.loads(said.removeprefix("data: "))["texts"]["state.queued"] == "1"
    assert hub.streams == 0


# -- nothing that a job carries is ever markup ------------------------------------------------------------------------


def test_what_jobs_carry_is_shown_as_text_on_every_page(lite: Duly) -> None:
    poisoned = Poisoned(lite)
    browser = people(lite)
    for path in poisoned.pages():
        answer = browser.send("GET", path)
        assert answer.status_code in (200, 404, 405), (path, answer.status_code)
        if answer.headers["content-type"] == "application/json":  # what no page answers to
            continue
        page = Reader(answer.text)
        page.check()
        assert not [a for tag, a in page.elements if tag in ("img", "iframe", "object", "math", "base", "marquee")]
        for name in ("xss", "data-xss"):
            assert not [a for _, a in page.elements if name in a], path
    shown = html.unescape(browser.send("GET", f"/jobs/{poisoned.job}").text)
    for payload in PAYLOADS:
        assert payload.split("\n")[0] in shown or json.dumps(payload)[1:-1] in shown, payload


def test_no_template_and_no_script_takes_text_for_markup() -> None:
    """The ways around escaping are not used at all."""
    import duly.web

    folder = Path(duly.web.__file__).parent
    ways = (
        "|safe",
        "| safe",
        "autoescape false",
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
    )
    looked = 0
    for file in (*folder.glob("templates/*.html"), *folder.glob("static/*.js")):
        text = file.read_text()
        looked += 1
        assert not [way for way in ways if way in text], file.name
        assert "style=" not in text, file.name
        assert "<script>" not in text, file.name
    assert looked > 15


def test_nothing_comes_from_elsewhere() -> None:
    """What pages load is ours: no address of another server in templates, styles or scripts."""
    import duly.web

    folder = Path(duly.web.__file__).parent
    for file in (*folder.glob("templates/*.html"), *folder.glob("static/*")):
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", text), file.name
