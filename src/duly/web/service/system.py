"""The rest of what operators look at: workers, usage, audit, doctor; and a tick, for where there is no worker."""

from __future__ import annotations

import json
from typing import Any, Final

from duly.web.desk import Desk, verb
from duly.web.principal import Scope
from duly.web.service import shown
from duly.web.service.filters import moment


@verb(Scope.READ)
def me(desk: Desk) -> dict[str, Any]:
    """Who they are, and what they may do here."""
    may = [str(scope) for scope in Scope if desk.may(scope)]
    return {"name": desk.principal.name, "scopes": may, "tenant": desk.tenant, "read_only": desk.read_only}


@verb(Scope.READ, everyone=True)
def workers(desk: Desk) -> dict[str, Any]:
    """Every worker on record, and what it runs."""
    alive, in_hand = {each.id for each in desk.jobs.live_workers()}, desk.jobs.in_hand()
    items = []
    for each in desk.jobs.workers():
        runs = [{"id": job.id, "task": job.task, "since": shown.time(job.claimed_at)} for job in in_hand.of(each.id)]
        busy = in_hand.held.get(each.id, 0)
        items.append({**shown.worker(each, alive=each.id in alive), "busy": busy, "running": runs})
    return {"items": items}


@verb(Scope.READ)
def usage(
    desk: Desk,
    *,
    since: str = "30d",
    until: str | None = None,
    by: str = "tenant,task",
    period: str | None = None,
    tenant: str | None = None,
    task: str | None = None,
    timezone: str = "UTC",
) -> dict[str, Any]:
    """What ran, added up by tenant, task, queue and period."""
    if desk.tenant is not None and tenant not in (None, "", desk.tenant):
        return {"items": []}
    now = desk.jobs.store.now_us()
    found = desk.jobs.usage(
        since=moment("since", since, now),
        until=None if until is None else moment("until", until, now),
        by=by,
        period=period,  # type: ignore[arg-type]
        tenant=desk.tenant if desk.tenant is not None else tenant or None,
        task=task or None,
        timezone=timezone,
    )
    return {"items": [each.to_dict() for each in found]}


@verb(Scope.READ)
def audit(
    desk: Desk,
    *,
    job: str | None = None,
    by: str | None = None,
    action: str | None = None,
    tenant: str | None = None,
    since: str | None = None,
    until: str | None = None,
    before: int | None = None,
    limit: int = 100,
) -> dict[str, Any]:
    """What operators did, newest first."""
    if desk.tenant is not None and tenant not in (None, "", desk.tenant):
        return {"items": [], "next_before": None}
    now = desk.jobs.store.now_us()
    found = desk.jobs.audit(
        job=job or None,
        by=by or None,
        action=action or None,
        tenant=desk.tenant if desk.tenant is not None else tenant or None,
        since=None if since is None else moment("since", since, now),
        until=None if until is None else moment("until", until, now),
        before=before,
        limit=limit,
    )
    items = [_masked(desk, each.to_dict()) for each in found]
    return {"items": items, "next_before": found[-1].id if len(found) == limit else None}


def _masked(desk: Desk, record: dict[str, Any]) -> dict[str, Any]:
    """An action with what is hidden masked: arguments that were edited are kept as JSON text."""
    for side in ("before", "after"):
        values = desk.redaction.value(record[side])
        if values and isinstance(values.get("args"), str):
            try:
                values["args"] = json.dumps(desk.redaction.value(json.loads(values["args"])), ensure_ascii=False)
            except ValueError:  # a long one is cut, and then no JSON any more
                values["args"] = desk.redaction.text(values["args"])
        record[side] = values
    return record


@verb(Scope.READ, everyone=True)
def doctor(desk: Desk) -> dict[str, Any]:
    """Whether all is well with the installation."""
    from duly.doctor.finding import worst

    found = desk.jobs.doctor()
    return {"severity": str(worst(found)), "items": [each.as_dict() for each in found]}


@verb(Scope.OPERATE, everyone=True)
def mend(desk: Desk, *, area: str | None = None, check: str | None = None) -> dict[str, Any]:
    """Check the installation and mend what can be mended, each in one transaction: all, or what one check found."""
    from duly.doctor.examine import repair
    from duly.doctor.finding import worst

    found = [
        repair(desk.jobs, each) if area in (None, each.area) and check in (None, each.check) else each
        for each in desk.jobs.doctor()
    ]
    return {"severity": str(worst(found)), "items": [each.as_dict() for each in found]}


MOST_PRUNED: Final = 20_000
"""So many jobs are forgotten by one request; the answer says if there are more."""


@verb(Scope.OPERATE, everyone=True)
def prune(desk: Desk) -> dict[str, Any]:
    """Forget finished jobs older than the retention settings say: some 20,000, and it says whether there are more."""
    gone = desk.jobs.prune(most=MOST_PRUNED)
    return {"pruned": gone, "more": gone >= MOST_PRUNED}


@verb(Scope.OPERATE, everyone=True)
def tick(desk: Desk, *, max: int = 10, queues: list[str] | None = None) -> dict[str, Any]:
    """Run at most so many due jobs in this process; also promote, rescue and prune, as there may be no worker."""
    done = desk.jobs.tick(max, queues=queues or None)
    return {"ok": True, "claimed": done.claimed, "settled": done.settled}
