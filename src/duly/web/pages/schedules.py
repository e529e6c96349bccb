"""Recurring jobs: what recurs, by which rule in plain words, what it did, and when it comes next."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from duly.store import ops_pages
from duly.store.ops_pages import Past
from duly.web.desk import Desk
from duly.web.pages import charts, words
from duly.web.pages.charts import Bar
from duly.web.pages.job import MOST_RUNS
from duly.web.pages.schedule_form import fields_of
from duly.web.pages.schedule_values import values_of
from duly.web.pages.shell import Deed, call, desk_of, field, go_to, say, show
from duly.web.service import schedules as verbs
from duly.web.service import system

PAGE: Final = 50
STRIP: Final = 24
GOOD: Final = ("succeeded", "snoozed", "released")


async def schedules_page(request: Request) -> Response:
    """Recurring jobs by tenant, task and key, and how much is to come in a day."""
    query = request.query_params
    filters = {name: query.get(name, "").strip() for name in ("task", "tenant", "enabled")}
    enabled = {"yes": True, "no": False}.get(filters["enabled"])
    known = await call(request, _read_all, desk_of(request), filters, enabled, query.get("after") or None)
    return show(request, "schedules.html", current="schedules", filters=filters, first="after" not in query, **known)


def _read_all(desk: Desk, filters: dict[str, str], enabled: bool | None, after: str | None) -> dict[str, Any]:
    found = verbs.list_schedules(
        desk, limit=PAGE, cursor=after, task=filters["task"], tenant=filters["tenant"], enabled=enabled
    )
    store, ids = desk.jobs.store, [each["id"] for each in found["items"]]
    past = store.database.read(lambda: ops_pages.strips(store.dialect, ids, STRIP))
    load = verbs.load(desk)
    for each in found["items"]:
        each["strip"] = strip(past.get(each["id"], []))
    return {"schedules": found["items"], "following": found["next_cursor"], "load": load_chart(load)}


def strip(past: list[Past]) -> Any:
    """The last runs of a recurring job as a row of bars, as high as they were long."""
    if not past:
        return ""
    longest = max((run.finished_at - run.started_at for run in past), default=1) or 1
    bars = [Bar((("none", 0.0),), "")] * (STRIP - len(past))
    for run in past:
        took = (run.finished_at - run.started_at) / longest
        name = "succeeded" if run.outcome in GOOD else "failed" if run.outcome in ("failed", "crashed") else "other"
        seconds = words.span((run.finished_at - run.started_at) / 1e6)
        bars.append(Bar(((name, 0.25 + 0.75 * took),), f"{words.exact(run.started_at)}: {run.outcome} after {seconds}"))
    wrong = sum(1 for run in past if run.outcome in ("failed", "crashed"))
    label = f"The last {words.plural(len(past), 'run')}: {wrong} failed"
    return charts.bars(bars, label, top=1.0, kind="strip")


def load_chart(load: dict[str, Any]) -> dict[str, Any]:
    """How many runs are planned in each of the next 24 hours."""
    bars = [
        Bar(
            (("planned", hour["ticks"]),),
            f"from {words.exact(hour['starts_at'])}: {words.plural(hour['ticks'], 'run')}",
        )
        for hour in load["hours"]
    ]
    planned = sum(hour["ticks"] for hour in load["hours"])
    top = charts.nice(max((bar.total for bar in bars), default=1))
    most = max((hour["ticks"] for hour in load["hours"]), default=0)
    label = f"Runs planned in each of the next 24 hours: {planned:,} in all, at most {most:,} in an hour"
    return {
        "svg": charts.bars(bars, label, top=top),
        "planned": planned,
        "top": top,
        "complete": load["complete"],
        "busiest": max(load["hours"], key=lambda hour: hour["ticks"]) if planned else None,
    }


async def schedule_page(request: Request) -> Response:
    """One recurring job: its rule, its next times, its runs, and a form to change it."""
    known = await call(request, _read_one, desk_of(request), request.path_params["id"])
    fields = fields_of(values_of(known["schedule"]))
    return show(request, "schedule.html", current="schedules", **fields, **known)


def _read_one(desk: Desk, job_id: str) -> dict[str, Any]:
    schedule = verbs.get(desk, job_id)
    store = desk.jobs.store
    past = store.database.read(lambda: ops_pages.strips(store.dialect, [schedule["id"]], STRIP))
    return {
        "schedule": schedule,
        "strip": strip(past.get(schedule["id"], [])),
        "runs": verbs.history(desk, job_id, limit=MOST_RUNS)["items"],
        "deeds": system.audit(desk, job=job_id, limit=10)["items"],
    }


# -- act --------------------------------------------------------------------------------------------------------------


def _id(request: Request) -> str:
    return str(request.path_params["id"])


async def enable(request: Request) -> str:
    """Let it run again."""
    await call(request, verbs.toggle, desk_of(request), _id(request), enabled=True)
    return "Enabled."


async def disable(request: Request) -> str:
    """Let it run no more."""
    reason = await field(request, "reason")
    await call(request, verbs.toggle, desk_of(request), _id(request), enabled=False, reason=reason)
    return "Disabled. A run under way ends normally."


async def run_now(request: Request) -> str:
    """Run it once now."""
    await call(request, verbs.run_now, desk_of(request), _id(request))
    return "It runs once now, beside its schedule."


async def delete(request: Request) -> Response:
    """Forget it; its page is gone then."""
    await call(request, verbs.delete, desk_of(request), _id(request))
    say(request, "The schedule and its history were deleted.")
    return go_to(request, "/schedules")


DEEDS: Final[dict[str, Deed]] = {"enable": enable, "disable": disable, "run": run_now, "delete": delete}
