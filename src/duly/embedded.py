"""A worker inside the caller's process, for `with` and `async with`; and a tick, which is one that stops by itself."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from duly.worker.settings import WorkerSettings
from duly.worker.worker import Worker

if TYPE_CHECKING:
    from duly.app import Duly


PATIENCE = 2.0
"""How long a tick gives a worker that may live to renew a lease that has passed."""


class EmbeddedWorker:
    """Starts a worker when entered and stops it when left."""

    def __init__(self, app: Duly, settings: WorkerSettings) -> None:
        self._worker = Worker(app.store, app.registry, settings, finished=app.waiters.ended)

    def start(self) -> Worker:
        """Start it."""
        self._worker.start()
        return self._worker

    def stop(self, grace: float | None = None) -> None:
        """Stop it: no new jobs, running ones get `grace` seconds, the rest is given back."""
        self._worker.stop(grace)

    def __enter__(self) -> Worker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Worker:
        import asyncio  # here, so that `import duly` stays quick

        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        import asyncio  # here, so that `import duly` stays quick

        await asyncio.to_thread(self.stop)


class Ticked(NamedTuple):
    """What a tick did."""

    claimed: int
    settled: int


def tick(app: Duly, most: int, *, queues: object = None, timeout: float | None = None) -> Ticked:
    """Run at most `most` due jobs here, then return. Also promotes, rescues and prunes, as there may be no worker."""
    settings = replace(app.worker_settings(queues, max_jobs=most), metrics=None, alerts=None)
    worker = Worker(app.store, app.registry, settings, finished=app.waiters.ended)
    deadline = None if timeout is None else time.monotonic() + timeout
    worker.start()
    try:
        looked, silent = time.monotonic(), worker.lapsed()
        while not worker.idle and (deadline is None or time.monotonic() < deadline):
            time.sleep(0.005)
        if silent:
            time.sleep(max(0.0, looked + PATIENCE - time.monotonic()))
        worker.upkeep_now(silent)
        app.alerts.evaluator().step()
    finally:
        worker.stop()
    return Ticked(worker.claimed, worker.settled)
