"""How many rows a job costs from its enqueue to its end: each is log, index entries, and work for VACUUM."""

from __future__ import annotations

from tests.speed.counting import check, rows_changed_on_sqlite, rows_written_on_postgres

N = 5_000


def test_rows_written_per_job_on_postgres(pg_url: str) -> None:
    """Into jobs, waiting, running, runs and ended, and out of waiting and running."""
    written = rows_written_on_postgres(pg_url, N)
    per_table = ", ".join(f"{table} {rows / N:.3f}" for table, rows in sorted(written.items()) if rows)
    assert written["jobs"] >= N, "the counts of the server have not all arrived"
    check("rows written per job", sum(written.values()) / N, 7.1, per_table)


def test_rows_changed_per_job_on_sqlite(sqlite_url: str) -> None:
    """The same seven, and into and out of the two tables of the connection, which are never written to the file."""
    check("rows changed per job", rows_changed_on_sqlite(sqlite_url, N) / N, 11.1)
