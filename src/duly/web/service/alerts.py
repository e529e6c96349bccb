"""Alerts: what is wrong now, what was, who was told; that somebody looks after one, or wants to hear nothing."""

from __future__ import annotations

from typing import Any

from duly.domain.alerts import Silence
from duly.domain.errors import AlertNotFound
from duly.store.ops_alerts import Told
from duly.web.desk import Desk, verb
from duly.web.errors import missing
from duly.web.principal import Scope
from duly.web.service import shown


@verb(Scope.READ, everyone=True)
def alerts(desk: Desk, *, ended: bool = False, limit: int = 100) -> dict[str, Any]:
    """The alerts that are active, oldest first; if asked, then those that ended."""
    return {"items": [each.to_dict() for each in desk.jobs.alerts(all=ended, limit=limit)]}


@verb(Scope.READ, everyone=True)
def alert(desk: Desk, alert_id: str) -> dict[str, Any]:
    """One alert, and who was told of it."""
    try:
        found = desk.jobs.alerts.get(alert_id)
    except AlertNotFound as error:
        raise missing(str(error)) from error
    return {**found.to_dict(), "told": [_told(each) for each in desk.jobs.alerts.told(found.id)]}


def _told(told: Told) -> dict[str, Any]:
    return {
        "event": told.event,
        "channel": told.channel,
        "made_at": shown.time(told.made_at),
        "tries": told.tries,
        "done_at": shown.time(told.done_at),
        "error": told.error,
    }


@verb(Scope.OPERATE, everyone=True)
def check(desk: Desk) -> dict[str, Any]:
    """Look for alerts now, whoever looked last, tell whoever is to be told, and say what is active."""
    return {"items": [each.to_dict() for each in desk.jobs.alerts.check()]}


@verb(Scope.OPERATE, everyone=True)
def acknowledge(desk: Desk, alert_id: str) -> dict[str, Any]:
    """Say that somebody looks after an alert."""
    try:
        return {"id": alert_id, "news": desk.jobs.alerts.acknowledge(alert_id)}
    except AlertNotFound as error:
        raise missing(str(error)) from error


# -- silences ---------------------------------------------------------------------------------------------------------


@verb(Scope.READ, everyone=True)
def silences(desk: Desk) -> dict[str, Any]:
    """What nobody is told of now, until when, and who said so."""
    return {"items": [_silence(each) for each in desk.jobs.alerts.silences()]}


def _silence(silence: Silence) -> dict[str, Any]:
    return {
        "rule": silence.rule,
        "subject": silence.subject,
        "since": shown.time(silence.made_at),
        "until": shown.time(silence.until_at),
        "by": silence.made_by,
        "reason": silence.reason,
    }


@verb(Scope.OPERATE, everyone=True)
def silence(
    desk: Desk,
    *,
    rule: str | None = None,
    subject: str | None = None,
    duration: str | float = "1h",
    reason: str = "",
) -> dict[str, Any]:
    """Tell nobody of alerts of a rule, about a subject, or both, for a while. They are still shown."""
    until = desk.jobs.alerts.silence(rule, subject, duration=duration, reason=reason)
    return {"rule": rule, "subject": subject, "until": until.isoformat()}


@verb(Scope.OPERATE, everyone=True)
def unsilence(desk: Desk, *, rule: str | None = None, subject: str | None = None) -> dict[str, Any]:
    """End the silences of a rule or about a subject, or all, and say how many there were."""
    return {"ended": desk.jobs.alerts.unsilence(rule, subject)}
