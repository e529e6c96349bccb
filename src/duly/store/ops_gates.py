"""Gates and shares: what is paused, by whom and why; how tenants share a queue."""

from __future__ import annotations

from duly.domain.audit import Actor
from duly.domain.records import Pause
from duly.store.call import Call, Op
from duly.store.ops_audit import keep


def pause(
    scope: str,
    name: str,
    *,
    by: str | None,
    reason: str | None,
    until: int | None,
    for_us: int | None,
    actor: Actor | None,
) -> Op[None]:
    """Close a gate: from now on no claim takes a job of that queue, task or tenant."""
    params = {"scope": scope, "name": name, "by": by, "reason": reason, "until": until, "for_us": for_us}
    yield Call("pause_gate", params)
    if actor is not None:
        yield from keep(
            actor,
            "pause",
            tenant=name if scope == "tenant" else None,
            subject=f"{scope} {name}",
            reason=reason,
            after={"until_us": until, "for_us": for_us},
        )


def resume(scope: str, name: str, *, actor: Actor | None) -> Op[bool]:
    """Open a gate. Returns whether it was closed."""
    gate = {"scope": scope, "name": name}
    was = bool((yield Call("resume_gate", gate)))
    if was:
        yield Call("forget_gate", gate)
    if was and actor is not None:
        yield from keep(actor, "resume", tenant=name if scope == "tenant" else None, subject=f"{scope} {name}")
    return was


def reopen() -> Op[bool]:
    """Open the gates whose time is over. Returns whether there were any."""
    rows = yield Call("reopen_gates")
    for scope, name in rows:
        yield Call("forget_gate", {"scope": str(scope), "name": str(name)})
    return bool(rows)


def block(scope: str, name: str, for_us: int, reason: str) -> Op[None]:
    """Keep a gate closed for a while because what is behind it asked for it."""
    yield Call("block_gate", {"scope": scope, "name": name, "for_us": for_us, "reason": reason})


def paused() -> Op[list[Pause]]:
    """What is paused at this moment."""
    return [Pause._make(row) for row in (yield Call("paused_gates"))]


def weights() -> Op[dict[str, float]]:
    """How much of a shared queue tenants may have; those not named have 1."""
    return {str(name): float(str(weight)) for name, weight in (yield Call("weights"))}


def set_weight(tenant: str, weight: float, *, actor: Actor | None) -> Op[None]:
    """Say how much of a shared queue a tenant may have."""
    old = (yield from weights()).get(tenant, 1.0)
    yield Call("set_weight", {"name": tenant, "weight": weight})
    if actor is not None and old != weight:
        yield from keep(actor, "set_weight", tenant=tenant, before={"weight": old}, after={"weight": weight})


def unfair_queues() -> Op[set[str]]:
    """The queues in which tenants do not take turns."""
    return {str(row[0]) for row in (yield Call("unfair_queues"))}


def set_fair(queue: str, fair: bool, *, actor: Actor | None) -> Op[None]:
    """Say whether tenants take turns in a queue."""
    old = queue not in (yield from unfair_queues())
    yield Call("set_fair", {"queue": queue, "fair": fair})
    if actor is not None and old != fair:
        yield from keep(actor, "set_fair", subject=queue, before={"fair": old}, after={"fair": fair})
