"""A worker process that is measured: `python -m duly.bench.worker`, told what to do by a line on its standard input.

It says when it is ready, and starts at the next line, so that several start together. It ends when its standard input
closes, so also with whoever started it, in whatever way that one ends. The first line has the database's address,
which may hold a password: it is in no list of processes.
"""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from duly.app import Duly
from duly.bench.runlog import RunLog
from duly.task import AsyncTask, Task
from duly.worker.worker import Worker

GRACE = 1.0
READY = "ready"
DEF, ASYNC, IDLE = "duly-bench-def", "duly-bench-async", "duly-bench-idle"
"""The queues: one for each drain, so that what one leaves is not run in the next, and one for the idle worker."""


class Tasks(NamedTuple):
    """What is run: one handler of each kind, that notes its number."""

    on_the_loop: AsyncTask[[int], None]
    in_a_thread: Task[[int], None]


def declare(jobs: Duly, log: RunLog | None = None) -> Tasks:
    """Declare the tasks. Without a log they can only be enqueued."""

    @jobs.task(name="duly_bench_async", queue=ASYNC)
    async def on_the_loop(n: int) -> None:
        if log is not None:
            log.record(n)

    @jobs.task(name="duly_bench_def", queue=DEF)
    def in_a_thread(n: int) -> None:
        if log is not None:
            log.record(n)

    return Tasks(on_the_loop, in_a_thread)


def main() -> None:
    """Work until standard input closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for who started us, and closes the pipe
    told: dict[str, Any] = json.loads(sys.stdin.readline())
    log = RunLog(Path(told["log"]))
    jobs = Duly(**told["settings"])
    declare(jobs, log)
    settings = replace(jobs.worker_settings([told["queue"]], grace=GRACE), metrics=None, alerts=None)
    worker = Worker(jobs.store, jobs.registry, settings)
    print(READY, flush=True)
    if sys.stdin.readline():  # all start together
        worker.start()
        sys.stdin.read()
        worker.stop()
    jobs.close()
    log.close()


if __name__ == "__main__":
    main()
