"""Limits by hand: how many jobs may run, start and wait, and what a tenant may have. Mixed into `Duly`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from duly.domain.audit import current_actor
from duly.domain.errors import InvalidOption
from duly.domain.limits import QUOTAS, Limit, Rate, Says, whole
from duly.domain.names import check_queue_name, check_task_name, check_tenant, check_text
from duly.task_limits import read_says

if TYPE_CHECKING:
    from duly.store.store import Store

KEY_BYTES = 700


def _check_key(name: str) -> str:
    return check_text(name, "key", KEY_BYTES)


_CHECKS: dict[str, Callable[[str], str]] = {
    "queue": check_queue_name,
    "task": check_task_name,
    "tenant": check_tenant,
    "keys": check_task_name,
    "key": _check_key,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What a tenant may have. None: as much as it likes."""

    tenant: str
    waiting: int | None = None
    running: int | None = None
    per_minute: int | None = None
    per_day: int | None = None
    over: str = "refuse"
    """What happens to a job over the quota per minute or day: "refuse" at enqueue, or "wait" until it may start."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def gate_named(
    *, queue: str | None, task: str | None, tenant: str | None, key: str | None, keys: str | None = None
) -> tuple[str, str]:
    """The one gate that is named."""
    named = {"queue": queue, "task": task, "tenant": tenant, "key": key, "keys": keys}
    given = [(scope, name) for scope, name in named.items() if name is not None]
    if len(given) != 1:
        raise InvalidOption("name one queue, task, tenant or key: queue=, task=, tenant= or key=")
    scope, name = given[0]
    if name == "":
        raise InvalidOption(f"{scope} must not be empty: jobs of no {scope} are not limited by it")
    if scope == "key" and "/" not in name:
        raise InvalidOption(f"key {name!r} does not say whose key it is. Write task/key, for example fetch/example.com")
    return scope, _CHECKS[scope](name)


class Limiting:
    """The part of `Duly` that sets limits."""

    store: Store

    def set_limit(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        keys: str | None = None,
        concurrency: int | None = None,
        rate: str | Rate | None = None,
        burst: int | None = None,
        most_waiting: int | None = None,
    ) -> None:
        """Limit a queue, a task, a tenant, one key, or each key of a group (`keys`), at once and in all processes.

        It replaces what was said of that gate before, by hand or by the code, until `unset_limit`. `concurrency`: how
        many may run at once, 0 for none. `rate` ("100/s"), `burst`: how many may start. `most_waiting`, for queues and
        tenants: more are refused at enqueue.
        """
        scope, name = gate_named(queue=queue, task=task, tenant=tenant, key=key, keys=keys)
        if most_waiting is not None and scope not in ("queue", "tenant"):
            raise InvalidOption(f"most_waiting is for queues and tenants, not for a {scope}")
        says = read_says(slots=concurrency, rate=rate, burst=burst, most_waiting=most_waiting)
        if scope == "key":
            self.store.gates.set_key_limit(name, says, actor=current_actor())
            return
        self.store.gates.set_limit(scope, name, says, actor=current_actor())
        self._changed(scope, name)

    def unset_limit(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        keys: str | None = None,
    ) -> None:
        """Take a limit set by hand back: what the code declares holds again."""
        scope, name = gate_named(queue=queue, task=task, tenant=tenant, key=key, keys=keys)
        if scope == "key":
            self.store.gates.set_key_limit(name, Says(), actor=current_actor())
            return
        self.store.gates.unset_limit(scope, name, actor=current_actor())
        self._changed(scope, name)

    def _changed(self, scope: str, name: str) -> None:
        self.store.caps.forget()
        if scope == "keys":
            self.store.gates.rearrange(name)

    def limits(self) -> list[Limit]:
        """Every limit of a queue, task, tenant or group of keys, and how far rates and quotas are used.

        Of single keys those (1,000 at most) with a limit of their own, blocked, or with a breaker that is not closed.
        """
        found = self.store.gates.limits()
        said = [each for each in found if each.blocked_until or not each.says._replace(meters_keys=False).nothing]
        return said + self.store.gates.special_keys()

    def set_quota(
        self,
        tenant: str,
        *,
        waiting: int | None = None,
        running: int | None = None,
        per_minute: int | None = None,
        per_day: int | None = None,
        over: str = "refuse",
    ) -> Quota:
        """Say what a tenant may have; what is not named it may have as it likes. Replaces what was said before.

        `waiting`: more are refused at enqueue. `running`: more wait. `per_minute`, `per_day` (of the clock, in UTC):
        with over="refuse" more are refused at enqueue, with over="wait" they wait until they may start.
        """
        if tenant == "":
            raise InvalidOption("tenant must not be empty: jobs of no tenant have no quota")
        check_tenant(tenant)
        if over not in ("refuse", "wait"):
            raise InvalidOption(f"over must be 'refuse' or 'wait', not {over!r}")
        quota = Quota(
            tenant=tenant,
            waiting=_number(waiting, "waiting", 0),
            running=_number(running, "running", 0),
            per_minute=_number(per_minute, "per_minute", 1),
            per_day=_number(per_day, "per_day", 1),
            over=over,
        )
        self.store.gates.set_quota(
            tenant,
            {
                "tenant": Says(slots=quota.running, most_waiting=quota.waiting),
                "minute": _window("minute", quota.per_minute, over),
                "day": _window("day", quota.per_day, over),
            },
            actor=current_actor(),
        )
        self.store.caps.forget()
        return quota

    def quota(self, tenant: str) -> Quota:
        """What a tenant may have."""
        if tenant == "":
            raise InvalidOption("tenant must not be empty: jobs of no tenant have no quota")
        said = {limit.scope: limit.says for limit in self.store.gates.limits() if limit.name == tenant}
        own, minute, day = (said.get(scope, Says()) for scope in ("tenant", "minute", "day"))
        waits = any(each.rate_n is not None and not each.refuses for each in (minute, day))
        return Quota(
            tenant=check_tenant(tenant),
            waiting=own.most_waiting,
            running=own.slots,
            per_minute=minute.rate_n,
            per_day=day.rate_n,
            over="wait" if waits else "refuse",
        )


def _number(value: object, what: str, least: int) -> int | None:
    return None if value is None else whole(value, what, least=least)


def _window(scope: str, n: int | None, over: str) -> Says:
    if n is None:
        return Says()
    return Says(rate_n=n, rate_us=QUOTAS[scope], refuses=over == "refuse")
