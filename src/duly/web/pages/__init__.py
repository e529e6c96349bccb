"""The HTML pages. `routes` is called once, when the application is made."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute

if TYPE_CHECKING:
    from duly.web.asgi import Web


def routes(web: Web) -> list[BaseRoute]:
    """Every page. How a page gets its data: docs/decisions/0014-web.md."""
    return []


def login_page(request: Request, web: Web, *, next_path: str, problem: str = "", status: int = 200) -> Response:
    """The page that asks for a token, or a name and a password. Its form posts `name`, `password`, `token`, `next`."""
    from duly.web.guard import prefix_of

    names = '<p><label>Name <input name="name" autocomplete="username"></label></p>' if web.users else ""
    word = "Password or token" if names else "Token"
    said = f'<p role="alert">{escape(problem)}</p>' if problem else ""
    return HTMLResponse(
        f"""<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>duly: sign in</title><h1>Sign in</h1>{said}<form method="post" action="{escape(prefix_of(request))}/login">
{names}<p><label>{word} <input name="password" type="password" autocomplete="current-password" required></label></p>
<input type="hidden" name="next" value="{escape(next_path)}"><p><button>Sign in</button></p></form></html>""",
        status,
    )
