"""The ASGI application: `app.mount("/duly", duly.web.create_app(jobs, auth=...))`, under any prefix."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from duly.app import Duly
from duly.web import login, pages
from duly.web.auth import Auth, Credential, Keeper, Links
from duly.web.desk import Desk, Threads
from duly.web.guard import CREDENTIAL, Guard
from duly.web.handlers import HANDLERS
from duly.web.options import LOOPBACK, MIB, Options
from duly.web.principal import Principal
from duly.web.rates import Rates
from duly.web.redact import Redaction

R = TypeVar("R")
STATIC = Path(__file__).parent / "static"


class Web:
    """What the API and the pages share. `request.app.state.web` is the one of a request."""

    def __init__(self, jobs: Duly, options: Options) -> None:
        self.jobs = jobs
        self.options = options
        self.redaction = Redaction(options.redact)
        self.keeper = Keeper(self)
        self.links = Links()
        self.sessions: dict[str, Principal] = {}
        self.rates = Rates(options.rate, options.burst)
        self.threads = Threads()

    def now(self) -> float:
        """Seconds, for what happens within this process."""
        return time.monotonic()

    def desk(self, request: Request) -> Desk:
        """The `Duly` as whoever sends this request may see and touch it."""
        return Desk(self.jobs, credential_of(request).principal, self.options.read_only, self.redaction)

    async def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a verb, or anything that asks the database, without holding up the loop."""
        return await self.threads.call(function, *args, **kwargs)


def web_of(request: Request) -> Web:
    """What the application of a request was made of."""
    web: Web = request.app.state.web
    return web


def credential_of(request: Request) -> Credential:
    """Who sends this request, and by what; `.csrf_token` is what its forms must hold."""
    credential: Credential = request.scope[CREDENTIAL]
    return credential


def create_app(
    jobs: Duly,
    *,
    auth: Auth | None = None,
    hosts: Iterable[str] = LOOPBACK,
    read_only: bool = False,
    token: str | None = None,
    users: Mapping[str, str] | None = None,
    max_body: int = MIB,
    rate: float = 50.0,
    burst: int = 200,
) -> Starlette:
    """Make the API and the dashboard of a `Duly`, to run by itself or to mount in any ASGI application.

    Nobody is let in but who has a token (`$DULY_TOKEN`, or made by `duly tokens create`), a name in `users`, or whom
    `auth(request)` returns a `Principal` for. `hosts`: the names under which it answers.
    """
    options = Options(
        auth=auth,
        hosts=tuple(hosts),
        read_only=read_only,
        token=token or os.environ.get("DULY_TOKEN") or None,
        users=dict(users or {}),
        max_body=max_body,
        rate=rate,
        burst=burst,
    )
    web = Web(jobs, options)
    routes = [*login.routes(), *pages.routes(web), Mount("/static", StaticFiles(directory=STATIC), name="static")]
    app = Starlette(routes=routes, middleware=[Middleware(Guard, web=web)], exception_handlers=HANDLERS)
    app.router.redirect_slashes = False
    app.state.web = web
    return app
