"""What ran: the newest runs of all jobs, what was used by whom, and what holds all that waits."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from duly.web.pages.shell import call, desk_of, show
from duly.web.service import jobs as verbs
from duly.web.service import system

PAGE: Final = 100
PERIODS: Final = ("hour", "day", "month")
BY: Final = ("tenant", "task", "queue", "tenant,task", "task,queue", "tenant,task,queue")


async def runs_page(request: Request) -> Response:
    """The runs that ended last."""
    filters = {name: request.query_params.get(name, "").strip() for name in ("task", "tenant")}
    found = await call(request, verbs.recent_runs, desk_of(request), **filters, limit=PAGE)
    return show(request, "runs.html", current="jobs", runs=found["items"], filters=filters)


async def usage_page(request: Request) -> Response:
    """What ran, added up."""
    query = request.query_params
    filters = {name: query.get(name, "").strip() for name in ("since", "by", "period", "task", "tenant")}
    filters["since"], filters["by"] = filters["since"] or "24h", filters["by"] or "tenant,task"
    found = await call(
        request, system.usage, desk_of(request), **{name: value or None for name, value in filters.items()}
    )
    return show(
        request, "usage.html", current="tenants", lines=found["items"], filters=filters, periods=PERIODS, ways=BY
    )


async def why_page(request: Request) -> Response:
    """What holds all that waits, in one queue or in every one."""
    queue = request.query_params.get("queue", "").strip()
    found = await call(request, verbs.why_waiting, desk_of(request), queue=queue or None)
    return show(request, "why.html", current="queues", groups=found["items"], queue=queue)
