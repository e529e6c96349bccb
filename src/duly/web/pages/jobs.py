"""The list of jobs, and what can be done to many of them: counted and shown first, then done."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from duly.domain.states import State
from duly.web.errors import invalid
from duly.web.guard import form_of
from duly.web.pages import figures, words
from duly.web.pages.live import hub_of, look
from duly.web.pages.shell import call, desk_of, field, go_to, local, say, show
from duly.web.service import bulk as verbs
from duly.web.service import jobs as on_jobs
from duly.web.service.filters import Wanted

PAGE: Final = 50
TABS: Final = ("queued", "running", "scheduled", "failed", "succeeded", "cancelled")
FIELDS: Final = ("state", "task", "queue", "tenant", "tag", "text", "since", "until")
DEEDS: Final = {
    "retry": (verbs.retry, "Retry", "retried"),
    "cancel": (verbs.cancel, "Cancel", "cancelled"),
    "delete": (verbs.delete, "Delete", "deleted"),
    "priority": (verbs.set_priority, "Set the priority of", "changed"),
    "state": (verbs.set_status, "Set the state of", "changed"),
}


def _wanted(values: Any) -> dict[str, str]:
    """What the filter says, from a query or a form."""
    return {name: str(values.get(name) or "").strip() for name in FIELDS}


async def jobs_page(request: Request) -> Response:
    """Jobs, newest first, narrowed down as the address says."""
    filters = _wanted(request.query_params)
    if filters["state"]:
        filters["state"] = str(State.parse(filters["state"]))
    cursor = request.query_params.get("after") or None
    snapshot = await look(request)
    found = await call(request, on_jobs.list_jobs, desk_of(request), Wanted(**filters), limit=PAGE, cursor=cursor)
    names = {place: sorted(figures.grouped(snapshot, n)) for n, place in enumerate(("queue", "tenant", "task"))}
    names["task"] = sorted({*names["task"], *desk_of(request).jobs.registry.tasks})
    return show(
        request,
        "jobs.html",
        current="jobs",
        jobs=found["items"],
        following=found["next_cursor"],
        complete=found["complete"],
        looked=found["looked_at"],
        filters=filters,
        narrowed=any(value for name, value in filters.items() if name != "state"),
        first=cursor is None,
        tabs=TABS,
        counts=figures.states(snapshot),
        names=names,
        watch=",".join(each["id"] for each in found["items"]),
    )


async def bulk(request: Request) -> Response:
    """Do something to many jobs: those that were ticked, or all that match. First it is said how many these are."""
    form = await form_of(request)
    deed = await field(request, "deed")
    if deed not in DEEDS:
        raise invalid(f"there is nothing called {deed[:50]!r} that can be done to many jobs")
    verb, word, done = DEEDS[deed]
    filters = _wanted({name: values[0] for name, values in form.items()})
    everything = await field(request, "all") == "1"
    ids = [each for each in dict.fromkeys(form.get("id", [])) if each]
    if not everything and not ids:
        raise invalid("no job is ticked. Tick some, or choose all that match")
    chosen: dict[str, Any] = {"wanted": Wanted(**filters)} if everything else {"job_ids": ids}
    priority = await field(request, "priority")
    if deed == "priority":
        chosen["priority"] = whole(priority, "priority")
    status = await field(request, "status")
    if deed == "state":
        chosen["status"] = status
    if await field(request, "sure") != "yes":
        counted = await call(request, verb, desk_of(request), **chosen, dry_run=True)
        sample = await call(request, desk_of(request).jobs.store.jobs_of, counted["ids"][:8])
        return show(
            request,
            "bulk.html",
            current="jobs",
            deed=deed,
            word=word,
            count=counted["count"],
            more=counted["more"],
            sample=list(sample.values()),
            everything=everything,
            ids=ids,
            filters=filters,
            becomes={"priority": priority, "state": status}.get(deed, ""),
            priority=priority,
            into=status,
            back=local(await field(request, "back") or "/jobs"),
        )
    answer = await call(request, verb, desk_of(request), **chosen)
    text = f"{words.plural(answer['count'], 'job')} {done}."
    if answer["refused"]:
        text += f" {words.plural(len(answer['refused']), 'job')} not: {answer['refused'][0]['why']}."
    if answer["more"]:
        text += " There are more that match: do it again for those."
    say(request, text, "good" if answer["count"] or not answer["refused"] else "bad")
    hub_of(request).forget()
    return go_to(request, await field(request, "back") or "/jobs")


def whole(text: str, name: str) -> int:
    """A whole number from a form."""
    try:
        return int(text)
    except ValueError:
        raise invalid(f"{name} must be a whole number, not {text[:50]!r}") from None
