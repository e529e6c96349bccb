"""Looks for text that may be a guard: in statements, in migrations, in the code that drives the databases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import duly
from tests.guards.removing import Code, Schema, Statement, blocks, migration_text

IN_STATEMENTS = re.compile(
    r"\btoken(?:\) IN| =)"  # a fence
    r"|\bFOR (?:NO KEY UPDATE|KEY SHARE|UPDATE|SHARE)\b|\bLOCK TABLE\b|\bpg_advisory\w*"  # a lock
    r"|\bON CONFLICT\b"
    r"|\b(?:leased_until|deadline_at) [<>]=?"  # whether a lease or a deadline is over
    r"|\btenant = :tenant\b|\bturn = :turn\b|\b(?:ended_at|done_at) IS NULL\b"
)
IN_MIGRATIONS = re.compile(
    r"\b(?:UNIQUE|PRIMARY KEY|ON CONFLICT)\b|\bpg_advisory\w*|\b(?:leased_until|deadline_at) [<>]=?|\btoken = "
)
IN_CODE = re.compile(r"BEGIN IMMEDIATE|\bpg_advisory\w*|\bFOR UPDATE\b|\bLOCK TABLE\b|\bflock\([^)]*LOCK_EX")
_COMMENT = re.compile(r"--[^\n]*")
_DOCSTRING = re.compile(r'"""(?:[^"]|"(?!""))*"""')


class Found(NamedTuple):
    """A place that may be a guard."""

    where: str
    start: int
    end: int
    line: str

    def __str__(self) -> str:
        return f"{self.where}: {self.line}"


def texts() -> dict[str, tuple[str, re.Pattern[str]]]:
    """All that is looked through, by name: statements, migrations, modules."""
    found = {name: (text, IN_STATEMENTS) for name, text in blocks().items()}
    for entry in resources.files("duly.store").joinpath("migrations").iterdir():
        if entry.name.endswith(".sql"):
            found[entry.name] = (_COMMENT.sub(_blank, migration_text(entry.name)), IN_MIGRATIONS)
    root = Path(duly.__file__).parent
    for path in sorted(root.rglob("*.py")):
        module = ".".join(("duly", *path.relative_to(root).with_suffix("").parts))
        found[module] = (_DOCSTRING.sub(_blank, path.read_text(encoding="utf-8")), IN_CODE)
    return found


def _blank(found: re.Match[str]) -> str:
    return " " * len(found.group())


class Seeker:
    """All that is looked through, read once."""

    def __init__(self) -> None:
        self._texts = texts()

    def guard_like(self) -> Iterator[Found]:
        """Every place that may be a guard."""
        for where, (text, pattern) in self._texts.items():
            for match in pattern.finditer(text):
                start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
                line = text[start : end if end >= 0 else len(text)].strip()
                yield Found(where, match.start(), match.end(), line)

    def covers(self, edit: Statement | Schema | Code, found: Found) -> bool:
        """Whether an edit takes this place out."""
        if _place_of(edit) != found.where:
            return False
        text, first, last = self._texts[found.where][0], 0, None
        if isinstance(edit, Schema) and edit.within:
            first = text.index(edit.within)
            last = text.index(";\n", first)
        return any(start <= found.start and found.end <= end for start, end in _spans(text, edit.cut, first, last))


def _place_of(edit: Statement | Schema | Code) -> str:
    if isinstance(edit, Code):
        return edit.name.partition(":")[0]
    return edit.file if isinstance(edit, Schema) else edit.name


def _spans(text: str, cut: str, first: int, last: int | None) -> Iterator[tuple[int, int]]:
    at = text.find(cut, first, last)
    while at >= 0:
        yield at, at + len(cut)
        at = text.find(cut, at + 1, last)
