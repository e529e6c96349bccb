"""A worker or a producer of whichever version: `python -m tests.upgrades.program URL LEDGER OPTIONS`.

Uses nothing but what an application uses, so that an older release can run it. OPTIONS is JSON: with `produce` it
enqueues until its standard input ends, names beginning with that; else it is a worker until then. Says "ready" first.
"""

from __future__ import annotations

import json
import logging
import select
import sys
import time
from pathlib import Path

import duly
from duly import Backoff, Duly, current_job
from tests.helpers import Ledger

LEASE = 2.0
KEYS = 5


def application(url: str, ledger: Ledger, limited: Ledger) -> Duly:
    """The application that is upgraded."""
    jobs = Duly(url, lease=LEASE, grace=10)

    @jobs.task
    def note(name: str) -> None:
        ledger.write(name)

    @jobs.task(retry=Backoff.fixed(0.05, max_attempts=10))
    def hold(name: str, seconds: float) -> None:
        ledger.write(name, "start")
        time.sleep(seconds)
        ledger.write(name, "end")

    @jobs.task(concurrency=3)
    def limited_to_three(name: str) -> None:
        limited.write(name, "start")
        time.sleep(0.05)
        limited.write(name, "end")

    @jobs.task
    def beat() -> float:
        tick = current_job().tick
        assert tick is not None
        return tick.timestamp()

    return jobs


def main() -> None:
    """Work or produce until nobody needs it."""
    url, path, text = sys.argv[1:4]
    options = json.loads(text)
    logging.basicConfig(level=logging.WARNING)
    assert Path(duly.__file__).parents[1] == Path(options["folder"]), f"not the version that was meant: {duly.__file__}"
    ledger = Ledger(Path(path))
    jobs = application(url, ledger, Ledger(Path(path + ".limited")))
    if "produce" in options:
        produce(jobs, Ledger(Path(path + ".sent")), options["produce"])
    else:
        with jobs.worker(thread_slots=4, async_slots=4):
            print("ready", flush=True)
            sys.stdin.read()
    jobs.close()


def produce(jobs: Duly, sent: Ledger, name: str) -> None:
    """Enqueue: plain jobs, some under a limit, some with a unique key. What was taken is written down."""
    n = 0
    jobs.counts()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        jobs["note"].enqueue(f"{name}-{n}")
        sent.write(f"{name}-{n}")
        if n % 3 == 0:
            jobs["limited_to_three"].enqueue(f"{name}-{n}")
        if n % 5 == 0:
            jobs["note"].using(queue="nobody", unique=f"key {n % KEYS}").enqueue(f"{name}-{n}-unique")
        n += 1


if __name__ == "__main__":
    main()
