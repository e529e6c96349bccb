"""The file in which producers and handlers say what they did: it only grows, and outlives who writes it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """One thing that happened. `at` is on the clock that all processes of a machine share."""

    event: str
    """"stored": an enqueue returned. "start" and "end": a handler began, and was done."""
    job: str
    token: int
    pid: int
    at: float


class Ledger:
    """Appends lines, from any number of processes, and reads them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def write(self, event: str, job: str, token: int) -> None:
        """One line, by one system call: whole, whatever else is written at the same time."""
        os.write(self._file, f"{event} {job} {token} {os.getpid()} {time.monotonic()}\n".encode())

    def stored(self, jobs: Iterable[str]) -> None:
        """An enqueue returned."""
        about = f"0 {os.getpid()} {time.monotonic()}"
        os.write(self._file, "".join(f"stored {job} {about}\n" for job in jobs).encode())

    def lines(self) -> list[Line]:
        """All lines so far."""
        found = []
        with self.path.open() as file:
            for text in file:
                event, job, token, pid, at = text.split()
                found.append(Line(event, job, int(token), int(pid), float(at)))
        return found

    def close(self) -> None:
        os.close(self._file)
