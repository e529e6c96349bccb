"""Counts work that does not depend on the machine's mood: statements, rows, and the calls of duly's own code."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal

import psycopg

import duly
from duly import Duly, Task
from duly.domain.clock import SystemClock
from duly.store.sqlite import SqliteDatabase
from duly.store.store import Store
from tests.helpers import eventually, opened

OURS = str(Path(duly.__file__).parent)
SECONDS = 90.0
Handler = Literal["async def", "def"]


def noop(jobs: Duly, handler: Handler = "async def") -> Task[..., None]:
    """Declare a job that does nothing."""

    async def on_the_loop(n: int) -> None: ...

    def in_a_thread(n: int) -> None: ...

    return jobs.task(on_the_loop) if handler == "async def" else jobs.task(in_a_thread)


def fill(task: Task[..., None], n: int) -> None:
    """Store jobs, by one call."""
    task.enqueue_many([{"n": number} for number in range(n)])


def drain(jobs: Duly, n: int) -> int:
    """Run `n` stored jobs by one worker. Returns the statements from its start until all are settled."""
    before = jobs.store.database.calls
    with jobs.worker() as worker:
        eventually(lambda: worker.settled >= n, within=SECONDS, every=0.01)
        took = jobs.store.database.calls - before
    assert worker.settled == n, f"{n} jobs were stored, and {worker.settled} runs ended"
    return took


def check(what: str, measured: float, allowed: float, hint: str = "") -> None:
    """Fail if it is more than allowed."""
    assert measured <= allowed, f"{what}: measured {measured:,.4g}, allowed {allowed:,.4g}. {hint}"


# -- calls ------------------------------------------------------------------------------------------------------------


class Calls:
    """The calls that duly's code made, or that were made to it."""

    def __init__(self) -> None:
        self._seen: deque[CodeType | str] = deque()
        self._is_ours: dict[CodeType, bool] = {}

    def _ours(self, frame: FrameType | None) -> bool:
        if frame is None:
            return False
        code = frame.f_code
        found = self._is_ours.get(code)
        if found is None:
            found = self._is_ours[code] = code.co_filename.startswith(OURS)
        return found

    def note(self, frame: FrameType, event: str, arg: Any) -> None:
        """Called by the interpreter at every call, in any thread."""
        if event == "call":
            if self._ours(frame) or self._ours(frame.f_back):
                self._seen.append(frame.f_code)
        elif event == "c_call" and self._ours(frame):
            self._seen.append(str(arg.__qualname__))

    @property
    def n(self) -> int:
        """How many."""
        return len(self._seen)

    def most(self, per: int) -> str:
        """What was called most often, with how often for each of `per` jobs."""
        names = Counter(each if isinstance(each, str) else each.co_qualname for each in self._seen)
        return "Most often: " + ", ".join(f"{name} {n / per:.2f}" for name, n in names.most_common(15))


@contextmanager
def calls_here() -> Iterator[Calls]:
    """Count the calls of this thread."""
    calls = Calls()
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@contextmanager
def calls_in_new_threads() -> Iterator[Calls]:
    """Count the calls of the threads that are started meanwhile, such as a worker's; not those of who waits for it."""
    calls = Calls()
    threading.setprofile(calls.note)
    try:
        yield calls
    finally:
        threading.setprofile(None)


# -- rows -------------------------------------------------------------------------------------------------------------


def rows_written_on_postgres(url: str, n: int) -> dict[str, int]:
    """Store and run `n` jobs. Returns the rows that were inserted, updated and deleted, by table."""
    before = _tuples(url)
    with opened(url) as jobs:
        fill(noop(jobs), n)
        drain(jobs, n)
    eventually(lambda: sessions(url) == 0)  # a session that ends has handed in all that it counted
    return {table: written - before.get(table, 0) for table, written in _tuples(url).items()}


def _tuples(url: str) -> dict[str, int]:
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables WHERE schemaname = 'duly'"
        ).fetchall()
    return {str(table): int(written) for table, written in rows}


def sessions(url: str) -> int:
    """How many others are connected to a database."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        ).fetchone()
    assert row is not None
    return int(row[0])


def rows_changed_on_sqlite(url: str, n: int) -> int:
    """Store and run `n` jobs. Returns the rows that were changed, those of a connection's own tables among them."""
    changed = 0

    class Counted(sqlite3.Connection):
        def close(self) -> None:
            nonlocal changed
            changed += self.total_changes
            super().close()

    def connect(file: str) -> sqlite3.Connection:
        return sqlite3.connect(file, isolation_level=None, check_same_thread=False, factory=Counted)

    with opened(url) as jobs:
        jobs.store = Store(SqliteDatabase(Path(url.removeprefix("sqlite:///")), SystemClock(), connect=connect))
        fill(noop(jobs), n)
        drain(jobs, n)
    return changed
