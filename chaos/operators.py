"""Somebody who does everything that operators may do, to random jobs, all the time.

    python -m chaos.operators URL LEDGER SEED N

Does N things, and then says how much it did of what, as JSON.
"""

from __future__ import annotations

import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from chaos.app import application
from chaos.ledger import Ledger
from duly import Duly, DulyError
from duly.domain.errors import Conflict, JobNotFound, QueueFull

KEYS = [f"key{n}" for n in range(12)]
REFUSALS = (Conflict, JobNotFound, QueueFull)
"""What a verb may say when another has just been there."""


class Operator:
    """One process's. What may make a job end otherwise, or go, is told to the ledger before it is done."""

    def __init__(self, app: Duly, ledger: Ledger, chance: random.Random) -> None:
        self.app = app
        self.ledger = ledger
        self.chance = chance
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.verbs: list[Callable[[], object]] = [
            self.enqueue_many, self.enqueue_many, self.enqueue_unique, self.enqueue_keyed, self.enqueue_later,
            self.cancel, self.cancel_many, self.retry, self.retry_many, self.delete, self.delete_many,
            self.reschedule, self.set_priority, self.prune, self.pause, self.resume, self.limit, self.unlimit,
            self.recur, self.enable, self.disable, self.run_now, self.weigh,
        ]  # fmt: skip

    def step(self) -> None:
        """Do one thing."""
        verb = self.chance.choice(self.verbs)
        try:
            verb()
            self.done[verb.__name__] += 1
        except REFUSALS:
            self.refused[verb.__name__] += 1

    # -- whom -------------------------------------------------------------------------------------------------------

    def some(self, state: str, n: int = 100) -> list[str]:
        """Jobs in a state, in random order."""
        found = [job.id for job in self.app.list(state=state, limit=n) if job.task != "often"]
        self.chance.shuffle(found)
        return found

    def told(self, event: str, jobs: list[str]) -> list[str]:
        """Say what is about to happen to them."""
        for job in jobs:
            self.ledger.write(event, job, 0)
        return jobs

    def key(self) -> str:
        """One of few, so that many want the same."""
        return self.chance.choice(KEYS)

    # -- enqueue ----------------------------------------------------------------------------------------------------

    def enqueue_many(self) -> None:
        keys = self.chance.choices(KEYS, k=40)
        task = self.app["keyed"].using(unique=self.chance.random() < 0.5, priority=self.chance.randrange(3))
        self.ledger.stored(job.id for job in task.enqueue_many([{"key": key} for key in keys]))

    def enqueue_unique(self) -> None:
        self.ledger.stored([self.app["limited"].using(unique=self.key()).enqueue(0.01).id])

    def enqueue_keyed(self) -> None:
        self.ledger.stored([self.app["keyed"].using(tenant=self.key()).enqueue(self.key(), 0.01).id])

    def enqueue_later(self) -> None:
        task = self.app["heed"].using(delay=self.chance.random() * 2)
        self.ledger.stored(job.id for job in task.enqueue_many([{"seconds": 0.2}] * 5))

    # -- jobs -------------------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        for job in self.told("cancel", self.some(self.chance.choice(["queued", "running", "scheduled"]))[:1]):
            self.app.cancel(job)

    def cancel_many(self) -> None:
        self.app.cancel_many(self.told("cancel", self.some(self.chance.choice(["queued", "running"]))[:20]))

    def retry(self) -> None:
        for job in self.told("retry", self.some(self.chance.choice(["cancelled", "scheduled"]))[:1]):
            self.app.retry(job)

    def retry_many(self) -> None:
        self.app.retry_many(self.told("retry", self.some(self.chance.choice(["cancelled", "scheduled"]))[:20]))

    def delete(self) -> None:
        for job in self.told("delete", self.some(self.chance.choice(["queued", "succeeded", "cancelled"]))[:1]):
            self.app.delete(job)

    def delete_many(self) -> None:
        self.app.delete_many(self.told("delete", self.some(self.chance.choice(["queued", "succeeded"]))[:20]))

    def reschedule(self) -> None:
        for job in self.some("queued")[:3]:
            self.app.reschedule(job, delay=self.chance.random())

    def set_priority(self) -> None:
        for job in self.some("queued")[:3]:
            self.app.set_priority(job, self.chance.randrange(100))

    def prune(self) -> None:
        self.app.prune(most=500)

    # -- places -----------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        if self.chance.random() < 0.5:
            self.app.pause(key=f"keyed/{self.key()}", duration=0.3)
        else:
            self.app.pause(task=self.chance.choice(["limited", "keyed", "heed"]), duration=0.2)

    def resume(self) -> None:
        self.app.resume(task=self.chance.choice(["limited", "keyed", "heed"]))

    def limit(self) -> None:
        if self.chance.random() < 0.5:
            self.app.set_limit(task="limited", concurrency=self.chance.randrange(1, 6))
        else:
            self.app.set_limit(keys="keyed", concurrency=self.chance.randrange(1, 4))

    def unlimit(self) -> None:
        self.app.unset_limit(task="limited")
        self.app.unset_limit(keys="keyed")

    def weigh(self) -> None:
        self.app.set_weight(self.key(), self.chance.choice([0.5, 1.0, 3.0]))

    # -- recurring jobs ---------------------------------------------------------------------------------------------

    def recur(self) -> None:
        self.told("delete", [self.app["often"].recur(self.key(), every=1.0).id])  # it is deleted in the end

    def enable(self) -> None:
        self.app.recurring_job("often", self.key()).enable()

    def disable(self) -> None:
        self.app.recurring_job("often", self.key()).disable()

    def run_now(self) -> None:
        self.app.recurring_job("often", self.key()).run_now()


def main() -> None:
    """Operate."""
    url, path, seed, n = sys.argv[1:5]
    logging.basicConfig(level=logging.CRITICAL)
    ledger = Ledger(Path(path))
    app = application(url, ledger, retention_cancelled="1s")
    operator = Operator(app, ledger, random.Random(int(seed)))
    error = None
    try:
        for _ in range(int(n)):
            operator.step()
    except DulyError as found:
        error = f"{type(found).__name__}: {found}"
    print(json.dumps({"done": operator.done, "refused": operator.refused, "error": error}), flush=True)
    app.close()


if __name__ == "__main__":
    main()
