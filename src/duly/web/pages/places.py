"""Queues and tenants: how deep, how fast, how shared; pause, resume and change them."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from duly.web.errors import invalid
from duly.web.pages import charts, figures, glance
from duly.web.pages.limits import limits_of, quotas
from duly.web.pages.live import LOOK_BACK, look
from duly.web.pages.shell import Deed, call, desk_of, field, show
from duly.web.service import places as verbs

PAGE: Final = 100
NOTHING: Final = {"waiting": 0, "running": 0, "scheduled": 0, "oldest": None, "rate": 0.0, "failed": 0}


async def queues_page(request: Request) -> Response:
    """Every queue: how deep it is, how fast it goes, who takes from it."""
    snapshot = await look(request)
    lines = glance.queue_lines(snapshot)
    found = await call(request, verbs.queues, desk_of(request), counts=figures.counts(snapshot))
    limits = await limits_of(request)
    said = {each["name"]: each for each in limits if each["scope"] == "queue"}
    for each in found["items"]:
        each["limit"] = said.get(each["name"])
        line = lines.get(each["name"], NOTHING)
        each |= {name: line[name] for name in NOTHING}
        each["spark"] = charts.spark(line.get("minutes", [0] * LOOK_BACK), f"runs per minute of {each['name']}")
        each["rate_text"] = figures.rate_text(each["rate"])
    paused = (await call(request, verbs.paused, desk_of(request)))["items"]
    closed = [each for each in paused if each["scope"] in ("task", "key")]
    others = [each for each in limits if each["scope"] != "queue"]
    return show(request, "queues.html", current="queues", queues=found["items"], paused_others=closed, limits=others)


async def tenants_page(request: Request) -> Response:
    """Every tenant: what it has, what it used in a day, what its share is."""
    offset = request.query_params.get("offset", "0")
    skip = int(offset) if offset.isdecimal() else 0
    counts = figures.counts(await look(request))
    found = await call(request, verbs.tenants, desk_of(request), limit=PAGE, offset=skip, counts=counts)
    known = quotas(await limits_of(request))
    ran = sum(each["last_day"]["ran_seconds"] for each in found["items"]) or 1.0
    for each in found["items"]:
        share = each["last_day"]["ran_seconds"] / ran
        each["quota"] = known.get(each["name"], {})
        each["share"], each["meter"] = share, charts.meter(share)
    return show(
        request, "tenants.html", current="tenants", tenants=found["items"], total=found["total"], offset=skip, page=PAGE
    )


# -- act --------------------------------------------------------------------------------------------------------------


async def pause(request: Request) -> str:
    """Pause a queue, a task, a tenant or a key."""
    scope, name = await _gate(request)
    options: dict[str, Any] = {
        "reason": await field(request, "reason"),
        "duration": await field(request, "for") or None,
    }
    await call(request, verbs.pause, desk_of(request), scope, name, **options)
    return f"The {scope} {name} is paused: nothing of it starts any more. What runs goes on to its end."


async def resume(request: Request) -> str:
    """Let a queue, a task, a tenant or a key go on."""
    scope, name = await _gate(request)
    answer = await call(request, verbs.resume, desk_of(request), scope, name)
    return f"The {scope} {name} goes on." if answer["was_paused"] else f"The {scope} {name} was not paused."


async def _gate(request: Request) -> tuple[str, str]:
    scope, name = await field(request, "scope"), await field(request, "name")
    if scope not in ("queue", "task", "tenant", "key"):
        raise invalid("name a queue, a task, a tenant or a key")
    return scope, name


async def edit_queue(request: Request) -> str:
    """Change how a queue is shared and how fast it ages."""
    name, aging = await field(request, "name"), await field(request, "aging")
    fair = await field(request, "fair") == "yes"
    await call(request, verbs.edit_queue, desk_of(request), name, fair=fair, aging=aging or None)
    return f"The queue {name} was changed."


async def edit_tenant(request: Request) -> str:
    """Change a tenant's share."""
    name, text = await field(request, "name"), await field(request, "weight")
    try:
        weight = float(text)
    except ValueError:
        raise invalid(f"weight must be a number, not {text[:50]!r}") from None
    await call(request, verbs.edit_tenant, desk_of(request), name, weight=weight)
    return f"The tenant {name} has the weight {weight:g} now."


DEEDS: Final[dict[str, tuple[Deed, str]]] = {
    "/pause": (pause, "/"),
    "/resume": (resume, "/"),
    "/queues": (edit_queue, "/queues"),
    "/tenants": (edit_tenant, "/tenants"),
}
"""What the forms do, by path, and where one goes from there."""
