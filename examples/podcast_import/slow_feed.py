"""A web server with slow podcast feeds, to try the importer with: `python examples/podcast_import/slow_feed.py`.

Any path is a podcast of its own. `?episodes=` and `?seconds=` say how long it is and how long it takes,
`?flaky=1` answers the first request with an error.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

PORT = 8765
PIECES = 10


class SlowFeeds(ThreadingHTTPServer):
    """Serves feeds, each in ten pieces with pauses between them."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), SlowFeed)
        self.asked: Counter[str] = Counter()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}"


class SlowFeed(BaseHTTPRequestHandler):
    """Answers one request."""

    def do_GET(self) -> None:
        """Send a feed, slowly."""
        assert isinstance(self.server, SlowFeeds)
        parts = urlsplit(self.path)
        wanted = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        with self.server.lock:
            self.server.asked[parts.path] += 1
            first = self.server.asked[parts.path] == 1
        if parts.path.startswith("/missing"):
            self.send_error(404)
        elif first and "flaky" in wanted:
            self.send_error(503)
        else:
            body = feed_text(escape(parts.path.strip("/")), int(wanted.get("episodes", "500"))).encode()
            with suppress(ConnectionError):  # the other side has been killed
                self._send(body, float(wanted.get("seconds", "20")))

    def _send(self, body: bytes, seconds: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/rss+xml; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        size = -(-len(body) // PIECES)
        for start in range(0, len(body), size):
            time.sleep(seconds / PIECES)
            self.wfile.write(body[start : start + size])

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the importer is what is watched."""


def feed_text(name: str, episodes: int) -> str:
    """Write a feed."""
    items = "".join(
        f"<item><guid>{name}-{number}</guid><title>Episode {number}</title>"
        f"<pubDate>{formatdate(86_400.0 * number)}</pubDate>"
        f'<enclosure url="https://example.org/{name}/{number}.mp3" type="audio/mpeg" length="1"/></item>\n'
        for number in range(1, episodes + 1)
    )
    return (
        f'<?xml version="1.0"?>\n<rss version="2.0"><channel><title>Podcast {name}</title>\n{items}</channel></rss>\n'
    )


if __name__ == "__main__":
    with SlowFeeds(PORT) as server, suppress(KeyboardInterrupt):
        print(f"slow feeds at {server.url}/anything.xml", flush=True)
        server.serve_forever()
