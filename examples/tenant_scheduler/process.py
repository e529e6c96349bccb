"""One process of the scheduler. It registers functions when told to, and runs what it has registered.

    python -m examples.tenant_scheduler.process anna

    register acme/report 2s           every two seconds, one run takes half a second
    register acme/report 2s work 1.5  the same with runs of 1.5 s; others than work: nap (async), fail, exit
    unregister acme/report            everywhere
    jobs                              every tenant's, whoever registered them
    stop

Commands are read from standard input, one per line. `DULY_URL` names the database, else it is `scheduler.db`; every
process on that database takes part. Runs are written down in `LEDGER`, else in `ledger.jsonl`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from duly import Duly, DulyError

from .ledger import Ledger

jobs = Duly(os.environ.get("DULY_URL") or "sqlite:///scheduler.db")
START = datetime(2026, 1, 1, tzinfo=UTC)
"""Every interval is counted from here, in every process alike."""


def work(ledger: Ledger, seconds: float, job: Any) -> None:
    """Take some time."""
    with ledger.run(job):
        job.wait_cancelled(seconds)


async def nap(ledger: Ledger, seconds: float, job: Any) -> None:
    """Take some time on the event loop."""
    with ledger.run(job):
        await asyncio.sleep(seconds)


def fail(ledger: Ledger, seconds: float, job: Any) -> None:
    """Always fail: the schedule goes on."""
    with ledger.run(job):
        raise RuntimeError("this function always fails")


def leave(ledger: Ledger, seconds: float, job: Any) -> None:
    """Try to end the process, as code sometimes does: only the run ends."""
    with ledger.run(job):
        sys.exit("this function calls sys.exit")


FUNCTIONS: dict[str, Callable[..., Any]] = {"work": work, "nap": nap, "fail": fail, "exit": leave}


class Process:
    """What one process does with its commands."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.ledger = ledger

    def obey(self, line: str) -> str:
        """Do what a line says, and say what was done."""
        line = line.strip()
        match line.split():
            case ["register", place, every, *rest] if len(rest) <= 2:
                tenant, id = split(place)
                kind, seconds = [*rest, *("work", "0.5")[len(rest) :]]
                if kind not in FUNCTIONS:
                    raise ValueError(f"there is no function {kind!r}, only {', '.join(FUNCTIONS)}")
                function = partial(FUNCTIONS[kind], self.ledger, float(seconds))
                job = jobs.register(tenant, id, START, every, function)
                return f"registered {place}, {'new' if job.created else 'known already'}"
            case ["unregister", place]:
                jobs.unregister(*split(place))
                return f"unregistered {place}"
            case ["jobs"]:
                found = jobs.recurring_jobs()
                return "\n".join(f"{job.tenant}/{job.key} {job.schedule.describe()}" for job in found) or "no jobs"
            case _:
                raise ValueError(f"cannot read {line!r}. Write: register T/ID 2s, unregister T/ID, jobs, stop")


def split(place: str) -> tuple[str, str]:
    """Read `tenant/id`."""
    tenant, slash, id = place.partition("/")
    if not slash:
        raise ValueError(f"write tenant/id, not {place!r}")
    return tenant, id


def main(name: str) -> None:
    """Take part until told to stop, by command, Ctrl-C, SIGTERM or the end of the input."""
    logging.basicConfig(format="%(message)s")  # functions that fail are told of here
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    jobs.migrate()
    jobs.start()
    process = Process(name, Ledger(Path(os.environ.get("LEDGER", "ledger.jsonl")), name))
    print(f"{name} is process {os.getpid()}", flush=True)
    try:
        for line in sys.stdin:
            if line.strip() == "stop":
                break
            try:
                print(process.obey(line), flush=True)
            except (DulyError, ValueError) as error:
                print(f"error: {error}", flush=True)
    except KeyboardInterrupt:
        pass
    jobs.stop()
    jobs.close()
    print("stopped", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else f"process-{os.getpid()}")
