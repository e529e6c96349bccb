"""What a check-up says: one thing that is in order or is not, with the numbers behind it and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from duly.store.call import Op

Fix = Callable[[], Op[list[str]]]
"""An operation that mends what was found, and says what it did; run in a transaction of its own."""


class Severity(StrEnum):
    """How bad it is: in order, worth knowing, to be looked after, broken."""

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """The worse, the higher."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a check-up found."""

    area: str
    """installation, database, workers, jobs, recurring or retention."""
    check: str
    """Which check says so: a short name that stays the same."""
    severity: Severity
    what: str
    evidence: Mapping[str, object] = field(default_factory=dict)
    next: str | None = None
    """The next command or step; None if there is nothing to do."""
    fix: Fix | None = field(default=None, repr=False, compare=False)
    fixed: tuple[str, ...] | None = None
    """What a repair did, a line each; None if none was tried."""
    refused: str | None = None
    """Why a repair could not be made."""

    @property
    def fixable(self) -> bool:
        """Whether a repair is known, and not made yet."""
        return self.fix is not None and self.fixed is None

    @property
    def left(self) -> Severity:
        """How bad it is now: what was mended is in order."""
        return Severity.OK if self.fixed is not None else self.severity

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "area": self.area,
            "check": self.check,
            "severity": str(self.severity),
            "what": self.what,
            "evidence": dict(self.evidence),
            "next": self.next,
            "fixable": self.fixable,
            "fixed": None if self.fixed is None else list(self.fixed),
            "refused": self.refused,
        }


def worst(findings: Iterable[Finding]) -> Severity:
    """How bad it is altogether."""
    return max((finding.left for finding in findings), key=lambda each: each.rank, default=Severity.OK)


@dataclass(frozen=True, slots=True)
class Area:
    """Makes the findings of one area."""

    name: str

    def ok(self, check: str, what: str, /, **evidence: object) -> Finding:
        """It is in order."""
        return Finding(area=self.name, check=check, severity=Severity.OK, what=what, evidence=evidence)

    def info(self, check: str, what: str, next: str | None = None, /, **evidence: object) -> Finding:
        """It is worth knowing."""
        return Finding(area=self.name, check=check, severity=Severity.INFO, what=what, next=next, evidence=evidence)

    def warning(self, check: str, what: str, next: str, fix: Fix | None = None, /, **evidence: object) -> Finding:
        """It should be looked after."""
        return Finding(
            area=self.name,
            check=check,
            severity=Severity.WARNING,
            what=what,
            next=next,
            evidence=evidence,
            fix=fix,
        )

    def error(self, check: str, what: str, next: str, fix: Fix | None = None, /, **evidence: object) -> Finding:
        """It is broken."""
        return Finding(
            area=self.name, check=check, severity=Severity.ERROR, what=what, next=next, evidence=evidence, fix=fix
        )
