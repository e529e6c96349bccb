"""What a row of the table is: one guard, what it protects, how it is removed, and which tests go red then."""

from __future__ import annotations

from dataclasses import dataclass

from tests.guards.removing import Edit

RED = r"^(call|teardown): (AssertionError|assert |Failed: (?!Timeout))|UNIQUE constraint failed|duplicate key value"
"""How a test may go red: something is not as it was asserted, or a unique index further in had to step in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One guard."""

    name: str
    protects: str
    """Failure modes (F), invariants (I) and promises (P), as docs/guards.md explains them."""
    without: str
    """What happens without it."""
    edits: tuple[Edit, ...]
    tests: tuple[str, ...] = ()
    """Which tests go red; few, and quick. They stand in `reds.toml`, by test."""
    red: str = RED
    """How, as a pattern; where another error than an assertion is the proof."""
