"""Measures what might grow in a system that runs for long, and says whether it does.

A line is fitted through the samples of each measure. It grows if the line's slope, less twice its standard error, is
more than is allowed, as a share of the mean.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from chaos.checker import connect
from chaos.place import Place

ALLOWED = {"memory of workers": 0.05, "memory of the dashboard": 0.05, "open files": 0.02, "threads": 0.02,
           "connections": 0.05}  # fmt: skip
ALLOWED_ELSE = 0.10


class Gauge:
    """Samples everything that might grow."""

    def __init__(self, where: Place, workers: Sequence[int], web: int) -> None:
        self._place, self._workers, self._web = where, workers, web

    def sample(self) -> dict[str, float]:
        """How much there is of everything, now."""
        found: dict[str, float] = {
            "memory of workers": sum(_of_tree(pid, _resident) for pid in self._workers),
            "memory of the dashboard": _of_tree(self._web, _resident),
            "open files": sum(_of_tree(pid, _open_files) for pid in (*self._workers, self._web)),
            "threads": sum(_of_tree(pid, _threads) for pid in (*self._workers, self._web)),
        }
        return found | (self._of_sqlite() if self._place.server is None else self._of_postgres())

    def _of_sqlite(self) -> dict[str, float]:
        path = self._place.directory / "duly.db"
        with closing(connect(self._place.url)) as connection:
            pages, free, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return {
            "WAL": (path.parent / f"{path.name}-wal").stat().st_size,
            "file": pages * size,
            "used": (pages - free) * size,
        }

    def _of_postgres(self) -> dict[str, float]:
        asked = {
            "connections": "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'",
            "WAL": "SELECT sum(size) FROM pg_ls_waldir()",
            "dead rows": "SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE schemaname = 'duly'",
            "tables and indexes": "SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables"
            " WHERE schemaname = 'duly'",
            "catalogues": "SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_sys_tables",
        }
        with closing(connect(self._place.url)) as connection:
            return {name: float(connection.execute(sql).fetchone()[0]) for name, sql in asked.items()}


def _of_tree(pid: int, what: Callable[[int], float]) -> float:
    """Of a process and all that it started."""
    total = 0.0
    with suppress(OSError, ValueError):
        total += what(pid)
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                total += _of_tree(int(child), what)
    return total


def _status(pid: int, name: str) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return float(text.partition(f"{name}:")[2].split()[0])


def _resident(pid: int) -> float:
    return _status(pid, "VmRSS") * 1_024


def _threads(pid: int) -> float:
    return _status(pid, "Threads")


def _open_files(pid: int) -> float:
    return len(os.listdir(f"/proc/{pid}/fd"))


@dataclass(frozen=True, slots=True)
class Slope:
    """How one measure went."""

    name: str
    mean: float
    smallest: float
    largest: float
    per_hour: float
    error: float
    """The standard error of it."""

    @property
    def allowed(self) -> float:
        """How much it may grow in an hour, as a share of its mean."""
        return ALLOWED.get(self.name, ALLOWED_ELSE)

    @property
    def grows(self) -> bool:
        """Whether it grows by more than that for certain."""
        return self.per_hour - 2 * self.error > self.allowed * self.mean

    def cells(self) -> tuple[str, ...]:
        """One row of a table."""
        share = 100 / self.mean if self.mean else 0.0
        return (
            self.name, short(self.mean), f"{short(self.smallest)} to {short(self.largest)}",
            f"{self.per_hour * share:+.1f} % (± {2 * self.error * share:.1f})",
            f"{100 * self.allowed:.0f} %", "GROWS" if self.grows else "steady",
        )  # fmt: skip


def fitted(name: str, times: Sequence[float], values: Sequence[float]) -> Slope:
    """A line through the samples."""
    slope, at_zero = statistics.linear_regression(times, values)
    middle = statistics.fmean(times)
    spread = sum((each - middle) ** 2 for each in times)
    rest = sum((y - at_zero - slope * x) ** 2 for x, y in zip(times, values, strict=True))
    error = (rest / max(1, len(times) - 2) / spread) ** 0.5 if spread else 0.0
    return Slope(name, statistics.fmean(values), min(values), max(values), slope * 3_600, error * 3_600)


def short(value: float) -> str:
    """A number of bytes, or of anything else."""
    return f"{value / 1e6:.1f} MB" if value >= 1e5 else f"{value:.0f}"
