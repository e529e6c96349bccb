"""The ASGI application: `app.mount("/duly", duly.web.create_app(jobs, auth=...))`, under any prefix."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from duly.app import Duly
from duly.domain.passwords import read_users
from duly.web.auth import Auth, Credential, Keeper, Links
from duly.web.desk import Desk, on_thread
from duly.web.guard import CREDENTIAL, Guard
from duly.web.handlers import HANDLERS
from duly.web.options import LOOPBACK, MIB, Options
from duly.web.pages.live import Hub
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
        self.users = read_users(options.users)
        self.keeper = Keeper(self)
        self.links = Links()
        self.rates = Rates(options.rate, options.burst)
        self.hub = Hub(self)

    def now(self) -> float:
        """Seconds, for what happens within this process."""
        return time.monotonic()

    def desk(self, request: Request) -> Desk:
        """The `Duly` as whoever sends this request may see and touch it."""
        return Desk(self.jobs, credential_of(request).principal, self.options.read_only, self.redaction)

    async def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a verb, or anything that asks the database, without holding up the loop."""
        return await on_thread(function, *args, **kwargs)


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
    hosts: Iterable[str] | None = None,
    read_only: bool = False,
    token: str | None = None,
    users: Iterable[str] | None = None,
    redact: Iterable[str] | None = None,
    max_body: int = MIB,
    rate: float = 50.0,
    burst: int = 200,
) -> Starlette:
    """Make the API and the dashboard of a `Duly`, to run by itself or to mount in any ASGI application.

    Nobody is let in but who has a token (`$DULY_TOKEN`, or made by `duly tokens create`), a name in `users`, or whom
    `auth(request)` returns a `Principal` for. `hosts`: the names under which it answers, beside those of this machine.
    What is not given is taken from the settings: `token`, `web_users`, `web_hosts`, `redact`. `rate` and `burst`: how
    many requests each principal may make a second for long, and at once.
    """
    settings = jobs.settings
    options = Options(
        auth=auth,
        hosts=(*LOOPBACK, *(settings.web_hosts if hosts is None else hosts)),
        read_only=read_only,
        token=token or settings.token,
        users=tuple(settings.web_users if users is None else users),
        redact=tuple(settings.redact if redact is None else redact),
        max_body=max_body,
        rate=rate,
        burst=burst,
    )
    from duly.web import login, pages  # they ask this module who sends a request
    from duly.web.api import endpoint

    web = Web(jobs, options)
    static = Mount("/static", StaticFiles(directory=STATIC), name="static")
    routes = [*login.routes(), *endpoint.routes(), static, *pages.routes(web)]
    app = Starlette(routes=routes, middleware=[Middleware(Guard, web=web)], exception_handlers=HANDLERS)
    app.router.redirect_slashes = False
    app.state.web = web
    return app
