"""A small web site to crawl, with pages that fail, hang and ask to be left alone: `python -m examples.crawler.site`."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

PORT = 8766


@dataclass(slots=True, kw_only=True)
class SitePage:
    """One page: change it at any time."""

    links: tuple[str, ...] = ()
    trouble: list[int] = field(default_factory=list)
    """What the next requests are answered with instead: 429, 500 ..., one after the other."""
    retry_after: str = "10"
    """What a 429 asks for."""
    seconds: float = 0.0
    """How long it takes to answer."""


class Asked(NamedTuple):
    """A request that came, and when by the monotonic clock it came and was answered."""

    path: str
    at: float
    ended: float
    status: int


class Site(ThreadingHTTPServer):
    """Serves pages, and remembers who asked for what when."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Answer)
        self.pages: dict[str, SitePage] = {}
        self.began: list[str] = []
        """The path of every request, as they came."""
        self.asked: list[Asked] = []
        """Every request that was answered."""
        self.closing = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, path: str, *links: str, trouble: tuple[int, ...] = (), seconds: float = 0.0) -> SitePage:
        """Add a page."""
        self.pages[path] = page = SitePage(links=links, trouble=list(trouble), seconds=seconds)
        return page

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.closing.set()
        self.shutdown()
        self._thread.join()
        self.server_close()


class Answer(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Site

    def do_GET(self) -> None:
        """Send a page, or what it has instead."""
        path, at = urlsplit(self.path).path, time.monotonic()
        self.server.began.append(path)
        page = self.server.pages.get(path)
        status = 404 if page is None else page.trouble.pop(0) if page.trouble else 200
        if page is not None:
            self.server.closing.wait(page.seconds)
        with suppress(ConnectionError):  # whoever asked was killed
            self._send(path, page, status)
            self.server.asked.append(Asked(path, at, time.monotonic(), status))

    def _send(self, path: str, page: SitePage | None, status: int) -> None:
        links = "" if page is None else "".join(f'<li><a href="{link}">{link}</a></li>' for link in page.links)
        body = f"<!doctype html><title>Page {path}</title><ul>{links}</ul>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if page is not None and status == 429:
            self.send_header("Retry-After", page.retry_after)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the crawler is what is watched."""


def build(site: Site) -> None:
    """Thirty pages and some trouble."""
    site.add(
        "/", *(f"/chapter-{n}" for n in range(1, 6)), "/flaky", "/busy", "/slow", "/missing", "mailto:a@example.org"
    )
    for chapter in range(1, 6):
        site.add(f"/chapter-{chapter}", "/", *(f"/chapter-{chapter}/{n}" for n in range(1, 6)))
        for page in range(1, 6):
            site.add(f"/chapter-{chapter}/{page}", f"/chapter-{chapter}", "/")
    site.add("/flaky", "/", trouble=(503,))
    site.add("/busy", "/", trouble=(429,))
    site.add("/slow", "/", seconds=10.0)


if __name__ == "__main__":
    site = Site(int(sys.argv[1]) if len(sys.argv) > 1 else PORT)
    build(site)
    print(f"a small site at {site.url}/, and as another host at http://localhost:{site.server_port}/", flush=True)
    with suppress(KeyboardInterrupt):
        site.serve_forever()
