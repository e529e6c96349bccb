"""Errors and results whose own methods misbehave: the run ends all the same, and its slot goes on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

from duly import Backoff, Duly, Snooze, State
from tests.helpers import eventually


@dataclass(frozen=True)
class Frozen(Exception):
    """Nothing can be set on it, not even its traceback."""

    code: int


class Sulky(Snooze):
    """It does not say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@dataclass
class Shy:
    """A result that does not want to be looked at."""

    name: str = "shy"

    def __getattribute__(self, name: str) -> object:
        if name == "name":
            raise SystemExit(3)
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("what", ["frozen", "sulky"])
def test_a_strange_error_ends_its_run_and_no_slot(lite: Duly, kind: str, what: str) -> None:
    def plain(strange: bool) -> str:
        if strange:
            raise Frozen(7) if what == "frozen" else Sulky(timedelta(hours=1))
        return "ran"

    async def coroutine(strange: bool) -> str:
        return plain(strange)

    task = lite.declare(plain if kind == "def" else coroutine, {"name": "work", "retry": Backoff.none()})
    with lite.worker(thread_slots=1, async_slots=1) as worker:
        job = task.enqueue(True)
        eventually(lambda: job.refresh().state in (State.FAILED, State.SCHEDULED))
        assert task.enqueue(False).wait(5) == "ran"
        eventually(lambda: worker._slots.out == 0)
    (run,) = job.runs
    if what == "frozen":
        assert (run.outcome, str(run.error_kind).split(".")[-1]) == ("failed", "Frozen")
        assert "raise Frozen(7)" in str(run.traceback)
    else:
        assert "Sulky" in str(run.error)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_strange_result_ends_its_run_and_no_slot(lite: Duly, kind: str) -> None:
    def plain(strange: bool) -> Shy | None:
        return Shy() if strange else None

    async def coroutine(strange: bool) -> Shy | None:
        return plain(strange)

    task = lite.declare(plain if kind == "def" else coroutine, {"name": "work", "retry": Backoff.none()})
    with lite.worker(thread_slots=1, async_slots=1):
        job = task.enqueue(True)
        eventually(lambda: job.refresh().state is State.SUCCEEDED)
        task.enqueue(False).wait(5)
