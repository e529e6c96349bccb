"""Answers for what no route takes, in the one shape of errors; for people as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from duly.web.errors import WebError
from duly.web.guard import CREDENTIAL, SAFE, path_of
from duly.web.pages.shell import show_error

CODES: Final = {404: "not_found", 405: "method_not_allowed"}


async def refused(request: Request, error: Exception) -> Response:
    """Say that there is nothing, or not by this method."""
    assert isinstance(error, HTTPException)
    words = {404: "there is nothing here", 405: f"there is no {request.method[:20]} here"}
    message = words.get(error.status_code, error.detail)
    code = CODES.get(error.status_code, "refused")
    told = WebError(error.status_code, code, message, headers=dict(error.headers or {}))
    return show_error(request, told) if _wants_page(request) else told.response()


def _wants_page(request: Request) -> bool:
    """Whether somebody who was let in looks for a page."""
    is_read = request.method in SAFE and not path_of(request).startswith("/api/")
    return is_read and bool(request.scope.get(CREDENTIAL)) and "text/html" in request.headers.get("accept", "")


HANDLERS: Final[Mapping[Any, Any]] = {HTTPException: refused}
