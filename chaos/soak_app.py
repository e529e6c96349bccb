"""Something of everything, in a steady stream: the application that `chaos.soak` runs for an hour at $DULY_URL."""

from __future__ import annotations

import logging
import random
import time
from contextlib import suppress
from datetime import timedelta

from chaos.checker import UNREACHABLE
from duly import Backoff, Cancel, Duly, Snooze, Unique, current_job
from duly.domain.errors import DulyError

KEPT = "2m"


jobs = Duly(
    lease=5,
    maintenance_interval=5,
    retention_succeeded=KEPT,
    retention_failed=KEPT,
    retention_cancelled=KEPT,
    retention_rollups="5m",
    retention_audit=KEPT,
)
soon = Backoff.fixed(0.5, max_attempts=3)


@jobs.task(retry=soon)
def plain(n: int) -> int:
    current_job().progress(0.5, "half of it")
    if n % 50 == 0:
        raise ValueError(f"{n} is a round number")
    return n


@jobs.task(retry=soon)
async def quick(n: int) -> str:
    return "x" * (n % 1_000)


@jobs.task(concurrency_key=lambda args: args.key, per_key=2)
def keyed(key: str) -> None:
    time.sleep(0.005)


@jobs.task(concurrency=3)
def limited(n: int) -> None:
    logging.getLogger(__name__).info("limited %s", n)
    time.sleep(0.002)


@jobs.task
def steered(n: int) -> None:
    if n % 3 == 0 and current_job().fence < 3:
        raise Snooze(timedelta(seconds=1))
    if n % 7 == 0:
        raise Cancel("every seventh")


@jobs.task(isolation="process")
def apart(n: int) -> int:
    return n * n


@jobs.task
def tick() -> None: ...


def produce(rate: float) -> None:
    """A stream of all of it, until somebody ends us."""
    chance = random.Random(1)
    n, began = 0, time.monotonic()
    for key in range(20):
        tick.recur(key=key, every="1s")
    while True:
        ahead = n / rate - (time.monotonic() - began)
        if ahead > 0:
            time.sleep(ahead)
        with suppress(DulyError, *UNREACHABLE):
            _some(chance, n)
        n += 10


def _some(chance: random.Random, n: int) -> None:
    """Ten jobs, more or less."""
    quick.enqueue_many([{"n": chance.randrange(5_000)} for _ in range(3)])
    job = plain.enqueue(n=n // 10)
    plain.using(delay=chance.random() * 5).enqueue(n=1)
    keyed.enqueue_many([{"key": f"k{chance.randrange(40)}"} for _ in range(2)])
    limited.using(priority=chance.randrange(100)).enqueue(n=n)
    steered.using(tenant=f"t{chance.randrange(5)}").enqueue(n=n // 10)
    quick.using(unique=Unique(key=f"u{chance.randrange(30)}", mode="replace")).enqueue(n=5)
    if n % 100 == 0:
        apart.enqueue(n=n)
        jobs.pause(task="limited") if chance.random() < 0.1 else jobs.resume(task="limited")
        with suppress(DulyError):
            job.cancel()
