"""Who ran what, written down by the functions themselves: one line when a run begins, one when it ends.

It has no part in the work. It lets a test (or you) check from outside that every occurrence was run by one process.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any


@dataclass(slots=True, kw_only=True)
class LedgerRun:
    """One run as it was written down."""

    place: str
    """tenant/id"""
    tick: str
    fence: int
    process: str
    pid: int
    began: float
    ended: float | None = None
    """None if it was cut off."""


class Ledger:
    """A file that any number of processes write to."""

    def __init__(self, path: Path, process: str = "") -> None:
        self.path = path
        self.process = process

    @contextmanager
    def run(self, job: Any) -> Iterator[None]:
        """Write down that a run begins, and that it ends, well or not."""
        id = job.task.removeprefix("registered:")
        run = {"place": f"{job.tenant}/{id}", "tick": job.tick.isoformat(), "fence": job.fence}
        self._write({**run, "event": "began"})
        try:
            yield
        finally:
            self._write({**run, "event": "ended"})

    def _write(self, line: dict[str, Any]) -> None:
        """Append a line in one piece."""
        text = json.dumps({**line, "process": self.process, "pid": os.getpid(), "at": time.monotonic()})
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, f"{text}\n".encode())
        finally:
            os.close(file)

    def runs(self) -> list[LedgerRun]:
        """Every run, in the order in which they began."""
        found: dict[tuple[str, int], LedgerRun] = {}
        text = self.path.read_text() if self.path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # of a line that is being written, only a part may be there yet
        for line in map(json.loads, whole.splitlines()):
            event, at = line.pop("event"), line.pop("at")
            if event == "began":
                found[line["place"], line["fence"]] = LedgerRun(**line, began=at)
            else:
                found[line["place"], line["fence"]].ended = at
        return list(found.values())


def run_twice(runs: Iterable[LedgerRun]) -> list[tuple[str, str]]:
    """The occurrences that more than one run brought to an end: there should be none."""
    ended: dict[tuple[str, str], int] = defaultdict(int)
    for run in runs:
        ended[run.place, run.tick] += run.ended is not None
    return [occurrence for occurrence, count in ended.items() if count > 1]


def run_at_once(runs: Iterable[LedgerRun]) -> list[str]:
    """The jobs of which two runs overlapped: there should be none. One that was cut off overlaps nothing."""
    by_place: dict[str, list[LedgerRun]] = defaultdict(list)
    for run in runs:
        by_place[run.place].append(run)
    wrong = []
    for place, those in by_place.items():
        those.sort(key=lambda run: run.began)
        pairs = pairwise(those)
        if any(first.ended is not None and second.began < first.ended for first, second in pairs):
            wrong.append(place)
    return wrong
