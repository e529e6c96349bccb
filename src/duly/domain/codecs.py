"""How values of each type hint become JSON and come back. `signature.py` asks `codec_for(hint)`.

Checks are strict: True is no int, "1" is no int, an instance of a subclass is no such record (it would come
back as less), and what a union would bring back as another type is refused. Only an int is also a float.
"""

from __future__ import annotations

import binascii
import dataclasses
import inspect
import json
import re
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, TypeAlias
from uuid import UUID

from duly.domain.json import (
    JSON,
    SCALARS,
    Misfit,
    check,
    clean_text,
    describe_exception,
    safe_repr,
    type_name,
)
from duly.domain.names import suggest


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """How values of one type hint become JSON (`storing`) and come back (not `storing`), or raise Misfit.

    Values whose type is exactly one of `plain` are the same both ways and need no call.
    """

    name: str
    convert: Callable[[Any, bool], Any]
    plain: frozenset[type] = frozenset()


Busy: TypeAlias = dict[object, Codec]


def expected(name: str, value: object) -> Misfit:
    got = "None" if value is None else f"{type_name(type(value))} {safe_repr(value)}"
    return Misfit(f"expected {name}, got {got}")


def _demand(name: str, value: object, wanted: tuple[type, ...]) -> None:
    if not isinstance(value, wanted):
        raise expected(name, value)


def _demand_exactly(name: str, value: object, wanted: type) -> None:
    if type(value) is not wanted:
        raise expected(name, value)


# ---- Scalars: JSON holds them as they are.


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
_PURE: Final = (
    Codec(name="int", convert=_int, plain=frozenset({int})),
    Codec(name="float", convert=_float, plain=frozenset({float})),
    Codec(name="bool", convert=_bool, plain=frozenset({bool})),
    _STR,
    NONE,
)


# ---- Leaves: one value, held as text.


def _as_text(cls: type, write: Callable[[Any], str], read: Callable[[str], object]) -> Codec:
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


_LEAVES: Final[dict[object, Codec]] = {
    **{cls: codec for codec in _PURE for cls in codec.plain},
    None: NONE,
    Any: ANY,
    object: ANY,
    inspect.Parameter.empty: ANY,
    UUID: _as_text(UUID, str, UUID),
    datetime: _as_text(datetime, _write_datetime, _read_datetime),
    date: _as_text(date, _write_date, date.fromisoformat),
    time: _as_text(time, _write_time, time.fromisoformat),
    timedelta: _as_text(timedelta, _write_timedelta, _read_timedelta),
    Decimal: _as_text(Decimal, str, Decimal),
    bytes: _as_text(
        bytes,
        lambda value: binascii.b2a_base64(value, newline=False).decode(),
        lambda text: binascii.a2b_base64(text, strict_mode=True),
    ),
}


# ---- Containers.


def _convert(codec: Codec, value: Any, storing: bool, step: str | int) -> Any:
    if type(value) in codec.plain:
        return value
    try:
        return codec.convert(value, storing)
    except Misfit as misfit:
        misfit.steps.append(step)
        raise


def _sort_key(data: JSON) -> str:
    return json.dumps(data, sort_keys=True)


def _array(name: str, item: Codec, accepted: tuple[type, ...], make: type) -> Codec:
    def convert(values: Any, storing: bool) -> object:
        _demand(name, values, accepted if storing else (list,))
        items = [_convert(item, value, storing, index) for index, value in enumerate(values)]
        if not storing:
            return make(items)
        if make in (set, frozenset):  # they have no order, and equal sets must give equal JSON
            items.sort(key=_sort_key)
        return items

    return Codec(name=name, convert=convert)


def _fixed_tuple(name: str, codecs: list[Codec]) -> Codec:
    def convert(values: Any, storing: bool) -> object:
        _demand(name, values, (tuple,) if storing else (list,))
        if len(values) != len(codecs):
            raise Misfit(f"expected {name}, got {len(values)} items")
        pairs = enumerate(zip(codecs, values, strict=True))
        items = [_convert(codec, value, storing, index) for index, (codec, value) in pairs]
        return items if storing else tuple(items)

    return Codec(name=name, convert=convert)


def _mapping(name: str, key_codec: Codec, item: Codec, accepted: type) -> Codec:
    def convert(values: Any, storing: bool) -> object:
        _demand(name, values, (accepted,) if storing else (dict,))
        converted = {}
        for key, value in values.items():
            new_key = key if type(key) in key_codec.plain else key_codec.convert(key, storing)
            if storing and type(new_key) is not str:
                raise Misfit(f"has the key {safe_repr(key)}, and JSON has only text as keys")
            converted[new_key] = _convert(item, value, storing, new_key if storing else key)
        if len(converted) != len(values):
            raise Misfit("has different keys that JSON cannot tell apart")
        return converted

    return Codec(name=name, convert=convert)


_MAPPINGS: Final[dict[object, type]] = {dict: dict, abc.Mapping: abc.Mapping, abc.MutableMapping: dict}
_ARRAYS: Final[dict[object, tuple[tuple[type, ...], type]]] = {
    list: ((list,), list),
    tuple: ((tuple,), tuple),
    set: ((set,), set),
    frozenset: ((frozenset,), frozenset),
    abc.Set: ((set, frozenset), frozenset),
    abc.Sequence: ((list, tuple), list),
    abc.Collection: ((list, tuple), list),
    abc.Iterable: ((list, tuple), list),
}


def _container(origin: object, args: tuple[object, ...], busy: Busy) -> Codec | None:
    if origin in _MAPPINGS:
        key, item = (codec_for(arg, busy) for arg in args or (str, Any))
        return _mapping(f"dict[{key.name}, {item.name}]", key, item, _MAPPINGS[origin])
    if origin is tuple and args[1:] != (Ellipsis,) and args != ():
        items = [codec_for(arg, busy) for arg in args]
        return _fixed_tuple(f"tuple[{', '.join(item.name for item in items)}]", items)
    if origin in _ARRAYS:
        accepted, make = _ARRAYS[origin]
        item = codec_for(args[0] if args else Any, busy)
        return _array(f"{make.__name__}[{item.name}{', ...' * (make is tuple)}]", item, accepted, make)
    return None


# ---- Choices.


def _literal(values: tuple[Any, ...], busy: Busy) -> Codec:
    name = f"Literal[{', '.join(safe_repr(value) for value in values)}]"
    stored = {(type(value), value): codec_for(type(value), busy).convert(value, True) for value in values}
    loaded = {(type(data), data): value for (_, value), data in stored.items()}

    def convert(value: object, storing: bool) -> object:
        try:
            return (stored if storing else loaded)[type(value), value]
        except (KeyError, TypeError):
            raise expected(name, value) from None

    return Codec(name=name, convert=convert)


def _enum(cls: type[Enum]) -> Codec:
    """Members by value, or by name where a value is no JSON scalar."""
    name = type_name(cls)
    by_value = all(type(member.value) in SCALARS for member in cls)

    def convert(value: Any, storing: bool) -> object:
        if storing:
            if isinstance(value, cls):
                return value.value if by_value else value.name
            raise expected(name, value)
        try:
            member = cls(value) if by_value else cls[value]
        except (ValueError, KeyError, TypeError):
            raise expected(name, value) from None
        if by_value and type(member.value) is not type(value):  # Level(True) is Level(1) to Python
            raise expected(name, value)
        return member

    return Codec(name=name, convert=convert)


def union(choices: list[Codec]) -> Codec:
    name = " | ".join(choice.name for choice in choices)
    real = [choice for choice in choices if choice is not NONE]
    none = NONE.plain if len(real) < len(choices) else frozenset()
    if len(real) == 1:
        return Codec(name=name, convert=real[0].convert, plain=real[0].plain | none)
    if not all(choice in _PURE for choice in real):
        return Codec(name=name, convert=_careful(name, real), plain=none)

    def convert(value: object, storing: bool) -> object:
        return _first(name, real, value, storing)[1]

    return Codec(name=name, convert=convert, plain=none.union(*(choice.plain for choice in real)))


def _careful(name: str, choices: list[Codec]) -> Callable[[Any, bool], Any]:
    """Convert by whichever choice fits, and refuse what another choice would claim on the way back."""
    back = sorted(choices, key=lambda choice: (choice is ANY, choice in _PURE))  # the most particular first

    def load(data: Any) -> tuple[Codec, Any]:
        loose = None
        for choice in back:
            if choice in _PURE:
                break  # the rest go by the type of the data alone
            try:
                value = choice.convert(data, False)
                if choice.convert(value, True) == data:
                    return choice, value
                loose = loose or (choice, value)  # say, a field that was added since
            except Misfit:
                continue
        exact = next((choice for choice in back if type(data) in choice.plain), None)
        if exact is not None:
            return exact, data
        return loose or _first(name, back, data, False)

    def convert(value: Any, storing: bool) -> Any:
        if not storing:
            return load(value)[1]
        choice, data = _first(name, choices, value, True)
        other = load(data)[0]
        if other is not choice:
            raise Misfit(f"{safe_repr(value)} would come back as {other.name}: {name} is ambiguous in JSON")
        return data

    return convert


def _first(name: str, choices: list[Codec], value: Any, storing: bool) -> tuple[Codec, Any]:
    telling = None
    for choice in choices:
        if type(value) in choice.plain:
            return choice, value
    for choice in choices:
        try:
            return choice, choice.convert(value, storing)
        except Misfit as misfit:
            if misfit.steps or not misfit.reason.startswith("expected"):
                telling = misfit
    raise telling or expected(name, value)


# ---- Records: stored as objects.


class Fields:
    """Named values, each with its codec: the parameters of a task, the fields of a record."""

    def __init__(self, codecs: Mapping[str, Codec], required: Iterable[str]) -> None:
        self.codecs = codecs
        self._required = frozenset(required)
        self._plain = {name: codec.plain for name, codec in codecs.items()}

    def convert(self, values: dict[str, Any], storing: bool) -> dict[str, Any]:
        """Return `values` as a JSON object or back; the same dict if nothing in it needs converting."""
        plain = self._plain
        for name, value in values.items():
            if name not in plain or type(value) not in plain[name]:
                break
        else:
            if len(values) == len(plain) or self._required <= values.keys():
                return values
        for name in values:
            if name not in self.codecs:
                raise self.unknown(name)
        for name in self.codecs:
            if name in self._required and name not in values:
                raise at(name, Misfit("missing"))
        return {name: _convert(self.codecs[name], value, storing, name) for name, value in values.items()}

    def unknown(self, name: str) -> Misfit:
        """Return what to raise for a name that is not among the fields."""
        near = suggest(name, self.codecs)
        return at(name, Misfit(f"unknown name.{near}" if near else "unknown name"))


def at(name: str, misfit: Misfit) -> Misfit:
    misfit.steps.append(name)
    return misfit


def _made(name: str, make: Callable[..., Any], /, *args: object, **values: object) -> Any:
    """Call what the application or its libraries wrote; whatever it raises means that the value does not fit."""
    try:
        return make(*args, **values)
    except Exception as error:
        told = " ".join(describe_exception(error).message.split())
        raise Misfit(f"expected {name}: {type(error).__name__}: {clean_text(told, 500)}") from None


def _record(
    cls: type, hints: dict[str, object], required: Iterable[str], unpack: Callable[[Any], Any], busy: Busy
) -> Codec:
    name = type_name(cls)
    fields = Fields({field: codec_for(hint, busy) for field, hint in hints.items()}, required)
    base = dict if hasattr(cls, "__required_keys__") else cls

    def convert(value: Any, storing: bool) -> object:
        _demand_exactly(name, value, base if storing else dict)
        if storing:
            return fields.convert(_made(name, unpack, value), True)
        return _made(name, cls, **fields.convert(value, False))

    return Codec(name=name, convert=convert)


def _dataclass(cls: type, busy: Busy) -> Codec:
    hints = _class_hints(cls)
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    needs = [name for name, param in inspect.signature(cls).parameters.items() if param.default is param.empty]
    strange = [name for name in needs if name not in names]
    if strange:  # an InitVar, or an __init__ of its own
        raise Misfit(f"{type_name(cls)} needs {', '.join(strange)} to be made, which is no field of it")

    def unpack(value: object) -> dict[str, object]:
        return {name: getattr(value, name) for name in names}

    return _record(cls, {name: hints[name] for name in names}, needs, unpack, busy)


def _typed_dict(cls: Any, busy: Busy) -> Codec:
    hints = _class_hints(cls)
    required = set(cls.__required_keys__)
    for name, hint in hints.items():  # __required_keys__ alone is wrong where annotations are text
        if typing.get_origin(hint) is typing.NotRequired:
            required.discard(name)
        elif typing.get_origin(hint) is typing.Required:
            required.add(name)
    return _record(cls, hints, required, lambda value: value, busy)


def _named_tuple(cls: Any, busy: Busy) -> Codec:
    hints = _class_hints(cls)
    wanted = {name: hints.get(name, Any) for name in cls._fields}
    required = [name for name in cls._fields if name not in cls._field_defaults]
    return _record(cls, wanted, required, lambda value: value._asdict(), busy)


def _pydantic(cls: Any) -> Codec:
    name = type_name(cls)
    by_name = "by_name" in inspect.signature(cls.model_validate_json).parameters  # pydantic 2.11
    options = {"by_name": True} if by_name else {}

    def convert(value: Any, storing: bool) -> object:
        if not storing:  # as JSON, since a strict model takes text as a date only from there
            return _made(name, cls.model_validate_json, json.dumps(value), **options)
        _demand_exactly(name, value, cls)
        return _made(name, value.model_dump, mode="json", round_trip=True, by_alias=not by_name)

    return Codec(name=name, convert=convert)


def _struct(cls: type, hint: object) -> Codec:
    name = type_name(cls)
    msgspec: Any = sys.modules["msgspec"]

    def convert(value: Any, storing: bool) -> object:
        if not storing:
            return _made(name, msgspec.convert, value, type=hint, str_keys=True)
        _demand_exactly(name, value, cls)
        return _made(name, msgspec.to_builtins, value, str_keys=True, order="deterministic")

    return Codec(name=name, convert=convert)


def _class_hints(cls: type) -> dict[str, object]:
    return dict(typing.get_type_hints(cls, include_extras=True))


# ---- From a hint to its codec.


def codec_for(hint: Any, busy: Busy) -> Codec:
    """Return the codec of a type hint; Misfit says why there is none. `busy` holds those being made."""
    hint = _unwrapped(hint)
    origin = typing.get_origin(hint) or hint
    args = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return union([codec_for(arg, busy) for arg in args])
    if origin is typing.Literal:
        return _literal(args, busy)
    codec = _LEAVES.get(origin) or _container(origin, args, busy)
    if codec is not None:
        return codec
    if origin in busy:
        return busy[origin]
    made: list[Codec] = []
    name = getattr(origin, "__name__", str(origin))
    busy[origin] = Codec(name=name, convert=lambda value, storing: made[0].convert(value, storing))
    made.append(_class_codec(origin, hint, busy))
    busy[origin] = made[0]
    return made[0]


def _unwrapped(hint: Any) -> Any:
    while True:
        origin = typing.get_origin(hint)
        if origin in (typing.Annotated, typing.Required, typing.NotRequired):
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif isinstance(hint, typing.TypeVar):
            hint = Any if hint.__bound__ is None else hint.__bound__
        else:
            return hint


def _class_codec(cls: Any, hint: object, busy: Busy) -> Codec:
    if hasattr(cls, "__value__"):  # `type Tree = dict[str, Tree]`
        return codec_for(cls.__value__, busy)
    if isinstance(cls, type):
        if issubclass(cls, Enum):
            return _enum(cls)
        if issubclass(cls, PurePath):
            return _as_text(cls, str, cls)
        if hasattr(cls, "__required_keys__"):
            return _typed_dict(cls, busy)
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return _named_tuple(cls, busy)
        if dataclasses.is_dataclass(cls):
            return _dataclass(cls, busy)
        if hasattr(cls, "model_validate_json"):
            return _pydantic(cls)
        if hasattr(cls, "__struct_fields__"):
            return _struct(cls, hint)
    shown = type_name(cls) if isinstance(cls, type) else str(hint)
    raise Misfit(
        f"values of type {shown} cannot be stored as JSON: "
        "use a dataclass, a pydantic or msgspec model, or no type hint"
    )
