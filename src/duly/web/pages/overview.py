"""The first page, and the workers: what a snapshot shows."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from duly.web.pages import glance
from duly.web.pages.live import hub_of, look
from duly.web.pages.shell import desk_of, show


async def overview(request: Request) -> Response:
    """How everything stands."""
    snapshot = await look(request)
    known = glance.overview(snapshot, hub_of(request).samples(snapshot.tenant))
    del known["only_tenant"]
    tasks = sorted(desk_of(request).jobs.registry.tasks)
    return show(request, "overview.html", current="overview", tasks=tasks, **known)


async def workers(request: Request) -> Response:
    """Who is there to run jobs, and what they run."""
    desk_of(request).need_everyone()
    snapshot = await look(request)
    return show(request, "workers.html", current="workers", workers=glance.worker_lines(snapshot))
