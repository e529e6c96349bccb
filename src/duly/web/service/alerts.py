"""Alerts: what is wrong now, what was, and that somebody looks after it."""

from __future__ import annotations

from typing import Any

from duly.domain.errors import AlertNotFound
from duly.web.desk import Desk, verb
from duly.web.errors import missing
from duly.web.principal import Scope


@verb(Scope.READ, everyone=True)
def alerts(desk: Desk, *, ended: bool = False, limit: int = 100) -> dict[str, Any]:
    """The alerts that are active, oldest first; if asked, then those that ended."""
    return {"items": [each.to_dict() for each in desk.jobs.alerts(all=ended, limit=limit)]}


@verb(Scope.OPERATE, everyone=True)
def acknowledge(desk: Desk, alert_id: str) -> dict[str, Any]:
    """Say that somebody looks after an alert."""
    try:
        return {"id": alert_id, "news": desk.jobs.alerts.acknowledge(alert_id)}
    except AlertNotFound as error:
        raise missing(str(error)) from error
