"""The form that makes a schedule and the one that edits it: what its rule means and names next, before it is saved."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from duly.domain.errors import DulyError
from duly.web.errors import WebError
from duly.web.guard import form_of
from duly.web.pages.filled import Fault, examples, fault_of
from duly.web.pages.schedule_values import (
    EMPTY,
    EXAMPLES,
    FIELDS,
    LABELS,
    MORE,
    OF_NEW,
    TICKS,
    Values,
    changes_of,
    is_more,
    new_of,
    rules_of,
    values_of,
    when_of,
    whose_of,
)
from duly.web.pages.shell import call, desk_of, field, go_to, say, show
from duly.web.principal import Scope
from duly.web.service import schedules as verbs

LONGEST_ASKED: Final = 20_000
ZONES: Final = (
    "UTC", "Europe/London", "Europe/Berlin", "America/New_York", "America/Chicago", "America/Los_Angeles",
    "America/Sao_Paulo", "Asia/Kolkata", "Asia/Shanghai", "Asia/Tokyo", "Australia/Sydney",
)  # fmt: skip


async def new_page(request: Request) -> Response:
    """An empty form, or one for a task that the address names."""
    desk_of(request).need(Scope.OPERATE)
    task = request.query_params.get("task", "")
    return _form(request, EMPTY | {"task": task, "args": dict(examples(request)).get(task, "{}")})


async def edit_page(request: Request) -> Response:
    """The form with a schedule as it is."""
    desk_of(request).need(Scope.OPERATE)
    schedule = await call(request, verbs.get, desk_of(request), request.path_params["id"])
    return _form(request, values_of(schedule), schedule)


def fields_of(values: Values, fault: Fault | None = None) -> dict[str, Any]:
    """What the template of the fields needs."""
    return {
        "values": values,
        "fault": fault,
        "labels": LABELS,
        "examples": EXAMPLES,
        "zones": ZONES,
        "more_open": is_more(values) or (fault is not None and fault.field in MORE),
    }


def _form(
    request: Request,
    values: Values,
    schedule: dict[str, Any] | None = None,
    *,
    preview: dict[str, Any] | None = None,
    fault: Fault | None = None,
) -> Response:
    return show(
        request,
        "schedule_form.html",
        current="schedules",
        schedule=schedule,
        preview=preview,
        tasks=examples(request),
        **fields_of(values, fault),
    )


async def preview_json(request: Request) -> Response:
    """What a rule means, while somebody writes it. A rule that is not finished yet is no error."""
    query = request.query_params
    asked = {name: query.get(name, "")[:LONGEST_ASKED].strip() for name in (*FIELDS, *OF_NEW) if name in query}
    try:
        found = await _preview(request, EMPTY | asked, query.get("of") or None)
        return JSONResponse({"text": found["text"], "times": found["times"], "wrong": False})
    except (WebError, DulyError) as error:
        return JSONResponse({"text": _fault(error).text, "times": [], "wrong": True})


# -- act --------------------------------------------------------------------------------------------------------------


async def create(request: Request) -> Response:
    """Make a schedule; or say what its rule means, and keep the form as it was filled in."""
    values = EMPTY | await _posted(request)
    try:
        if await field(request, "step") == "preview":
            return _form(request, values, preview=await _preview(request, values))
        made = await call(request, verbs.create, desk_of(request), **new_of(values))
    except (WebError, DulyError) as error:
        return _form(request, values, fault=_fault(error))
    say(request, "Created.")
    return go_to(request, f"/schedules/{made['id']}")


async def edit(request: Request) -> Response:
    """Change a schedule; or say what its rule means, and keep the form as it was filled in."""
    job_id = request.path_params["id"]
    schedule = await call(request, verbs.get, desk_of(request), job_id)
    before = values_of(schedule)
    values = before | await _posted(request)
    try:
        if await field(request, "step") == "preview":
            return _form(request, values, schedule, preview=await _preview(request, values, job_id))
        await call(request, verbs.edit, desk_of(request), job_id, **changes_of(values, before))
    except (WebError, DulyError) as error:
        return _form(request, values, schedule, fault=_fault(error))
    say(request, "Saved.")
    return go_to(request, f"/schedules/{job_id}")


async def _posted(request: Request) -> Values:
    """What was filled in. What the form did not have is left as it is."""
    posted = await form_of(request)
    given = [name for name in (*FIELDS, *OF_NEW) if name in posted or name in TICKS]
    return {name: (await field(request, name)).replace("\r\n", "\n") for name in given}


async def _preview(request: Request, values: Values, job_id: str | None = None) -> dict[str, Any]:
    which = whose_of(values) if job_id is None else {"of": job_id}
    given = {"expression": rules_of(values), **when_of(values), **which}
    found: dict[str, Any] = await call(request, verbs.preview, desk_of(request), **given)
    return found


def _fault(error: WebError | DulyError) -> Fault:
    return fault_of(error, LABELS, EXAMPLES)
