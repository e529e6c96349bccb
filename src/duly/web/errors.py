"""One shape for everything that goes wrong: {"error": {"code", "message", "hint"?}}."""

from __future__ import annotations

import math
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from duly.domain.errors import (
    ArgumentError,
    ArgumentsDoNotFit,
    ConfigurationError,
    Conflict,
    DatabaseError,
    DulyError,
    InvalidOption,
    InvalidSchedule,
    JobNotFound,
    MirrorFailed,
    PayloadTooLarge,
    QueueFull,
    QuotaExceeded,
    UnknownTask,
)
from duly.domain.text import clean_text

MOST_MESSAGE: Final = 2_000


class WebError(Exception):
    """A request that is answered with an error."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str | None = None,
        headers: dict[str, str] | None = None,
        *,
        option: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.headers = headers or {}
        self.option = option
        """What it is about, if that is known: where a form says it."""

    def body(self) -> dict[str, Any]:
        """What the answer holds."""
        error = {"code": self.code, "message": clean_text(self.message, MOST_MESSAGE)}
        if self.hint:
            error["hint"] = clean_text(self.hint, MOST_MESSAGE)
        return {"error": error}

    def response(self) -> Response:
        """The answer."""
        return JSONResponse(self.body(), self.status, self.headers)


def invalid(message: str, hint: str | None = None, *, option: str | None = None) -> WebError:
    """Something in the request is not as it must be."""
    return WebError(400, "invalid", message, hint, option=option)


def forbidden(message: str, hint: str | None = None) -> WebError:
    """They were let in, but not for this."""
    return WebError(403, "forbidden", message, hint)


def missing(message: str) -> WebError:
    """There is no such thing, or it is somebody else's: the answer is the same."""
    return WebError(404, "not_found", message)


def told(error: DulyError) -> WebError:
    """Return how an error of duly is answered."""
    message = str(error)
    match error:
        case PayloadTooLarge():
            return WebError(413, "too_large", message)
        case QueueFull():
            return WebError(429, "queue_full", message)
        case QuotaExceeded():
            seconds = None if error.retry_after is None else math.ceil(error.retry_after.total_seconds())
            return WebError(429, "quota_exceeded", message, headers=_retry_after(seconds))
        case JobNotFound():
            return WebError(404, "not_found", message)
        case UnknownTask():
            return WebError(400, "unknown_task", message, option="task")
        case InvalidSchedule() if error.position is not None:
            where = f"at position {error.position} of {error.text!r}"
            return WebError(400, "invalid_schedule", message, where, option=error.option)
        case ArgumentError() | ArgumentsDoNotFit():
            return WebError(400, "invalid_arguments", message, option="args")
        case InvalidOption():
            return WebError(400, "invalid", message, option=error.option)
        case Conflict() | MirrorFailed():
            return WebError(409, "conflict", message)
        case DatabaseError() | ConfigurationError():
            # What it says may name hosts and files: that is for the log, not for whoever asks.
            return WebError(503, "unavailable", "the database cannot be used now", "try again in a while")
        case _:
            return WebError(409, "conflict", message)


def _retry_after(seconds: int | None) -> dict[str, str]:
    return {} if seconds is None else {"retry-after": str(max(1, seconds))}
