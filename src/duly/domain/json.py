"""The one encoder: what duly writes into a database as JSON goes through here (free text: `text.py`).

Arguments are checked: what would not come back equal is refused, with the path of the value at fault.
Results and errors are never refused, since a run that has ended must be recorded whatever it left: what
JSON or a database cannot hold is shown as text instead, and what is too large is cut.

Tuples are arrays, as in `json`; with a type hint they come back as tuples (see `signature.py`).

Why not orjson: it turns NaN into null, reads integers beyond 64 bits as floats, and writes dataclasses, dates
and UUIDs without being asked. The C encoder of the standard library, made once, takes half a microsecond.
"""

from __future__ import annotations

import json
import json.encoder
import math
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from duly.domain.errors import ArgumentError, PayloadTooLarge
from duly.domain.text import UNSTORABLE, clean_text, escape, guarded, safe_repr, type_name

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"

MAX_BYTES: Final = 262_144
MAX_DEPTH: Final = 100
SCALARS: Final[frozenset[type]] = frozenset({str, int, float, bool, type(None)})

_Chunks: TypeAlias = Callable[[object, int], Iterable[str]]
_REPR_BYTES: Final = 1_024


class Misfit(Exception):
    """A value that does not fit; containers add their `steps` on its way out, innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str | int] = []

    @property
    def path(self) -> str:
        """Where the value is, such as `args.user.tags[3]`."""
        return path_text(reversed(self.steps))


class ResultText(NamedTuple):  # not a dataclass: one is made per job, and this takes a third of the time
    """A result as stored: None for None. It is `exact` unless something in it had to be changed or cut."""

    text: str | None
    exact: bool


def encode_args(value: object, *, max_bytes: int = MAX_BYTES) -> str:
    """Return `value` as compact JSON that decodes to an equal value, or raise ArgumentError with its path."""
    text = _encode_if_sound(value)
    if text is None:
        try:
            _check(value, 1, set())
        except Misfit as misfit:
            raise ArgumentError(f"{misfit.path} {misfit.reason}.", path=misfit.path) from None
        text = _dumps(value)
    size = len(text) if text.isascii() else len(text.encode())
    if size > max_bytes:
        raise PayloadTooLarge(
            f"The arguments are {size} bytes of JSON, and the limit is {max_bytes}: "
            "store the data elsewhere and pass its key, or raise the limit.",
            size=size,
            limit=max_bytes,
        )
    return text


def encode_result(value: object, *, max_bytes: int = MAX_BYTES) -> ResultText:
    """Return `value` as JSON, showing as text what JSON cannot hold; never raise."""
    if value is None:
        return _NO_RESULT
    try:
        text = _encode_if_sound(value)
        exact = text is not None
        if text is None:
            softener = _Softener(budget=max_bytes)
            text = _dumps(softener.soften(value, ()))
            exact = not softener.changed
        size = len(text) if text.isascii() else len(text.encode())
        if size <= max_bytes:
            return ResultText(text, exact)
        return _cut(f"The result is {size} bytes of JSON, and the limit is {max_bytes}.")
    except _TooLarge:
        return _cut(f"The result is more than {max_bytes} bytes of JSON, which is the limit.")
    except BaseException as error:  # what the methods of a strange object raise; the run has ended anyway
        return _cut(f"The result could not be encoded: {type(error).__name__}.")


def canonical(value: object) -> str:
    """Return JSON with sorted keys: one text for all equal values, for use in a unique key.

    2 and 2.0 are equal and have one text; 1 and true are two things in JSON, and have two.
    """
    text = encode_args(value, max_bytes=2**62)
    if "." in text or "e+" in text:  # there may be a float
        value = _whole_floats_to_ints(value)
    return "".join(_sorted_chunks(value, 0))


def decode(text: str) -> Any:
    """Return the value of stored JSON; ValueError if another program stored something else."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        return json.loads(text)  # leading blanks, or an error with its position
    return value if end == len(text) else json.loads(text)


def decode_strict(text: str | bytes) -> Any:
    """Return the value of JSON that a person or another program wrote; refuse NaN and duplicate keys."""
    try:
        return json.loads(text, object_pairs_hook=_unique_pairs, parse_constant=_refuse_constant)
    except RecursionError:
        raise ArgumentError(f"The arguments are nested more than {MAX_DEPTH} levels deep.") from None
    except ValueError as error:
        raise ArgumentError(f"The arguments cannot be read as JSON: {error}.") from None


def check(value: object) -> None:
    """Raise Misfit for the first thing in `value` that JSON or a database cannot hold."""
    if _encode_if_sound(value) is None:
        _check(value, 1, set())


def path_text(steps: Iterable[str | int]) -> str:
    """Return steps as people write them: `args.user.tags[3]`, `args.headers["X-Id"]`."""
    text = "args"
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
            continue
        shown = escape(step if len(step) <= 60 else step[:57] + "...")
        text += f".{shown}" if shown.isidentifier() else f'["{shown}"]'
    return text


def _refuse(value: object) -> NoReturn:
    raise TypeError(type(value))


def _make_encoder(*, sort_keys: bool = False) -> _Chunks:
    """Return a ready C encoder: `json.dumps` makes one per call, which takes longer than the encoding.

    It does not look for cycles (they end in RecursionError), so it has no state that threads would share.
    """
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # PyPy
        slow = json.JSONEncoder(
            ensure_ascii=False,
            check_circular=False,
            allow_nan=False,
            sort_keys=sort_keys,
            separators=(",", ":"),
            default=_refuse,
        )
        return lambda value, _: (slow.encode(value),)
    quote = json.encoder.encode_basestring
    encoder: _Chunks = make(None, _refuse, quote, None, ":", ",", sort_keys, False, False)
    return encoder


_chunks: Final = _make_encoder()
_sorted_chunks: Final = _make_encoder(sort_keys=True)
_scan: Final = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_NO_RESULT: Final = ResultText(None, True)


def _dumps(value: object) -> str:
    return "".join(_chunks(value, 0))


def _encode_if_sound(value: object) -> str | None:
    """Return JSON if `value` is certainly storable, None if it is not or if only `check` can tell."""
    try:
        text = "".join(_chunks(value, 0))
        if not text.isascii():
            text.encode()  # fails on a lone surrogate
    except (TypeError, ValueError, RecursionError):
        return None
    if "\\u0000" in text:  # NUL, or a backslash and then the text u0000
        return None
    if type(value) is dict:
        for key, item in value.items():
            if type(item) not in SCALARS or type(key) is not str:
                break
        else:
            return text  # flat, as most calls are
    return text if _has_sound_shape(value) else None


def _has_sound_shape(value: object) -> bool:
    """Tell whether keys are text and nothing is nested too deeply, both of which the C encoder lets pass."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for outer in level:
            if isinstance(outer, dict):
                for key, item in outer.items():
                    if type(item) not in SCALARS:
                        below.append(item)
                    if type(key) is not str and not isinstance(key, str):
                        return False
            elif isinstance(outer, (list, tuple)):
                below += [item for item in outer if type(item) not in SCALARS]
        if not below:
            return True
        level = below
    return not any(isinstance(item, (dict, list, tuple)) for item in level)


def _check(value: object, depth: int, above: set[int]) -> None:
    if isinstance(value, str):
        _check_text(value, "")
    elif isinstance(value, (dict, list, tuple)):
        if id(value) in above:
            raise Misfit("contains itself, which JSON cannot say")
        if depth > MAX_DEPTH:
            raise Misfit(f"is nested more than {MAX_DEPTH} levels deep")
        above.add(id(value))
        _check_items(value, depth + 1, above)
        above.discard(id(value))
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise Misfit(f"is {value}, and JSON has only finite numbers")
    elif isinstance(value, int):
        _check_digits(value)
    elif value is not None:
        raise Misfit(
            f"is {type_name(type(value))} {safe_repr(value)}, which JSON cannot hold: "
            "pass plain data, or give the parameter a type hint"
        )


def _check_items(value: dict[Any, Any] | list[Any] | tuple[Any, ...], depth: int, above: set[int]) -> None:
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise Misfit(f"has the key {safe_repr(key)}, and JSON has only text as keys")
            _check_text(key, f"has the key {safe_repr(key)}, which ")
    for step, item in value.items() if isinstance(value, dict) else enumerate(value):
        try:
            _check(item, depth, above)
        except Misfit as misfit:
            misfit.steps.append(step)
            raise


def _check_text(text: str, subject: str) -> None:
    bad = UNSTORABLE.search(text)
    if bad is not None:
        what = "NUL" if bad[0] == "\x00" else "a lone surrogate"
        where = f"position {bad.start() + 1}"
        raise Misfit(f"{subject}contains {what} ({where}), which databases refuse: remove or encode it")


def _check_digits(value: int) -> None:
    try:
        int.__repr__(value)
    except ValueError:
        raise Misfit("is an int of more digits than Python writes (see sys.set_int_max_str_digits)") from None


def _whole_floats_to_ints(value: object) -> object:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _whole_floats_to_ints(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_whole_floats_to_ints(item) for item in value]
    return value


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in found if keys.count(key) > 1)
        raise ValueError(f"the key {safe_repr(twice)} is there twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class _TooLarge(Exception):
    """What is being softened has more values than fit."""


class _Softener:
    """Rebuilds a value from what JSON can hold; `changed` tells whether anything had to be."""

    def __init__(self, *, budget: int) -> None:
        self.budget = budget  # each value takes at least a byte, so more values than bytes cannot fit
        self.changed = False

    def soften(self, value: object, above: tuple[int, ...]) -> JSON:
        self.budget -= 1
        if self.budget < 0:
            raise _TooLarge
        match value:
            case None | bool():
                return value
            case str():
                return self._text(value)
            case int():
                return self._whole(value)
            case float():
                return value if math.isfinite(value) else self._instead(_FLOAT_WORDS[repr(float(value))])
            case dict() | list() | tuple() if len(above) < MAX_DEPTH and id(value) not in above:
                above = (*above, id(value))
                if isinstance(value, dict):
                    return {self._key(key): self.soften(item, above) for key, item in value.items()}
                return [self.soften(item, above) for item in value]
            case _:
                return self._instead(clean_text(guarded(repr, value), _REPR_BYTES))

    def _instead(self, text: str) -> str:
        self.changed = True
        return text

    def _text(self, value: str) -> str:
        text = str.__str__(value)
        escaped = escape(text)
        return text if escaped == text else self._instead(escaped)

    def _whole(self, value: int) -> JSON:
        try:
            _check_digits(value)
        except Misfit:
            return self._instead(f"int of {value.bit_length()} bits")
        return value

    def _key(self, key: object) -> str:
        if isinstance(key, str):
            return self._text(key)
        return self._instead(clean_text(guarded(repr, key), _REPR_BYTES))


_FLOAT_WORDS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _cut(reason: str) -> ResultText:
    return ResultText(_dumps({"cut": reason}), False)
