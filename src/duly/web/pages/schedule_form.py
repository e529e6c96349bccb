"""The form that makes a schedule and the one that edits it: what its rule means and names next, before it is saved."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from duly.domain.errors import DulyError
from duly.web.errors import WebError, invalid
from duly.web.pages.filled import arguments, examples, problem_of
from duly.web.pages.jobs import whole
from duly.web.pages.shell import call, desk_of, field, go_to, say, show
from duly.web.principal import Scope
from duly.web.service import schedules as verbs

FIELDS: Final = ("name", "description", "rules", "timezone", "priority", "queue", "args", "misfire", "overlap")
OF_NEW: Final = ("task", "key", "tenant", "pause_after", "enabled")
EMPTY: Final = {name: "" for name in (*FIELDS, *OF_NEW)} | {
    "timezone": "UTC",
    "priority": "0",
    "args": "{}",
    "misfire": "once",
    "overlap": "skip",
    "enabled": "yes",
}
ZONES: Final = (
    "UTC", "Europe/London", "Europe/Berlin", "America/New_York", "America/Chicago", "America/Los_Angeles",
    "America/Sao_Paulo", "Asia/Kolkata", "Asia/Shanghai", "Asia/Tokyo", "Australia/Sydney",
)  # fmt: skip


async def new_page(request: Request) -> Response:
    """An empty form, or one for a task that the address names."""
    desk_of(request).need(Scope.OPERATE)
    task = request.query_params.get("task", "")
    return await _form(request, EMPTY | {"task": task, "args": dict(examples(request)).get(task, "{}")})


async def edit_page(request: Request) -> Response:
    """The form with a schedule as it is."""
    desk_of(request).need(Scope.OPERATE)
    schedule = await call(request, verbs.get, desk_of(request), request.path_params["id"])
    return await _form(request, values_of(schedule), schedule)


def values_of(schedule: dict[str, Any]) -> dict[str, str]:
    """What the form holds of a schedule."""
    held = {name: str(schedule[name] or "") for name in ("name", "description", "timezone", "queue")}
    return (
        EMPTY
        | held
        | {
            "rules": "\n".join(schedule["rules"]),
            "priority": str(schedule["priority"]),
            "args": json.dumps(schedule["args"], indent=2, ensure_ascii=False),
            "misfire": schedule["misfire"],
            "overlap": schedule["overlap"],
        }
    )


async def _form(
    request: Request,
    values: dict[str, str],
    schedule: dict[str, Any] | None = None,
    *,
    preview: dict[str, Any] | None = None,
    problem: str = "",
) -> Response:
    return show(
        request,
        "schedule_form.html",
        current="schedules",
        values=values,
        schedule=schedule,
        preview=preview,
        problem=problem,
        tasks=examples(request),
        zones=ZONES,
    )


async def preview_json(request: Request) -> Response:
    """What a rule means, while somebody writes it. A rule that is not finished yet is no error."""
    query = request.query_params
    values = {"rules": "\n".join(query.getlist("rule")[:20])[:5_000], "timezone": query.get("timezone", "")[:100]}
    try:
        found = await _preview(request, values)
        return JSONResponse({"text": found["text"], "times": found["times"], "wrong": False})
    except (WebError, DulyError) as error:
        return JSONResponse({"text": problem_of(error), "times": [], "wrong": True})


# -- act --------------------------------------------------------------------------------------------------------------


async def create(request: Request) -> Response:
    """Make a schedule; or say what its rule means, and keep the form as it was filled in."""
    values = await _values(request, (*FIELDS, *OF_NEW))
    try:
        if await field(request, "step") == "preview":
            return await _form(request, values, preview=await _preview(request, values))
        made = await call(request, verbs.create, desk_of(request), **_new(values))
    except (WebError, DulyError) as error:
        return await _form(request, values, problem=problem_of(error))
    say(request, "Created.")
    return go_to(request, f"/schedules/{made['id']}")


async def edit(request: Request) -> Response:
    """Change a schedule; or say what its rule means, and keep the form as it was filled in."""
    job_id = request.path_params["id"]
    schedule = await call(request, verbs.get, desk_of(request), job_id)
    values = values_of(schedule) | await _values(request, FIELDS)
    try:
        if await field(request, "step") == "preview":
            return await _form(request, values, schedule, preview=await _preview(request, values))
        changes = _changes(values)
        if values["rules"] == values_of(schedule)["rules"] and values["timezone"] == schedule["timezone"]:
            del changes["rules"], changes["timezone"]  # its next run moves only if the schedule does
        await call(request, verbs.edit, desk_of(request), job_id, **changes)
    except (WebError, DulyError) as error:
        return await _form(request, values, schedule, problem=problem_of(error))
    say(request, "Saved.")
    return go_to(request, f"/schedules/{job_id}")


async def _values(request: Request, names: tuple[str, ...]) -> dict[str, str]:
    return {name: (await field(request, name)).replace("\r\n", "\n") for name in names}


def _rules(values: dict[str, str]) -> list[str]:
    return [line.strip() for line in values["rules"].splitlines() if line.strip()]


async def _preview(request: Request, values: dict[str, str]) -> dict[str, Any]:
    rules = _rules(values)
    if not rules:
        raise invalid("write a rule first", "for instance @every 15m, @daily or 0 7 * * mon-fri")
    desk, timezone = desk_of(request), values["timezone"] or None
    found: dict[str, Any] = await call(request, verbs.preview, desk, expression=rules, timezone=timezone)
    return found


def _changes(values: dict[str, str]) -> dict[str, Any]:
    """What the form says, as the verb takes it. What is left empty is taken away, or left as it is."""
    changes: dict[str, Any] = {
        "name": values["name"] or None,
        "description": values["description"] or None,
        "priority": whole(values["priority"] or "0", "priority"),
        "misfire": values["misfire"],
        "overlap": values["overlap"],
        "args": arguments(values["args"]),
        "rules": _rules(values),
        "timezone": values["timezone"] or "UTC",
    }
    if values["queue"]:
        changes["queue"] = values["queue"]
    return changes


def _new(values: dict[str, str]) -> dict[str, Any]:
    if not values["task"]:
        raise invalid("which task shall run? Name one")
    made = _changes(values) | {"task": values["task"], "enabled": values["enabled"] == "yes"}
    if not made["rules"]:
        raise invalid("when? Write a rule", "for instance @every 15m, @daily or 0 7 * * mon-fri")
    made |= {name: values[name] for name in ("key", "tenant") if values[name]}
    if values["pause_after"]:
        made["pause_after"] = whole(values["pause_after"], "the number of failures")
    return made
