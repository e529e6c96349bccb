"""One operation of the store in the matrix: how to arrange for it, how to do it, what it promises when repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from duly.store.call import Dialect
from duly.store.store import Store
from duly.testing import TestClock
from tests.crash_matrix.world import RunningClock, World

Act = Callable[[World], object]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A sentence of the store, with a set-up in which it has work to do."""

    name: str
    of: tuple[str, ...]
    """The public methods that it goes through, as `Store.claim`."""
    arrange: Callable[[World], object]
    act: Act
    repeat: Act | None = None
    """What the caller does when it was not told how it went, if not the same again."""
    twice: str = ""
    """What doing it twice does that doing it once does not; nothing for most."""
    uncompared: tuple[str, ...] = ()
    """Tables in which something else may stand after a repetition, for a reason that `note` says."""
    note: str = ""
    forgone: str = ""
    """Why the caller does not repeat it."""
    later: str = ""
    """What may be left to others, though the caller is told that it is done."""
    step: str = ""
    """Its name among the promises, if it may do what others must not (`promises.FORGETS`, `BRINGS_BACK`)."""
    only: Dialect | None = None
    runs_clock: bool = False
    """Whether times are the server's, and not compared."""
    broken: bool = False
    """Whether what is arranged is what never should be: for repairs."""
    schema: bool = False
    """Whether it makes the tables: then it is these that are compared."""

    def clock(self) -> TestClock:
        return RunningClock() if self.runs_clock else TestClock()

    def warm(self, store: Store) -> None:
        """Have a connection open and the tables checked, as in a process that has been running for a while."""
        if not self.schema:
            store.now_us()


class Table(dict[str, Operation]):
    """Operations by name."""

    def add(self, name: str, of: str, arrange: Callable[[World], object], act: Act, **options: object) -> None:
        """Add one; `of` names methods, separated by spaces."""
        assert name not in self, f"two operations are called {name}"
        self[name] = Operation(name=name, of=tuple(of.split()), arrange=arrange, act=act, **options)  # type: ignore[arg-type]
