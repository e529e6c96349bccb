"""How often a worker's thread waits, and so must get its turn again beside busy handlers, for one statement.

psycopg waits for each part of an answer; of 500 jobs these are a dozen (docs/decisions/0033-one-wait-per-statement.md).
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from duly.domain.ids import uuid7, uuid7_many
from duly.domain.records import Lane, NewJob, Settled
from duly.store.store import Store
from tests.store.factory import WORKER

BATCH = 500


def test_a_claim_and_a_settle_are_waited_for_once(pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []
    wait = psycopg.Connection.wait

    def counted(connection: psycopg.Connection, gen: Any, *given: Any, **options: Any) -> Any:
        waits.append(getattr(gen, "__name__", ""))
        return wait(connection, gen, *given, **options)

    store = Store.open(pg_url)
    store.migrate()
    try:
        rows = [(job_id, '{"text": "some, not much"}', None) for job_id in uuid7_many(BATCH)]
        store.enqueue_many(NewJob(id=uuid7(), task="t", args="{}"), rows)
        store.look("default")
        monkeypatch.setattr(psycopg.Connection, "wait", counted)
        store.look("default")
        held = store.claim("default", [Lane("", "t")], BATCH, worker_id=WORKER, lease_us=60_000_000)
        ended = store.settle([Settled(job.id, job.token, "succeeded", "succeeded", ran_us=1) for job in held])
        assert len(ended) == BATCH
        assert waits == []
    finally:
        store.close()
