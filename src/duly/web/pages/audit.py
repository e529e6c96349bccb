"""What operators did."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from duly.audit import ACTIONS
from duly.web.pages import words
from duly.web.pages.shell import call, desk_of, show
from duly.web.service import system

PAGE: Final = 100
FIELDS: Final = ("by", "action", "job", "tenant", "since")


async def audit_page(request: Request) -> Response:
    """What operators did, newest first."""
    query = request.query_params
    filters = {name: query.get(name, "").strip() for name in FIELDS}
    before = query.get("before", "")
    found = await call(
        request,
        system.audit,
        desk_of(request),
        **{name: value or None for name, value in filters.items()},
        before=int(before) if before.isdecimal() else None,
        limit=PAGE,
    )
    for each in found["items"]:
        each["changes"] = changes(each["before"], each["after"])
    return show(
        request,
        "audit.html",
        current="audit",
        deeds=found["items"],
        following=found["next_before"],
        filters=filters,
        actions=sorted(ACTIONS),
        first=not before,
    )


def changes(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    """What became of each thing that an action changed: its name, before, after. What nobody said is left out."""
    was, became = before or {}, after or {}
    found = []
    for name in dict.fromkeys([*was, *became]):
        old, new = was.get(name), became.get(name)
        if old != new:
            found.append((name.removesuffix("_us").replace("_", " "), _told(name, old), _told(name, new)))
    return found


def _told(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        if name.endswith("_at") or name == "until_us":
            return words.exact(value)
        if name.endswith("_us"):
            return words.span(value / 1e6)
    return words.cut(value if isinstance(value, str) else words.brief(value), 120)
