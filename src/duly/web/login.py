"""Signing in and out: a link that works once, a form, and the session that follows. And /healthz, open to all."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route


async def healthz(request: Request) -> Response:
    """Whether the server runs. It names nothing."""
    return JSONResponse({"ok": True})


def routes() -> list[BaseRoute]:
    """What is open to everybody."""
    return [Route("/healthz", healthz)]
