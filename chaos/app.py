"""The application that suffers: its tasks, and the process in which its worker runs.

    python -m chaos.app URL LEDGER '{"settings": {...}, "worker": {...}}'

Says "ready" when its worker has started, and leaves when its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from chaos.ledger import Ledger
from duly import Backoff, Duly, current_job
from duly.worker import identity

LEASE = 3.0
SETTINGS: dict[str, Any] = {
    "lease": LEASE,
    "grace": 0.2,
    "crash_limit": 1_000,
    "maintenance_interval": 5,
    "alerts": {"enabled": False},
}
PATIENT = Backoff.fixed(0.05, max_attempts=1_000)


def application(url: str, ledger: Ledger, **settings: Any) -> Duly:
    """A `Duly` whose tasks write to the ledger what they do. A job is retried for as long as it takes."""
    jobs = Duly(url, **{**SETTINGS, **settings})

    @jobs.task(retry=PATIENT)
    def work(seconds: float = 0.0) -> None:
        job = current_job()
        ledger.write("start", job.id, job.fence)
        if seconds:
            time.sleep(seconds)
        ledger.write("end", job.id, job.fence)

    @jobs.task(retry=PATIENT)
    async def awork(seconds: float = 0.0) -> None:
        job = current_job()
        ledger.write("start", job.id, job.fence)
        if seconds:
            await asyncio.sleep(seconds)
        ledger.write("end", job.id, job.fence)

    return jobs


def main() -> None:
    """Run a worker until nobody needs it."""
    url, path, text = sys.argv[1:4]
    options = json.loads(text)
    logging.basicConfig(level=logging.CRITICAL)
    if options.get("apart"):  # as if each process were on a host of its own: nobody sees that another has ended
        identity.is_gone = lambda *_, **__: False
    jobs = application(url, Ledger(Path(path)), **options.get("settings", {}))
    with jobs.worker(**options.get("worker", {})):
        print("ready", flush=True)
        sys.stdin.read()
    jobs.close()


if __name__ == "__main__":
    main()
