"""Free text fit for people and for any database: cut where it is too long, escaped where a database would refuse it.

What shows a value or an exception never raises, whatever their methods do: a run that has ended must be recorded.
"""

from __future__ import annotations

import re
import reprlib
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

MAX_TEXT_BYTES: Final = 16_384
UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")

_T = TypeVar("_T")
_CHUNK_BYTES: Final = 4_096
_FRAMES: Final = 1_000
_short: Final = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorText:
    """An exception as stored: bounded, and free of what a database refuses."""

    kind: str
    message: str
    traceback: str


def clean_text(text: str, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return `text` fit for any database: NUL and surrogates escaped, the middle cut if it is too long."""
    text = str.__str__(text)  # an exact str, whatever a subclass thinks of slicing
    if len(text) <= max_bytes:
        if text.isascii() and "\x00" not in text:
            return text
        data = escape(text).encode()
        if len(data) <= max_bytes:
            return data.decode()
    marker = f"\n... [cut: {len(text)} characters in all] ...\n"
    half = (max_bytes - len(marker)) // 2
    if half <= 0:
        most = max(max_bytes, 0)
        return escape(text[:most]).encode()[:most].decode(errors="ignore")
    head = escape(text[:half]).encode()[:half].decode(errors="ignore")
    tail = escape(text[-half:]).encode()[-half:].decode(errors="ignore")
    return head + marker + tail


def describe_exception(error: BaseException, max_bytes: int = MAX_TEXT_BYTES) -> ErrorText:
    """Return what to store about an exception; never raise, whatever its methods do."""
    return ErrorText(
        kind=guarded(type_name, type(error)),
        message=clean_text(guarded(str, error), max_bytes),
        traceback=clean_text(guarded(_format_traceback, error), max_bytes),
    )


def type_name(cls: type) -> str:
    """Return the name of a class as people write it: `ValueError`, `shop.errors.OutOfStock`."""
    name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    return clean_text(name, 200)


def safe_repr(value: object) -> str:
    """Return a short repr for use in messages; never raise."""
    return escape(guarded(_short.repr, value))


def escape(text: str) -> str:
    """Write out what databases refuse: NUL and lone surrogates."""
    return UNSTORABLE.sub(lambda bad: f"\\u{ord(bad[0]):04x}", text)


def guarded(show: Callable[[_T], str], value: _T) -> str:
    """Return `show(value)`, or that it cannot be shown, whatever the value's methods do."""
    try:
        return show(value)
    except BaseException as error:  # also SystemExit and the like: a broken method must not end the worker
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def _format_traceback(error: BaseException) -> str:
    lines = traceback.TracebackException.from_exception(error, limit=-_FRAMES).format()
    return "".join(clean_text(line, _CHUNK_BYTES) for line in lines)


def human_size(count: int) -> str:
    """Return a number of bytes as people say it: 84 MB."""
    if count < 2**20:
        return f"{count / 2**10:.0f} kB"
    return f"{count / 2**20:.0f} MB" if count < 10 * 2**30 else f"{count / 2**30:.1f} GB"
