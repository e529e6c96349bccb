"""Checks for names that people choose: tasks, queues, tenants, tags; and help for misspelt ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

from duly.domain.errors import InvalidOption
from duly.domain.text import safe_repr

_NAME = re.compile(r"[A-Za-z0-9_.:\-]{1,128}")
_UNSTORABLE = "[\x00-\x1f\x7f-\x9f\ud800-\udfff]"

TENANT_BYTES = 255
TAG_BYTES = 128


def check_task_name(name: str) -> str:
    """Return `name` if a task may be called so."""
    return _check_name(name, "task name")


def check_queue_name(name: str) -> str:
    """Return `name` if a queue may be called so."""
    return _check_name(name, "queue name")


def check_tenant(tenant: str) -> str:
    """Return `tenant` if it may be stored; '' means that there is none."""
    return check_text(tenant, "tenant", TENANT_BYTES)


def check_tag(tag: str) -> str:
    """Return `tag` if it may be stored."""
    if tag == "":
        raise InvalidOption("tag must not be empty.")
    return check_text(tag, "tag", TAG_BYTES)


def check_text(text: str, what: str, most_bytes: int) -> str:
    """Return `text` if any database can store it: no control characters, no lone surrogates, not too long."""
    if not isinstance(text, str):
        raise InvalidOption(f"{what} must be text, not {type(text).__name__}: {safe_repr(text)}.", option=what)
    if len(text) <= most_bytes and text.isascii() and text.isprintable():
        return text
    bad = re.search(_UNSTORABLE, text)
    if bad is not None:
        kind = "lone surrogate" if bad[0] >= "\ud800" else "control character"
        where = f"{safe_repr(text)}, position {bad.start() + 1}"
        raise InvalidOption(f"{what} must not contain a {kind}: {where}.", option=what)
    size = len(text.encode())
    if size > most_bytes:
        raise InvalidOption(
            f"{what} must be at most {most_bytes} bytes of UTF-8, not {size}: {safe_repr(text)}.", option=what
        )
    return text


def suggest(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the known word nearest to `word`, or '' if none is near."""
    from difflib import get_close_matches  # here, since only errors need it

    by_folded = {candidate.casefold(): candidate for candidate in known}
    near = get_close_matches(word[:200].casefold(), by_folded, n=1)
    return f" Did you mean {by_folded[near[0]]!r}?" if near else ""


def _check_name(name: str, what: str) -> str:
    if not isinstance(name, str):
        raise InvalidOption(
            f"{what} must be text, not {type(name).__name__}: {safe_repr(name)}.", option=what.removesuffix(" name")
        )
    if _NAME.fullmatch(name) is None:
        raise InvalidOption(
            f"{what} must be 1 to 128 of the characters A-Z a-z 0-9 _ . : -, and {safe_repr(name)} {_fault(name)}.",
            option=what.removesuffix(" name"),
        )
    return name


def _fault(name: str) -> str:
    if not name:
        return "is empty"
    bad = re.search(r"[^A-Za-z0-9_.:\-]", name)
    if bad is None:
        return f"has {len(name)}"
    return f"has {bad[0]!r} at position {bad.start() + 1}"
