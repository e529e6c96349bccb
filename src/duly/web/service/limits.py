"""Limits and quotas: how many jobs may run, start and wait."""

from __future__ import annotations

from typing import Any

from duly.domain.names import check_tenant
from duly.web.desk import Desk, verb
from duly.web.errors import invalid, missing
from duly.web.principal import Scope

OF_TENANTS = ("tenant", "minute", "day")


@verb(Scope.READ)
def limits(desk: Desk) -> dict[str, Any]:
    """Every limit of a queue, a task, a tenant or a group of keys, and who said so."""
    found = desk.jobs.limits()
    if desk.tenant is not None:
        found = [each for each in found if each.scope in OF_TENANTS and each.name == desk.tenant]
    return {"items": [each.to_dict() for each in found]}


@verb(Scope.OPERATE, everyone=True)
def set_limit(desk: Desk, /, *, scope: str, name: str, **given: Any) -> dict[str, Any]:
    """Limit a queue, a task, a tenant, one key (task/key) or each key of a task, at once and in all processes."""
    if all(value is None for value in given.values()):
        raise invalid("what is the limit? Give concurrency, rate or most_waiting", "to take one back, delete it")
    gate: dict[str, Any] = {scope: name}
    desk.jobs.set_limit(**gate, **given)
    return {"scope": scope, "name": name, **{word: given.get(word) for word in WORDS}}


WORDS = ("concurrency", "rate", "burst", "most_waiting")


@verb(Scope.OPERATE, everyone=True)
def unset_limit(desk: Desk, *, scope: str, name: str) -> dict[str, Any]:
    """Take back a limit that was set by hand: what the code declares holds again."""
    desk.jobs.unset_limit(**{scope: name})
    return {"scope": scope, "name": name, **dict.fromkeys(WORDS)}


@verb(Scope.READ)
def quota(desk: Desk, name: str) -> dict[str, Any]:
    """What a tenant may have; null is as much as it likes."""
    if not desk.sees(check_tenant(name)):
        raise missing(f"there is no tenant {name[:128]!r}")
    return desk.jobs.quota(name).to_dict()


@verb(Scope.OPERATE, everyone=True)
def set_quota(desk: Desk, /, name: str, **given: Any) -> dict[str, Any]:
    """Say what a tenant may have; what is not named it may have as it likes."""
    return desk.jobs.set_quota(name, **given).to_dict()
