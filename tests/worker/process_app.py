"""Tasks with `isolation="process"`, at the top level of a module as their children need them."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from duly import Backoff, Cancel, Duly, Retry, Snooze, current_job
from tests.helpers import Ledger

jobs = Duly("sqlite:///never-opened.db")
soon = Backoff.fixed(0.05, max_attempts=10)
once = Backoff.none()
started: list[int] = []


@dataclass(frozen=True)
class Money:
    """A value that only its type hint can bring back."""

    amount: Decimal
    currency: str


class Fatal(Exception):
    """Not worth a second run."""


@jobs.on_start
def note_start() -> None:
    """Show that start-up hooks run where handlers run."""
    started.append(os.getpid())


@jobs.middleware
def mark(job: Any) -> Iterator[None]:
    """Show that middleware runs where handlers run."""
    job.log(f"before {job.id}")
    yield
    job.log("after")


def write_failure(job: Any, error: BaseException) -> None:
    """Tell the test what a failure hook was given."""
    Ledger(Path(os.environ["PROCESS_LEDGER"])).write(type(error).__name__, str(error))


@jobs.task(isolation="process")
def whoami() -> dict[str, Any]:
    """Return what the handler sees."""
    job = current_job()
    return {
        "pid": os.getpid(),
        "main": threading.current_thread() is threading.main_thread(),
        "id": job.id,
        "attempt": job.attempt,
        "fence": job.fence,
        "tenant": job.tenant,
        "task": job.task,
        "cancelled": job.cancelled(),
        "started": os.getpid() in started,
    }


@jobs.task(isolation="process")
async def awhoami() -> int:
    """The same from a coroutine."""
    await asyncio.sleep(0.01)
    return os.getpid()


seen: ContextVar[str] = ContextVar("seen", default="nothing")


@jobs.task(isolation="process")
async def alook() -> tuple[int, str, str]:
    """Tell where this is, whose run it is, and what was found in a context variable; leave something there."""
    await asyncio.sleep(0)
    found = seen.get()
    seen.set(current_job().id)
    return os.getpid(), current_job().id, found


@jobs.task(isolation="process", retry=once)
async def leave_beside(ledger: str) -> None:
    """Have a task beside this one end with SystemExit, and go on waiting."""

    async def leave() -> None:
        sys.exit(3)

    beside = asyncio.create_task(leave())
    try:
        await asyncio.sleep(0.3)
    finally:
        Ledger(Path(ledger)).write(current_job().id, "left")
    await beside


@jobs.task(isolation="process")
def pay(money: Money, by: UUID, at: datetime) -> Money:
    """Take and return values that go through by type hint."""
    assert isinstance(money, Money)
    assert isinstance(by, UUID)
    assert at.tzinfo is not None
    return Money(money.amount + 1, money.currency)


@jobs.task(isolation="process")
def big(n: int) -> str:
    """Return more than fits into one message of a socket."""
    return "ü" * n


@jobs.task(isolation="process", retry=soon)
def hold_gil(name: str, ledger: str, seconds: int) -> None:
    """Sleep without letting any other thread of this process run."""
    Ledger(Path(ledger)).write(name, "start")
    ctypes.PyDLL(None).sleep(seconds)
    Ledger(Path(ledger)).write(name, "end")


@jobs.task(isolation="process", retry=soon)
def hold(name: str, ledger: str, seconds: float) -> None:
    """Take a while."""
    Ledger(Path(ledger)).write(name, "start")
    time.sleep(seconds)
    Ledger(Path(ledger)).write(name, "end")


@jobs.task(isolation="process", timeout=0.3, retry=once)
def overdue(ledger: str, stubborn: bool) -> None:
    """Take longer than it may; clean up when told, or not care."""
    notes = Ledger(Path(ledger))
    notes.write("overdue", "start")
    if stubborn:
        ctypes.PyDLL(None).sleep(30)
    try:
        time.sleep(30)
    finally:
        notes.write("overdue", "cleaned up")


@jobs.task(isolation="process", timeout=0.3, retry=once)
async def aoverdue(ledger: str) -> None:
    """The same from a coroutine."""
    try:
        await asyncio.sleep(30)
    finally:
        Ledger(Path(ledger)).write("aoverdue", "cleaned up")


@jobs.task(isolation="process", retry=soon)
def heed(ledger: str, how: str) -> None:
    """Be cancelled: look at the flag, be interrupted, or be killed."""
    notes = Ledger(Path(ledger))
    notes.write("heed", "start")
    match how:
        case "look":
            while not current_job().wait_cancelled(30):
                pass
            notes.write("heed", "looked")
        case "interrupted":
            try:
                time.sleep(30)
            except KeyboardInterrupt:
                notes.write("heed", "interrupted")
                raise
        case _:
            ctypes.PyDLL(None).sleep(30)
            notes.write("heed", "was not killed")


@jobs.task(isolation="process", retry=soon, on_failure=write_failure)
def die(how: str) -> None:
    """End the process."""
    logging.getLogger("handler").warning("about to %s", how)
    match how:
        case "exit":
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
        case _:
            os.kill(os.getpid(), signal.SIGKILL)


@jobs.task(isolation="process", retry=Backoff.fixed(0.05, max_attempts=3, give_up_on=Fatal), on_failure=write_failure)
def steer(how: str) -> str:
    """Raise what steers, the first time."""
    if current_job().attempt > 1:
        return "second run"
    match how:
        case "snooze":
            if current_job().fence == 1:
                raise Snooze(timedelta(seconds=0.05))
            return "after a snooze"
        case "cancel":
            raise Cancel("not needed")
        case "retry":
            raise Retry(after=timedelta(seconds=0.02), reason="busy")
        case "fatal":
            raise Fatal("no use")
        case "exit":
            sys.exit("leaving")
        case _:
            raise ValueError(f"bad {how}")


@jobs.task(isolation="process")
def talk() -> None:
    """Log, show progress, and wait for it to be seen."""
    log = logging.getLogger("handler")
    log.warning("one %s", "line")
    try:
        raise ValueError("inside")
    except ValueError:
        log.exception("caught")
    threading.Thread(target=log.error, args=("from a thread",)).start()
    current_job().progress(0.5, "half way")
    while not os.path.exists(os.environ["PROCESS_GO"]):
        time.sleep(0.005)


@jobs.task(isolation="process")
def have_children(ledger: str, how: str) -> None:
    """Leave processes behind that outlive the handler."""
    if how == "fork":
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,)).start()
        os._exit(1)
    child = subprocess.Popen(["sleep", "60"])
    Ledger(Path(ledger)).write(str(child.pid), "child")


@jobs.task(isolation="process")
def close_everything() -> None:
    """Close files that belong to others."""
    os.closerange(3, 256)
    time.sleep(30)
