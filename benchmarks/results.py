"""What was measured, as values: samples per round, and goals evaluated over them. Pure; prints nothing."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

Sample = dict[str, float]
"""The figures of one run, by metric."""

Round = dict[str, Sample]
"""The samples of one round, by contender."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A column: its key in the sample, its heading, and its decimals."""

    key: str
    heading: str
    decimals: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What must hold of a metric, alone or divided by that of another contender in the same round."""

    text: str
    metric: str
    contender: str
    over: str | None = None
    at_least: float | None = None
    at_most: float | None = None

    def values(self, rounds: Sequence[Round]) -> list[float]:
        """One value per round that has what the goal needs."""
        found: list[float] = []
        for samples in rounds:
            value = samples.get(self.contender, {}).get(self.metric)
            if self.over is not None and value is not None:
                other = samples.get(self.over, {}).get(self.metric)
                value = value / other if other else None
            if value is not None:
                found.append(value)
        return found

    def holds(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )

    @property
    def wanted(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:,g}"
        return f"≤ {self.at_most:,g}" if self.at_most is not None else ""


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with its range."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values), len(values))


@dataclass(slots=True)
class Outcome:
    """A workload's rounds, and what went wrong in them."""

    name: str
    title: str
    method: str
    metrics: tuple[Metric, ...]
    goals: tuple[Goal, ...]
    contenders: dict[str, str]
    plotted: str = ""
    """The metric that is drawn, if one is."""
    date: str = ""
    processor: str = ""
    """When and where it was measured."""
    rounds: list[Round] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def spread(self, contender: str, metric: str) -> Spread | None:
        values = [
            samples[contender][metric] for samples in self.rounds if metric in samples.get(contender, {})
        ]
        return Spread.of(values) if values else None

    def total(self, contender: str, metric: str) -> int | None:
        values = [
            samples[contender][metric] for samples in self.rounds if metric in samples.get(contender, {})
        ]
        return round(sum(values)) if values else None

    @property
    def exactly_once(self) -> bool:
        return not any(
            sample.get("repeated") or sample.get("missing")
            for samples in self.rounds
            for sample in samples.values()
        )


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile."""
    return sorted(values)[max(0, math.ceil(percent / 100 * len(values)) - 1)]
