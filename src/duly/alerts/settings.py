"""The thresholds of alerts, overall and for single queues and tasks, and where alerts go: the table `[alerts]`.

[alerts]
depth = 5000
failed_rate = "20%"
oldest_waiting = "10m"
webhook = "https://example.org/hooks/duly"
webhook_secret = "env:HOOK_SECRET"

[alerts.queues.mail]
oldest_waiting = "1m"

[alerts.tasks.import_catalogue]
running = "6h"
failed_rate = false          # this rule is off
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from duly.domain.durations import LONGEST, human, to_timedelta
from duly.domain.errors import InvalidOption
from duly.domain.names import check_queue_name, check_task_name, suggest
from duly.domain.text import safe_repr

_UNITS: Final = {
    "": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
Limit = float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When alerts start. Durations in seconds, sizes in bytes, rates from 0 to 1; None: that rule is off."""

    depth: Limit = 1000
    """More jobs of a queue wait."""
    failed_rate: Limit = 0.10
    """A larger part of a task's runs of the last 15 minutes failed."""
    running: Limit = 3600
    """A job runs for longer."""
    schedule_late: Limit = 300
    """A recurring job should have started longer ago."""
    no_worker: Limit = 60
    """A job has been waiting for longer, and no live worker could run it."""
    oldest_waiting: Limit = None
    """A job has been waiting for longer."""
    poison: Limit = 3600
    """A job took its workers with it, less long ago."""
    disk_free: Limit = 1 << 30
    """SQLite: less is free on its disk."""
    wal_size: Limit = 256 << 20
    """SQLite: the write-ahead log is larger; PostgreSQL: more of it is kept for a replica that does not fetch it."""
    database_size: Limit = None
    """The database is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """How alerts are looked for and where they go."""

    enabled: bool = True
    interval: timedelta = timedelta(seconds=30)
    clear_after: timedelta = timedelta(seconds=60)
    """How long it must be well again before an alert ends."""
    failed_runs: int = 10
    """A failed rate of fewer runs than this says nothing."""
    keep: timedelta = timedelta(days=30)
    """How long alerts that ended are kept."""
    webhook: str | None = field(default=None, repr=False)
    webhook_secret: str | None = field(default=None, repr=False)
    webhook_timeout: timedelta = timedelta(seconds=5)
    overall: Thresholds = Thresholds()
    queues: Mapping[str, Mapping[str, Limit]] = field(default_factory=dict)
    tasks: Mapping[str, Mapping[str, Limit]] = field(default_factory=dict)

    def limit(self, rule: str, *, queue: str | None = None, task: str | None = None) -> Limit:
        """The threshold that holds: that of the task, else of the queue, else of all."""
        for table, name in ((self.tasks, task), (self.queues, queue)):
            if name is not None and rule in table.get(name, ()):
                return table[name][rule]
        value: Limit = getattr(self.overall, rule)
        return value


DEFAULT_ALERTS: Final = AlertSettings()


def read_alerts(value: object, what: str = "alerts") -> AlertSettings:
    """Read the table `[alerts]`, a mapping of the same form, or that as JSON text."""
    if isinstance(value, AlertSettings):
        return value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InvalidOption(f"{what} must be a table, or JSON of one: {error}.") from None
    return changed(AlertSettings(), value, what)


def changed(settings: AlertSettings, given: object, what: str = "alerts") -> AlertSettings:
    """The settings with some of them given anew. `what`: how they are called, with where they were found after it."""
    what, bracket, source = what.partition(" (")
    try:
        return _changed(settings, given, what)
    except InvalidOption as error:
        if not bracket:
            raise
        raise InvalidOption(f"{str(error).rstrip('.')} ({source}.") from None


def _changed(settings: AlertSettings, given: object, what: str) -> AlertSettings:
    values: dict[str, Any] = {}
    overall: dict[str, Limit] = {}
    for name, value in _table(given, what).items():
        if name in _THRESHOLDS:
            overall[name] = _threshold(name, value, f"{what}.{name}")
        elif name in ("queues", "tasks"):
            checked = check_queue_name if name == "queues" else check_task_name
            values[name] = {**getattr(settings, name), **_each(value, f"{what}.{name}", checked)}
        elif name in _OTHERS:
            values[name] = _OTHERS[name](value, f"{what}.{name}")
        else:
            known = [*_THRESHOLDS, *_OTHERS, "queues", "tasks"]
            raise InvalidOption(f"{what} has no {name!r}.{suggest(str(name), known)}")
    if overall:
        values["overall"] = replace(settings.overall, **overall)
    return replace(settings, **values)


def _table(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidOption(f"{what} must be a table, not {safe_repr(value)}.")
    return value


def _each(value: object, what: str, check: Callable[[str], str]) -> dict[str, dict[str, Limit]]:
    found: dict[str, dict[str, Limit]] = {}
    for name, table in _table(value, what).items():
        here = f"{what}.{check(name)}"
        found[name] = {}
        for rule, limit in _table(table, here).items():
            if rule not in _BY_NAME:
                raise InvalidOption(f"{here} has no {rule!r}.{suggest(str(rule), _BY_NAME)}")
            found[name][rule] = _threshold(rule, limit, f"{here}.{rule}")
    return found


def _threshold(rule: str, value: object, what: str) -> Limit:
    if value is False or value is None:
        return None
    return _THRESHOLDS[rule](value, what)


def _count(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidOption(f"{what} must be a whole number from 0 on, or false, not {safe_repr(value)}.")
    return float(value)


def _rate(value: object, what: str) -> float:
    number = value
    if isinstance(value, str) and (percent := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*%", value)):
        number = float(percent[1]) / 100
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= 1:
        raise InvalidOption(f"{what} must be from 0 to 1, or text like '10%', or false, not {safe_repr(value)}.")
    return float(number)


def _duration(lowest: float) -> Callable[[object, str], timedelta]:
    def read(value: object, what: str) -> timedelta:
        duration = to_timedelta(value, what)  # type: ignore[arg-type]  # it refuses what it does not know
        if not timedelta(seconds=lowest) <= duration <= LONGEST:
            raise InvalidOption(f"{what} must be at least {human(timedelta(seconds=lowest))}, not {human(duration)}.")
        return duration

    return read


def _seconds(value: object, what: str) -> float:
    return _duration(0)(value, what).total_seconds()


def _size(value: object, what: str) -> float:
    if isinstance(value, str):
        size = re.fullmatch(r"([0-9]{1,18})\s*([A-Za-z]*)", value)
        if size is None or size[2].lower() not in _UNITS:
            raise InvalidOption(f"{what} must be a number of bytes or text like '10GiB', not {safe_repr(value)}.")
        return float(int(size[1]) * _UNITS[size[2].lower()])
    return _count(value, what)


def _flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(f"{what} must be true or false, not {safe_repr(value)}.")
    return value


def _text(value: object, what: str) -> str | None:
    """Text, or what an environment variable holds: "env:NAME"."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise InvalidOption(f"{what} must be text.")
    if value.startswith("env:"):
        name = value.removeprefix("env:")
        if not os.environ.get(name, "").strip():
            raise InvalidOption(f"{what} is {value!r}, but {name!r} is not set.")
        return os.environ[name].strip()
    return value


def _address(value: object, what: str) -> str | None:
    text = _text(value, what)
    if text is not None and (urlsplit(text).scheme not in ("http", "https") or not urlsplit(text).hostname):
        raise InvalidOption(f"{what} must be an address that begins with https:// or http://.")
    return text


_THRESHOLDS: Final[dict[str, Callable[[object, str], float]]] = {
    "depth": _count,
    "failed_rate": _rate,
    "running": _seconds,
    "schedule_late": _seconds,
    "no_worker": _seconds,
    "oldest_waiting": _seconds,
    "poison": _seconds,
    "disk_free": _size,
    "wal_size": _size,
    "database_size": _size,
}
_BY_NAME: Final = ("depth", "failed_rate", "running", "schedule_late", "no_worker", "oldest_waiting", "poison")
"""The rules whose thresholds may differ between queues and tasks."""
_OTHERS: Final[dict[str, Callable[[object, str], Any]]] = {
    "enabled": _flag,
    "interval": _duration(0.1),
    "clear_after": _duration(0),
    "failed_runs": lambda value, what: max(1, int(_count(value, what))),
    "keep": _duration(0),
    "webhook": _address,
    "webhook_secret": _text,
    "webhook_timeout": _duration(0.1),
}
assert list(_THRESHOLDS) == [each.name for each in fields(Thresholds)]
