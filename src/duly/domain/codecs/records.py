"""Codecs of records, held as JSON objects: dataclasses, typed dicts, named tuples, pydantic and msgspec models."""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from duly.domain.codecs.codec import Codec, Find, at, convert_at, demand_exactly
from duly.domain.json import Misfit
from duly.domain.names import suggest
from duly.domain.text import clean_text, describe_exception, type_name


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
        return {name: convert_at(self.codecs[name], value, storing, name) for name, value in values.items()}

    def unknown(self, name: str) -> Misfit:
        """Return what to raise for a name that is not among the fields."""
        near = suggest(name, self.codecs)
        return at(name, Misfit(f"unknown name.{near}" if near else "unknown name"))


def _made(name: str, make: Callable[..., Any], /, *args: object, **values: object) -> Any:
    """Call what the application or its libraries wrote; whatever it raises means that the value does not fit."""
    try:
        return make(*args, **values)
    except Exception as error:
        told = " ".join(describe_exception(error).message.split())
        raise Misfit(f"expected {name}: {type(error).__name__}: {clean_text(told, 500)}") from None


def _record(
    cls: type, hints: dict[str, object], required: Iterable[str], unpack: Callable[[Any], Any], find: Find
) -> Codec:
    name = type_name(cls)
    fields = Fields({field: find(hint) for field, hint in hints.items()}, required)
    base = dict if hasattr(cls, "__required_keys__") else cls

    def convert(value: Any, storing: bool) -> object:
        demand_exactly(name, value, base if storing else dict)
        if storing:
            return fields.convert(_made(name, unpack, value), True)
        return _made(name, cls, **fields.convert(value, False))

    return Codec(name=name, convert=convert)


def dataclass_record(cls: type, find: Find) -> Codec:
    hints = _class_hints(cls)
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    needs = [name for name, param in inspect.signature(cls).parameters.items() if param.default is param.empty]
    strange = [name for name in needs if name not in names]
    if strange:  # an InitVar, or an __init__ of its own
        raise Misfit(f"{type_name(cls)} needs {', '.join(strange)} to be made, which is no field of it")

    def unpack(value: object) -> dict[str, object]:
        return {name: getattr(value, name) for name in names}

    return _record(cls, {name: hints[name] for name in names}, needs, unpack, find)


def typed_dict(cls: Any, find: Find) -> Codec:
    hints = _class_hints(cls)
    required = set(cls.__required_keys__)
    for name, hint in hints.items():  # __required_keys__ alone is wrong where annotations are text
        if typing.get_origin(hint) is typing.NotRequired:
            required.discard(name)
        elif typing.get_origin(hint) is typing.Required:
            required.add(name)
    return _record(cls, hints, required, lambda value: value, find)


def named_tuple(cls: Any, find: Find) -> Codec:
    hints = _class_hints(cls)
    wanted = {name: hints.get(name, Any) for name in cls._fields}
    required = [name for name in cls._fields if name not in cls._field_defaults]
    return _record(cls, wanted, required, lambda value: value._asdict(), find)


def pydantic_model(cls: Any) -> Codec:
    name = type_name(cls)
    by_name = "by_name" in inspect.signature(cls.model_validate_json).parameters  # pydantic 2.11
    options = {"by_name": True} if by_name else {}

    def convert(value: Any, storing: bool) -> object:
        if not storing:  # as JSON, since a strict model takes text as a date only from there
            return _made(name, cls.model_validate_json, json.dumps(value), **options)
        demand_exactly(name, value, cls)
        return _made(name, value.model_dump, mode="json", round_trip=True, by_alias=not by_name)

    return Codec(name=name, convert=convert)


def msgspec_struct(cls: type, hint: object) -> Codec:
    name = type_name(cls)
    msgspec: Any = sys.modules["msgspec"]

    def convert(value: Any, storing: bool) -> object:
        if not storing:
            return _made(name, msgspec.convert, value, type=hint, str_keys=True)
        demand_exactly(name, value, cls)
        return _made(name, msgspec.to_builtins, value, str_keys=True, order="deterministic")

    return Codec(name=name, convert=convert)


def _class_hints(cls: type) -> dict[str, object]:
    return dict(typing.get_type_hints(cls, include_extras=True))
