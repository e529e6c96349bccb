"""The HTML pages. `routes` is called once, when the application is made. See docs/decisions/0014-web.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

if TYPE_CHECKING:
    from duly.web.asgi import Web


def routes(web: Web) -> list[BaseRoute]:
    """Every page, and every action of its forms."""
    from duly.web.pages import alerts, audit, job, jobs, limits, live, overview, places, schedules
    from duly.web.pages.shell import action, page

    looks = {
        "/": overview.overview,
        "/workers": overview.workers,
        "/jobs": jobs.jobs_page,
        "/jobs/{id}": job.job_page,
        "/schedules": schedules.schedules_page,
        "/schedules/{id}": schedules.schedule_page,
        "/queues": places.queues_page,
        "/tenants": places.tenants_page,
        "/alerts": alerts.alerts_page,
        "/audit": audit.audit_page,
    }
    acts = {
        "/jobs/bulk": jobs.bulk,
        "/jobs/{id}/{verb}": job.act,
        "/schedules/{id}/{verb}": schedules.act,
        "/queues": places.edit_queue,
        "/tenants": places.edit_tenant,
        "/tenants/quota": limits.set_quota,
        "/limits": limits.set_limit,
        "/limits/unset": limits.unset_limit,
        "/alerts/{verb}": alerts.act,
        "/pause": places.pause,
        "/resume": places.resume,
    }
    return [
        Route("/live", live.live, methods=["GET"]),
        Route("/live.json", live.live_json, methods=["GET"]),
        *(Route(path, action(handler), methods=["POST"]) for path, handler in acts.items()),
        *(Route(path, page(handler), methods=["GET"]) for path, handler in looks.items()),
    ]


def login_page(request: Request, web: Web, *, next_path: str, problem: str = "", status: int = 200) -> Response:
    """The page that asks for a token, or a name and a password. Its form posts `name`, `password`, `next`."""
    from duly.web.guard import prefix_of
    from duly.web.pages.shell import templates

    html = templates.get_template("login.html").render(
        prefix=prefix_of(request), names=bool(web.options.users), problem=problem, next_path=next_path
    )
    return HTMLResponse(html, status)
