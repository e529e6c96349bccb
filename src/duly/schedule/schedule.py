"""The schedule of a recurring job: a value that knows its ticks, and can be stored as text.

Instants are microseconds since the epoch, UTC. A tick is planned by the rules and then shifted by the jitter: a part
of `jitter` that depends on the key alone, so that the ticks of one key keep their distance and those of many keys
spread. Exclusions look at the planned instant; `start` and `until` bound the tick itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from duly.domain.errors import InvalidSchedule
from duly.domain.text import safe_repr
from duly.schedule.moments import first_after, last_at
from duly.schedule.options import (
    FIRST_US,
    LAST_US,
    Gap,
    Overlap,
    check_bounds,
    check_types,
    day_number,
    day_texts,
    instant,
    jitter_micros,
    rule_texts,
)
from duly.schedule.rules import Every, Rule, parse_rule
from duly.schedule.zones import Zone, end_of_day, find_zone, start_of_day

_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a recurring job runs. Without rules the handler decides, and there are no ticks.

    Make one with `make`, which accepts what people write; the fields hold the canonical form.
    """

    rules: tuple[str, ...]
    timezone: str = "UTC"
    start_us: int | None = None
    until_us: int | None = None
    exclude: tuple[str, ...] = ()
    jitter_us: int = 0
    gap: Gap = "next"
    overlap: Overlap = "first"
    _rules: tuple[Rule, ...] = field(init=False, repr=False, compare=False)
    _zone: Zone | None = field(init=False, repr=False, compare=False)
    _excluded: frozenset[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check everything, so that there is no schedule that cannot be followed."""
        check_types(self)
        check_bounds(self)
        rules = {rule.text: rule for rule in map(parse_rule, self.rules)}
        object.__setattr__(self, "rules", tuple(rules))
        object.__setattr__(self, "exclude", tuple(sorted(set(self.exclude))))
        object.__setattr__(self, "_rules", tuple(rules.values()))
        object.__setattr__(self, "_zone", find_zone(self.timezone))
        object.__setattr__(self, "_excluded", frozenset(day_number(text) for text in self.exclude))

    @classmethod
    def make(
        cls,
        rules: str | timedelta | Iterable[str | timedelta] | None,
        *,
        timezone: str = "UTC",
        start: datetime | None = None,
        until: datetime | None = None,
        exclude: Iterable[date | str] = (),
        jitter: timedelta | str | int | float = 0,
        gap: Gap = "next",
        overlap: Overlap = "first",
    ) -> Schedule:
        """Return the schedule that these options say, or raise InvalidSchedule.

        A timedelta is the interval of an `@every`. Several rules tick whenever one of them does. `exclude` holds days
        in `timezone`, as dates or as "2026-12-25".
        """
        return cls(
            rules=rule_texts(rules),
            timezone=timezone,
            start_us=None if start is None else instant(start, "start"),
            until_us=None if until is None else instant(until, "until"),
            exclude=day_texts(exclude),
            jitter_us=jitter_micros(jitter),
            gap=gap,
            overlap=overlap,
        )

    def to_json(self) -> str:
        """Return a short text that `from_json` reads; equal schedules have equal texts."""
        return json.dumps(
            {name: value for name, default in _DEFAULTS.items() if (value := getattr(self, name)) != default},
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Return the schedule that was stored as `text`. The same text is read once."""
        return _from_json(text)

    def next_after(self, after_us: int, *, anchor_us: int, key: str = "") -> int | None:
        """Return the first tick strictly after `after_us`, or None if there is none.

        `anchor_us` is where `@every` counts from if the schedule has no start; `key` decides the shift by jitter.
        """
        shift = _shift(key, self.jitter_us) if self.jitter_us else 0
        start = self.start_us
        after = after_us - shift
        if start is not None:
            anchor_us = start
            if after < start:
                after = start - 1
        planned = self._planned_after(max(after, FIRST_US), anchor_us)
        if planned is None:
            return None
        tick = planned + shift
        last = LAST_US if self.until_us is None else self.until_us
        return tick if tick <= last else None

    def latest_at(self, at_us: int, *, anchor_us: int, key: str = "") -> int | None:
        """Return the last tick that is not after `at_us`, or None if there is none.

        Cron has ticks before the anchor too; only a start keeps them out.
        """
        shift = _shift(key, self.jitter_us) if self.jitter_us else 0
        last = LAST_US if self.until_us is None else self.until_us
        at = min(at_us, last) - shift
        start = self.start_us
        planned = self._planned_at(at, anchor_us if start is None else start)
        if planned is None or planned < (FIRST_US if start is None else start):
            return None
        return planned + shift

    def ticks(self, after_us: int, n: int, *, anchor_us: int, key: str = "") -> list[int]:
        """Return the first `n` ticks strictly after `after_us`; fewer if there are no more."""
        found: list[int] = []
        while len(found) < n:
            tick = self.next_after(after_us, anchor_us=anchor_us, key=key)
            if tick is None:
                break
            found.append(tick)
            after_us = tick
        return found

    def describe(self) -> str:
        """Return the schedule in plain English, such as "at 09:00 on Monday through Friday, Europe/Berlin"."""
        from duly.schedule.describe import describe

        return describe(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as the text, so that what was compiled stays behind."""
        return _from_json, (self.to_json(),)

    def _planned_after(self, after: int, anchor_us: int) -> int | None:
        while after < LAST_US:
            found: int | None = None
            for rule in self._rules:
                tick = self._rule_after(rule, after, anchor_us)
                if tick is not None and (found is None or tick < found):
                    found = tick
            if found is None or not self._excluded or found > LAST_US:
                return found
            day, end = end_of_day(self._zone, found // _US)
            if day not in self._excluded:
                return found
            after = end * _US - 1
        return None

    def _planned_at(self, at: int, anchor_us: int) -> int | None:
        while at >= FIRST_US:
            found: int | None = None
            for rule in self._rules:
                tick = self._rule_at(rule, at, anchor_us)
                if tick is not None and (found is None or tick > found):
                    found = tick
            if found is None or not self._excluded or found < FIRST_US:
                return found
            day, start = start_of_day(self._zone, found // _US)
            if day not in self._excluded:
                return found
            at = start * _US - 1
        return None

    def _rule_after(self, rule: Rule, after: int, anchor_us: int) -> int | None:
        if isinstance(rule, Every):
            return rule.next_after(after, anchor_us)
        found = first_after(
            rule,
            self._zone,
            after // _US,
            made_up=rule.fixed and self.gap == "next",
            twice=not rule.fixed or self.overlap == "twice",
        )
        return None if found is None else found * _US

    def _rule_at(self, rule: Rule, at: int, anchor_us: int) -> int | None:
        if isinstance(rule, Every):
            return rule.latest_at(at, anchor_us)
        found = last_at(
            rule,
            self._zone,
            at // _US,
            made_up=rule.fixed and self.gap == "next",
            twice=not rule.fixed or self.overlap == "twice",
        )
        return None if found is None else found * _US


_DEFAULTS: Final[dict[str, object]] = {
    "rules": (),
    "timezone": "UTC",
    "start_us": None,
    "until_us": None,
    "exclude": (),
    "jitter_us": 0,
    "gap": "next",
    "overlap": "first",
}


@lru_cache(maxsize=4096)
def _from_json(text: str) -> Schedule:
    try:
        fields: Any = json.loads(text)
    except (ValueError, TypeError):
        fields = None
    if not isinstance(fields, dict) or not fields.keys() <= _DEFAULTS.keys():
        raise InvalidSchedule(
            f"This is not a stored schedule: {safe_repr(text)}. It must be a JSON object of {', '.join(_DEFAULTS)}.",
            text=safe_repr(text),
        )
    values: dict[str, Any] = {"rules": ()}
    for name, value in fields.items():
        values[name] = tuple(value) if isinstance(value, list) else value
    return Schedule(**values)


@lru_cache(maxsize=4096)
def _shift(key: str, jitter_us: int) -> int:
    """Return the part of the jitter that belongs to a key: evenly spread, and the same everywhere and always."""
    from hashlib import blake2b

    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") * jitter_us >> 64
