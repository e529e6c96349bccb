"""Where an operation is on its way through its statements, and what is to happen to it there.

A boundary is a place: the n-th use of the database by the operation, and in it the n-th statement, BEGIN and COMMIT
included. Without a mode a course only writes down which boundaries an operation crosses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.crash_matrix.modes import Mode


class Place(NamedTuple):
    """A statement boundary of an operation."""

    use: int
    step: int


class Crossing(NamedTuple):
    """A boundary, what was sent there, and if it was the last of its use."""

    place: Place
    statement: str
    last: bool = False


class Course:
    """The way of one operation. `at` and `mode`: what happens where, the first time or at every try."""

    def __init__(self, at: Place | None = None, mode: Mode | None = None) -> None:
        self.at = at
        self.mode = mode
        self.struck = 0
        self.refuses = False
        """Whether the server takes no new connection."""
        self.crossed: list[Crossing] = []
        self.after_use: Callable[[], None] | None = None
        self._use = 0
        self._step = 0

    def begin(self) -> None:
        """The database is used once more."""
        self._use += 1
        self._step = 0

    def try_again(self) -> None:
        """The same use begins anew."""
        self._step = 0

    def end(self) -> None:
        """The use is over, and went well."""
        if self.crossed and self.crossed[-1].place.use == self._use:
            self.crossed[-1] = self.crossed[-1]._replace(last=True)
        if self.after_use is not None:
            self.after_use()

    def cross(self, statement: str) -> Mode | None:
        """Come to the next boundary. Returns what happens there."""
        self._step += 1
        place = Place(self._use, self._step)
        self.crossed.append(Crossing(place, statement))
        if self.mode is None or place != self.at or (self.struck and not self.mode.every_time):
            return None
        self.struck += 1
        return self.mode

    def heal(self) -> None:
        """Whatever was wrong is over."""
        self.mode = None
        self.refuses = False
