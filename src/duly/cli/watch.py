"""Sees which Python files change, by looking: nothing to install, the same everywhere."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

IGNORED = {"__pycache__", "node_modules", "site-packages", "venv", "env", "build", "dist"}
Stamp = tuple[int, int]


class Files:
    """The .py files below some folders, and what they looked like last time."""

    def __init__(self, folders: Iterable[Path], files: Iterable[Path] = ()) -> None:
        self._folders = _without_nested([folder.resolve() for folder in folders])
        self._files = [file.resolve() for file in files]
        self._stamps = self._look()
        self.seconds = 0.0
        """How long the last look took, so that a huge tree is looked at less often."""

    def changed(self) -> list[Path]:
        """Return the files that changed, came or went since the last call."""
        begun = time.monotonic()
        now = self._look()
        self.seconds = time.monotonic() - begun
        before, self._stamps = self._stamps, now
        return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))

    def _look(self) -> dict[Path, Stamp]:
        stamps: dict[Path, Stamp] = {}
        for path in self._paths():
            try:
                stat = os.stat(path)
            except OSError:
                continue
            stamps[Path(path)] = (stat.st_mtime_ns, stat.st_size)
        return stamps

    def _paths(self) -> Iterator[str]:
        yield from map(str, self._files)
        for root in self._folders:
            for folder, below, files in os.walk(root):
                if "pyvenv.cfg" in files:
                    below.clear()
                    continue
                below[:] = [name for name in below if not name.startswith(".") and name not in IGNORED]
                yield from (os.path.join(folder, name) for name in files if name.endswith(".py"))


def _without_nested(folders: list[Path]) -> list[Path]:
    return [
        folder
        for i, folder in enumerate(folders)
        if folder not in folders[:i] and not any(other in folder.parents for other in folders)
    ]
