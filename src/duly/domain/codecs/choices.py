"""Codecs of what is one of several: literals, enums, unions. What would come back as another is refused."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from duly.domain.codecs.codec import Codec, Find, expected
from duly.domain.codecs.leaves import ANY, NONE, PURE
from duly.domain.json import SCALARS, Misfit
from duly.domain.text import safe_repr, type_name


def literal(values: tuple[Any, ...], find: Find) -> Codec:
    name = f"Literal[{', '.join(safe_repr(value) for value in values)}]"
    stored = {(type(value), value): find(type(value)).convert(value, True) for value in values}
    loaded = {(type(data), data): value for (_, value), data in stored.items()}

    def convert(value: object, storing: bool) -> object:
        try:
            return (stored if storing else loaded)[type(value), value]
        except (KeyError, TypeError):
            raise expected(name, value) from None

    return Codec(name=name, convert=convert)


def enumeration(cls: type[Enum]) -> Codec:
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
    if not all(choice in PURE for choice in real):
        return Codec(name=name, convert=_careful(name, real), plain=none)

    def convert(value: object, storing: bool) -> object:
        return _first(name, real, value, storing)[1]

    return Codec(name=name, convert=convert, plain=none.union(*(choice.plain for choice in real)))


def _careful(name: str, choices: list[Codec]) -> Callable[[Any, bool], Any]:
    """Convert by whichever choice fits, and refuse what another choice would claim on the way back."""
    back = sorted(choices, key=lambda choice: (choice is ANY, choice in PURE))  # the most particular first

    def load(data: Any) -> tuple[Codec, Any]:
        loose = None
        for choice in back:
            if choice in PURE:
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
