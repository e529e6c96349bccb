"""A codec: how values of one type hint become JSON and come back, and how one that does not fit is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from duly.domain.json import Misfit
from duly.domain.text import safe_repr, type_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """How values of one type hint become JSON (`storing`) and come back (not `storing`), or raise Misfit.

    Values whose type is exactly one of `plain` are the same both ways and need no call.
    """

    name: str
    convert: Callable[[Any, bool], Any]
    plain: frozenset[type] = frozenset()


Find: TypeAlias = Callable[[Any], Codec]
"""Returns the codec of a type hint."""


def expected(name: str, value: object) -> Misfit:
    got = "None" if value is None else f"{type_name(type(value))} {safe_repr(value)}"
    return Misfit(f"expected {name}, got {got}")


def demand(name: str, value: object, wanted: tuple[type, ...]) -> None:
    if not isinstance(value, wanted):
        raise expected(name, value)


def demand_exactly(name: str, value: object, wanted: type) -> None:
    if type(value) is not wanted:
        raise expected(name, value)


def convert_at(codec: Codec, value: Any, storing: bool, step: str | int) -> Any:
    if type(value) in codec.plain:
        return value
    try:
        return codec.convert(value, storing)
    except Misfit as misfit:
        misfit.steps.append(step)
        raise


def at(name: str, misfit: Misfit) -> Misfit:
    misfit.steps.append(name)
    return misfit
