"""What runs handlers: one runner for each kind that is needed, loaded when it is."""

from __future__ import annotations

from typing import Protocol

from duly.worker.context import Run
from duly.worker.executor import Executor
from duly.worker.registry import Kind


class Runner(Protocol):
    """What runs handlers of one kind."""

    slots: int

    def start(self) -> None:
        """Get ready."""
        ...

    def submit(self, runs: list[Run]) -> None:
        """Queue jobs; free slots take them at once. An error: not all slots that they need could be had."""
        ...

    def take_back(self) -> list[Run]:
        """Take out jobs that have not begun."""
        ...

    def interrupt(self, run: Run) -> None:
        """Stop a handler as far as its kind allows; why is noted on the run."""
        ...

    def stop(self, timeout: float) -> None:
        """End."""
        ...


def make_runner(kind: Kind, slots: int, executor: Executor, *, app_path: str | None) -> Runner:
    """The runner of one kind."""
    match kind:
        case Kind.ASYNC:
            from duly.worker.runner_async import AsyncRunner

            return AsyncRunner(slots, executor)
        case Kind.THREAD:
            from duly.worker.runner_thread import ThreadRunner

            return ThreadRunner(slots, executor)
        case Kind.PROCESS:
            from duly.worker.runner_process import ProcessRunner

            return ProcessRunner(slots, executor, app_path=app_path)
