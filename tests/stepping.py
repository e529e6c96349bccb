"""Runs an operation statement by statement: to see what it calls, or to do something else between two of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from duly.store.call import Call, Op
from duly.store.store import Store


class Beside:
    """Work in another thread, which may have to wait for what this one has locked."""

    def __init__(
        self, work: Callable[[], Any], *, moment: float = 0.05, waits: Callable[[], object] = lambda: False
    ) -> None:
        self._thread = threading.Thread(target=self._run)
        self._work = work
        self._moment = moment
        self._waits = waits
        self.answer: Any = None
        self.error: Exception | None = None
        self.began = self.waited = False

    def start(self) -> None:
        """Begin, and give it a moment to end by itself; less if it can be seen to wait."""
        self.began = True
        self._thread.start()
        deadline = time.monotonic() + self._moment
        while self._thread.is_alive() and time.monotonic() < deadline and not self._waits():
            self._thread.join(0.002)
        self.waited = self._thread.is_alive()

    def end(self) -> None:
        """Wait until it is done."""
        self._thread.join(20)
        assert not self._thread.is_alive(), "it still waits"

    def _run(self) -> None:
        try:
            self.answer = self._work()
        except Exception as error:
            self.error = error


def run_with(store: Store, make: Callable[[], Op[Any]], after: int, beside: Beside) -> tuple[Any, bool]:
    """Run an operation; after so many statements begin something beside it. Returns its answer, and if it came so far.

    What was begun has ended when this returns.
    """

    def op() -> Op[Any]:
        steps = make()
        call, done = next(steps), 0
        while True:
            rows = yield call
            done += 1
            if done == after and not beside.began:
                beside.start()
            try:
                call = steps.send(rows)
            except StopIteration as stop:
                return stop.value

    try:
        answer = store.run(op)
    finally:
        if beside.began:
            beside.end()
    return answer, beside.began


def watched(op: Op[Any], calls: list[Call]) -> Op[Any]:
    """Run an operation and keep what it calls."""
    call = next(op)
    while True:
        assert isinstance(call, Call)
        calls.append(call)
        rows = yield call
        try:
            call = op.send(rows)
        except StopIteration as stop:
            return stop.value
