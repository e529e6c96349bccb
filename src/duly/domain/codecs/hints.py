"""From a type hint to its codec."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from functools import partial
from pathlib import PurePath
from typing import Any, TypeAlias

from duly.domain.codecs.choices import enumeration, literal, union
from duly.domain.codecs.codec import Codec, Find
from duly.domain.codecs.containers import container
from duly.domain.codecs.leaves import LEAVES, as_text
from duly.domain.codecs.records import dataclass_record, msgspec_struct, named_tuple, pydantic_model, typed_dict
from duly.domain.json import Misfit
from duly.domain.text import type_name

Busy: TypeAlias = dict[object, Codec]


def codec_for(hint: Any, busy: Busy) -> Codec:
    """Return the codec of a type hint; Misfit says why there is none. `busy` holds those being made."""
    hint = _unwrapped(hint)
    origin = typing.get_origin(hint) or hint
    args = typing.get_args(hint)
    find = partial(codec_for, busy=busy)
    if origin in (typing.Union, types.UnionType):
        return union([find(arg) for arg in args])
    if origin is typing.Literal:
        return literal(args, find)
    codec = LEAVES.get(origin) or container(origin, args, find)
    if codec is not None:
        return codec
    if origin in busy:
        return busy[origin]
    made: list[Codec] = []
    name = getattr(origin, "__name__", str(origin))
    busy[origin] = Codec(name=name, convert=lambda value, storing: made[0].convert(value, storing))
    made.append(_class_codec(origin, hint, find))
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


def _class_codec(cls: Any, hint: object, find: Find) -> Codec:
    if hasattr(cls, "__value__"):  # `type Tree = dict[str, Tree]`
        return find(cls.__value__)
    if isinstance(cls, type):
        if issubclass(cls, Enum):
            return enumeration(cls)
        if issubclass(cls, PurePath):
            return as_text(cls, str, cls)
        if hasattr(cls, "__required_keys__"):
            return typed_dict(cls, find)
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return named_tuple(cls, find)
        if dataclasses.is_dataclass(cls):
            return dataclass_record(cls, find)
        if hasattr(cls, "model_validate_json"):
            return pydantic_model(cls)
        if hasattr(cls, "__struct_fields__"):
            return msgspec_struct(cls, hint)
    shown = type_name(cls) if isinstance(cls, type) else str(hint)
    raise Misfit(
        f"values of type {shown} cannot be stored as JSON: "
        "use a dataclass, a pydantic or msgspec model, or no type hint"
    )
