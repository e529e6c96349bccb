"""Has SQLite connections closed before this process forks.

SQLite notes in tables of the process which locks it holds on a file. A forked child inherits the tables, not the locks:
every connection it opens to that file then believes in locks that nobody holds, or waits for ever for one that nobody
will give back. So nothing may be open at the moment of the fork; both sides open their own afterwards.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Protocol

FORK_SECONDS = 5.0
"""How long a fork waits for what other threads are doing with the database."""


class Forkable(Protocol):
    """What has connections open."""

    def before_fork(self, until: float) -> None:
        """Close them, at the latest at this moment of the monotonic clock, and let nobody open others."""
        ...

    def after_fork(self) -> None:
        """In the parent: let all go on."""
        ...


_WATCHED: weakref.WeakSet[Forkable] = weakref.WeakSet()
_CLOSED: list[Forkable] = []
_FORKING = threading.Lock()
"""One fork at a time."""


def watch(each: Forkable) -> None:
    """Have it told of forks for as long as it is used by anybody."""
    _WATCHED.add(each)


def _before() -> None:
    _FORKING.acquire()
    until = time.monotonic() + FORK_SECONDS
    _CLOSED[:] = list(_WATCHED)
    for each in _CLOSED:
        each.before_fork(until)


def _after() -> None:
    for each in _CLOSED:
        each.after_fork()
    _after_in_child()


def _after_in_child() -> None:
    _CLOSED.clear()
    _FORKING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
