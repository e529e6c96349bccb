"""What a drain did, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from duly.domain.records import Settled
from duly.domain.text import safe_repr
from duly.job import Job

OUTCOMES = ("succeeded", "failed", "retried", "snoozed", "cancelled", "expired", "parked", "released", "lost")


def outcome_of(settled: Settled, *, accepted: bool) -> str:
    """Say in one word what became of a run: `failed` is for good, `retried` will run again."""
    if not accepted:
        return "lost"
    if settled.state in ("scheduled", "queued"):
        return "retried" if settled.outcome == "failed" else settled.outcome
    return "expired" if settled.outcome == "expired" else settled.state


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainedRun:
    """One run of a drain."""

    job: Job[Any]
    task: str
    attempt: int
    outcome: str
    """succeeded, failed (for good), retried, snoozed, cancelled, expired, parked, released (unharmed) or lost."""
    error: BaseException | None = None
    """What the handler raised, the very object."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Drained:
    """Every run of a drain, in order. `if drained:` asks whether there was any."""

    runs: tuple[DrainedRun, ...]
    limit_reached: bool = False
    """Whether it stopped because it had run `limit` jobs: there may be more that are due."""

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        counts = [f"{self.count(outcome)} {outcome}" for outcome in OUTCOMES if self.count(outcome)]
        errors = [f"{run.task}: {safe_repr(run.error)}" for run in self.runs if run.error is not None]
        told = "; ".join([", ".join(counts) or "nothing was due", *errors[:5]])
        return f"<Drained {told}{'; ...' if errors[5:] else ''}>"

    def count(self, outcome: str) -> int:
        """How many runs ended like that."""
        return sum(run.outcome == outcome for run in self.runs)

    @property
    def succeeded(self) -> int:
        """How many jobs succeeded."""
        return self.count("succeeded")

    @property
    def failed(self) -> int:
        """How many jobs failed for good."""
        return self.count("failed")

    @property
    def retried(self) -> int:
        """How many runs failed and will be repeated, or were."""
        return self.count("retried")

    @property
    def snoozed(self) -> int:
        """How many runs asked to come again later."""
        return self.count("snoozed")

    @property
    def cancelled(self) -> int:
        """How many jobs were cancelled by a person or by their handler, or had expired."""
        return self.count("cancelled") + self.count("expired")

    @property
    def parked(self) -> int:
        """How many jobs were set aside because their arguments do not fit the code."""
        return self.count("parked")

    @property
    def jobs(self) -> list[Job[Any]]:
        """The jobs that ran, each once, in the order of their first run."""
        return list(dict.fromkeys(run.job for run in self.runs))

    @property
    def errors(self) -> list[BaseException]:
        """What handlers raised, in order."""
        return [run.error for run in self.runs if run.error is not None]
