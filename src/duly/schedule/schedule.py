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
from typing import Any, Final, Literal, TypeAlias, get_args

from duly.domain.clock import from_us, to_us
from duly.domain.durations import LONGEST, micros, to_timedelta
from duly.domain.errors import InvalidOption, InvalidSchedule
from duly.domain.json import safe_repr
from duly.schedule.cron import DAY
from duly.schedule.moments import first_after, last_at
from duly.schedule.rules import Every, Rule, every, parse_rule
from duly.schedule.zones import FIRST, LAST, Zone, find_zone

Gap: TypeAlias = Literal["next", "skip"]
Overlap: TypeAlias = Literal["first", "twice"]

MOST_RULES: Final = 100
MOST_EXCLUSIONS: Final = 1_000
_US: Final = 1_000_000
_FIRST_US: Final = FIRST * _US
_LAST_US: Final = LAST * _US
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


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
        _check_types(self)
        _check_bounds(self)
        rules = tuple(parse_rule(text) for text in self.rules)
        object.__setattr__(self, "_rules", rules)
        object.__setattr__(self, "rules", tuple(rule.text for rule in rules))
        object.__setattr__(self, "_zone", find_zone(self.timezone))
        object.__setattr__(self, "_excluded", frozenset(_day_number(text) for text in self.exclude))

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
            rules=_rule_texts(rules),
            timezone=timezone,
            start_us=None if start is None else _instant(start, "start"),
            until_us=None if until is None else _instant(until, "until"),
            exclude=_day_texts(exclude),
            jitter_us=_jitter(jitter),
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
        planned = self._planned_after(max(after, _FIRST_US), anchor_us)
        if planned is None:
            return None
        tick = planned + shift
        last = _LAST_US if self.until_us is None else self.until_us
        return tick if tick <= last else None

    def latest_at(self, at_us: int, *, anchor_us: int, key: str = "") -> int | None:
        """Return the last tick that is not after `at_us`, or None if there is none."""
        shift = _shift(key, self.jitter_us) if self.jitter_us else 0
        last = _LAST_US if self.until_us is None else self.until_us
        at = min(at_us, last) - shift
        start = self.start_us
        planned = self._planned_at(at, anchor_us if start is None else start)
        if planned is None or planned < (_FIRST_US if start is None else start):
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
        while after < _LAST_US:
            found: int | None = None
            for rule in self._rules:
                tick = self._rule_after(rule, after, anchor_us)
                if tick is not None and (found is None or tick < found):
                    found = tick
            if found is None or not self._excluded or found > _LAST_US:
                return found
            reading = self._reading(found)
            if reading // DAY not in self._excluded:
                return found
            after = self._end_of_day(found, reading)
        return None

    def _planned_at(self, at: int, anchor_us: int) -> int | None:
        while at >= _FIRST_US:
            found: int | None = None
            for rule in self._rules:
                tick = self._rule_at(rule, at, anchor_us)
                if tick is not None and (found is None or tick > found):
                    found = tick
            if found is None or not self._excluded or found < _FIRST_US:
                return found
            reading = self._reading(found)
            if reading // DAY not in self._excluded:
                return found
            at = self._before_day(found, reading)
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

    def _reading(self, instant_us: int) -> int:
        """Return what the wall clock shows, in seconds."""
        instant = instant_us // _US
        return instant if self._zone is None else self._zone.read(instant)[0]

    def _end_of_day(self, instant_us: int, reading: int) -> int:
        """Return an instant, not before this one, from which no tick on another day has been passed over."""
        return max(instant_us, self._midnight(reading // DAY * DAY + DAY, instant_us, forwards=True) - 1)

    def _before_day(self, instant_us: int, reading: int) -> int:
        """Return an instant before this one, after which there is no tick on another day."""
        return min(instant_us - 1, self._midnight(reading // DAY * DAY, instant_us, forwards=False) - 1)

    def _midnight(self, midnight: int, instant_us: int, *, forwards: bool) -> int:
        """Return the instant of a midnight: of two, the one next to `instant_us`; of none, the end of the gap."""
        if self._zone is None:
            return midnight * _US
        first, second = self._zone.instants(midnight)
        if first > second:
            return self._zone.turn(second, first) * _US
        if forwards:
            return (first if first * _US > instant_us else second) * _US
        return (second if second * _US <= instant_us else first) * _US


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


def _rule_texts(rules: str | timedelta | Iterable[str | timedelta] | None) -> tuple[str, ...]:
    if rules is None:
        return ()
    given = [rules] if isinstance(rules, (str, timedelta)) else rules
    if not isinstance(given, Iterable):
        raise _wrong_rule(given)
    found: dict[str, None] = {}
    for rule in given:
        if isinstance(rule, timedelta):
            found[every(rule).text] = None
        elif isinstance(rule, str):
            found[parse_rule(rule).text] = None
        else:
            raise _wrong_rule(rule)
    return tuple(found)


def _wrong_rule(rule: object) -> InvalidSchedule:
    shown = safe_repr(rule)
    return InvalidSchedule(f"A rule must be text such as '@hourly', or a timedelta, not {shown}.", text=shown)


def _instant(moment: datetime, what: str) -> int:
    try:
        return to_us(moment, what)
    except InvalidOption as error:
        raise InvalidSchedule(str(error), text=safe_repr(moment)) from None


def _jitter(jitter: timedelta | str | int | float) -> int:
    try:
        return micros(to_timedelta(jitter, "jitter"))
    except InvalidOption as error:
        raise InvalidSchedule(str(error), text=safe_repr(jitter)) from None


def _day_texts(days: Iterable[date | str]) -> tuple[str, ...]:
    if isinstance(days, (str, date)):
        days = [days]
    found = set()
    for day in days:
        if isinstance(day, datetime) or not isinstance(day, (date, str)):
            shown = safe_repr(day)
            raise InvalidSchedule(f"exclude takes dates or texts such as '2026-12-25', not {shown}.", text=shown)
        found.add(day if isinstance(day, str) else day.isoformat())
    return tuple(sorted(found))


def _day_number(text: str) -> int:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:
        raise InvalidSchedule(f"exclude has {safe_repr(text)}, which is not a date such as '2026-12-25'.", text=text)
    return day.toordinal() - _EPOCH_ORDINAL


def _check_types(schedule: Schedule) -> None:
    """Refuse what a type checker would, since options also come from stored text and from requests."""
    for name in ("rules", "exclude"):
        items = getattr(schedule, name)
        if not isinstance(items, tuple) or not all(isinstance(item, str) for item in items):
            raise _wrong(name, items, "a tuple of texts")
    for name in ("start_us", "until_us", "jitter_us"):
        value = getattr(schedule, name)
        if type(value) is not int and (value is not None or name == "jitter_us"):
            raise _wrong(name, value, "a whole number of microseconds")
    if not isinstance(schedule.timezone, str):
        raise _wrong("timezone", schedule.timezone, "a name such as 'Europe/Berlin'")
    for name, choices in (("gap", get_args(Gap)), ("overlap", get_args(Overlap))):
        if getattr(schedule, name) not in choices:
            raise _wrong(name, getattr(schedule, name), " or ".join(map(repr, choices)))


def _wrong(name: str, value: object, allowed: str) -> InvalidSchedule:
    shown = safe_repr(value)
    return InvalidSchedule(f"{name} must be {allowed}, not {shown}.", text=shown)


def _check_bounds(schedule: Schedule) -> None:
    for name, items, most in (("rules", schedule.rules, MOST_RULES), ("exclude", schedule.exclude, MOST_EXCLUSIONS)):
        if len(items) > most:
            raise InvalidSchedule(f"{name} has {len(items)} entries, and {most} are allowed.")
    for name, value in (("start", schedule.start_us), ("until", schedule.until_us)):
        if value is not None and not _FIRST_US <= value <= _LAST_US:
            raise InvalidSchedule(f"{name} must be between the years 1 and 9999.", text=str(value))
    start, until = schedule.start_us, schedule.until_us
    if start is not None and until is not None and until <= start:
        raise InvalidSchedule(
            f"until must be later than start, and {from_us(until)} is not later than {from_us(start)}.", text=str(until)
        )
    if not 0 <= schedule.jitter_us <= micros(LONGEST):
        raise InvalidSchedule(
            f"jitter must be between 0 and {LONGEST.days} days, not {schedule.jitter_us} microseconds.",
            text=str(schedule.jitter_us),
        )
