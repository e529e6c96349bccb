"""Numbers in words, for findings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from duly.domain.durations import human

SHOWN = 3


def counted(n: int, word: str, many: str | None = None, *, most: int | None = None) -> str:
    """Return "1 job", "2 jobs", "1,000 jobs or more"."""
    text = f"{n:,} {word if n == 1 else many or word + 's'}"
    return f"{text} or more" if most is not None and n >= most else text


def span(us: int) -> str:
    """Return a number of microseconds as a short duration."""
    return human(timedelta(microseconds=max(0, us) // 1_000 * 1_000))


def size(n: int) -> str:
    """Return bytes in the unit that fits."""
    amount = float(n)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def some(items: Sequence[str]) -> str:
    """Return the first few of a list."""
    rest = len(items) - SHOWN
    return ", ".join(items[:SHOWN]) + (f" and {rest:,} more" if rest > 0 else "")
