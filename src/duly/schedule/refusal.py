"""How a schedule is refused: what, where in the text with a caret below it, and why."""

from __future__ import annotations

from duly.domain.errors import InvalidSchedule
from duly.domain.text import safe_repr

_SHOWN = 500


def refusal(text: str, position: int | None, reason: str) -> InvalidSchedule:
    """Return the error for `text`; `position` is the index at fault, None where the whole is."""
    where = "" if position is None else f", position {position + 1}"
    message = f"The schedule {safe_repr(text)} is not valid{where}: {reason}."
    if position is not None and len(text) <= _SHOWN:
        message += f"\n  {_one_line(text)}\n  {' ' * position}^"
    return InvalidSchedule(message, text=text, position=position, option="rule")


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
