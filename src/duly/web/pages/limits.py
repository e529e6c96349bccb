"""Limits of queues, tasks and tenants, and tenants' quotas: shown beside what they bind, set and taken back."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request

from duly.web.errors import invalid
from duly.web.pages.jobs import whole
from duly.web.pages.shell import Deed, call, desk_of, field
from duly.web.service import limits as verbs

QUOTA: Final = {"waiting": "waiting", "running": "at once", "per_minute": "a minute", "per_day": "a day"}
SETTABLE: Final = ("queue", "task", "tenant", "key", "keys")
OF_TENANT: Final = ("tenant", "minute", "day")


async def limits_of(request: Request) -> list[dict[str, Any]]:
    """Every limit that whoever looks may see, with what it says in words."""
    found: list[dict[str, Any]] = (await call(request, verbs.limits, desk_of(request)))["items"]
    for each in found:
        each["says"] = in_words(each)
    return [each for each in found if each["says"]]


def in_words(limit: dict[str, Any]) -> str:
    """What a limit says: "3 at once, 100/s started, 1,000 waiting"."""
    parts = []
    if limit["concurrency"] is not None:
        parts.append(f"{limit['concurrency']:,} at once")
    if limit["rate"] is not None:
        parts.append(f"{limit['rate']} {'enqueued' if limit['refuses'] else 'started'}")
    if limit["most_waiting"] is not None:
        parts.append(f"{limit['most_waiting']:,} waiting")
    return ", ".join(parts)


def quotas(limits: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What tenants may have, by tenant: what the form of a quota holds, and the words of it."""
    found: dict[str, dict[str, Any]] = {}
    for each in limits:
        if each["scope"] not in OF_TENANT:
            continue
        quota = found.setdefault(each["name"], {**dict.fromkeys(QUOTA), "over": "refuse"})
        if each["scope"] == "tenant":
            quota["waiting"], quota["running"] = each["most_waiting"], each["concurrency"]
        else:
            quota[f"per_{each['scope']}"] = int(each["rate"].partition("/")[0]) if each["rate"] else None
            quota["over"] = "refuse" if each["refuses"] else "wait"
    for quota in found.values():
        named = ((quota[name], words) for name, words in QUOTA.items())
        quota["says"] = [f"{n:,} {words}" for n, words in named if n is not None]
    return found


# -- act --------------------------------------------------------------------------------------------------------------


async def set_limit(request: Request) -> str:
    """Limit a queue, a task, a tenant, a key or each key of a task."""
    scope, name = await _gate(request)
    given = {
        "concurrency": await _number(request, "concurrency"),
        "rate": await field(request, "rate") or None,
        "burst": await _number(request, "burst"),
    }
    if scope in ("queue", "tenant"):
        given["most_waiting"] = await _number(request, "most_waiting")
    await call(request, verbs.set_limit, desk_of(request), scope=scope, name=name, **given)
    return f"{_what(scope, name)} limited, from now on and everywhere."


def _what(scope: str, name: str) -> str:
    return f"Each key of {name} is" if scope == "keys" else f"The {scope} {name} is"


async def unset_limit(request: Request) -> str:
    """Take back a limit that was set by hand."""
    scope, name = await _gate(request)
    await call(request, verbs.unset_limit, desk_of(request), scope=scope, name=name)
    return f"What was said of the {scope} {name} is taken back: what the code declares holds."


async def set_quota(request: Request) -> str:
    """Say what a tenant may have."""
    name = await field(request, "name")
    given: dict[str, Any] = {each: await _number(request, each) for each in QUOTA}
    over = await field(request, "over", "refuse")
    await call(request, verbs.set_quota, desk_of(request), name, **given, over=over)
    return f"The quota of {name} was set."


DEEDS: Final[dict[str, tuple[Deed, str]]] = {
    "/limits": (set_limit, "/queues"),
    "/limits/unset": (unset_limit, "/queues"),
    "/tenants/quota": (set_quota, "/tenants"),
}
"""What the forms do, by path, and where one goes from there."""


async def _gate(request: Request) -> tuple[str, str]:
    scope, name = await field(request, "scope"), await field(request, "name")
    if scope not in SETTABLE:
        raise invalid(f"a limit is of a queue, a task, a tenant, a key or keys, not of {scope[:50]!r}")
    return scope, name


async def _number(request: Request, name: str) -> int | None:
    text = await field(request, name)
    return whole(text, name) if text else None
