"""A web server with feeds that behave in every way feeds do, to try the reader without the internet.

with FeedServer() as server:
    news = server.publish("news", max_age=5)
    news.trouble = "500"        # or "hang", "garbage", "cut"; None again when it is over
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs
from xml.sax.saxutils import escape


@dataclass(slots=True, kw_only=True)
class PretendFeed:
    """One feed: change it at any time."""

    name: str
    url: str
    entries: int = 3
    max_age: int | None = None
    hub_url: str | None = None
    trouble: str | None = None
    seconds: float = 0.0
    """How long it takes to answer."""
    answers: list[int] = field(default_factory=list)
    """The status of every answer so far; 0 for none that a reader could use."""
    asked_at: list[float] = field(default_factory=list)

    @property
    def etag(self) -> str:
        """Changes with what is in it."""
        return f'"{self.name}-{self.entries}"'

    def text(self) -> str:
        """What is in it, as RSS."""
        name = escape(self.name)
        items = "".join(
            f"<item><guid>{name}-{number}</guid><title>{name} {number}</title>"
            f"<link>https://example.org/{name}/{number}</link></item>\n"
            for number in range(1, self.entries + 1)
        )
        return f'<?xml version="1.0"?>\n<rss version="2.0"><channel><title>{name}</title>\n{items}</channel></rss>\n'


class FeedServer(ThreadingHTTPServer):
    """Serves feeds, and is the hub of those that have one."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Answer)
        self.feeds: dict[str, PretendFeed] = {}
        self.hub_asked: list[str] = []
        """The address of every feed that was subscribed at the hub."""
        self.hub_trouble = False
        self.closing = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}"

    def publish(self, name: str, *, entries: int = 3, max_age: int | None = None, hub: bool = False) -> PretendFeed:
        """Add a feed."""
        hub_url = f"{self.url}/hub" if hub else None
        feed = PretendFeed(name=name, url=f"{self.url}/{name}", entries=entries, max_age=max_age, hub_url=hub_url)
        self.feeds[f"/{name}"] = feed
        return feed

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

    server: FeedServer

    def do_GET(self) -> None:
        """Send a feed, or what goes for one."""
        feed = self.server.feeds.get(self.path)
        with suppress(ConnectionError):  # the reader has gone
            if feed is None:
                self.send_error(404)
                return
            feed.asked_at.append(time.monotonic())
            self.server.closing.wait(feed.seconds)
            self._answer(feed)

    def _answer(self, feed: PretendFeed) -> None:
        if feed.trouble == "hang":
            feed.answers.append(0)
            self.server.closing.wait(30)
        elif feed.trouble == "cut":
            feed.answers.append(0)
            self._send(feed, 200, feed.text().encode(), short_by=20)
        elif feed.trouble == "garbage":
            feed.answers.append(0)
            self._send(feed, 200, b"<html><p>Our new homepage!")
        elif feed.trouble is not None:
            feed.answers.append(int(feed.trouble))
            self.send_error(int(feed.trouble))
        elif self.headers.get("If-None-Match") == feed.etag:
            feed.answers.append(304)
            self._send(feed, 304, b"")
        else:
            feed.answers.append(200)
            self._send(feed, 200, feed.text().encode())

    def _send(self, feed: PretendFeed, status: int, body: bytes, *, short_by: int = 0) -> None:
        self.send_response(status)
        self.send_header("ETag", feed.etag)
        if feed.max_age is not None:
            self.send_header("Cache-Control", f"public, max-age={feed.max_age}")
        if feed.hub_url is not None:
            self.send_header("Link", f'<{feed.url}>; rel="self", <{feed.hub_url}>; rel="hub"')
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) - short_by])

    def do_POST(self) -> None:
        """Be the hub."""
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if self.server.hub_trouble:
            self.send_error(503)
            return
        self.server.hub_asked.append(form["hub.topic"][0])
        self.send_response(202)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the reader is what is watched."""
