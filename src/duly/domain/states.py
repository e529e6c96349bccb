"""The states of a job, and the other words for them that people and other systems use."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from duly.domain.errors import InvalidOption
from duly.domain.names import suggest
from duly.domain.text import safe_repr


class State(StrEnum):
    """Where a job is: scheduled -> queued -> running -> succeeded | failed | cancelled.

    A recurring job goes from running back to scheduled, for ever; it may be disabled.
    """

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DISABLED = "disabled"

    @classmethod
    def parse(cls, text: str) -> State:
        """Return the state that `text` names, also by the words of other systems ("pending", "success")."""
        if not isinstance(text, str):
            raise InvalidOption(f"state must be text, not {type(text).__name__}.")
        word = text.strip().lower()
        state = _BY_WORD.get(word)
        if state is None:
            known = ", ".join(cls)
            raise InvalidOption(f"Unknown state {safe_repr(text)}.{suggest(word, _BY_WORD)} States: {known}.")
        return state

    @property
    def terminal(self) -> bool:
        """Whether a job in this state has ended."""
        return self in TERMINAL


TERMINAL: Final = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})

_ALIASES: Final = {
    "pending": State.QUEUED,
    "waiting": State.QUEUED,
    "crawling": State.RUNNING,
    "processing": State.RUNNING,
    "success": State.SUCCEEDED,
    "completed": State.SUCCEEDED,
    "canceled": State.CANCELLED,
}
_BY_WORD: Final[dict[str, State]] = {**{state.value: state for state in State}, **_ALIASES}
