"""The HTML pages. `routes` is called once, when the application is made. See docs/decisions/0014-web.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

if TYPE_CHECKING:
    from duly.web.asgi import Web
    from duly.web.pages.shell import Handler


def looks() -> dict[str, Handler]:
    """Every page, by path."""
    from duly.web.pages import alerts, audit, enqueue, job, jobs, overview, places, reports, schedule_form, schedules
    from duly.web.pages import system as installation

    return {
        "/": overview.overview,
        "/workers": overview.workers,
        "/jobs": jobs.jobs_page,
        "/jobs/new": enqueue.new_page,
        "/jobs/{id}": job.job_page,
        "/runs": reports.runs_page,
        "/schedules": schedules.schedules_page,
        "/schedules/new": schedule_form.new_page,
        "/schedules/preview": schedule_form.preview_json,
        "/schedules/{id}": schedules.schedule_page,
        "/schedules/{id}/edit": schedule_form.edit_page,
        "/queues": places.queues_page,
        "/why": reports.why_page,
        "/tenants": places.tenants_page,
        "/usage": reports.usage_page,
        "/alerts": alerts.alerts_page,
        "/alerts/{id}": alerts.alert_page,
        "/audit": audit.audit_page,
        "/system": installation.system_page,
        "/system/doctor": installation.doctor_page,
    }


def acts() -> dict[str, Handler]:
    """Everything that a form does, by path. To add one: write the verb in `duly.web.service`, then a deed here."""
    from duly.web.pages import alerts, enqueue, job, jobs, limits, places, schedule_form, schedules
    from duly.web.pages import system as installation
    from duly.web.pages.shell import deed

    return {
        "/jobs/new": enqueue.create,
        "/jobs/bulk": jobs.bulk,
        **{f"/jobs/{{id}}/{name}": deed(do, "/jobs/{id}") for name, do in job.DEEDS.items()},
        "/schedules/new": schedule_form.create,
        "/schedules/{id}/edit": schedule_form.edit,
        **{f"/schedules/{{id}}/{name}": deed(do, "/schedules/{id}") for name, do in schedules.DEEDS.items()},
        **{f"/alerts/{name}": deed(do, "/alerts") for name, do in alerts.DEEDS.items()},
        **{
            path: deed(do, back)
            for table in (places.DEEDS, limits.DEEDS, installation.DEEDS)
            for path, (do, back) in table.items()
        },
    }


def routes(web: Web) -> list[BaseRoute]:
    """Every page, and every action of its forms."""
    from duly.web.pages import live
    from duly.web.pages.shell import action, page

    return [
        Route("/live", live.live, methods=["GET"]),
        Route("/live.json", live.live_json, methods=["GET"]),
        *(Route(path, action(handler), methods=["POST"]) for path, handler in acts().items()),
        *(Route(path, page(handler), methods=["GET"]) for path, handler in looks().items()),
    ]


def login_page(request: Request, web: Web, *, next_path: str, problem: str = "", status: int = 200) -> Response:
    """The page that asks for a token, or a name and a password. Its form posts `name`, `password`, `next`."""
    from duly.web.guard import prefix_of
    from duly.web.pages.shell import templates

    html = templates.get_template("login.html").render(
        prefix=prefix_of(request), names=bool(web.options.users), problem=problem, next_path=next_path
    )
    return HTMLResponse(html, status)
