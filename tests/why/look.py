"""Short words for what tests ask of an answer, and for doing what it advises."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from click.testing import CliRunner

from duly import Duly
from duly.cli import main
from duly.why.answer import Blocker, Reason, Why


def reasons(why: Why) -> list[str]:
    """The codes of all that holds a job, the deciding one first."""
    return [str(each.reason) for each in why.blockers]


def blocker(why: Why, reason: Reason) -> Blocker:
    """The one thing of this kind that holds a job."""
    (found,) = (each for each in why.blockers if each.reason is reason)
    return found


def do(jobs: Duly, advice: Why | Blocker) -> None:
    """Do what the answer says is next, as a person would: by the command line."""
    assert advice.next is not None
    program, *words = shlex.split(advice.next)
    assert program == "duly"
    done = CliRunner().invoke(main, [*words, "--url", jobs.settings.url])
    assert done.exit_code == 0, done.output


class Gate:
    """A handler waits here until the test lets it go on."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.over = threading.Event()

    def wait(self) -> None:
        self.started.release()
        assert self.over.wait(30)

    def has_started(self, n: int = 1) -> None:
        for _ in range(n):
            assert self.started.acquire(timeout=10)


@contextmanager
def held(jobs: Duly, gate: Gate, **options: object) -> Iterator[None]:
    """A worker whose handlers are let go before it stops."""
    with jobs.worker(**options):
        try:
            yield
        finally:
            gate.over.set()
