"""Signing in and out: a link that works once, a form, and the session that follows. And /healthz, open to all."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from duly.web import pages
from duly.web.asgi import web_of
from duly.web.errors import WebError, missing
from duly.web.guard import form_of, prefix_of
from duly.web.principal import Principal


async def healthz(request: Request) -> Response:
    """Whether the server runs. It names nothing."""
    return JSONResponse({"ok": True})


async def open_link(request: Request) -> Response:
    """Let whoever has a link in, once."""
    web = web_of(request)
    web.keeper.check_patience(request)
    principal = web.links.take(request.query_params.get("key", "")) if request.method == "GET" else None
    if principal is None:
        web.keeper.note_wrong(request)
        raise WebError(401, "unauthorized", "this link was used already, or is wrong", "start `duly web` again for one")
    await web.keeper.begin_session(request, principal)
    return RedirectResponse(f"{prefix_of(request)}/", 303)


async def login(request: Request) -> Response:
    """Show the form, or let in who fills it in rightly."""
    web = web_of(request)
    if not web.keeper.has_login:
        raise missing("signing in is up to the application")
    if request.method in ("GET", "HEAD"):
        return pages.login_page(request, web, next_path=_local(request.query_params.get("next", "/")))
    web.keeper.check_patience(request)
    form = await form_of(request)
    name, password, next_path = ((form.get(field) or [""])[0] for field in ("name", "password", "next"))
    principal: Principal | None = None
    if name:
        principal = await web.keeper.by_password(name, password)
    elif password:
        principal = await web.keeper.by_token(password.strip())
    if principal is None:
        web.keeper.note_wrong(request)
        problem = "That name and password, or that token, let nobody in."
        return pages.login_page(request, web, next_path=_local(next_path), problem=problem, status=401)
    await web.keeper.begin_session(request, principal)
    return RedirectResponse(quote(prefix_of(request) + _local(next_path), safe="/?&=%:-._~"), 303)


async def logout(request: Request) -> Response:
    """End the session."""
    await web_of(request).keeper.end_session(request)
    return RedirectResponse(f"{prefix_of(request)}/login", 303)


def _local(path: str) -> str:
    """Where to go after signing in: never to another site."""
    plain = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if plain and len(path) <= 2_000 else "/"


def routes() -> list[BaseRoute]:
    """What is open to everybody, and the way out."""
    return [
        Route("/healthz", healthz, methods=["GET"]),
        Route("/open", open_link, methods=["GET"]),
        Route("/login", login, methods=["GET", "POST"]),
        Route("/logout", logout, methods=["POST"]),
    ]
