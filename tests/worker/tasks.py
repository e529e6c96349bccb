"""Tasks that a test and its worker processes have in common."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from duly import Backoff, Duly, Snooze, Task, current_job
from tests.helpers import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """What `declare` declared."""

    note: Task[[str], None]
    hold: Task[[str, float], None]
    ahold: Task[[str, float], None]
    block: Task[[str, float], None]
    heed: Task[[str], None]
    limited: Task[[str, float], None]
    die: Task[[str], None]
    die_once: Task[[str], None]
    snooze_once: Task[[str], None]


def declare(jobs: Duly, ledger: Ledger, *, limit: int = 3) -> Tasks:
    """Declare the tasks on `jobs`; all of them write to the ledger."""

    def declared(function: Callable[..., object], **options: Any) -> Any:
        return jobs.task(**options)(function)

    def note(name: str) -> None:
        ledger.write(name)

    def hold(name: str, seconds: float) -> None:
        ledger.write(name, "start")
        time.sleep(seconds)
        ledger.write(name, "end")

    async def ahold(name: str, seconds: float) -> None:
        ledger.write(name, "start")
        await asyncio.sleep(seconds)
        ledger.write(name, "end")

    async def block(name: str, seconds: float) -> None:
        """Hold up the event loop."""
        ledger.write(name, "start")
        time.sleep(seconds)
        ledger.write(name, "end")

    def heed(name: str) -> None:
        ledger.write(name, "start")
        job = current_job()
        while not job.wait_cancelled(30):
            pass
        ledger.write(name, "heeded")

    def limited(name: str, seconds: float) -> None:
        ledger.write(name, "start")
        time.sleep(seconds)
        ledger.write(name, "end")

    def die(name: str) -> None:
        ledger.write(name, "start")
        os.kill(os.getpid(), signal.SIGKILL)

    def die_once(name: str) -> None:
        ledger.write(name, "start")
        if ledger.count("start", name) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        ledger.write(name, "end")

    def snooze_once(name: str) -> None:
        ledger.write(name, "start")
        if ledger.count("start", name) == 1:
            raise Snooze(timedelta(seconds=0.05))
        ledger.write(name, "end")

    soon = Backoff.fixed(0.05, max_attempts=10)
    return Tasks(
        note=declared(note),
        hold=declared(hold),
        ahold=declared(ahold),
        block=declared(block),
        heed=declared(heed),
        limited=declared(limited, concurrency=limit),
        die=declared(die, retry=soon),
        die_once=declared(die_once, retry=soon),
        snooze_once=declared(snooze_once, retry=soon),
    )
