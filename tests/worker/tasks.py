"""Tasks that a test and its worker processes have in common."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from datetime import timedelta

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
    keyed: Task[[str, str, float], None]
    rated: Task[[str], None]


def declare(jobs: Duly, ledger: Ledger, *, limit: int = 3) -> Tasks:
    """Declare the tasks on `jobs`; all of them write to the ledger."""

    soon = Backoff.fixed(0.05, max_attempts=10)

    @jobs.task
    def note(name: str) -> None:
        ledger.write(name)

    @jobs.task
    def hold(name: str, seconds: float) -> None:
        ledger.write(name, "start")
        time.sleep(seconds)
        ledger.write(name, "end")

    @jobs.task
    async def ahold(name: str, seconds: float) -> None:
        ledger.write(name, "start")
        await asyncio.sleep(seconds)
        ledger.write(name, "end")

    @jobs.task
    async def block(name: str, seconds: float) -> None:
        """Hold up the event loop."""
        ledger.write(name, "start")
        time.sleep(seconds)
        ledger.write(name, "end")

    @jobs.task
    def heed(name: str) -> None:
        ledger.write(name, "start")
        job = current_job()
        while not job.wait_cancelled(30):
            pass
        ledger.write(name, "heeded")

    @jobs.task(concurrency=limit)
    def limited(name: str, seconds: float) -> None:
        ledger.write(name, "start")
        time.sleep(seconds)
        ledger.write(name, "end")

    @jobs.task(retry=soon)
    def die(name: str) -> None:
        ledger.write(name, "start")
        os.kill(os.getpid(), signal.SIGKILL)

    @jobs.task(retry=soon)
    def die_once(name: str) -> None:
        ledger.write(name, "start")
        if ledger.count("start", name) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        ledger.write(name, "end")

    @jobs.task(retry=soon)
    def snooze_once(name: str) -> None:
        ledger.write(name, "start")
        if ledger.count("start", name) == 1:
            raise Snooze(timedelta(seconds=0.05))
        ledger.write(name, "end")

    @jobs.task(concurrency_key=lambda args: args.key, retry=soon)
    def keyed(key: str, name: str, seconds: float) -> None:
        ledger.write(f"{key} {name}", "start")
        time.sleep(seconds)
        ledger.write(f"{key} {name}", "end")

    @jobs.task(rate="40/s", burst=6)
    def rated(name: str) -> None:
        ledger.write(name, "start")

    return Tasks(
        note=note,
        hold=hold,
        ahold=ahold,
        block=block,
        heed=heed,
        limited=limited,
        die=die,
        die_once=die_once,
        snooze_once=snooze_once,
        keyed=keyed,
        rated=rated,
    )
