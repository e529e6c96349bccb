"""The runs that ended last are listed newest first, and finding them does not take longer as history grows."""

from __future__ import annotations

from datetime import timedelta

import psycopg

from duly.domain.records import RunRecord
from duly.store import ops_jobs
from duly.store.call import Call, Dialect, Op
from duly.store.postgres import PLANNER
from duly.store.statements import Compiled
from duly.store.store import Store
from duly.testing import TestClock
from tests.clock import set_wall_clock, us
from tests.store.factory import WORKER, Factory, retried, succeeded
from tests.store.raw import Raw

MANY = 100_000


def test_runs_are_listed_by_when_they_ended_newest_first(make: Factory, store: Store, clock: TestClock) -> None:
    first, second, third = (make.running(task) for task in "abc")
    for job in (second, third, first):  # not in the order in which the jobs were enqueued
        clock.advance(1)
        make.settle(succeeded(job))
    assert [run.job_id for run in store.recent_runs()] == [first.id, third.id, second.id]
    assert [run.job_id for run in store.recent_runs(n=2)] == [first.id, third.id]


def test_a_retry_that_ended_is_listed_beside_what_ended_since(make: Factory, store: Store, clock: TestClock) -> None:
    job = make.running()
    make.settle(retried(job, 10))
    clock.advance(5)
    other = make.ended(task="other")
    clock.advance(5)
    store.promote()
    make.settle(succeeded(make.take()))
    assert [(run.job_id, run.attempt) for run in store.recent_runs()] == [(job.id, 2), (other, 1), (job.id, 1)]


def test_runs_are_found_however_long_ago_they_ended(make: Factory, store: Store, clock: TestClock) -> None:
    ended = []
    for gap in (timedelta(), *(timedelta(seconds=7**power) for power in range(10)), timedelta(days=4_000)):
        clock.advance(gap)
        ended.append(make.ended())
    clock.advance(timedelta(days=100))
    assert [run.job_id for run in store.recent_runs()] == ended[::-1]
    assert [run.job_id for run in store.recent_runs(n=3)] == ended[:-4:-1]


def test_runs_are_found_when_their_counts_are_gone(make: Factory, store: Store, clock: TestClock, raw: Raw) -> None:
    ended = []
    for _ in range(4):
        ended.append(make.ended())
        clock.advance(timedelta(hours=3))
    raw.rows(f"DELETE FROM duly.rollups WHERE period_at < {clock.now_us() - us(timedelta(hours=7))}")
    assert [run.job_id for run in store.recent_runs()] == ended[::-1]
    raw.rows("DELETE FROM duly.rollups")
    assert [run.job_id for run in store.recent_runs()] == ended[::-1]


def test_a_run_that_ended_ahead_of_the_clock_is_listed(make: Factory, store: Store, clock: TestClock) -> None:
    ahead = make.ended()
    set_wall_clock(clock, timedelta(days=-2))
    now = make.ended()
    assert [run.job_id for run in store.recent_runs()] == [ahead, now]


def test_the_newest_runs_of_many_are_found_without_walking_the_others(
    make: Factory, store: Store, clock: TestClock, raw: Raw
) -> None:
    old = make.ended()
    raw.rows(
        "INSERT INTO duly.runs (job_id, token, attempt, outcome, started_at, finished_at, worker_id)"
        f" WITH RECURSIVE number (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM number WHERE n < {MANY})"
        f" SELECT '{old}', n, 1, 'failed', 0, {clock.now_us()} + n * 100000.0, '{WORKER}' FROM number"
    )
    raw.rows(
        "INSERT INTO duly.rollups (period_us, period_at, tenant, queue, task, shard)"
        f" VALUES (60000000, {clock.now_us() + MANY * 100_000 // 60_000_000 * 60_000_000}, '', 'default', 'send', 0)"
    )
    clock.advance(MANY)
    newest = make.ended()
    if raw.is_postgres:
        raw.rows("SELECT brin_summarize_new_values('duly.runs_by_second')")  # a worker of autovacuum does this
        assert blocks_read(raw.url, ops_jobs.recent_runs(Dialect.POSTGRES, None, None, 11)) < 600
        assert raw.one("SELECT pg_relation_size('duly.runs') / 8192") > 1_000
    else:
        sql, order = Compiled(Dialect.SQLITE, "question", "duly", server_clock=False).get("recent_runs")
        for name in order:
            sql = sql.replace("?", "11" if name == "n" else "NULL", 1)
        plan = "\n".join(str(row[3]) for row in raw.rows(f"EXPLAIN QUERY PLAN {sql}"))
        assert "USING INDEX duly_runs_by_time" in plan
        assert "TEMP B-TREE" not in plan
    found = store.recent_runs(n=11)
    assert [run.token for run in found] == [1, *range(MANY, MANY - 10, -1)]
    assert found[0].job_id == newest


def blocks_read(url: str, op: Op[list[RunRecord]]) -> int:
    """How many blocks the statements of an operation look at on PostgreSQL."""
    compiled = Compiled(Dialect.POSTGRES, "pyformat", "duly", server_clock=False)
    now = {"now": TestClock().now_us() + us(MANY)}
    total = 0
    with psycopg.connect(url, autocommit=True, options=f"{PLANNER} -c max_parallel_workers_per_gather=0") as connection:
        try:
            call = next(op)
            while True:
                assert isinstance(call, Call)
                sql, _ = compiled.get(call.name)
                params = {**call.params, **now}
                explained = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}".encode(), params)
                plan = explained.fetchall()[0][0][0]
                total += plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
                call = op.send(connection.execute(sql.encode(), params).fetchall())
        except StopIteration:
            return total
