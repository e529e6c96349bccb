"""One worker process from its start to its exit code: signals, `--until-empty`, recycling."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType

from duly.app import Duly
from duly.cli.base import FAILED, OK
from duly.cli.text import plural
from duly.domain.durations import human
from duly.domain.errors import DulyError
from duly.worker.recycle import RECYCLE, Recycle
from duly.worker.settings import WorkerSettings
from duly.worker.worker import Worker

log = logging.getLogger("duly.cli")

LOOK_EVERY = 0.1
LOOK_FOR_WORK = 0.25
UNKNOWN_PATIENCE = 1.0
ECHO = 0.5
PROGRAM = (sys.executable, "-P", "-m", "duly")
"""How to start another of us: without the current directory before Python's own, where a file may be named like one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """When a worker process ends by itself."""

    until_empty: bool = False
    max_jobs: int | None = None
    max_memory: int | None = None


class Signals:
    """Counts SIGTERM and SIGINT: the first drains, the second stops at once, the third leaves.

    systemd and `timeout` send SIGTERM to every process of a group, and a supervisor passes it on: what comes right
    after the first is its echo.
    """

    def __init__(self) -> None:
        self.count = 0
        self.seen = threading.Event()
        self._last = 0.0

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note one."""
        now = time.monotonic()
        if number == signal.SIGTERM and now - self._last < ECHO:
            return
        self._last = now
        self.count += 1
        self.seen.set()
        if self.count > 2:
            os._exit(128 + number)


@contextmanager
def watching_signals() -> Iterator[Signals]:
    """Take SIGTERM and, unless whoever started us had it ignored, SIGINT."""
    signals = Signals()
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    numbers = [signal.SIGTERM] if ignored else [signal.SIGTERM, signal.SIGINT]
    before = {number: signal.signal(number, signals.handle) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_worker(app: Duly, settings: WorkerSettings, plan: Plan, signals: Signals) -> int:
    """Run a worker until something ends it. Returns the exit code; RECYCLE if a fresh process should go on."""
    worker = Worker(app.store, app.registry, settings, finished=app.waiters.ended)
    begun = time.monotonic()
    # What the application is made of stays: the collector need not walk all of it every few thousand jobs, with every
    # handler waiting meanwhile. Only here, where the process is ours.
    gc.collect()
    gc.freeze()
    worker.start()
    why = _wait_for_the_end(app, worker, plan, signals)
    _stop(worker, settings.grace, signals)
    _log_end(worker, time.monotonic() - begun)
    if signals.count:
        return OK
    match why:
        case "recycle":
            return RECYCLE
        case "stuck" | "left behind":
            return FAILED
        case _:
            return OK


def _wait_for_the_end(app: Duly, worker: Worker, plan: Plan, signals: Signals) -> str:
    """Return why to stop: signal, recycle, empty or stuck (what is left nobody alive can run).

    Or left behind: the tables were migrated past this code.
    """
    emptiness = Emptiness(app, [share.name for share in worker.settings.queues])
    recycle = Recycle(worker, max_jobs=plan.max_jobs, max_memory=plan.max_memory)
    while not signals.seen.wait(LOOK_EVERY):
        if worker.left_behind is not None:
            if worker.idle:
                return "left behind"
        elif recycle.ready():
            return "recycle"
        if plan.until_empty and not worker.busy and (why := emptiness.look()):
            return why
    return "signal"


class Emptiness:
    """Whether a worker's queues are done with."""

    def __init__(self, app: Duly, queues: list[str]) -> None:
        self._app = app
        self._queues = queues
        self._next = 0.0
        self._stuck_since: float | None = None

    def look(self) -> str | None:
        """Return "empty", "stuck" or None. An outage is no end."""
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + LOOK_FOR_WORK
        try:
            if not any(self._app.store.anything_left(queue) for queue in self._queues):
                return "empty"
            unknown = self._only_unknown()
        except DulyError as error:
            log.warning("cannot look for jobs: %s; going on", error)
            return None
        if not unknown:
            self._stuck_since = None
            return None
        if self._stuck_since is None:  # another worker may be about to start
            self._stuck_since = now
        if now - self._stuck_since < UNKNOWN_PATIENCE:
            return None
        log.warning("no live worker knows %s: %s", plural(len(unknown), "task"), ", ".join(unknown))
        return "stuck"

    def _only_unknown(self) -> list[str]:
        """Return the tasks of what is left if nobody alive knows any of them."""
        counts = self._app.counts()
        left = [row for row in (*counts.waiting, *counts.scheduled) if row[0] in self._queues]
        unknown = set(self._app.unknown_tasks(counts))
        if any(row[0] in self._queues for row in counts.running) or any(
            (row[0], row[2]) not in unknown for row in left
        ):
            return []
        return sorted({row[2] for row in left})


def _stop(worker: Worker, grace: float, signals: Signals) -> None:
    """Stop on another thread, so that a second signal can cut the grace short."""
    if worker.busy and signals.count == 1:
        log.info(
            "stopping: %s may take up to %s more (a second signal stops at once)",
            plural(worker.busy, "running job"),
            human(timedelta(seconds=grace)),
        )
    threads = [threading.Thread(target=_stop_once, args=(worker, grace), name="duly-stop", daemon=True)]
    threads[0].start()
    while threads[0].is_alive():
        threads[0].join(0.05)
        if signals.count > 1 and len(threads) == 1:
            log.info("stopping at once")
            threads.append(threading.Thread(target=_stop_once, args=(worker, 0.0), name="duly-stop", daemon=True))
            threads[1].start()
    for thread in threads:
        thread.join()


def _stop_once(worker: Worker, grace: float) -> None:
    try:
        worker.stop(grace)
    except Exception:
        log.exception("the worker did not stop as it should")


def _log_end(worker: Worker, seconds: float) -> None:
    log.info("stopped after %s in %s", plural(worker.settled, "run"), human(timedelta(seconds=round(seconds, 1))))


def start_again() -> None:
    """Replace this process by a fresh one with the same command line. Does not return."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, sys.orig_argv)
