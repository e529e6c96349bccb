"""The crawler as its operators run it: a server process, worker processes, a site, and nothing but HTTP between."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest

from examples.crawler.fetch import link_to, parse, wait_of
from examples.crawler.site import Site
from tests.helpers import eventually, never

ROOT = Path(__file__).parents[2]
RUNNING = re.compile(r"Uvicorn running on (http://127\.0\.0\.1:\d+)")
JOBS, SCHEDULED = "/api/admin/jobs", "/api/admin/scheduled-jobs"
TOKEN = "the operator's"
ENDED = ("succeeded", "failed", "cancelled")


class Crawler:
    """The application on one database, seen over HTTP. Every answer of the API is held against its description."""

    def __init__(self, url: str, folder: Path) -> None:
        self.log = folder / "crawler.log"
        self.environment = {
            **os.environ,
            "DULY_URL": url,
            "DULY_TOKEN": TOKEN,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
            "CRAWLER_RATE": "100/s",
        }
        self.http = httpx.Client(timeout=10, trust_env=False)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.described: dict[str, Any] = {}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *words], cwd=ROOT, env=self.environment, stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def serve(self) -> None:
        """Start the server as the README says, on a free port."""
        self.start("uvicorn", "--port", "0", "examples.crawler.app:app")
        [address] = eventually(lambda: RUNNING.findall(self.log.read_text()), within=30)
        self.http.base_url = httpx.URL(address)
        self.http.headers["authorization"] = f"Bearer {TOKEN}"
        self.described = self.http.get("/api/openapi.json").json()

    def work(self) -> subprocess.Popen[bytes]:
        """Start a worker as the README says. The sweep runs as soon as the first one is there."""
        process = self.start("duly", "worker", "examples.crawler.crawl:jobs")
        self.until(lambda: process.pid in {each["pid"] for each in self.api("GET", "/api/admin/workers")["items"]})
        self.until(lambda: [each["last_outcome"] for each in self.sweeps()] == ["succeeded"])
        return process

    def sweeps(self) -> list[dict[str, Any]]:
        return list(self.api("GET", f"{SCHEDULED}?task=sweep:crawl")["items"])

    def close(self) -> None:
        self.http.close()
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            process.wait(30)

    # -- the admin API ----------------------------------------------------------------------------------------

    def api(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        """Send a request; its answer must be of that status and have the shape that is described."""
        answer = self.http.request(method, path, **({} if body is None else {"json": body}))
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        described = self.described["paths"][self._template(path)][method.lower()]["responses"][str(status)]
        if "$ref" in described:
            described = self.described["components"]["responses"][str(status)]
        shape = described["content"]["application/json"]["schema"]
        jsonschema_rs.validate({**shape, "components": self.described["components"]}, answer.json())
        return answer.json()

    def _template(self, path: str) -> str:
        """The path as the description has it."""
        path = path.partition("?")[0]
        if path in self.described["paths"]:
            return path
        templates = [each for each in self.described["paths"] if "{" in each]
        [found] = [each for each in templates if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", each), path)]
        return str(found)

    def until(self, condition: Callable[[], Any], within: float = 30.0) -> Any:
        """Wait for something that is asked for over HTTP."""
        return eventually(condition, within=within, every=0.05)

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self.api("GET", f"{JOBS}/{job_id}"))

    def jobs(self, status: str) -> list[dict[str, Any]]:
        return list(self.api("GET", f"{JOBS}?status={status}")["items"])

    def stats(self) -> dict[str, Any]:
        return dict(self.api("GET", f"{JOBS}/stats"))

    def ended(self, job_id: str) -> dict[str, Any]:
        """Wait for a job to end and return how."""
        self.until(lambda: self.job(job_id)["state"] in ENDED)
        return self.job(job_id)

    def retrying(self, job_id: str, *, attempts: int) -> dict[str, Any]:
        """Wait until so many runs of a job have failed and return it."""
        self.until(lambda: (job := self.job(job_id))["state"] == "scheduled" and job["attempts"] == attempts)
        return self.job(job_id)

    def hold(self, site: Site) -> None:
        """Let nothing of a host start."""
        self.api("PUT", "/api/admin/paused", {"scope": "key", "name": key_of(site), "reason": "a test"})

    def let_go(self, site: Site) -> None:
        opened = self.api("DELETE", "/api/admin/paused", {"scope": "key", "name": key_of(site)})
        assert opened["was_paused"] is True

    def found_by_a_link(self, url: str, **options: Any) -> str:
        """Enqueue a page as links and the sweep do: once, with priority 0."""
        body = {"task": "crawl", "args": {"url": url}, "unique": True, **options}
        return str(self.api("POST", "/api/jobs", body, status=201)["id"])

    # -- the application's own paths --------------------------------------------------------------------------

    def ask_for(self, url: str) -> tuple[str, bool]:
        answer = self.http.post("/api/crawl", json={"url": url})
        assert answer.status_code == 202, answer.text
        return answer.json()["job_id"], answer.json()["created"]

    def pages(self) -> dict[str, dict[str, Any]]:
        return {page["url"]: page for page in self.http.get("/api/pages").json()}

    def crawled(self) -> set[str]:
        return {url for url, page in self.pages().items() if page["crawled_at"]}


def key_of(site: Site) -> str:
    return f"crawl/{site.url.removeprefix('http://')}"


def nothing_is_asked(site: Site, *, within: float) -> None:
    count = len(site.began)
    never(lambda: len(site.began) > count, within)


@pytest.fixture
def crawler(database_url: str, tmp_path: Path) -> Iterator[Crawler]:
    """The application, with a server and no worker yet."""
    crawler = Crawler(database_url, tmp_path)
    try:
        crawler.serve()
        yield crawler
    finally:
        crawler.close()


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture
def other_site() -> Iterator[Site]:
    with Site() as site:
        yield site


# -- crawling -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C3", "C8", "C9", "C10")
def test_a_site_is_crawled_politely_and_each_page_once(crawler: Crawler, site: Site) -> None:
    crawler.environment["CRAWLER_RATE"] = "5/s"
    names = [f"/{n}" for n in range(6)]
    site.add("/", *names, "/#top", "mailto:ann@example.org", "https://elsewhere.example.org/")
    for name in names:
        site.add(name, "/", *names, "/deep")
    site.add("/deep", seconds=0.05)
    crawler.work()
    crawler.work()
    first, created = crawler.ask_for(f"{site.url}/#top")
    assert created

    wanted = {f"{site.url}{path}" for path in ("/", "/deep", *names)}
    crawler.until(lambda: crawler.crawled() == wanted)
    assert sorted(site.began) == sorted(["/", "/deep", *names])
    in_turn = sorted(site.asked, key=lambda each: each.at)
    assert all(before.ended <= after.at for before, after in pairwise(in_turn))
    assert in_turn[-1].at - in_turn[0].at >= 7 / 5 - 0.1
    assert crawler.pages()[f"{site.url}/deep"]["title"] == "Page /deep"

    crawler.until(lambda: crawler.stats()["completed"] == 8)
    stats = crawler.stats()
    assert (stats["queued"], stats["running"], stats["failed"], stats["scheduled"]) == (0, 0, 0, 1)  # the sweep recurs
    done = {job["args"]["url"]: job for job in crawler.jobs("success")}
    assert done.keys() == wanted
    asked, found = done[f"{site.url}/"], done[f"{site.url}/deep"]
    assert (asked["id"], asked["priority"], asked["enqueued_by"]) == (first, 60, "somebody")
    assert (found["priority"], found["enqueued_by"], found["retry_count"], found["max_retries"]) == (0, "crawl", 0, 3)
    assert found["duration_ms"] >= 50
    [run] = crawler.api("GET", f"{JOBS}/{first}/runs")["items"]
    assert (run["outcome"], run["result"]) == ("succeeded", 6)
    page = crawler.api("GET", f"{JOBS}?status=completed&limit=3&offset=6")
    assert len(page["items"]) == 2
    for wrong in ("", "[]", "{}", '{"url": "ftp://example.org/"}', '{"url": "http://[1"}', '{"url": "http://"}'):
        assert crawler.http.post("/api/crawl", content=wrong).status_code == 400


@pytest.mark.requirement("C3", "C14")
def test_a_page_has_one_pending_crawl_whoever_asks_for_it(crawler: Crawler, site: Site) -> None:
    site.add("/", "/a", "/b")
    site.add("/a")
    site.add("/b")
    crawler.work()
    crawler.hold(site)
    waiting = crawler.found_by_a_link(f"{site.url}/a")
    assert crawler.found_by_a_link(f"{site.url}/a") == waiting
    assert crawler.job(waiting)["priority"] == 0
    assert crawler.ask_for(f"{site.url}/a#part") == (waiting, False)
    assert crawler.job(waiting)["priority"] == 60, "whoever waits for it is not put off with the place it had"
    root, created = crawler.ask_for(f"{site.url}/")
    assert created
    assert crawler.stats()["queued"] == 2
    crawler.let_go(site)
    crawler.until(lambda: len(crawler.crawled()) == 3)
    assert sorted(site.began) == ["/", "/a", "/b"]
    assert crawler.ended(root)["state"] == "succeeded"
    assert crawler.ask_for(f"{site.url}/") != (root, False), "what has ended does not keep a page from being crawled"


# -- order ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C1", "C9")
def test_operators_change_the_order(crawler: Crawler, site: Site) -> None:
    for name in "abcdefg":
        site.add(f"/{name}")
    crawler.work()
    crawler.hold(site)
    ids = {name: crawler.found_by_a_link(f"{site.url}/{name}") for name in "abcdefg"}
    assert crawler.api("PUT", f"{JOBS}/{ids['c']}/priority", {"priority": 50})["priority"] == 50
    assert crawler.api("POST", f"{JOBS}/{ids['d']}/boost", {"boost": 20})["priority"] == 20
    assert crawler.api("POST", f"{JOBS}/{ids['e']}/boost", {"boost": 90})["priority"] == 90
    assert crawler.api("POST", f"{JOBS}/{ids['e']}/boost", {"boost": 90})["priority"] == 100
    crawler.api("PUT", f"{JOBS}/{ids['a']}/priority", {"priority": 101}, status=400)
    assert crawler.api("PUT", f"{JOBS}/{ids['f']}/status", {"status": "success"})["state"] == "succeeded"
    by_hand = {"job_ids": [ids["g"]], "status": "failed"}
    assert crawler.api("PUT", f"{JOBS}/bulk/status", by_hand)["count"] == 1
    crawler.api("PUT", f"{JOBS}/{ids['a']}/status", {"status": "crawling"}, status=409)
    assert {job["id"] for job in crawler.jobs("queued")} == {ids[name] for name in "abcde"}
    assert [job["id"] for job in crawler.jobs("failed")] == [ids["g"]]

    crawler.let_go(site)
    crawler.until(lambda: crawler.stats()["completed"] == 6)
    assert site.began == ["/e", "/c", "/d", "/a", "/b"]


@pytest.mark.requirement("C1", "C2")
def test_a_page_that_waits_for_long_overtakes_younger_ones(crawler: Crawler, site: Site) -> None:
    for name in ("old", "young", "urgent"):
        site.add(f"/{name}")
    queue = "/api/admin/queues/crawl"
    crawler.work()
    crawler.until(lambda: crawler.http.get(queue).status_code == 200)
    assert crawler.api("GET", queue)["aging_seconds"] == 110 * 60
    assert crawler.api("PUT", queue, {"aging": "40s"})["aging_seconds"] == 40
    crawler.hold(site)
    old = crawler.found_by_a_link(f"{site.url}/old")
    crawler.until(lambda: crawler.job(old)["effective_priority"] >= 6)  # after 2.4 seconds
    young = crawler.found_by_a_link(f"{site.url}/young", priority=3)
    urgent, _ = crawler.ask_for(f"{site.url}/urgent")
    assert crawler.job(old)["priority"] == 0
    crawler.let_go(site)
    assert [crawler.ended(each)["state"] for each in (old, young, urgent)] == ["succeeded"] * 3
    assert site.began == ["/urgent", "/old", "/young"]


# -- failures -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C4", "C5", "C8", "C9", "C10")
def test_a_page_that_fails_is_tried_again_ever_later_and_then_given_up(crawler: Crawler, site: Site) -> None:
    site.add("/", trouble=(500, 503, 500, 502))
    crawler.work()
    job_id, _ = crawler.ask_for(f"{site.url}/")
    for retry, (soonest, latest) in enumerate([(48, 72), (96, 144), (192, 288)]):
        job = crawler.retrying(job_id, attempts=retry + 1)
        run = crawler.api("GET", f"{JOBS}/{job_id}/runs")["items"][0]
        wait = moment(job["next_retry_at"]) - moment(run["finished_at"])
        assert timedelta(seconds=soonest) <= wait <= timedelta(seconds=latest), job
        assert (job["state"], job["last_outcome"], job["last_attempt_at"]) == ("scheduled", "failed", run["started_at"])
        assert "HTTP Error 50" in job["last_error"]
        assert len(site.began) == retry + 1
        nothing_is_asked(site, within=0.3)
        crawler.api("PUT", f"{JOBS}/{job_id}/run-at", {"delay": 0})
    failed = crawler.ended(job_id)
    assert (failed["state"], failed["attempts"], failed["retry_count"], failed["max_retries"]) == ("failed", 4, 3, 3)
    assert failed["last_error"] == "urllib.error.HTTPError: HTTP Error 502: Bad Gateway"
    assert crawler.stats()["failed"] == 1

    again = crawler.api("POST", f"{JOBS}/{job_id}/retry")
    assert (again["retry_count"], again["state"]) == (0, "queued") or again["state"] in ("running", "succeeded")
    well = crawler.ended(job_id)
    assert (well["state"], well["attempts"], well["retry_count"]) == ("succeeded", 1, 0)
    assert crawler.crawled() == {f"{site.url}/"}


@pytest.mark.requirement("C8", "C9")
def test_a_page_that_is_gone_is_given_up_at_once_until_somebody_says_otherwise(crawler: Crawler, site: Site) -> None:
    crawler.work()
    ids = [crawler.ask_for(f"{site.url}/{name}")[0] for name in "abc"]
    failed = [crawler.ended(job_id) for job_id in ids]
    assert [(job["state"], job["attempts"]) for job in failed] == [("failed", 1)] * 3
    assert failed[0]["last_error"].endswith(f"Gone: {site.url}/a answered 404 Not Found")
    assert all(page["gone_at"] for page in crawler.pages().values())

    for name in "abc":
        site.add(f"/{name}")
    crawler.api("PUT", f"{JOBS}/{ids[0]}/status", {"status": "queued"})
    many = crawler.api("POST", f"{JOBS}/bulk/retry", {"job_ids": ids[1:]})
    assert (many["count"], many["refused"]) == (2, [])
    assert [crawler.ended(job_id)["state"] for job_id in ids] == ["succeeded"] * 3
    assert not any(page["gone_at"] for page in crawler.pages().values())


@pytest.mark.requirement("C5", "C15")
def test_a_host_that_answers_429_is_left_alone_and_others_are_not(
    crawler: Crawler, site: Site, other_site: Site
) -> None:
    busy = site.add("/busy", trouble=(429,))
    busy.retry_after = "4"
    site.add("/next")
    for n in range(5):
        other_site.add(f"/{n}")
    crawler.work()
    refused, _ = crawler.ask_for(f"{site.url}/busy")
    crawler.until(lambda: site.asked)
    blocked = crawler.until(
        lambda: [each for each in crawler.api("GET", "/api/admin/limits")["items"] if each["blocked_until"]]
    )
    assert [(each["scope"], each["name"]) for each in blocked] == [("key", key_of(site))]
    assert "429 Too Many Requests" in blocked[0]["blocked_reason"]
    behind, _ = crawler.ask_for(f"{site.url}/next")
    why = crawler.api("GET", f"{JOBS}/{behind}/why")
    assert (why["reason"], why["scope"], why["name"]) == ("blocked", "key", key_of(site))
    assert "429 Too Many Requests" in why["text"]
    others = [crawler.ask_for(f"{other_site.url}/{n}")[0] for n in range(5)]
    assert [crawler.ended(job_id)["state"] for job_id in others] == ["succeeded"] * 5

    for job_id in (refused, behind):
        job = crawler.ended(job_id)
        assert (job["state"], job["retry_count"], job["attempts"]) == ("succeeded", 0, 1)
    first, *later = sorted(site.asked, key=lambda each: each.at)
    assert (first.status, {each.path for each in later}) == (429, {"/busy", "/next"})
    assert later[0].at - first.ended >= 3.9
    assert min(each.at for each in other_site.asked) < later[0].at, "the other host did not wait"


@pytest.mark.requirement("C5", "C9")
def test_an_operator_lets_a_host_go_on_that_asked_for_too_much(crawler: Crawler, site: Site) -> None:
    site.add("/busy", trouble=(429,)).retry_after = "86400"
    site.add("/next")
    crawler.work()
    refused, _ = crawler.ask_for(f"{site.url}/busy")
    crawler.until(lambda: crawler.job(refused)["state"] == "scheduled")
    behind, _ = crawler.ask_for(f"{site.url}/next")
    nothing_is_asked(site, within=0.5)
    crawler.let_go(site)
    assert crawler.ended(behind)["state"] == "succeeded"
    crawler.api("PUT", f"{JOBS}/{refused}/run-at", {"delay": 0})
    assert crawler.ended(refused)["state"] == "succeeded"
    assert site.began == ["/busy", "/next", "/busy"]


@pytest.mark.requirement("D1", "C8")
def test_the_crawl_of_a_killed_worker_is_done_by_another(crawler: Crawler, site: Site) -> None:
    slow = site.add("/slow", "/next", seconds=20.0)
    site.add("/next")
    victim = crawler.work()
    job_id, _ = crawler.ask_for(f"{site.url}/slow")
    eventually(lambda: site.began, within=10)
    running = crawler.job(job_id)
    assert running["state"] == "running"
    assert crawler.jobs("crawling")[0]["id"] == job_id
    crawler.api("PUT", f"{JOBS}/{job_id}/status", {"status": "queued"}, status=409)
    victim.send_signal(signal.SIGKILL)
    victim.wait(10)
    slow.seconds = 0.0
    crawler.work()
    assert crawler.ended(job_id)["state"] == "succeeded"
    crawler.until(lambda: len(crawler.crawled()) == 2)
    runs = crawler.api("GET", f"{JOBS}/{job_id}/runs")["items"]
    assert [run["outcome"] for run in runs] == ["succeeded", "crashed"]
    assert runs[1]["worker_id"] == running["worker_id"] != runs[0]["worker_id"]


# -- again and again ------------------------------------------------------------------------------------------


@pytest.mark.requirement("A2", "C6", "C7", "C9")
def test_a_page_is_crawled_by_a_schedule_that_operators_make_change_and_delete(crawler: Crawler, site: Site) -> None:
    site.add("/")
    site.add("/news")
    crawler.work()
    new = {
        "name": "daily-front-page",
        "description": "The front page, every day",
        "task": "crawl",
        "args": {"url": f"{site.url}/"},
        "cron_expression": "@daily",
        "enabled": True,
        "priority": 10,
    }
    made = crawler.api("POST", SCHEDULED, new, status=201)
    assert {name: made[name] for name in new} == new
    assert (made["created_by"], made["last_run_at"], made["text"]) == ("DULY_TOKEN", None, "at 00:00 every day, UTC")
    path = f"{SCHEDULED}/{made['id']}"
    crawler.api("POST", SCHEDULED, new, status=409)
    wrong = crawler.api("POST", SCHEDULED, {**new, "name": "x", "cron_expression": "0 25 * * *"}, status=400)
    assert (wrong["error"]["code"], "position" in wrong["error"]["hint"]) == ("invalid_schedule", True)
    crawler.api("POST", SCHEDULED, {**new, "name": "x", "args": {"url": "nonsense"}}, status=400)

    crawler.api("POST", f"{path}/run")
    crawler.until(lambda: crawler.api("GET", path)["last_outcome"] == "succeeded")
    assert site.began == ["/"]
    assert crawler.api("GET", path)["next_run_at"] == made["next_run_at"]

    off = crawler.api("POST", f"{path}/toggle", {"enabled": False})
    assert (off["enabled"], off["next_run_at"], off["disabled_by"]) == (False, made["next_run_at"], "DULY_TOKEN")
    changes = {
        "name": "news-all-the-time",
        "description": "What is new",
        "args": {"url": f"{site.url}/news"},
        "cron_expression": "@every 500ms",
        "priority": 20,
    }
    changed = crawler.api("PUT", path, changes)
    assert {name: changed[name] for name in changes} == changes
    nothing_is_asked(site, within=0.8)
    crawler.api("POST", f"{path}/toggle", {"enabled": True})
    eventually(lambda: site.began.count("/news") >= 3, within=10)
    assert {*site.began[1:]} == {"/news"}
    assert crawler.api("GET", f"{SCHEDULED}?task=crawl&limit=10&offset=0")["items"][0]["name"] == "news-all-the-time"
    assert crawler.stats()["completed"] == 0, "its runs leave no jobs behind"
    history = crawler.api("GET", f"{path}/runs")["items"]
    assert {run["outcome"] for run in history} == {"succeeded"}
    assert len(history) >= 3

    assert crawler.api("DELETE", path)["deleted"] is True
    crawler.api("GET", path, status=404)
    crawler.until(lambda: crawler.stats()["running"] == 0)
    nothing_is_asked(site, within=1.0)


@pytest.mark.requirement("C3", "C14")
def test_pages_not_crawled_for_long_are_crawled_again(crawler: Crawler, site: Site) -> None:
    site.add("/", "/a", "/gone")
    site.add("/a")
    crawler.environment["CRAWLER_STALE_AFTER"] = "2s"
    crawler.work()
    [sweep] = crawler.sweeps()
    assert (sweep["cron_expression"], sweep["enabled"]) == ("@every 6h", True)
    crawler.ask_for(f"{site.url}/")
    crawler.until(lambda: crawler.stats()["completed"] == 2 and crawler.stats()["failed"] == 1)

    def run_the_sweep() -> int:
        """Returns how many pages it enqueued."""
        runs = f"{SCHEDULED}/{sweep['id']}/runs"
        before = crawler.api("GET", runs)["items"][0]["token"]
        crawler.api("POST", f"{SCHEDULED}/{sweep['id']}/run")
        run = crawler.until(lambda: [each for each in crawler.api("GET", runs)["items"] if each["token"] > before])[0]
        return int(run["result"])

    crawler.hold(site)
    crawled = crawler.pages()

    def both_are_pending() -> bool:
        run_the_sweep()
        return bool(crawler.stats()["queued"] == 2)

    crawler.until(both_are_pending)
    assert run_the_sweep() == 0, "they are pending"
    assert sorted(job["args"]["url"] for job in crawler.jobs("queued")) == [f"{site.url}/", f"{site.url}/a"]
    assert {job["enqueued_by"] for job in crawler.jobs("queued")} == {"sweep:crawl"}
    crawler.let_go(site)
    crawler.until(lambda: crawler.stats()["completed"] == 4)
    assert sorted(site.began) == ["/", "/", "/a", "/a", "/gone"]
    assert all(crawler.pages()[url]["crawled_at"] > crawled[url]["crawled_at"] for url in crawler.crawled())


# -- without a worker -----------------------------------------------------------------------------------------


@pytest.mark.requirement("B8")
def test_a_tick_crawls_without_a_worker(crawler: Crawler, site: Site) -> None:
    site.add("/", "/a")
    site.add("/a")
    crawler.ask_for(f"{site.url}/")
    assert crawler.stats()["queued"] == 1

    def tick() -> set[str]:
        assert crawler.api("POST", "/api/jobs/tick", {"max": 5})["ok"] is True
        return crawler.crawled()

    crawler.until(lambda: tick() == {f"{site.url}/", f"{site.url}/a"})
    assert sorted(site.began) == ["/", "/a"]


def test_the_dashboard_is_there_for_whoever_has_the_token(crawler: Crawler, site: Site) -> None:
    site.add("/")
    job_id, _ = crawler.ask_for(f"{site.url}/")
    page = {"accept": "text/html"}
    with httpx.Client(base_url=crawler.http.base_url, trust_env=False, headers=page, follow_redirects=True) as browser:
        assert browser.get("/").url.path == "/login"
        assert browser.get(f"{JOBS}/stats").status_code == 401
        origin = {"origin": str(crawler.http.base_url).rstrip("/")}
        assert browser.post("/login", data={"password": "a guess"}, headers=origin).status_code == 401
        opened = browser.post("/login", data={"password": TOKEN, "next": "/"}, headers=origin)
        assert (opened.status_code, opened.url.path) == (200, "/")
        assert "<title>Overview" in opened.text
        for path in ("/jobs", "/schedules", "/queues", "/workers", "/tenants", "/alerts", "/audit"):
            assert browser.get(path).status_code == 200, path
        assert f"{site.url}/" in browser.get(f"/jobs/{job_id}").text


# -- what pages hold ------------------------------------------------------------------------------------------


def test_links_are_found_within_the_host() -> None:
    html = """<title> A  page </title><svg><title>not this</title></svg><a href="b c.html#x">b</a> <a href=/d>d</a>
        <a href='//example.org/e?f=1&amp;g=2'>e</a><a href="https://other.org/">no</a><a href="http://[">no</a><a>no</a>
        <a href="mailto:x@example.org">no</a><a href="b%20c.html">again</a>"""
    page = parse(html, base="http://Example.org/a/", host="example.org")
    assert page.title == "A page"
    assert page.links == (
        "http://Example.org/a/b%20c.html",
        "http://Example.org/d",
        "http://example.org/e?f=1&g=2",
    )
    assert link_to("ü", "http://example.org/") == "http://example.org/%C3%BC"


@pytest.mark.parametrize(
    "text, least, most",
    [("7", 7, 7), ("0", 1, 1), ("999999999999", 86400, 86400), ("", 60, 60), ("soon", 60, 60), (None, 60, 60)],
)
def test_how_long_a_host_wants_to_be_left_alone(text: str | None, least: float, most: float) -> None:
    assert least <= wait_of(headers(text)).total_seconds() <= most


def test_a_host_may_name_a_time() -> None:
    at = datetime.now(UTC) + timedelta(seconds=90)
    assert 85 <= wait_of(headers(format_datetime(at, usegmt=True))).total_seconds() <= 90
    assert wait_of(headers("Wed, 21 Oct 2015 07:28:00 GMT")).total_seconds() == 1


def headers(retry_after: str | None) -> Message:
    found = Message()
    if retry_after is not None:
        found["Retry-After"] = retry_after
    return found


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
