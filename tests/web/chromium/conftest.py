"""A real browser before a real server: Chromium where it is installed, driven by Playwright; one for all tests here."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from duly import Duly
from duly.web import Principal, create_app
from tests.databases import Databases, Kind
from tests.helpers import eventually
from tests.web.seed import Seeded

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHECKS = (Path(__file__).parent / "checks.js").read_text()


def where() -> str | None:
    """The browser of this machine."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser, started once for the tests of a file: its loop would be in the way of others."""
    path = where()
    if path is None:
        pytest.skip("no Chromium is installed; `apt-get install chromium`, and these tests open every page in it")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@contextmanager
def served(jobs: Duly, prefix: str = "", **options: Any) -> Iterator[str]:
    """The web side of a `Duly` behind a real server; gives its address."""
    import uvicorn

    def alice(request: object) -> Principal:
        return Principal.make("alice", ["admin"])

    app = create_app(jobs, **{"auth": alice, "rate": 1e6, "burst": 1_000_000, **options})
    if prefix:
        app = Starlette(routes=[Mount(prefix, app)])
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="web server of a test")
    thread.start()
    try:
        eventually(lambda: server.started, within=10)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}{prefix}"
    finally:
        server.should_exit = True
        thread.join(15)
        listening.close()


class Tab:
    """One tab, which remembers everything that went wrong in it."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.address = address
        self.wrong: list[str] = []
        page.on("console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("dialog", self._refuse)
        page.add_init_script(
            "window.violations = []; document.addEventListener('securitypolicyviolation', "
            "(event) => window.violations.push(event.violatedDirective + ' ' + event.blockedURI));"
        )

    def _refuse(self, dialog: Any) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, path: str) -> Tab:
        self.page.goto(self.address + path)
        return self

    def click(self, name: str, role: str = "button") -> None:
        self.page.get_by_role(role, name=name, exact=True).first.click()

    def press(self, selector: str) -> None:
        self.page.locator(selector).first.click()

    def says(self, text: str) -> None:
        """Wait until the page says something."""
        self.page.get_by_text(text).first.wait_for(timeout=10_000)

    @property
    def violations(self) -> list[str]:
        found: list[str] = self.page.evaluate("window.violations")
        return found

    def check(self) -> None:
        """Fail if anything about this page is wrong: the script, the policy, the width, what a reader needs."""
        where = self.page.url
        assert not self.wrong, (where, self.wrong)
        assert not self.violations, (where, self.violations)
        width, view = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width <= view, f"{where} is {width} wide in a window of {view}"
        problems = self.page.evaluate(CHECKS)
        assert not problems, (where, problems)


@pytest.fixture
def tab_of(chromium: Any) -> Iterator[Any]:
    """Opens tabs; they are closed at the end."""
    contexts = []

    def open_tab(address: str, width: int = 1280, scheme: str = "light", **options: Any) -> Tab:
        size = {"width": width, "height": 844 if width < 500 else 900}
        context = chromium.new_context(viewport=size, color_scheme=scheme, **options)
        context.set_default_timeout(10_000)
        contexts.append(context)
        return Tab(context.new_page(), address)

    yield open_tab
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def shown(databases: Databases) -> Iterator[tuple[Seeded, str]]:
    """Real data with a worker that runs, served; for tests that only look."""
    with databases.fresh(Kind.SQLITE) as url:
        jobs = Duly(url)
        seeded = Seeded(jobs)
        seeded.fill()
        try:
            with seeded.working(), served(jobs) as address:
                yield seeded, address
        finally:
            jobs.close()


@pytest.fixture
def site(sqlite_url: str) -> Iterator[tuple[Duly, str]]:
    """A server of a test's own, with tasks and without a worker."""
    from tests.web.conftest import declare

    jobs = Duly(sqlite_url)
    declare(jobs)
    try:
        with served(jobs) as address:
            yield jobs, address
    finally:
        jobs.close()


def until(predicate: Any, within: float = 30.0) -> None:
    """Wait for what a page shows by itself: the busier the database, the rarer it is read."""
    deadline = time.monotonic() + within
    while not predicate():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
