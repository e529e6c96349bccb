"""Runs that have ended, without a worker."""

from __future__ import annotations

import time

from duly.domain.ids import uuid7
from duly.domain.records import Claimed, Settled
from duly.domain.signature import Signature
from duly.worker.context import Run
from duly.worker.executor import Concluded
from duly.worker.registry import Kind, TaskDefinition


def _nothing() -> None: ...


def concluded(*, outcome: str = "succeeded", ran_us: int = 1_000) -> Concluded:
    """A run of a job of its own."""
    job = Claimed(uuid7(), 1, 1, 0, "default", "", "work", 0, 0, 0, "{}", 1, None, None, None, 0, None, 0, None, 0)
    definition = TaskDefinition(name="work", fn=_nothing, signature=Signature.of(_nothing), kind=Kind.THREAD)
    state = outcome if outcome == "succeeded" else "queued"
    return Run(job, definition, 0.0), time.monotonic_ns(), Settled(job.id, 1, state, outcome, ran_us=ran_us)
