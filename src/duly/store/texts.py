"""Reads the SQL that comes with this package.

Not by `importlib.resources`: that also reads zip files, and what it brings along for them stays in every worker's
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def texts(folder: str) -> Iterator[tuple[str, str]]:
    """The files of a folder beside this one, in the order of their names: each name and what is in it."""
    for file in sorted(Path(__file__).with_name(folder).glob("*.sql")):
        yield file.name, file.read_text(encoding="utf-8")
