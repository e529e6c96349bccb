"""Queues, tasks and tenants: how many jobs each has, what is paused, how they share."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any

from duly.domain.durations import human
from duly.domain.names import check_tenant
from duly.domain.rank import DEFAULT_HORIZON_US, STRICT_HORIZON_US
from duly.domain.records import Counts, Pause
from duly.web.desk import Desk, verb
from duly.web.errors import forbidden, invalid, missing
from duly.web.principal import Scope
from duly.web.service import shown
from duly.web.service.jobs import read_time

PLACES = {"queue": 0, "tenant": 1, "task": 2}
PERIOD = "24h"


def _counted(desk: Desk, counts: Counts, by: str) -> dict[str, dict[str, Any]]:
    """How many jobs each queue, tenant or task has, of those that may be seen."""
    now = desk.jobs.store.now_us()
    found: dict[str, dict[str, Any]] = defaultdict(
        lambda: {"scheduled": 0, "waiting": 0, "running": 0, "oldest_waiting_seconds": None}
    )
    groups = (("scheduled", counts.scheduled), ("waiting", counts.waiting), ("running", counts.running))
    for place, rows in groups:
        for row in rows:
            if not desk.sees(row[1]):
                continue
            line = found[str(row[PLACES[by]])]
            line[place] += row[3]
            if place == "waiting":
                waits = max(0.0, (now - row[4]) / 1e6)
                line["oldest_waiting_seconds"] = max(line["oldest_waiting_seconds"] or 0.0, waits)
    return found


def _pauses(desk: Desk, scope: str) -> dict[str, Pause]:
    return {each.name: each for each in desk.jobs.paused() if each.scope == scope}


def _pause(pause: Pause | None) -> dict[str, Any] | None:
    return None if pause is None else shown.pause(pause)


_NONE = {"scheduled": 0, "waiting": 0, "running": 0, "oldest_waiting_seconds": None}


# -- queues -----------------------------------------------------------------------------------------------------------


@verb(Scope.READ)
def queues(desk: Desk, *, counts: Counts | None = None) -> dict[str, Any]:
    """Every queue that has jobs, is declared, or was spoken of; how deep it is, and who takes from it."""
    found = _counted(desk, counts or desk.jobs.counts(), "queue")
    options, pauses = desk.jobs.store.queue_options(), _pauses(desk, "queue")
    names = set(found)
    if desk.tenant is None:
        names |= {*options, *pauses, *(task.queue for task in desk.jobs.registry)}
    workers = desk.jobs.live_workers() if desk.tenant is None else []
    items = []
    for name in sorted(names):
        horizon_us, fair = options.get(name, (None, True))
        us = DEFAULT_HORIZON_US if horizon_us is None else horizon_us
        items.append(
            {
                "name": name,
                **found.get(name, _NONE),
                "paused": _pause(pauses.get(name)),
                "fair": fair,
                "aging_seconds": None if us >= STRICT_HORIZON_US else us / 1e6,
                "aging": "strict" if us >= STRICT_HORIZON_US else human(timedelta(microseconds=us)),
                "workers": sum(1 for each in workers if name in shown.worker(each, alive=True)["queues"])
                if desk.tenant is None
                else None,
            }
        )
    return {"items": items}


@verb(Scope.READ)
def queue(desk: Desk, name: str) -> dict[str, Any]:
    """One queue."""
    for each in queues(desk)["items"]:
        if each["name"] == name:
            return dict(each)
    raise missing(f"there is no queue {name[:128]!r}")


@verb(Scope.OPERATE, everyone=True)
def edit_queue(desk: Desk, name: str, *, fair: bool | None = None, aging: str | float | None = None) -> dict[str, Any]:
    """Say whether tenants take turns in a queue, and how fast it ages: a duration, "strict" or "default"."""
    if fair is None and aging is None:
        raise invalid("what should change? Give fair or aging")
    if aging is not None:
        horizon = None if aging in ("strict", "default") else aging
        desk.jobs.set_aging(name, horizon, strict=aging == "strict")
    if fair is not None:
        desk.jobs.set_fair(name, fair)
    return queue(desk, name)


# -- tasks ------------------------------------------------------------------------------------------------------------


@verb(Scope.READ)
def tasks(desk: Desk) -> dict[str, Any]:
    """Every task that this server knows or that has jobs, and how it is called."""
    found, pauses = _counted(desk, desk.jobs.counts(), "task"), _pauses(desk, "task")
    known = desk.jobs.registry.tasks
    names = set(found) | set(known) | (set(pauses) if desk.tenant is None else set())
    items = []
    for name in sorted(names):
        task = known.get(name)
        items.append(
            {
                "name": name,
                **found.get(name, _NONE),
                "known": task is not None,
                "call": None if task is None else str(task.signature),
                "queue": None if task is None else task.queue,
                "priority": None if task is None else task.priority,
                "max_attempts": None if task is None else task.retry.max_attempts,
                "paused": _pause(pauses.get(name)),
            }
        )
    return {"items": items}


# -- tenants ----------------------------------------------------------------------------------------------------------


@verb(Scope.READ)
def tenants(desk: Desk, *, limit: int = 100, offset: int = 0, counts: Counts | None = None) -> dict[str, Any]:
    """Every tenant that has jobs, used anything in a day, or was spoken of."""
    lines = _tenants(desk, counts)
    names = sorted(lines)
    return {"items": [lines[name] for name in names[offset : offset + limit]], "total": len(names)}


@verb(Scope.READ)
def tenant(desk: Desk, name: str) -> dict[str, Any]:
    """One tenant."""
    if not desk.sees(check_tenant(name)):
        raise missing(f"there is no tenant {name[:128]!r}")
    found = _tenants(desk).get(name)
    if found is None and desk.tenant is None:
        raise missing(f"there is no tenant {name[:128]!r}")
    return found or _tenant(name, {}, {}, None, 1.0)


def _tenants(desk: Desk, counts: Counts | None = None) -> dict[str, dict[str, Any]]:
    found = _counted(desk, counts or desk.jobs.counts(), "tenant")
    weights, pauses = desk.jobs.weights(), _pauses(desk, "tenant")
    used = {
        each.tenant or "": each.to_dict() for each in desk.jobs.usage(since=PERIOD, by="tenant", tenant=desk.tenant)
    }
    names = {*found, *weights, *pauses, *used}
    return {
        name: _tenant(name, found.get(name, {}), used.get(name, {}), pauses.get(name), weights.get(name, 1.0))
        for name in names
        if name and desk.sees(name)
    }


def _tenant(
    name: str, counts: dict[str, Any], used: dict[str, Any], pause: Pause | None, weight: float
) -> dict[str, Any]:
    day = {key: used.get(key, 0) for key in ("runs", "succeeded", "failed", "ran_seconds", "waited_seconds")}
    return {"name": name, **_NONE, **counts, "weight": weight, "paused": _pause(pause), "last_day": day}


@verb(Scope.OPERATE, everyone=True)
def edit_tenant(desk: Desk, name: str, *, weight: float) -> dict[str, Any]:
    """Say how much of a shared queue a tenant may have beside others."""
    desk.jobs.set_weight(name, weight)
    return _tenants(desk).get(name) or _tenant(name, {}, {}, None, weight)


# -- pause and resume -------------------------------------------------------------------------------------------------


@verb(Scope.READ)
def paused(desk: Desk) -> dict[str, Any]:
    """What is paused, since when, until when, by whom and why."""
    found = desk.jobs.paused()
    if desk.tenant is not None:
        found = [each for each in found if each.scope == "tenant" and each.name == desk.tenant]
    return {"items": [shown.pause(each) for each in found]}


def _may_close(desk: Desk, scope: str, name: str) -> None:
    """Refuse somebody who is bound to a tenant all gates but their own."""
    if desk.tenant is None or (scope, name) == ("tenant", desk.tenant):
        return
    if scope == "tenant":
        raise missing(f"there is no tenant {name[:128]!r}")
    raise forbidden(f"a {scope} is shared with other tenants, and you are bound to one")


@verb(Scope.OPERATE)
def pause(
    desk: Desk,
    scope: str,
    name: str,
    *,
    reason: str = "",
    duration: str | float | None = None,
    until: str | None = None,
) -> dict[str, Any]:
    """Pause a queue, a task or a tenant: nothing of it starts any more. What runs goes on to its end."""
    _may_close(desk, scope, name)
    desk.jobs.pause(
        **{scope: name},
        reason=reason,
        duration=duration,
        until=None if until is None else read_time("until", until),
    )
    return {"scope": scope, "name": name, "paused": _pause(_pauses(desk, scope).get(name))}


@verb(Scope.OPERATE)
def resume(desk: Desk, scope: str, name: str) -> dict[str, Any]:
    """Let a queue, a task, a tenant or a key go on that was paused, was asked to wait, or whose breaker is open."""
    _may_close(desk, scope, name)
    was = desk.jobs.resume(**{scope: name})
    return {"scope": scope, "name": name, "was_paused": was}
