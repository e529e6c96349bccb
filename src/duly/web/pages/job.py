"""The page of one job: how it stands, what happened, every run; and what can be done to it."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from duly.web.desk import Desk
from duly.web.errors import missing
from duly.web.pages.jobs import whole
from duly.web.pages.shell import call, desk_of, field, go_back, go_to, say, show
from duly.web.service import enqueue, system
from duly.web.service import jobs as verbs

MOST_RUNS: Final = 20
MOST_DEEDS: Final = 50
ENDED: Final = ("succeeded", "failed", "cancelled")


async def job_page(request: Request) -> Response:
    """One job."""
    known = await call(request, read, desk_of(request), request.path_params["id"], request.query_params.get("before"))
    return show(request, "job.html", current="jobs", **known)


def read(desk: Desk, job_id: str, before: str | None = None) -> dict[str, Any]:
    """Everything that the page of a job shows."""
    job = verbs.get(desk, job_id)
    found = verbs.runs(desk, job_id, limit=MOST_RUNS, before=int(before) if before and before.isdecimal() else None)
    runs = found["items"]
    deeds = system.audit(desk, job=job_id, limit=MOST_DEEDS)["items"]
    succeeded = [run for run in runs if run["outcome"] == "succeeded"]
    return {
        "job": job,
        "runs": runs,
        "older": found["next_before"],
        "newest": before is None,
        "result": succeeded[0]["result"] if succeeded and job["state"] == "succeeded" else None,
        "has_result": bool(succeeded) and job["state"] == "succeeded",
        "why": None if job["state"] in ENDED else verbs.why(desk, job["id"]),
        "timeline": timeline(job, runs if before is None else [], deeds),
        "ended": job["state"] in ENDED,
        "unstarted": job["state"] in ("scheduled", "queued"),
    }


def timeline(job: dict[str, Any], runs: list[dict[str, Any]], deeds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What happened to a job, first to last: (when, what, how it is coloured, more)."""
    by = f"by {job['enqueued_by']}" if job["enqueued_by"] else ""
    found = [_event(job["created_at"], "enqueued", "queued", by)]
    for run in reversed(runs):
        more = f"{run['error_kind']}: {run['error']}" if run["error_kind"] else run["error"] or ""
        found.append(_event(run["started_at"], f"run {run['attempt']} started", "running", ""))
        found.append(_event(run["finished_at"], f"run {run['attempt']} {run['outcome']}", run["outcome"], more))
    for deed in deeds:
        who = f"by {deed['who']}" if deed["who"] else ""
        found.append(_event(deed["at"], deed["action"].replace("_", " "), "deed", who))
    if job["state"] == "running":
        found.append(_event(job["started_at"], f"run {job['attempts']} started", "running", ""))
    if job["cancel_asked_at"] and job["state"] == "running":
        found.append(_event(job["cancel_asked_at"], "asked to stop", "cancelled", ""))
    found.sort(key=lambda event: event["at"])
    if job["finished_at"]:
        found.append(_event(job["finished_at"], job["state"], job["state"], job["reason"] or ""))
    elif job["state"] == "scheduled" and job["run_at"]:
        again = "due again" if job["attempts"] else "due"
        found.append(_event(job["run_at"], again, "scheduled", job["reason"] or ""))
    return found


def _event(at: str, what: str, kind: str, more: str) -> dict[str, Any]:
    return {"at": at, "what": what, "kind": kind, "more": more}


# -- act --------------------------------------------------------------------------------------------------------------


async def act(request: Request) -> Response:
    """Do something to one job, and go back to where that was asked for."""
    job_id, verb = request.path_params["id"], request.path_params["verb"]
    match verb:
        case "cancel":
            reason = await field(request, "reason") or "cancelled"
            answer = await call(request, verbs.cancel, desk_of(request), job_id, reason=reason)
            text = "Asked its worker to stop it." if answer["outcome"] == "asked" else "Cancelled."
        case "retry":
            await call(request, verbs.retry, desk_of(request), job_id)
            text = "Queued again, its attempts at 0."
        case "delete":
            await call(request, verbs.delete, desk_of(request), job_id)
            say(request, f"Job {job_id} and its history were deleted.")
            return go_to(request, "/jobs")
        case "boost":
            answer = await call(request, verbs.boost, desk_of(request), job_id)
            text = f"Its priority is {answer['priority']} now."
        case "priority":
            priority = whole(await field(request, "priority"), "priority")
            await call(request, verbs.set_priority, desk_of(request), job_id, priority=priority)
            text = f"Its priority is {priority} now."
        case "time":
            text = await _reschedule(request, job_id)
        case "copy":
            answer = await call(request, enqueue.copy, desk_of(request), job_id)
            say(request, "This is the copy.")
            return go_to(request, f"/jobs/{answer['id']}")
        case _:
            raise missing("there is nothing here")
    say(request, text)
    return await go_back(request, f"/jobs/{job_id}")


async def _reschedule(request: Request, job_id: str) -> str:
    at, delay = await field(request, "run_at"), await field(request, "delay")
    if at:
        moment = at if at.endswith("Z") or "+" in at else f"{at}Z"
        await call(request, verbs.reschedule, desk_of(request), job_id, run_at=moment)
    else:
        await call(request, verbs.reschedule, desk_of(request), job_id, delay=delay or "0s")
    return "It has another time now."
