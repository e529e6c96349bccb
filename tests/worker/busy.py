"""A worker that is busy for long, beside one that would take its jobs over: nobody is robbed.

    python -m tests.worker.busy sqlite:////tmp/busy.db --seconds 600

The suite does the same over several short leases.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from duly import Duly


def main() -> None:
    """Run three jobs for so long, by default settings, with a second worker at hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    jobs, others = Duly(options.url), Duly(options.url)
    jobs.migrate()

    @jobs.task
    def sleep(seconds: float) -> None:
        time.sleep(seconds)

    @jobs.task
    def work(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            sum(range(200_000))  # holds the interpreter most of the time
            time.sleep(0.02)

    @jobs.task
    async def wait(seconds: float) -> None:
        await asyncio.sleep(seconds)

    for task in (sleep, work, wait):
        others.task(name=task.name)(lambda seconds: None)
    stored = [task.enqueue(options.seconds) for task in (sleep, work, wait)]
    with jobs.worker():
        while any(job.refresh().state != "running" for job in stored):
            time.sleep(0.05)
        with others.worker():
            for job in stored:
                job.wait(options.seconds + 60)
    robbed = [job.refresh().task for job in stored if job.attempts != 1 or len(job.runs) != 1]
    print(f"{len(stored)} jobs ran for {options.seconds:.0f} s; robbed: {robbed or 'none'}")
    sys.exit(1 if robbed else 0)


if __name__ == "__main__":
    main()
