"""What a scenario has to say for itself, as a line, as JSON, and as a row of docs/chaos.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

COLUMNS = ("Scenario", "Database", "Jobs", "Runs", "Faults", "Cut short", "Lost", "Doubled", "Robbed", "Deadlocks",
           "Rescue p50 / p99 / allowed", "Seconds", "Seed", "Is all well?")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How one scenario went on one database."""

    scenario: str
    database: str
    jobs: int
    runs: int
    faults: dict[str, int]
    cut_short: int
    lost: int
    doubled: int
    robbed: int
    deadlocks: int
    rescue_p50: float | None
    rescue_p99: float | None
    rescue_allowed: float
    seconds: float
    seed: int
    problems: list[str] = field(default_factory=list)
    """What is wrong, in words; nothing if all is well."""

    @property
    def ok(self) -> bool:
        """Whether all is well."""
        return not self.problems

    def cells(self) -> tuple[str, ...]:
        """One row, in the order of `COLUMNS`."""
        return (
            self.scenario, self.database, f"{self.jobs:,}", f"{self.runs:,}", listed(self.faults),
            f"{self.cut_short:,}", str(self.lost), str(self.doubled), str(self.robbed), str(self.deadlocks),
            self.rescue, f"{self.seconds:.0f}", str(self.seed), "; ".join(self.problems)[:200] or "yes",
        )  # fmt: skip

    @property
    def rescue(self) -> str:
        """How long rescues took, beside what they may take."""
        if self.rescue_p50 is None or self.rescue_p99 is None:
            return "-"
        return f"{self.rescue_p50:.1f} / {self.rescue_p99:.1f} / {self.rescue_allowed:.1f} s"

    def __str__(self) -> str:
        rescue = "" if self.rescue == "-" else f"rescued in {self.rescue}; "
        end = "all is well" if self.ok else "WRONG: " + "; ".join(self.problems)
        return (
            f"{self.scenario} on {self.database}: {self.jobs:,} jobs, {self.runs:,} runs, {listed(self.faults)}; "
            f"{self.cut_short:,} runs cut short, {self.lost} lost, {self.doubled} doubled, {self.robbed} robbed, "
            f"{self.deadlocks} deadlocks; {rescue}{self.seconds:.0f} s, seed {self.seed}: {end}"
        )


def listed(faults: dict[str, int]) -> str:
    """How many of each kind."""
    return ", ".join(f"{n:,} {name}" for name, n in faults.items())


def table(reports: Sequence[Report]) -> str:
    """All reports as Markdown, with a line of sums."""
    sums = ("**all**", "", *(f"{sum(getattr(each, name) for each in reports):,}" for name in ("jobs", "runs")), "",
            *(f"{sum(getattr(each, name) for each in reports):,}"
              for name in ("cut_short", "lost", "doubled", "robbed", "deadlocks")), "",
            f"{sum(each.seconds for each in reports):.0f}", "",
            f"{sum(each.ok for each in reports)} of {len(reports)}")  # fmt: skip
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(each.cells() for each in reports), sums]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def total_faults(reports: Sequence[Report]) -> dict[str, int]:
    """Each kind of fault, added up."""
    found: dict[str, int] = {}
    for report in reports:
        for name, n in report.faults.items():
            found[name] = found.get(name, 0) + n
    return found
