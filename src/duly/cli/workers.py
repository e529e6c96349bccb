"""`duly workers`: who runs jobs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click

from duly.cli.apps import open_database
from duly.cli.base import Command
from duly.cli.options import database_options, utc_option
from duly.cli.output import answer, moment, table
from duly.cli.text import age, clean, size, tail
from duly.domain.clock import from_us
from duly.domain.records import WorkerRecord
from duly.store.ops_pages import InHand


@click.command(cls=Command)
@database_options
@utc_option
def workers(url: str | None, schema: str | None, app: str | None) -> None:
    """Show every worker on record, whether it lives, its memory, its version, and what it runs (--json: which jobs)."""
    opened = open_database(url, schema, app)
    alive = {worker.id for worker in opened.live_workers()}
    found, in_hand = opened.workers(), opened.in_hand()
    now = datetime.now(UTC)
    rows = [
        (
            tail(worker.id),
            clean(f"{worker.process.host}:{worker.process.pid}"),
            state_of(worker, alive),
            ", ".join(names(worker.queues)),
            str(len(names(worker.tasks))),
            f"{in_hand.held.get(worker.id, 0)}/{worker.slots}",
            size(worker.memory_bytes),
            clean(worker.version),
            moment(from_us(worker.started_at), now),
            f"{age(worker.silent_us)} ago",
        )
        for worker in found
    ]
    headers = ["WORKER", "HOST:PID", "STATE", "QUEUES", "TASKS", "BUSY", "MEMORY", "VERSION", "STARTED", "SEEN"]
    answer(
        [as_dict(worker, alive, in_hand) for worker in found],
        table(headers, rows, right=[4, 5, 6]) if rows else "no worker is running",
    )


def names(text: str) -> list[str]:
    """Return the names in a worker's list of queues or tasks."""
    return [clean(name) for name in json.loads(text)]


def state_of(worker: WorkerRecord, alive: set[str]) -> str:
    """Return alive, gone, or what it is doing about its end."""
    if worker.id not in alive:
        return "gone"
    return "alive" if worker.state == "running" else clean(worker.state)


def as_dict(worker: WorkerRecord, alive: set[str], in_hand: InHand) -> dict[str, Any]:
    """Return a worker as plain values, for JSON."""
    return {
        "id": worker.id,
        "host": worker.process.host,
        "pid": worker.process.pid,
        "alive": worker.id in alive,
        "state": worker.state,
        "idle": worker.idle,
        "queues": json.loads(worker.queues),
        "tasks": json.loads(worker.tasks),
        "slots": worker.slots,
        "started_at": from_us(worker.started_at).isoformat(),
        "seen_at": from_us(worker.seen_at).isoformat(),
        "lease": worker.lease_us / 1e6,
        "version": worker.version,
        "memory_bytes": worker.memory_bytes,
        "busy": in_hand.held.get(worker.id, 0),
        "running": [
            {"id": job.id, "task": job.task, "since": from_us(job.claimed_at).isoformat()}
            for job in in_hand.of(worker.id)
        ],
    }
