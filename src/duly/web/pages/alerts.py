"""Alerts: what is wrong now and what was; say that somebody looks after one, and tell nobody for a while."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from duly.domain.alerts import RULES
from duly.web.desk import Desk, verb
from duly.web.errors import missing
from duly.web.pages.shell import call, desk_of, field, go_back, say, show
from duly.web.principal import Scope
from duly.web.service import alerts as verbs

MOST_ENDED: Final = 50


async def alerts_page(request: Request) -> Response:
    """The alerts that are active, and those that ended last."""
    known = await call(request, read, desk_of(request))
    return show(request, "alerts.html", current="alerts", rules=RULES, **known)


@verb(Scope.READ, everyone=True)
def read(desk: Desk) -> dict[str, Any]:
    """Alerts with what is silenced."""
    found = verbs.alerts(desk, ended=True, limit=MOST_ENDED)["items"]
    return {
        "active": [each for each in found if each["ended_at"] is None],
        "ended": [each for each in found if each["ended_at"] is not None],
        "silences": desk.jobs.alerts.silences(),
    }


# -- act --------------------------------------------------------------------------------------------------------------


@verb(Scope.OPERATE, everyone=True)
def silence(desk: Desk, rule: str | None, subject: str | None, duration: str, reason: str) -> None:
    """Tell nobody for a while."""
    desk.jobs.alerts.silence(rule, subject, duration=duration, reason=reason)


@verb(Scope.OPERATE, everyone=True)
def unsilence(desk: Desk, rule: str | None, subject: str | None) -> None:
    """Tell people again."""
    desk.jobs.alerts.unsilence(rule, subject)


async def act(request: Request) -> Response:
    """Acknowledge, silence or hear again."""
    rule, subject = await field(request, "rule") or None, await field(request, "subject") or None
    match request.path_params["verb"]:
        case "acknowledge":
            await call(request, verbs.acknowledge, desk_of(request), await field(request, "id"))
            text = "Others can see now that you look after it."
        case "silence":
            duration, reason = await field(request, "for") or "1h", await field(request, "reason")
            await call(request, silence, desk_of(request), rule, subject, duration, reason)
            text = f"Nobody is told of it for {duration}."
        case "unsilence":
            await call(request, unsilence, desk_of(request), rule, subject)
            text = "People are told again."
        case _:
            raise missing("there is nothing here")
    say(request, text)
    return await go_back(request, "/alerts")
