"""The form that stores a job."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from duly.domain.errors import DulyError
from duly.web.errors import WebError, invalid
from duly.web.pages.filled import arguments, examples, problem_of
from duly.web.pages.jobs import whole
from duly.web.pages.shell import call, desk_of, field, go_to, say, show
from duly.web.principal import Scope
from duly.web.service import enqueue as verbs

FIELDS: Final = ("task", "args", "queue", "tenant", "priority", "delay", "unique", "tags")
EMPTY: Final = {name: "" for name in FIELDS} | {"args": "{}"}


async def new_page(request: Request) -> Response:
    """An empty form, or one for a task that the address names."""
    desk_of(request).need(Scope.ENQUEUE)
    task = request.query_params.get("task", "")
    return _form(request, EMPTY | {"task": task, "args": dict(examples(request)).get(task, "{}")})


def _form(request: Request, values: dict[str, str], problem: str = "") -> Response:
    known = desk_of(request).jobs.registry.tasks
    tasks = [(name, str(known[name].signature), example) for name, example in examples(request)]
    return show(request, "enqueue.html", current="jobs", values=values, problem=problem, tasks=tasks)


async def create(request: Request) -> Response:
    """Store a job, and show it."""
    values = {name: await field(request, name) for name in FIELDS}
    try:
        made = await call(request, verbs.enqueue, desk_of(request), **_options(values))
    except (WebError, DulyError) as error:
        return _form(request, values, problem_of(error))
    say(request, "Stored." if made["created"] else "There was one with this unique key already: this is it.")
    return go_to(request, f"/jobs/{made['id']}")


def _options(values: dict[str, str]) -> dict[str, Any]:
    if not values["task"]:
        raise invalid("which task shall run? Name one")
    given: dict[str, Any] = {name: values[name] for name in ("task", "queue", "tenant", "delay", "unique")}
    if values["priority"]:
        given["priority"] = whole(values["priority"], "priority")
    given["tags"] = [tag.strip() for tag in values["tags"].split(",") if tag.strip()]
    return {name: value for name, value in given.items() if value} | {"args": arguments(values["args"])}
