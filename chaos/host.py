"""A worker's main program for scenarios of the host: its clock can be set, its tasks run in children or kill.

    python -m chaos.host URL LEDGER '{"settings": {...}, "worker": {...}, "clock": FILE, "checkpoint_bytes": N}'

The tasks are also there as `chaos.host:jobs` for `duly worker`, which reads $CHAOS_URL, $CHAOS_LEDGER, $CHAOS_SETTINGS.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from chaos.app import PATIENT
from chaos.app import application as plain_application
from chaos.ledger import Ledger
from duly import Duly, current_job
from duly.store import sqlite
from duly.worker import identity

LEDGER = "CHAOS_LEDGER"


def application(url: str, ledger: Ledger, **settings: Any) -> Duly:
    """The usual tasks and those that only these scenarios need."""
    jobs = plain_application(url, ledger, **settings)
    jobs.task(name="in_child", retry=PATIENT, isolation="process")(in_child)

    @jobs.task(retry=PATIENT)
    def pill() -> None:
        """End the process that runs this."""
        job = current_job()
        ledger.write("start", job.id, job.fence)
        ledger.write("deadly", job.id, job.fence)
        os.kill(os.getpid(), signal.SIGKILL)

    @jobs.task(retry=PATIENT)
    def later(delay: float) -> None:
        """Have another job run after a time; "due" has the moment, on no wall clock, before which it must not begin."""
        job = current_job()
        ledger.write("start", job.id, job.fence)
        asked = time.monotonic()
        stored = jobs["work"].using(delay=delay).enqueue()
        ledger.stored([stored.id])
        ledger.write("due", stored.id, int((asked + delay) * 1e6))
        ledger.write("end", job.id, job.fence)

    return jobs


def in_child(seconds: float, stubborn: bool = False, offspring: bool = False) -> None:
    """Run in a child process, which may close its ears to SIGTERM, or start a process of its own."""
    ledger = Ledger(Path(os.environ[LEDGER]))
    job = current_job()
    ledger.write("child", job.id, os.getppid())
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    ledger.write("start", job.id, job.fence)
    try:
        if offspring:
            subprocess.Popen(["sleep", str(seconds + 600)])
        time.sleep(seconds)
    except KeyboardInterrupt:
        ledger.write("left", job.id, job.fence)
        raise
    else:
        ledger.write("end", job.id, job.fence)
    finally:
        ledger.close()


class SetClock:
    """A wall clock that is ahead by as many seconds as a file says, at any moment."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(struct.pack("d", 0.0))
        with path.open("r+b") as file:
            self._ahead = mmap.mmap(file.fileno(), 8)

    def set(self, seconds: float) -> None:
        """Let it be ahead by this much."""
        self._ahead[:] = struct.pack("d", seconds)

    @property
    def ahead(self) -> float:
        """How much it is ahead."""
        return float(struct.unpack("d", self._ahead[:])[0])

    def take_over(self) -> None:
        """Be the clock of this process."""
        real, real_ns = time.time, time.time_ns
        time.time = lambda: real() + self.ahead
        time.time_ns = lambda: real_ns() + int(self.ahead * 1e9)


def main() -> None:
    """Run a worker until nobody needs it."""
    url, path, text = sys.argv[1:4]
    options = json.loads(text)
    logging.basicConfig(level=logging.CRITICAL)
    if clock := options.get("clock"):
        SetClock(Path(clock)).take_over()
    if options.get("apart"):
        identity.is_gone = lambda *_, **__: False
    if size := options.get("checkpoint_bytes"):
        sqlite.CHECKPOINT_BYTES = size
    os.environ[LEDGER] = path
    jobs = application(url, Ledger(Path(path)), **options.get("settings", {}))
    with jobs.worker(**options.get("worker", {})):
        print("ready", flush=True)
        sys.stdin.read()
    jobs.close()


def __getattr__(name: str) -> Any:
    """Make the application that `duly worker chaos.host:jobs` asks for."""
    if name != "jobs":
        raise AttributeError(name)
    ledger = Ledger(Path(os.environ[LEDGER]))
    made = application(os.environ["CHAOS_URL"], ledger, **json.loads(os.environ.get("CHAOS_SETTINGS", "{}")))
    made.on_start(lambda: print("ready", flush=True))
    return made


if __name__ == "__main__":
    main()
