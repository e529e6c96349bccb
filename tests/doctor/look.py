"""Short words for what tests ask of a check-up."""

from __future__ import annotations

from collections.abc import Sequence

from duly import Duly
from duly.doctor.finding import Finding, Severity


def findings(jobs: Duly, area: str, check: str, *, fix: bool = False) -> list[Finding]:
    """What one check says."""
    return [each for each in jobs.doctor(fix=fix) if (each.area, each.check) == (area, check)]


def only(jobs: Duly, area: str, check: str, *, fix: bool = False) -> Finding:
    """The one thing that a check says."""
    (finding,) = findings(jobs, area, check, fix=fix)
    return finding


def bad(found: Sequence[Finding]) -> list[tuple[str, str, str]]:
    """What is left to worry about."""
    return [(each.area, each.check, each.what) for each in found if each.left.rank > Severity.INFO.rank]
