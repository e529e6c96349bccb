"""What a task accepts: its parameters, and how each value becomes JSON and comes back as its type.

A call is stored as one JSON object, {parameter: value}: what the caller gave, without the defaults. `*rest` is an
array and `**options` an object, each under its own name. Each type hint gets a codec, made at first use, so
that hints may name what is defined further down in the module.

Checks are strict: True is no int, "1" is no int, an instance of a subclass is no such record (it would come
back as less), and what a union would bring back as another type is refused. Only an int is also a float.

This file knows types; `json.py` knows what JSON and databases can hold. An argument passes both.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import types
import typing
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

from duly.domain.codecs.choices import union
from duly.domain.codecs.codec import Codec, at, expected
from duly.domain.codecs.hints import Busy, codec_for
from duly.domain.codecs.leaves import ANY, NONE
from duly.domain.codecs.records import Fields
from duly.domain.errors import ArgumentError, ArgumentsDoNotFit, ConfigurationError
from duly.domain.json import JSON, MAX_DEPTH, SCALARS, Misfit
from duly.domain.text import safe_repr


class Signature:
    """The parameters of a task: checks and stores a call, and brings it back."""

    def __init__(self, fn: Callable[..., object]) -> None:
        self.name: str = getattr(fn, "__name__", type(fn).__name__)
        self._fn = fn
        self._signature = _inspected(fn)
        self._parameters = tuple(self._signature.parameters.values())
        kinds: dict[object, list[str]] = {}
        for parameter in self._parameters:
            kinds.setdefault(parameter.kind, []).append(parameter.name)
        self._leading = kinds.get(inspect.Parameter.POSITIONAL_ONLY, [])
        either = kinds.get(inspect.Parameter.POSITIONAL_OR_KEYWORD, [])
        self._positional = [*self._leading, *either]
        self._keywords = frozenset([*either, *kinds.get(inspect.Parameter.KEYWORD_ONLY, [])])
        self._rest = next(iter(kinds.get(inspect.Parameter.VAR_POSITIONAL, [])), None)
        self._options = next(iter(kinds.get(inspect.Parameter.VAR_KEYWORD, [])), None)
        self.by_keyword = len(self._keywords) == len(self._parameters)

    @classmethod
    def of(cls, fn: Callable[..., object]) -> Signature:
        """Return the signature of a function; its type hints are looked up at first use."""
        return cls(fn)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters, in order."""
        return tuple(self._signature.parameters)

    @property
    def defaults(self) -> dict[str, object]:
        """The values of the parameters that need not be given."""
        return {each.name: each.default for each in self._parameters if each.default is not each.empty}

    def example(self) -> dict[str, JSON]:
        """Values that the parameters which must be given might take: for a form, as a start."""
        codecs, loose = self.fields.codecs, (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        needed = [each.name for each in self._parameters if each.default is each.empty and each.kind not in loose]
        return {name: _example(codecs[name].name) for name in needed}

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self._signature.parameters)})"

    def bind(self, args: tuple[object, ...], kwargs: dict[str, Any]) -> dict[str, JSON]:
        """Return a call as the JSON object to store, or raise ArgumentError with the path at fault.

        Returns `kwargs` itself where nothing in it needs converting.
        """
        try:
            given = kwargs if self.by_keyword and not args else self._gather(args, kwargs)
            return self.fields.convert(given, True)
        except Misfit as misfit:
            raise ArgumentError(self._told(misfit), path=misfit.path) from None
        except RecursionError:
            reason = f"arguments are nested more than {MAX_DEPTH} levels deep, or contain themselves"
            raise ArgumentError(f"{self.name}() {reason}.") from None

    def load(self, data: dict[str, JSON]) -> dict[str, object]:
        """Return stored arguments as the types of their hints, or raise ArgumentsDoNotFit."""
        try:
            if not isinstance(data, dict):
                raise expected("an object", data)
            return self.fields.convert(data, False)
        except Misfit as misfit:
            reason = self._told(misfit)
            raise ArgumentsDoNotFit(
                f"The stored arguments do not fit {self}. {reason} Deploy code that accepts them, or cancel the job.",
                path=misfit.path,
                reason=reason,
            ) from None

    def split(self, values: dict[str, Any]) -> tuple[list[object], dict[str, object]]:
        """Return loaded values as positional and keyword arguments: `fn(*args, **kwargs)`."""
        if self.by_keyword:
            return [], values
        values = dict(values)
        rest = values.pop(self._rest, ()) if self._rest else ()
        options = values.pop(self._options, {}) if self._options else {}
        names = self._positional if rest else self._leading
        while names and not rest and names[-1] not in values:
            names = names[:-1]
        defaults = self._signature.parameters
        args = [values.pop(name) if name in values else defaults[name].default for name in names]
        return [*args, *rest], {**values, **options}

    def dump_result(self, value: object) -> object:
        """Return a result in JSON by the return hint, or as it is if it does not fit the hint."""
        try:
            return value if type(value) in self._result.plain else self._result.convert(value, True)
        except BaseException:  # what the methods of a strange object raise, be it SystemExit; the run has ended anyway
            return value

    def load_result(self, data: JSON) -> object:
        """Return a stored result as the type of the return hint, or as it is if it does not fit the hint."""
        try:
            return data if type(data) in self._result.plain else self._result.convert(data, False)
        except Exception:
            return data

    @cached_property
    def fingerprint(self) -> str:
        """Twelve characters that change when the names, kinds, types or the having of defaults change."""
        parts = [
            f"{parameter.name}/{parameter.kind.name}/{parameter.default is not parameter.empty}/"
            f"{self.fields.codecs[parameter.name].name}"
            for parameter in self._parameters
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]

    @cached_property
    def fields(self) -> Fields:
        """The codecs of all parameters; ConfigurationError if a hint cannot be resolved or stored."""
        busy: Busy = {}
        codecs = {parameter.name: self._codec(parameter, busy) for parameter in self._parameters}
        required = [name for name in (*self._positional, *self._keywords) if self._needs(name)]
        return Fields(codecs, required)

    @cached_property
    def _result(self) -> Codec:
        try:
            codec = codec_for(self._resolved("return", self._signature.return_annotation), {})
        except Exception:
            return _UNCHECKED
        return _UNCHECKED if codec is ANY else codec

    def _needs(self, name: str) -> bool:
        return self._signature.parameters[name].default is inspect.Parameter.empty

    def _codec(self, parameter: inspect.Parameter, busy: Busy) -> Codec:
        try:
            hint = self._resolved(parameter.name, parameter.annotation)
            if typing.get_origin(hint) is typing.Unpack:
                return codec_for(typing.get_args(hint)[0], busy)
            if parameter.kind is parameter.VAR_POSITIONAL:
                hint = types.GenericAlias(tuple, (hint, ...))
            elif parameter.kind is parameter.VAR_KEYWORD:
                hint = types.GenericAlias(dict, (str, hint))
            codec = codec_for(hint, busy)
            return union([codec, NONE]) if parameter.default is None else codec
        except Misfit as misfit:
            reason = misfit.reason
        except Exception as error:  # NameError and whatever else a hint that is text may raise
            reason = f"its type hint cannot be resolved ({error}); import what it names also at run time"
        raise ConfigurationError(f"{self.name}() parameter {parameter.name}: {reason}.")

    def _resolved(self, name: str, annotation: object) -> Any:
        def holder() -> None: ...

        holder.__annotations__ = {name: annotation}
        return typing.get_type_hints(holder, _namespace(self._fn), include_extras=True)[name]

    def _gather(self, args: tuple[object, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = self._positional
        given: dict[str, Any] = dict(zip(names, args, strict=False))
        if len(args) > len(names):
            if self._rest is None:
                plural = "" if len(names) == 1 else "s"
                raise Misfit(f"takes {len(names)} positional argument{plural}, got {len(args)}")
            given[self._rest] = args[len(names) :]
        options = {}
        for name, value in kwargs.items():
            if name in self._keywords:
                if name in given:
                    raise at(name, Misfit("given twice, by position and by name"))
                given[name] = value
            elif self._options is None:
                by_position = name in self._leading
                raise at(name, Misfit("can only be given by position")) if by_position else self.fields.unknown(name)
            else:
                options[name] = value
        if options and self._options is not None:
            given[self._options] = options
        return given

    def _told(self, misfit: Misfit) -> str:
        reason = misfit.reason if misfit.reason.endswith("?") else f"{misfit.reason}."
        where = misfit.path.removeprefix("args").removeprefix(".")
        return f"{self.name}() argument {where}: {reason}" if where else f"{self.name}() {reason}"


_UNCHECKED: Final = Codec(name="Any", convert=lambda value, _: value, plain=SCALARS)


def _inspected(fn: Callable[..., object]) -> inspect.Signature:
    try:
        if sys.version_info >= (3, 14):
            from annotationlib import Format

            return inspect.signature(fn, annotation_format=Format.FORWARDREF)
        return inspect.signature(fn)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"A task must be a function, and {safe_repr(fn)} is not: {error}.") from None


def _namespace(fn: Callable[..., object]) -> dict[str, Any]:
    """Return the globals in which the hints of `fn` were written."""
    inner = inspect.unwrap(fn)
    inner = getattr(inner, "func", inner)  # functools.partial
    if not hasattr(inner, "__globals__") and not isinstance(inner, type):
        inner = type(inner).__call__  # an object that can be called
    return getattr(inner, "__globals__", {})


_EXAMPLES: dict[str, JSON] = {"int": 1, "float": 1.5, "bool": True, "str": "hello", "Any": 1, "None": None}


def _example(kind: str) -> JSON:
    kind = kind.removesuffix(" | None").strip()
    if kind in _EXAMPLES:
        return _EXAMPLES[kind]
    if kind.startswith(("list", "tuple", "set", "Sequence", "frozenset")):
        return []
    if kind.startswith(("dict", "Mapping")):
        return {}
    return "2030-01-31T08:00:00Z" if kind == "datetime" else "..."
