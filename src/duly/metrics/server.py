"""A small HTTP server on a thread of its own: `/metrics`, `/healthz` and `/readyz`. Nothing else, and nothing written.

Loopback unless told otherwise: it asks for no password, and metrics name queues, tasks and tenants.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from duly.domain.errors import ConfigurationError, DulyError
from duly.metrics.health import Health

log = logging.getLogger("duly.metrics")

AT_ONCE = 16
"""So many requests are answered at once; others are turned away."""
REQUEST_SECONDS = 10.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
PAGES = "/metrics, /healthz, /readyz"

Render = Callable[[str], tuple[str, bytes]]


class MetricsServer:
    """Serves until stopped."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        alive: Callable[[], Health],
        ready: Callable[[], Health],
        render: Render,
        ports: int = 1,
    ) -> None:
        pages = {"/healthz": _health(alive), "/readyz": _health(ready), "/metrics": _metrics(render)}
        self._http = _bind(host, port, ports, pages)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.2,), name="duly-metrics", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._http.server_address[:2]
        return str(host), int(port)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()
        host, port = self.address
        log.info("metrics at http://%s:%d/metrics", f"[{host}]" if ":" in host else host, port)

    def stop(self) -> None:
        """Stop, and let go of the port."""
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()


Answer = tuple[int, str, bytes]
Page = Callable[[str], Answer]
TEXT = "text/plain; charset=utf-8"


def _health(look: Callable[[], Health]) -> Page:
    def page(_: str) -> Answer:
        health = look()
        return 200 if health.ok else 503, "application/json", json.dumps(health.as_dict()).encode() + b"\n"

    return page


def _metrics(render: Render) -> Page:
    def page(accept: str) -> Answer:
        try:
            return 200, *render(accept)
        except ConfigurationError as error:  # prometheus-client is not installed
            return 501, TEXT, f"{error}\n".encode()
        except DulyError as error:
            return 503, TEXT, f"{error}\n".encode()

    return page


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], pages: dict[str, Page]) -> None:
        self.pages = pages
        self.local = address[0] in LOOPBACK
        self._free = threading.Semaphore(AT_ONCE)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request from %s failed", client_address, exc_info=True)

    def server_bind(self) -> None:
        # Without the look-up of this host's name that the parent makes: it may take long, and nobody reads it.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    server_version = "duly"
    sys_version = ""
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        server: Any = self.server
        page = server.pages.get(self.path.partition("?")[0])
        if server.local and _host_of(self.headers.get("Host", "localhost")) not in LOOPBACK:
            # Perhaps a page in a browser here, whose own name leads to this address.
            status, kind, data = 403, TEXT, b"ask by the address it listens at\n"
        elif page is None:
            status, kind, data = 404, TEXT, f"not here. There are: {PAGES}\n".encode()
        else:
            try:
                status, kind, data = page(self.headers.get("Accept", ""))
            except Exception as error:
                log.exception("%s could not be answered", self.path[:100])
                status, kind, data = 500, TEXT, f"{type(error).__name__}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s " + format, self.address_string(), *args)


def _host_of(header: str) -> str:
    """The name in a Host header, without the port."""
    name = header.strip().lower()
    return name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]


def _bind(host: str, port: int, ports: int, pages: dict[str, Page]) -> _Server:
    """Listen at the first of some ports that is free."""
    problem = "there is no such port"
    for number in range(port, min(65_536, port + max(1, ports if port else 1))):
        try:
            return _Server((host, number), pages)
        except OSError as error:
            problem = error.strerror or str(error)
    raise ConfigurationError(
        f"cannot serve metrics at {host}:{port}: {problem}. "
        "Choose another port with --metrics-port, or another host with --metrics-host"
    )
