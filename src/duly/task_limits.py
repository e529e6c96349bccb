"""The limits that a task declares, from the words of its declaration; and the key of a job, from its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from duly.domain.errors import ArgumentError, InvalidOption
from duly.domain.limits import Breaker, Rate, Says, whole
from duly.domain.names import check_task_name, check_text
from duly.domain.text import safe_repr
from duly.worker.registry import NO_LIMITS, TaskDefinition, TaskLimits

KEY_BYTES = 255


def task_limits(options: Mapping[str, Any]) -> TaskLimits:
    """Read and check what a declaration says of limits."""
    given = {name for name, value in options.items() if value is not None}
    if not given & {
        "concurrency",
        "rate",
        "burst",
        "concurrency_key",
        "per_key",
        "rate_per_key",
        "burst_per_key",
        "key_group",
        "breaker",
    }:
        return NO_LIMITS
    for name, of in (("burst", "rate"), ("burst_per_key", "rate_per_key")):
        if name in given and of not in given:
            raise InvalidOption(f"{name} says how many of a {of} may start at once: give {of} too")
    key = options.get("concurrency_key")
    if key is not None and not callable(key):
        raise InvalidOption(f"concurrency_key must be a function of the arguments, not {safe_repr(key)}")
    for name in ("per_key", "rate_per_key", "key_group"):
        if name in given and key is None:
            raise InvalidOption(f"{name} is for jobs with keys: give concurrency_key too")
    breaker = options.get("breaker")
    if breaker is not None and not isinstance(breaker, Breaker):
        raise InvalidOption(f"breaker must be a duly.Breaker, not {safe_repr(breaker)}")
    slots = options.get("per_key")
    if slots is None and key is not None and "rate_per_key" not in given and breaker is None:
        slots = 1
    group = options.get("key_group")
    return TaskLimits(
        all=Says.limits(_slots(options.get("concurrency"), "concurrency"), _rate(options, "rate", "burst")),
        each=Says.limits(_slots(slots, "per_key"), _rate(options, "rate_per_key", "burst_per_key"), breaker),
        key=key,
        group=None if group is None else check_task_name(group),
    )


def _slots(value: object, what: str) -> int | None:
    return None if value is None else whole(value, what, least=1)


def _rate(options: Mapping[str, Any], name: str, burst: str) -> Rate | None:
    value = options.get(name)
    return None if value is None else Rate.of(value, name, burst=options.get(burst))


def key_of(task: TaskDefinition, tenant: str, bound: Mapping[str, Any]) -> str | None:
    """The key of a job of this task, with the group in front: what its limits are kept under. None if it has none."""
    limits = task.limits
    if not limits.keyed:
        return None
    value = "" if limits.key is None else _call(task, limits.key, bound)
    if value is None:
        return None
    own = f"{task.name}@{tenant.replace('%', '%25').replace('/', '%2F')}" if tenant else task.name
    return f"{limits.group or own}/{check_text(value, 'concurrency_key', KEY_BYTES)}"


def _call(task: TaskDefinition, key: Callable[[Any], object], bound: Mapping[str, Any]) -> str | None:
    signature = task.signature
    values = {**signature.defaults, **signature.load(dict(bound))}
    try:
        value = key(SimpleNamespace(**values))
    except Exception as error:
        raise ArgumentError(
            f"concurrency_key of task {task.name!r} raised {type(error).__name__}: {error}. "
            f"It is given the arguments: {', '.join(sorted(values)) or 'there are none'}"
        ) from error
    return None if value is None else str(value)


def read_says(
    *, slots: int | None, rate: object, burst: int | None, most_waiting: int | None, least_slots: int = 0
) -> Says:
    """Read and check limits that are set by hand."""
    if burst is not None and rate is None:
        raise InvalidOption("burst says how many of a rate may start at once: give rate too")
    if slots is None and rate is None and most_waiting is None:
        raise InvalidOption("say how many may run (concurrency=), start (rate=) or wait (most_waiting=)")
    says = Says.limits(
        None if slots is None else whole(slots, "concurrency", least=least_slots),
        None if rate is None else Rate.of(rate, burst=burst),
    )
    return says._replace(most_waiting=None if most_waiting is None else whole(most_waiting, "most_waiting", least=0))
