"""Large arguments: they are not carried through sorts and results, and are sent in blocks of about the same size."""

from __future__ import annotations

import base64
import json
import os
import tracemalloc
from collections.abc import Iterable
from typing import Any

import psycopg
import pytest

from duly.domain.ids import uuid7_many
from duly.domain.records import Lane, NewJob
from duly.store.call import CopyIn
from duly.store.fresh import Fresh, Plan
from duly.store.ops_copy import BLOCK, copy_jobs
from tests.helpers import eventually, opened
from tests.speed.counting import sessions
from tests.store.factory import WORKER

N, SIZE = 500, 20_000
"""More than twice `work_mem`, in one claim."""


def incompressible() -> str:
    return base64.b64encode(os.urandom(SIZE)).decode()[:SIZE]


def temporary_bytes(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT temp_bytes FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_a_claim_of_large_arguments_spills_nothing_to_the_disk(pg_url: str) -> None:
    given = [incompressible() for _ in range(N)]
    before = temporary_bytes(pg_url)
    with opened(pg_url, notify=False) as jobs:

        @jobs.task
        def read(text: str) -> None: ...

        read.enqueue_many([{"text": text} for text in given])
        how: Any = {"worker_id": WORKER, "lease_us": 15_000_000}
        claimed = jobs.store.claim("default", [Lane("", read.name)], N, **how)
    assert [json.loads(job.args)["text"] for job in claimed] == given
    eventually(lambda: sessions(pg_url) == 0)  # a session that ends has handed in all that it counted
    assert temporary_bytes(pg_url) - before == 0


def lines_of(size: int, n: int) -> Iterable[str]:
    rows: list[Fresh] = [(job_id, '"' + "x" * (size - 2) + '"', None) for job_id in uuid7_many(n)]
    model = NewJob(id="", task="send", args="")
    first = next(copy_jobs(model, rows, Plan(now=1, run_at=1, expires_at=None, rank=1)))
    assert isinstance(first, CopyIn)
    return first.blocks


@pytest.mark.parametrize("size", [2, 1_000, 50_000, 3 * BLOCK])
def test_what_is_copied_comes_in_blocks_of_about_the_same_size(size: int) -> None:
    n = max(2, 10 * BLOCK // size)
    blocks = list(lines_of(size, n))
    assert sum(block.count("\n") for block in blocks) == n
    assert max(map(len, blocks)) < 1.5 * max(BLOCK, size)
    assert len(blocks) <= n
    assert all(len(block) > BLOCK / 2 for block in blocks[:-1])


def test_lines_are_made_as_they_are_sent() -> None:
    """A bulk enqueue does not hold its arguments a second time."""
    blocks = lines_of(SIZE, N)
    tracemalloc.start()
    try:
        for _ in blocks:
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < N * SIZE / 10
