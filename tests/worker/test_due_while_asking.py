"""A retry without delay that is settled while the claimer asks what is due next: it must not be forgotten."""

from __future__ import annotations

import threading

import pytest

from duly import Backoff
from duly.store.store import Store
from duly.worker.claimer import Claimer
from tests.helpers import eventually, opened


def test_a_retry_settled_while_the_claimer_asks_what_is_due_runs_at_once(
    pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite, a worker looks whenever the file has changed."""
    runs: list[int] = []
    running, asking, noted = threading.Event(), threading.Event(), threading.Event()
    ask, due_in = Store.next_due_us, Claimer.due_in

    def ask_slowly(store: Store) -> int | None:
        due = ask(store)
        if due is None and running.is_set() and not asking.is_set():
            asking.set()
            assert noted.wait(10)
        return due

    def note(claimer: Claimer, seconds: float) -> None:
        due_in(claimer, seconds)
        if asking.is_set():
            noted.set()

    monkeypatch.setattr(Store, "next_due_us", ask_slowly)
    monkeypatch.setattr(Claimer, "due_in", note)

    with opened(pg_url) as jobs:

        @jobs.task(retry=Backoff.fixed(0, max_attempts=2))
        def fails() -> None:
            runs.append(1)
            running.set()
            assert asking.wait(10)
            raise OSError

        @jobs.task
        def other() -> None: ...

        other.using(delay=0.3).enqueue()
        fails.enqueue()
        with jobs.worker():
            assert running.wait(10)
            assert asking.wait(10), "once that is due, the claimer asks for the next"
            eventually(lambda: len(runs) == 2, within=4)
