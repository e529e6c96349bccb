"""Codecs of single values: those that JSON holds as they are, and those held as text."""

from __future__ import annotations

import binascii
import inspect
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from duly.domain.codecs.codec import Codec, expected
from duly.domain.json import SCALARS, Misfit, check


def _int(value: object, _: bool) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    raise expected("int", value)


def _float(value: object, _: bool) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise Misfit("expected float, got an int too large for one") from None
    raise expected("float", value)


def _str(value: object, _: bool) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise expected("str", value)


def _bool(value: object, _: bool) -> bool:
    if isinstance(value, bool):
        return value
    raise expected("bool", value)


def _none(value: object, _: bool) -> None:
    if value is not None:
        raise expected("None", value)


def _any(value: object, storing: bool) -> object:
    if storing:
        check(value)
    return value


_STR: Final = Codec(name="str", convert=_str, plain=frozenset({str}))
NONE: Final = Codec(name="None", convert=_none, plain=frozenset({type(None)}))
ANY: Final = Codec(name="Any", convert=_any, plain=SCALARS)
PURE: Final = (
    Codec(name="int", convert=_int, plain=frozenset({int})),
    Codec(name="float", convert=_float, plain=frozenset({float})),
    Codec(name="bool", convert=_bool, plain=frozenset({bool})),
    _STR,
    NONE,
)


def as_text(cls: type, write: Callable[[Any], str], read: Callable[[str], object]) -> Codec:
    name = cls.__name__

    def convert(value: object, storing: bool) -> object:
        if storing and isinstance(value, cls):
            return write(value)
        if not storing and isinstance(value, str):
            try:
                return read(value)
            except (ValueError, ArithmeticError):
                pass
        raise expected(name, value)

    return Codec(name=name, convert=convert)


def _check_offset(value: datetime | time) -> None:
    offset = value.utcoffset()
    if offset is not None and offset.microseconds:  # Python writes such an offset, and reads some back as UTC
        raise Misfit(f"{value.isoformat()} has an offset with fractions of a second, which would be lost")


def _write_datetime(value: datetime) -> str:
    _check_offset(value)
    if value.utcoffset() is None:
        raise Misfit(f"{value.isoformat()} has no time zone: pass an aware datetime, as datetime.now(UTC) is")
    return value.isoformat()


def _read_datetime(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    if value.tzinfo is None:
        raise ValueError(text)
    return value


def _write_date(value: date) -> str:
    if isinstance(value, datetime):
        raise expected("date", value)
    return value.isoformat()


def _write_time(value: time) -> str:
    _check_offset(value)
    if value.tzinfo is not None and value.utcoffset() is None:
        raise Misfit(f"{value.isoformat()} has a time zone that depends on the day: pass an aware datetime")
    return value.isoformat()


_DURATION: Final = re.compile(
    r"(-?)P(?=[0-9T])(?:([0-9]+)D)?(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:\.([0-9]{1,6}))?S)?)?"
)


def _write_timedelta(value: timedelta) -> str:
    sign, value = ("-", -value) if value < timedelta(0) else ("", value)
    fraction = f".{value.microseconds:06}" if value.microseconds else ""
    return f"{sign}PT{value.days * 86_400 + value.seconds}{fraction}S"


def _read_timedelta(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(text)
    sign, days, hours, minutes, seconds, fraction = found.groups(default="0")
    value = timedelta(days=int(days), hours=int(hours), minutes=int(minutes), seconds=int(seconds))
    value += timedelta(microseconds=int(fraction.ljust(6, "0")))
    return -value if sign else value


LEAVES: Final[dict[object, Codec]] = {
    **{cls: codec for codec in PURE for cls in codec.plain},
    None: NONE,
    Any: ANY,
    object: ANY,
    inspect.Parameter.empty: ANY,
    UUID: as_text(UUID, str, UUID),
    datetime: as_text(datetime, _write_datetime, _read_datetime),
    date: as_text(date, _write_date, date.fromisoformat),
    time: as_text(time, _write_time, time.fromisoformat),
    timedelta: as_text(timedelta, _write_timedelta, _read_timedelta),
    Decimal: as_text(Decimal, str, Decimal),
    bytes: as_text(
        bytes,
        lambda value: binascii.b2a_base64(value, newline=False).decode(),
        lambda text: binascii.a2b_base64(text, strict_mode=True),
    ),
}
