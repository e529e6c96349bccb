"""Answers for what no route takes, in the one shape of errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from duly.web.errors import WebError

CODES: Final = {404: "not_found", 405: "method_not_allowed"}


async def refused(request: Request, error: Exception) -> Response:
    """Say that there is nothing, or not by this method."""
    assert isinstance(error, HTTPException)
    words = {404: "there is nothing here", 405: f"there is no {request.method[:20]} here"}
    message = words.get(error.status_code, error.detail)
    code = CODES.get(error.status_code, "refused")
    return WebError(error.status_code, code, message, headers=dict(error.headers or {})).response()


HANDLERS: Final[Mapping[Any, Any]] = {HTTPException: refused}
