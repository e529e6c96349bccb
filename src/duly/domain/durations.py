"""Durations: what people write ("1h30m", 90, timedelta) to `timedelta`, and back to short text.

Not for instants, and not for schedules: those only use the duration after `@every`.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta

from duly.domain.errors import InvalidOption
from duly.domain.text import safe_repr

LONGEST = timedelta(days=365_000)
"""About a thousand years: a duration this long still fits in 64 bits and, added to today, in a datetime."""

_NANOS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # U+00B5, micro sign
    "μs": 10**3,  # U+03BC, the Greek letter, which looks the same
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86_400 * 10**9,
    "w": 604_800 * 10**9,
}
_UNITS = "ns us ms s m h d w"
_PART = r"(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"  # not compiled at import: few programs need it
_UNIT = r"[^\W\d_]+"
_LONGEST_TEXT = 100


class UnreadableDuration(ValueError):
    """Text is not a duration; `position` is the index of the first character at fault."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason


def to_timedelta(value: timedelta | int | float | str, what: str, *, allow_negative: bool = False) -> timedelta:
    """Return the duration that `value` says: a timedelta, a number of seconds, or text such as "1h30m".

    `what` names the option in the error. A non-zero duration below a microsecond becomes one microsecond,
    so that it is never silently nothing.
    """
    if isinstance(value, timedelta):
        duration = value
    elif isinstance(value, str):
        duration = _parse(value, what)
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidOption(
            f"{what} must be a timedelta, a number of seconds or text like '1h30m', not {safe_repr(value)}.",
            option=what,
        )
    else:
        duration = _from_seconds(value, what)
    if duration < timedelta(0) and not allow_negative:
        raise InvalidOption(f"{what} must not be negative, and {safe_repr(value)} is.", option=what)
    if abs(duration) > LONGEST:
        raise _too_long(value, what)
    return duration


def parse_duration(text: str) -> timedelta:
    """Return the duration that `text` says, which may be negative; UnreadableDuration or OverflowError if none."""
    body = text.strip()
    start = text.index(body) if body else 0
    sign = -1 if body.startswith("-") else 1
    position = start + body.startswith(("-", "+"))
    end = start + len(body)
    if text[position:end] == "0":
        return timedelta(0)
    if position == end:
        raise UnreadableDuration(position, "a number is missing")
    nanos = 0
    while position < end:
        amount, position = _read_part(text, position)
        nanos += amount
        while position < end and text[position] == " ":
            position += 1
    return timedelta(microseconds=sign * _rounded_micros(nanos))


def micros(duration: timedelta) -> int:
    """Return the duration in whole microseconds, exactly."""
    return (duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds


def human(duration: timedelta) -> str:
    """Return short text for people: "1h30m", "250ms", "0s"; the two largest units, the rest cut off."""
    total = micros(duration)
    if total < 0:
        return "-" + human(-duration)
    if total == 0:
        return "0s"
    if total < 1_000:
        return f"{total}us"
    if total < 1_000_000:
        return f"{_trimmed(total, 1_000)}ms"
    if total < 60_000_000:
        return f"{_trimmed(total, 1_000_000)}s"
    seconds = total // 1_000_000
    if seconds >= 86_400:
        return _two_units(seconds // 3600, 24, "d", "h")
    if seconds >= 3600:
        return _two_units(seconds // 60, 60, "h", "m")
    return _two_units(seconds, 60, "m", "s")


def _two_units(amount: int, ratio: int, large: str, small: str) -> str:
    rest = amount % ratio
    return f"{amount // ratio}{large}{rest}{small}" if rest else f"{amount // ratio}{large}"


def _trimmed(amount: int, unit: int) -> str:
    """Return amount / unit with up to three decimals, cut off, without trailing zeros."""
    return f"{amount // unit}.{amount % unit * 1000 // unit:03d}".rstrip("0").rstrip(".")


def _from_seconds(value: int | float, what: str) -> timedelta:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidOption(f"{what} must be a finite number of seconds, not {value}.", option=what)
    try:
        duration = timedelta(seconds=value)
    except OverflowError:
        raise _too_long(value, what) from None
    return duration or _at_least_a_microsecond(value)


def _at_least_a_microsecond(value: float) -> timedelta:
    return timedelta(microseconds=(value > 0) - (value < 0))


def _parse(text: str, what: str) -> timedelta:
    if len(text) > _LONGEST_TEXT:
        raise InvalidOption(f"{what} is not a duration: the text has {len(text)} characters.", option=what)
    try:
        return parse_duration(text)
    except UnreadableDuration as error:
        raise InvalidOption(
            f"{what} is not a duration: {text!r}, position {error.position + 1}: {error.reason}.", option=what
        ) from None
    except OverflowError:
        raise _too_long(text, what) from None


def _read_part(text: str, position: int) -> tuple[int, int]:
    """Read one number and its unit at `position`; return nanoseconds (rounded up) and where it ends."""
    number = re.compile(_PART).match(text, position)
    assert number is not None  # it matches the empty string
    whole, fraction = number["whole"], number["fraction"] or ""
    if not whole and not fraction:
        raise UnreadableDuration(position, "a number is expected")
    unit = re.compile(_UNIT).match(text, number.end())
    if unit is None:
        raise UnreadableDuration(number.end(), f"a unit is missing (one of {_UNITS})")
    size = _NANOS.get(unit[0])
    if size is None:
        raise UnreadableDuration(number.end(), f"unknown unit {unit[0]!r} (known: {_UNITS})")
    scale = 10 ** len(fraction)
    return -(-(int(whole + fraction) * size) // scale), unit.end()


def _rounded_micros(nanos: int) -> int:
    return max((nanos + 500) // 1000, 1) if nanos else 0


def _too_long(value: object, what: str) -> InvalidOption:
    return InvalidOption(f"{what} must be at most {LONGEST.days} days, and {safe_repr(value)} is longer.", option=what)
