"""The options of a schedule: from what people write to the canonical form, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from duly.domain.clock import from_us, to_us
from duly.domain.durations import LONGEST, micros, to_timedelta
from duly.domain.errors import InvalidOption, InvalidSchedule
from duly.domain.text import safe_repr
from duly.schedule.rules import every
from duly.schedule.zones import FIRST, LAST

if TYPE_CHECKING:
    from duly.schedule.schedule import Schedule

Gap: TypeAlias = Literal["next", "skip"]
Overlap: TypeAlias = Literal["first", "twice"]

MOST_RULES: Final = 100
MOST_EXCLUSIONS: Final = 1_000
FIRST_US: Final = FIRST * 1_000_000
LAST_US: Final = LAST * 1_000_000
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


def rule_texts(rules: object) -> tuple[str, ...]:
    """Return the texts of the rules that were given."""
    if rules is None:
        return ()
    given = [rules] if isinstance(rules, (str, timedelta)) else rules
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise _wrong_rule(given)
    return tuple(_rule_text(rule) for rule in given)


def _rule_text(rule: object) -> str:
    if isinstance(rule, timedelta):
        return every(rule).text
    if not isinstance(rule, str):
        raise _wrong_rule(rule)
    return rule


def _wrong_rule(rule: object) -> InvalidSchedule:
    shown = safe_repr(rule)
    return InvalidSchedule(
        f"A rule must be text such as '@hourly', or a timedelta, not {shown}.", text=shown, option="rule"
    )


def instant(moment: datetime, what: str) -> int:
    """Return `start` or `until` in microseconds; refuse a naive one."""
    try:
        return to_us(moment, what)
    except InvalidOption as error:
        raise InvalidSchedule(str(error), text=safe_repr(moment), option=error.option) from None


def jitter_micros(jitter: timedelta | str | int | float) -> int:
    """Return the jitter in microseconds."""
    try:
        return micros(to_timedelta(jitter, "jitter"))
    except InvalidOption as error:
        raise InvalidSchedule(str(error), text=safe_repr(jitter), option=error.option) from None


def day_texts(days: Iterable[date | str]) -> tuple[str, ...]:
    """Return the excluded days as texts."""
    if isinstance(days, (str, date)):
        days = [days]
    found = []
    for day in days:
        if isinstance(day, datetime) or not isinstance(day, (date, str)):
            shown = safe_repr(day)
            raise InvalidSchedule(
                f"exclude takes dates or texts such as '2026-12-25', not {shown}.", text=shown, option="exclude"
            )
        found.append(day if isinstance(day, str) else day.isoformat())
    return tuple(found)


def day_number(text: str) -> int:
    """Return an excluded day in days since 1970; refuse what is not a date."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:
        raise InvalidSchedule(
            f"exclude has {safe_repr(text)}, which is not a date such as '2026-12-25'.", text=text, option="exclude"
        )
    return day.toordinal() - _EPOCH_ORDINAL


def check_types(schedule: Schedule) -> None:
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
    return InvalidSchedule(f"{name} must be {allowed}, not {shown}.", text=shown, option=name)


def check_bounds(schedule: Schedule) -> None:
    """Refuse too many entries, and instants and durations out of range or order."""
    for name, items, most in (("rules", schedule.rules, MOST_RULES), ("exclude", schedule.exclude, MOST_EXCLUSIONS)):
        if len(items) > most:
            raise InvalidSchedule(f"{name} has {len(items)} entries, and {most} are allowed.", option=name)
    for name, value in (("start", schedule.start_us), ("until", schedule.until_us)):
        if value is not None and not FIRST_US <= value <= LAST_US:
            raise InvalidSchedule(f"{name} must be between the years 1 and 9999.", text=str(value), option=name)
    start, until = schedule.start_us, schedule.until_us
    if start is not None and until is not None and until <= start:
        raise InvalidSchedule(
            f"until must be later than start, and {from_us(until)} is not later than {from_us(start)}.",
            text=str(until),
            option="until",
        )
    if not 0 <= schedule.jitter_us <= micros(LONGEST):
        raise InvalidSchedule(
            f"jitter must be between 0 and {LONGEST.days} days, not {schedule.jitter_us} microseconds.",
            text=str(schedule.jitter_us),
            option="jitter",
        )
