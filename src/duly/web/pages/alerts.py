"""Alerts: what is wrong now and what was; say that somebody looks after one, and tell nobody for a while."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from duly.domain.alerts import RULES
from duly.web.desk import Desk, verb
from duly.web.pages import words
from duly.web.pages.shell import Deed, call, desk_of, field, show
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
        "silences": verbs.silences(desk)["items"],
    }


async def alert_page(request: Request) -> Response:
    """One alert, and who was told of it."""
    alert = await call(request, verbs.alert, desk_of(request), request.path_params["id"])
    return show(request, "alert.html", current="alerts", alert=alert, rules=RULES)


# -- act --------------------------------------------------------------------------------------------------------------


async def check(request: Request) -> str:
    """Look now."""
    found = await call(request, verbs.check, desk_of(request))
    return f"Looked: {words.plural(len(found['items']), 'alert')} active." if found["items"] else "Looked: all is well."


async def acknowledge(request: Request) -> str:
    """Say that somebody looks after it."""
    await call(request, verbs.acknowledge, desk_of(request), await field(request, "id"))
    return "Others can see now that you look after it."


async def silence(request: Request) -> str:
    """Tell nobody for a while."""
    rule, subject = await _about(request)
    duration, reason = await field(request, "for") or "1h", await field(request, "reason")
    given = {"rule": rule, "subject": subject, "duration": duration, "reason": reason}
    await call(request, verbs.silence, desk_of(request), **given)
    return f"Nobody is told of it for {duration}."


async def unsilence(request: Request) -> str:
    """Tell people again."""
    rule, subject = await _about(request)
    await call(request, verbs.unsilence, desk_of(request), rule=rule, subject=subject)
    return "People are told again."


async def _about(request: Request) -> tuple[str | None, str | None]:
    return await field(request, "rule") or None, await field(request, "subject") or None


DEEDS: Final[dict[str, Deed]] = {
    "check": check,
    "acknowledge": acknowledge,
    "silence": silence,
    "unsilence": unsilence,
}
