"""Jobs with keys in a word each, and what a worker does with them: look, claim, settle in a way that frees the key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duly.domain.limits import Breaker, Rate, Says
from duly.domain.records import Claimed, Lane, Settled
from duly.store.ops_keys import Freed
from tests.clock import us
from tests.store.factory import LEASE, SETTLES, WORKER, Factory

TABLES = (
    *("jobs", "scheduled", "waiting", "parked", "running", "ended", "runs", "rollups"),
    *("unique_keys", "gates", "keys", "admitted", "queues", "workers"),
)


class Keyed(Factory):
    """A store in which task "send" has keys."""

    def says(
        self, slots: int | None = 1, rate: Rate | None = None, breaker: Breaker | None = None, *, group: str = "send"
    ) -> None:
        """What the code says of each key of a group; the task meters its keys if they have a rate."""
        metered = Says(meters_keys=rate is not None)
        self.store.gates.declare([(("keys", group), Says.limits(slots, rate, breaker)), (("task", group), metered)])

    def empty(self) -> None:
        """Begin anew, for the next example."""
        for table in TABLES:
            self.raw.rows(f"DELETE FROM duly.{table}")

    def put(self, key: str = "x", **options: Any) -> str:
        """Enqueue a job with a key, and let it in if there is room."""
        job_id = self.enqueue(limit_key=f"send/{key}", **options)
        self.look()
        return job_id

    def look(self) -> None:
        """What a worker does before it claims."""
        self.store.promote(1_000)
        for _ in range(5):
            if not self.store.gates.admit():
                break

    def grab(
        self, n: int = 100, *, task: str = "send", tenant: str = "", metered: bool = False, suspect: bool = False
    ) -> list[Claimed]:
        """Claim what there is."""
        gates = [("task", task)] if metered else []
        lanes = [Lane(tenant, task)]
        return self.store.claim("default", lanes, n, worker_id=WORKER, lease_us=us(LEASE), gates=gates, suspect=suspect)

    def end(
        self, *jobs: Claimed, how: str = "succeeded", counted: bool = False, only_expired: bool = False
    ) -> set[str]:
        """Settle runs as a worker does: the next jobs of their keys come in. `counted`: by their breaker."""
        batch = [SETTLES[how](job) for job in jobs]
        return self.settle_batch(jobs, batch, counted=counted, only_expired=only_expired)

    def settle_batch(
        self, jobs: Sequence[Claimed], batch: list[Settled], *, counted: bool = False, only_expired: bool = False
    ) -> set[str]:
        keys = [job.limit_key for job in jobs if job.limit_key is not None]
        ended = [
            (job.id, job.limit_key, each.outcome in ("failed", "crashed"))
            for job, each in zip(jobs, batch, strict=True)
            if counted and job.limit_key is not None and each.outcome in ("succeeded", "failed", "crashed")
        ]
        return self.store.settle(batch, freed=Freed(set(keys), ended), only_expired=only_expired)

    def block(self, key: str = "x", seconds: float = 10.0) -> None:
        """What is behind a key asks to be left alone."""
        self.store.gates.block("key", f"send/{key}", us(seconds), "asked")

    def pause(self, key: str = "x", seconds: float | None = None) -> None:
        for_us = None if seconds is None else us(seconds)
        self.store.gates.pause("key", f"send/{key}", by="me", reason="why", until=None, for_us=for_us)

    def resume(self, key: str = "x") -> bool:
        return self.store.gates.resume("key", f"send/{key}")

    def place(self, job_id: str) -> str:
        """Where a job stands: waiting, running, ended, scheduled, or why it is parked."""
        for place in ("scheduled", "waiting", "running", "ended"):
            if self.raw.rows(f"SELECT 1 FROM duly.{place} WHERE id = '{job_id}'"):
                return place
        return str(self.raw.one(f"SELECT reason FROM duly.parked WHERE id = '{job_id}'"))

    def places(self, ids: Sequence[str]) -> list[str]:
        return [self.place(job_id) for job_id in ids]

    def opens_at(self, key: str = "x") -> int | None:
        rows = self.raw.rows(f"SELECT opens_at FROM duly.keys WHERE name = 'send/{key}'")
        return rows[0][0] if rows else None
