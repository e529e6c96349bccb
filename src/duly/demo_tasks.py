"""The tasks of `python -m duly.demo`; its worker processes load this module. Where the jobs are: $DULY_URL."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from duly import Backoff, Duly, current_job

jobs = Duly()
SOON = Backoff.fixed("1.2s", max_attempts=4)


@jobs.task
def greet(name: str) -> str:
    """End at once."""
    return f"hello {name}"


@jobs.task(retry=SOON)
def fetch(site: str, down_for: int) -> str:
    """Fail a few times, as what is on the network does."""
    time.sleep(0.2)
    if current_job().attempt <= down_for:
        raise ConnectionError(f"{site} did not answer")
    return f"{site} answered"


@jobs.task(retry=Backoff.fixed("500ms", max_attempts=3))
def parse(document: str) -> None:
    """Fail every time."""
    raise ValueError(f"{document} is not a document")


@jobs.task
def report(title: str, seconds: float) -> str:
    """Take a while, say how far it is, and stop when told to."""
    job = current_job()
    steps = max(1, round(seconds * 8))
    for step in range(steps):
        job.progress(step / steps, f"page {step + 1} of {steps}")
        if job.wait_cancelled(seconds / steps):
            raise InterruptedError("stopped halfway")
    return f"{title}: {steps} pages"


@jobs.task
def remind(what: str) -> str:
    """Run later."""
    return what


@jobs.task(concurrency=1)
def deliver(letter: str) -> str:
    """One at a time in all processes, the most urgent first."""
    time.sleep(0.5)
    return letter


@jobs.task
def crash(marker: str) -> str:
    """Kill the worker process that runs it, the first time."""
    if current_job().attempt == 1:
        time.sleep(0.3)
        Path(marker).write_text(str(time.time_ns()))
        os.kill(os.getpid(), signal.SIGKILL)
    return "still here"


@jobs.task
async def nothing() -> None:
    """Do nothing, to see how fast that goes."""
