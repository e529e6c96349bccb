"""What was filled into a form, read; and what is wrong with it, for the form that is then shown again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.requests import Request

from duly.domain.errors import ArgumentError, DulyError
from duly.domain.json import decode_strict
from duly.web.errors import WebError, invalid, told
from duly.web.pages import words
from duly.web.pages.shell import desk_of


def problem_of(error: WebError | DulyError) -> str:
    """What is wrong with what was filled in. What is not about that is for the page of errors."""
    problem = _about_the_form(error)
    return f"{problem.message}. {problem.hint}" if problem.hint else problem.message


class Fault(NamedTuple):
    """What is wrong with what was filled in, and the field that it is said at; none if it is about the whole."""

    field: str | None
    text: str


def fault_of(error: WebError | DulyError, labels: Mapping[str, str], examples: Mapping[str, str]) -> Fault:
    """The same for a form that says it at the field: by its label, and with an example of what may stand there."""
    problem = _about_the_form(error)
    name = "rules" if problem.option == "rule" else problem.option or ""
    if name not in labels:
        return Fault(None, problem_of(error))
    text = problem.message.split("\n")[0].removesuffix(".")
    for called in (name, name.removesuffix("_at")):
        if text.startswith(f"{called} "):
            text = f"“{labels[name]}”{text.removeprefix(called)}"
            break
    example = f" Write for instance {examples[name]}" if name in examples else ""
    return Fault(name, f"{text}.{example}")


def _about_the_form(error: WebError | DulyError) -> WebError:
    problem = error if isinstance(error, WebError) else told(error)
    if problem.status not in (400, 409, 413, 429):
        raise problem
    return problem


def examples(request: Request) -> list[tuple[str, str]]:
    """The tasks that this server knows, each with arguments to start from, as JSON."""
    known = desk_of(request).jobs.registry.tasks
    return [(name, words.pretty(known[name].signature.example())) for name in sorted(known)]


def arguments(text: str) -> dict[str, Any]:
    """The arguments of a job, which are written as JSON."""
    try:
        args = decode_strict(text or "{}")
    except ArgumentError as error:
        raise invalid(
            f"the arguments are no JSON: {str(error).removeprefix('The arguments ')}", option="args"
        ) from None
    if not isinstance(args, dict):
        raise invalid('the arguments must be a JSON object, like {"name": "Ada"}', option="args")
    return args
