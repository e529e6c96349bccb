"""What was filled into a form, read; and what is wrong with it, for the form that is then shown again."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from duly.domain.errors import ArgumentError, DulyError
from duly.domain.json import decode_strict
from duly.web.errors import WebError, invalid, told
from duly.web.pages import words
from duly.web.pages.shell import desk_of


def problem_of(error: WebError | DulyError) -> str:
    """What is wrong with what was filled in. What is not about that is for the page of errors."""
    problem = error if isinstance(error, WebError) else told(error)
    if problem.status not in (400, 409, 413, 429):
        raise problem
    return f"{problem.message}. {problem.hint}" if problem.hint else problem.message


def examples(request: Request) -> list[tuple[str, str]]:
    """The tasks that this server knows, each with arguments to start from, as JSON."""
    known = desk_of(request).jobs.registry.tasks
    return [(name, words.pretty(known[name].signature.example())) for name in sorted(known)]


def arguments(text: str) -> dict[str, Any]:
    """The arguments of a job, which are written as JSON."""
    try:
        args = decode_strict(text or "{}")
    except ArgumentError as error:
        raise invalid(f"the arguments are no JSON: {str(error).removeprefix('The arguments ')}") from None
    if not isinstance(args, dict):
        raise invalid('the arguments must be a JSON object, like {"name": "Ada"}')
    return args
