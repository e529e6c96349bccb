"""What every page shares: the templates, who looks and what they may do, what was just said, and errors as pages."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from duly.__about__ import __version__
from duly.domain.errors import DulyError
from duly.web.auth import add_cookie
from duly.web.desk import Desk
from duly.web.errors import WebError, told
from duly.web.guard import form_of, path_of, prefix_of
from duly.web.pages import words
from duly.web.principal import Scope

SAID: Final = "duly_said"
LONGEST_SAID: Final = 600
PAGES: Final = (
    ("overview", "/", "Overview"),
    ("jobs", "/jobs", "Jobs"),
    ("schedules", "/schedules", "Schedules"),
    ("queues", "/queues", "Queues"),
    ("workers", "/workers", "Workers"),
    ("tenants", "/tenants", "Tenants"),
    ("alerts", "/alerts", "Alerts"),
    ("audit", "/audit", "Audit"),
    ("system", "/system", "System"),
)
ALL_TENANTS: Final = frozenset({"workers", "alerts", "system"})
"""Pages for those who are bound to no tenant."""
Handler = Callable[[Request], Awaitable[Response]]

templates = Environment(
    loader=PackageLoader("duly.web", "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.filters |= words.FILTERS
templates.globals |= {"plural": words.plural, "query": words.query, "version": __version__}


def desk_of(request: Request) -> Desk:
    """The desk of whoever looks."""
    from duly.web.asgi import web_of

    return web_of(request).desk(request)


async def call(request: Request, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a verb without holding up the loop."""
    from duly.web.asgi import web_of

    return await web_of(request).call(function, *args, **kwargs)


def show(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """Answer with a page."""
    html = templates.get_template(template).render(**common(request), **values)
    return HTMLResponse(html, status)


def common(request: Request) -> dict[str, Any]:
    """What every page knows."""
    from duly.web.asgi import credential_of

    desk, prefix = desk_of(request), prefix_of(request)
    pages = [each for each in PAGES if desk.tenant is None or each[0] not in ALL_TENANTS]
    return {
        "prefix": prefix,
        "path": path_of(request),
        "here": local_path(request),
        "csrf": credential_of(request).csrf_token,
        "who": desk.principal.name,
        "signed_in": credential_of(request).kind == "session",
        "only_tenant": desk.tenant,
        "read_only": desk.read_only,
        "may_operate": desk.may(Scope.OPERATE),
        "may_enqueue": desk.may(Scope.ENQUEUE),
        "may_administer": desk.may(Scope.ADMIN),
        "pages": pages,
        "said": take_said(request),
        "link": functools.partial(_link, prefix),
    }


def _link(prefix: str, path: str, /, **query: object) -> str:
    return f"{prefix}{path}{words.query(**query)}"


def local_path(request: Request) -> str:
    """The path and query of this page, below our prefix: where an action comes back to."""
    return path_of(request) + (f"?{request.url.query}" if request.url.query else "")


# -- after an action --------------------------------------------------------------------------------------------------


def say(request: Request, text: str, kind: str = "good") -> None:
    """Have the next page say something once."""
    cut = text if len(text) <= LONGEST_SAID else text[: LONGEST_SAID - 1] + "…"
    packed = base64.urlsafe_b64encode(json.dumps([kind, cut]).encode()).decode().rstrip("=")
    add_cookie(request, SAID, packed, seconds=60)


def take_said(request: Request) -> tuple[str, str] | None:
    """What the page before had to say: the kind and the text."""
    packed = request.cookies.get(SAID)
    if not packed:
        return None
    add_cookie(request, SAID, "", seconds=0)
    try:
        kind, text = json.loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
    except (ValueError, TypeError):
        return None
    return ("bad" if kind == "bad" else "good", str(text))


def local(path: str) -> str:
    """Where to go back to: never to another site."""
    plain = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if plain and len(path) <= 4_000 else "/"


async def field(request: Request, name: str, default: str = "") -> str:
    """One field of the form that was posted."""
    return ((await form_of(request)).get(name) or [default])[0].strip()


async def go_back(request: Request, otherwise: str = "/") -> Response:
    """Go back to the page that an action came from."""
    return go_to(request, await field(request, "back") or otherwise)


def go_to(request: Request, path: str) -> Response:
    """Go to another page."""
    return RedirectResponse(prefix_of(request) + local(path), 303)


# -- errors -----------------------------------------------------------------------------------------------------------


def page(handler: Handler) -> Handler:
    """Show what goes wrong as a page."""

    @functools.wraps(handler)
    async def shown(request: Request) -> Response:
        try:
            return await handler(request)
        except WebError as error:
            return show_error(request, error)
        except DulyError as error:
            return show_error(request, told(error))

    return shown


def action(handler: Handler) -> Handler:
    """An action of a form: what cannot be done now is said on the page that it came from."""

    @functools.wraps(handler)
    async def acted(request: Request) -> Response:
        from duly.web.pages.live import hub_of

        try:
            return await handler(request)
        except (WebError, DulyError) as error:
            problem = error if isinstance(error, WebError) else told(error)
            back = await field(request, "back")
            if problem.status not in (400, 409, 413) or not back:
                return show_error(request, problem)
            say(request, f"{problem.message}. {problem.hint}" if problem.hint else problem.message, "bad")
            return go_to(request, back)
        finally:
            hub_of(request).forget()

    return acted


Deed = Callable[[Request], Awaitable[str | Response]]
"""What a form does: it returns what the next page says, or the answer itself."""


def deed(do: Deed, otherwise: str) -> Handler:
    """A form's deed as a handler: say what came of it on the page that it came from, or on another."""

    @functools.wraps(do)
    async def done(request: Request) -> Response:
        said = await do(request)
        if isinstance(said, Response):
            return said
        say(request, said)
        return await go_back(request, otherwise.format(**request.path_params))

    return done


def show_error(request: Request, error: WebError) -> Response:
    """An error as a page."""
    titles = {400: "That does not work", 403: "Not allowed", 404: "Nothing here", 409: "Not now", 503: "Not available"}
    title = titles.get(error.status, "Something went wrong")
    return show(request, "error.html", status=error.status, title=title, error=error, current="")
