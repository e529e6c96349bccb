"""The page of one job: how it stands, what happened, every run; and what can be done to it."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from duly.web.desk import Desk
from duly.web.pages.jobs import whole
from duly.web.pages.shell import Deed, call, desk_of, field, go_to, say, show
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


def _id(request: Request) -> str:
    return str(request.path_params["id"])


async def cancel(request: Request) -> str:
    """Cancel it, or have its worker asked to stop it."""
    reason = await field(request, "reason") or "cancelled"
    answer = await call(request, verbs.cancel, desk_of(request), _id(request), reason=reason)
    return "Asked its worker to stop it." if answer["outcome"] == "asked" else "Cancelled."


async def retry(request: Request) -> str:
    """Run it again now."""
    await call(request, verbs.retry, desk_of(request), _id(request))
    return "Queued again, its attempts at 0."


async def delete(request: Request) -> Response:
    """Forget it; its page is gone then."""
    await call(request, verbs.delete, desk_of(request), _id(request))
    say(request, f"Job {_id(request)} and its history were deleted.")
    return go_to(request, "/jobs")


async def boost(request: Request) -> str:
    """Raise its priority."""
    answer = await call(request, verbs.boost, desk_of(request), _id(request))
    return f"Its priority is {answer['priority']} now."


async def set_priority(request: Request) -> str:
    """Set its priority."""
    priority = whole(await field(request, "priority"), "priority")
    await call(request, verbs.set_priority, desk_of(request), _id(request), priority=priority)
    return f"Its priority is {priority} now."


async def set_state(request: Request) -> str:
    """Set its state by hand."""
    answer = await call(
        request, verbs.set_status, desk_of(request), _id(request), status=await field(request, "status")
    )
    return f"It is {answer['state']} now."


async def reschedule(request: Request) -> str:
    """Give it another time."""
    at, delay = await field(request, "run_at"), await field(request, "delay")
    if at:
        moment = at if at.endswith("Z") or "+" in at else f"{at}Z"
        await call(request, verbs.reschedule, desk_of(request), _id(request), run_at=moment)
    else:
        await call(request, verbs.reschedule, desk_of(request), _id(request), delay=delay or "0s")
    return "It has another time now."


async def copy(request: Request) -> Response:
    """Store it again, and show the copy."""
    answer = await call(request, enqueue.copy, desk_of(request), _id(request))
    say(request, "This is the copy.")
    return go_to(request, f"/jobs/{answer['id']}")


DEEDS: Final[dict[str, Deed]] = {
    "cancel": cancel,
    "retry": retry,
    "delete": delete,
    "boost": boost,
    "priority": set_priority,
    "state": set_state,
    "time": reschedule,
    "copy": copy,
}
