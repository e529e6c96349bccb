"""What operators did."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from duly.audit import ACTIONS
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
