"""Runs under limits that have ended here and are not yet written: they run no more, so a claim need not count them.

A slot is taken again while the run that held it is being settled, not after. Only a run's own worker knows that it has
ended; to all others it counts until it is settled, so there may seem to be too many, and never are.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable

from duly.domain.limits import Bound
from duly.worker.context import Run


class Over:
    """What the finisher has of such runs, for the claimer to see."""

    def __init__(self) -> None:
        self._runs: defaultdict[Bound, dict[str, int]] = defaultdict(dict)
        self._lock = threading.Lock()

    def add(self, runs: Iterable[Run]) -> None:
        """These have ended."""
        with self._lock:
            for run in runs:
                self._runs[run.bound][run.job.id] = run.job.token

    def remove(self, runs: Iterable[Run]) -> None:
        """These are settled, or nobody's any more."""
        with self._lock:
            for run in runs:
                some = self._runs.get(run.bound, {})
                if some.get(run.job.id) == run.job.token:
                    del some[run.job.id]
                if not some:
                    self._runs.pop(run.bound, None)

    def under(self, bound: Bound) -> list[tuple[str, int]]:
        """Those that count under any of these limits, by id and token."""
        if not self._runs:
            return []
        gates = set(bound)
        with self._lock:
            return [pair for its, some in self._runs.items() if not gates.isdisjoint(its) for pair in some.items()]
