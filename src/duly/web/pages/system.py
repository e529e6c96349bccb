"""The installation: whether all is well, what is forgotten when, and who may come in. For who is bound to no tenant."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from duly.domain.durations import human
from duly.web.guard import form_of
from duly.web.pages import words
from duly.web.pages.shell import Deed, call, desk_of, field, show
from duly.web.principal import Scope
from duly.web.service import system as verbs
from duly.web.service import tokens

KEPT: Final = ("succeeded", "failed", "cancelled", "rollups", "audit")
BADGES: Final = {"ok": "succeeded", "info": "scheduled", "warning": "queued", "error": "failed"}


async def system_page(request: Request) -> Response:
    """What can be looked at and done about all of it."""
    return await _page(request)


async def _page(request: Request, made: dict[str, Any] | None = None) -> Response:
    desk = desk_of(request)
    desk.need(Scope.READ)
    desk.need_everyone()
    found = (await call(request, tokens.list_tokens, desk))["items"] if desk.may(Scope.ADMIN) else []
    retention = desk.jobs.retention
    kept = [(name, getattr(retention, name)) for name in KEPT]
    return show(
        request,
        "system.html",
        current="system",
        tokens=found,
        scopes=list(Scope),
        made=made,
        kept=[(name, "for ever" if span is None else human(span)) for name, span in kept],
    )


async def doctor_page(request: Request) -> Response:
    """Check everything now."""
    found = await call(request, verbs.doctor, desk_of(request))
    areas = [(area, list(group)) for area, group in groupby(found["items"], key=lambda each: each["area"])]
    wrong = sum(each["severity"] in ("warning", "error") for each in found["items"])
    fixable = sum(each["fixable"] for each in found["items"])
    return show(
        request,
        "doctor.html",
        current="system",
        areas=areas,
        severity=found["severity"],
        wrong=wrong,
        fixable=fixable,
        badges=BADGES,
    )


# -- act --------------------------------------------------------------------------------------------------------------


async def mend(request: Request) -> str:
    """Mend what one check found, or all that can be mended."""
    area, check = await field(request, "area") or None, await field(request, "check") or None
    found = (await call(request, verbs.mend, desk_of(request), area=area, check=check))["items"]
    done = [line for each in found for line in each["fixed"] or ()]
    refused = [each["refused"] for each in found if each["refused"]]
    said = [f"Mended: {'; '.join(done)}." if done else "", f"Not mended: {'; '.join(refused)}." if refused else ""]
    return " ".join(filter(None, said)) or "There was nothing to mend."


async def prune(request: Request) -> str:
    """Forget what is old."""
    answer = await call(request, verbs.prune, desk_of(request))
    more = " There is more: do it again, or leave it to the workers." if answer["more"] else ""
    return f"{words.plural(answer['pruned'], 'job')} forgotten.{more}"


async def create_token(request: Request) -> Response:
    """Make a token, and show it on this one page."""
    form = await form_of(request)
    given = {
        "name": await field(request, "name"),
        "scopes": form.get("scope") or ["read"],
        "tenant": await field(request, "tenant") or None,
        "expires": await field(request, "expires") or None,
    }
    made = await call(request, tokens.create, desk_of(request), **given)
    return await _page(request, made)


async def revoke_token(request: Request) -> str:
    """Let a token or session in no more."""
    await call(request, tokens.revoke, desk_of(request), await field(request, "id"))
    return "It lets nobody in any more; servers notice within 2 seconds."


DEEDS: Final[dict[str, tuple[Deed, str]]] = {
    "/system/mend": (mend, "/system/doctor"),
    "/system/prune": (prune, "/system"),
    "/system/tokens": (create_token, "/system"),
    "/system/tokens/revoke": (revoke_token, "/system"),
}
"""What the forms do, by path, and where one goes from there."""
