"""Serves the dashboard and the API from a thread of this process, on a port of this machine or another address."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from duly.app import Duly
from duly.cli.base import this_user
from duly.domain.errors import ConfigurationError
from duly.domain.principal import Principal

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

HOST, PORT = "127.0.0.1", 8479
MORE_PORTS = 10
NEEDED = "the dashboard and the HTTP API need more packages: pip install 'duly[web]'"


def can_serve() -> bool:
    """Whether what it takes is installed."""
    from importlib.util import find_spec

    return all(find_spec(name) is not None for name in ("starlette", "uvicorn", "jinja2"))


def preload() -> None:
    """Import all that serving takes, before the application's folder is where modules are looked for first."""
    if not can_serve():
        raise ConfigurationError(NEEDED)
    import asyncio.base_events
    import asyncio.runners  # noqa: F401

    import uvicorn
    from starlette.applications import Starlette

    import duly.web
    import duly.web.api.endpoint
    import duly.web.login  # noqa: F401

    config = uvicorn.Config(Starlette(), log_config=None, lifespan="off", ws="none")
    config.load()
    config.get_loop_factory()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Take a port, or say why not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error.strerror or error}. Choose another: --port {port + 1}"
        ) from error
    return listener


def listen_near(host: str, first: int) -> socket.socket:
    """Take a port, or one of the next if somebody has it by now."""
    for port in range(first, first + MORE_PORTS - 1):
        try:
            return listen(host, port)
        except ConfigurationError:
            continue
    return listen(host, first + MORE_PORTS - 1)


def free_port(first: int) -> int | None:
    """Return the first port that nobody has, of a few."""
    for port in range(first, first + MORE_PORTS):
        try:
            listen(HOST, port).close()
        except ConfigurationError:
            continue
        return port
    return None


class Served:
    """The dashboard and the API, while they are served."""

    def __init__(
        self, app: Duly, listener: socket.socket, *, hosts: Iterable[str] = (), read_only: bool = False
    ) -> None:
        import uvicorn

        from duly.web import create_app

        self.asgi: Starlette = create_app(app, hosts=(*app.settings.web_hosts, *hosts), read_only=read_only)
        self._app = app
        self._listener = listener
        self._server: uvicorn.Server = uvicorn.Server(
            uvicorn.Config(
                self.asgi,
                log_config=None,
                log_level="warning",
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                proxy_headers=False,
                limit_concurrency=1_000,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._run, name="duly-web", daemon=True)

    def _run(self) -> None:
        self._server.run(sockets=[self._listener])

    def __enter__(self) -> Served:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        web: Any = self.asgi.state.web
        web.hub.close()
        self._server.should_exit = True
        self._thread.join(5)
        self._listener.close()

    @property
    def address(self) -> str:
        """Where it is."""
        host, port = self._listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return not self._thread.is_alive()

    def link(self) -> str:
        """Return a link that lets whoever has it in, once, as who runs this command."""
        web: Any = self.asgi.state.web
        return f"{self.address}/open?key={web.links.make(Principal.make(this_user(), ['admin']))}"

    def has_session(self) -> bool:
        """Whether somebody is signed in already, so that no other link is needed."""
        return any(each.kind == "session" and each.name == this_user() for each in self._app.tokens())
