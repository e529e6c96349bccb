"""How much a job adds to PostgreSQL's write-ahead log while it is run, counted from a checkpoint as the benchmark does.

A server of its own: pages are logged whole after a checkpoint, as on a server that must survive a power cut, and no
vacuum writes in between.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.databases import Kind, postgres_binaries, prepare
from tests.helpers import opened
from tests.postgres import PostgresServer
from tests.speed.counting import check, drain, fill, noop

N = 20_000
SETTINGS = {
    "full_page_writes": "on",
    "autovacuum": "off",
    "checkpoint_timeout": "1h",
    "max_wal_size": "4GB",
    "shared_buffers": "256MB",
}
ALLOWED = {Kind.PG15: 1_020, Kind.PG18: 1_085}
"""PostgreSQL 18 has checksums unless told otherwise, and with them logs a page of which only hints change."""


@pytest.fixture
def server(pg_kind: Kind) -> Iterator[PostgresServer]:
    """A server that logs as one in production does."""
    bin_dir = postgres_binaries(pg_kind)
    assert bin_dir is not None
    server = PostgresServer(bin_dir)
    server.settings = SETTINGS
    try:
        server.start()
        yield server
    finally:
        server.remove()


def logged(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.everywhere
def test_bytes_of_log_per_job_in_a_drain(server: PostgresServer, pg_kind: Kind) -> None:
    url = server.url()
    prepare(url)
    with psycopg.connect(url, autocommit=True) as connection:
        with opened(url) as jobs:
            fill(noop(jobs), N)
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")
            before = logged(connection)
            drain(jobs, N)
        check("bytes of write-ahead log per job", (logged(connection) - before) / N, ALLOWED[pg_kind])
