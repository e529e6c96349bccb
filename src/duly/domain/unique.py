"""Unique keys: which jobs count as the same, and what an enqueue does when one is there already.

This says what is wanted; the store makes it true in one statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias, get_args

from duly.domain.errors import InvalidOption
from duly.domain.json import canonical
from duly.domain.names import suggest
from duly.domain.text import safe_repr

Mode: TypeAlias = Literal["skip", "replace", "debounce", "keep_latest", "none"]
Scope: TypeAlias = Literal["queued", "live", "window"]

STORED_BYTES = 200


def dedupe_key(task: str, tenant: str | None, args: Mapping[str, object]) -> str:
    """Return `"<type>::<tenant|global>::<sorted JSON>"`: equal for equal arguments in any key order."""
    return f"{task}::{tenant or 'global'}::{canonical(dict(args))}"


def storage_key(text: str) -> str:
    """Return the key as stored: `text` itself up to 200 bytes, the SHA-256 of it beyond."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidOption(f"unique key must not contain a lone surrogate (position {error.start + 1}).") from None
    if len(data) <= STORED_BYTES:
        return text
    from hashlib import sha256  # here, since it brings OpenSSL in and few keys are long

    return "sha256:" + sha256(data).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """At most one job per key, within a scope.

    `key`: None makes it from task, tenant and arguments (`dedupe_key`).
    `mode`: skip returns the job that is there; replace gives it the new arguments; debounce also the new
    time; keep_latest lets one run and keeps only the newest waiting behind it; none ignores the key.
    `scope`: which jobs count: queued (also scheduled), live (also running), or window (any within that time).
    """

    key: str | None = None
    mode: Mode = "skip"
    scope: Scope = "live"
    window: timedelta | None = None

    def __post_init__(self) -> None:
        _check_word(self.mode, "unique mode", get_args(Mode))
        _check_word(self.scope, "unique scope", get_args(Scope))
        if self.key is not None:
            _check_key(self.key)
        self._check_window()
        if self.mode == "keep_latest" and self.scope != "live":
            raise InvalidOption(f"unique mode 'keep_latest' needs scope 'live', not {self.scope!r}.")
        if self.mode == "debounce" and self.scope == "window":
            raise InvalidOption(
                "unique mode 'debounce' moves a waiting job: its scope is 'queued' or 'live', not 'window'."
            )

    @classmethod
    def of(cls, value: str | bool | Unique) -> Unique:
        """Return what `unique=` says: True (by arguments), False (not at all), a key, or a Unique."""
        if isinstance(value, Unique):
            return value
        if isinstance(value, bool):
            return cls() if value else cls(mode="none")
        if isinstance(value, str):
            return cls(key=value)
        raise InvalidOption(f"unique must be a key, True, False or Unique(...), not {type(value).__name__}.")

    def _check_window(self) -> None:
        if self.scope != "window":
            if self.window is not None:
                raise InvalidOption(f"unique window needs scope 'window', and scope is {self.scope!r}.")
        elif self.window is None:
            raise InvalidOption("unique scope 'window' needs window=timedelta(...).")
        elif not isinstance(self.window, timedelta):
            raise InvalidOption(f"unique window must be a timedelta, not {type(self.window).__name__}.")
        elif self.window <= timedelta(0):
            raise InvalidOption(f"unique window must be longer than nothing, and {self.window} is not.")


def _check_word(word: object, what: str, known: tuple[str, ...]) -> None:
    if word not in known:
        hint = suggest(word, known) if isinstance(word, str) else ""
        raise InvalidOption(f"{what} must be one of {', '.join(known)}, not {safe_repr(word)}.{hint}")


def _check_key(key: str) -> None:
    if not isinstance(key, str):
        raise InvalidOption(f"unique key must be text, not {type(key).__name__}.")
    if not key:
        raise InvalidOption("unique key must not be empty; unique=True makes one from the arguments.")
    if "\x00" in key:
        raise InvalidOption(f"unique key must not contain NUL (position {key.index(chr(0)) + 1}).")
    storage_key(key)
