"""What a tenant's lists and counts cost depends on that tenant's jobs, not on how many others have."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

from duly import Duly, Tenant
from duly.store.postgres import PLANNER
from tests.store.raw import Raw

OTHERS = 200_000
OWN = 100
KINDS = 5
"""Of a tenant's jobs a fifth each is scheduled, waiting, parked, succeeded and failed."""

LOOKS: dict[str, Callable[[Tenant], Any]] = {
    "list": lambda t: t.list(limit=20),
    "list deep": lambda t: t.list(limit=20, before=t.list(limit=90)[-1].id),
    "scheduled": lambda t: t.list(state="scheduled"),
    "queued": lambda t: t.list(state="queued"),
    "running": lambda t: t.list(state="running"),
    "succeeded": lambda t: t.list(state="succeeded"),
    "failed": lambda t: t.list(state="failed", limit=5),
    "failed of a task": lambda t: t.list(state="failed", task="none"),
    "tagged": lambda t: t.list(tag="none"),
    "disabled": lambda t: t.list(state="disabled"),
    "counts": lambda t: t.counts(),
    "runs": lambda t: t.runs(limit=10),
    "recurring": lambda t: t.recurring_jobs(),
    "audit": lambda t: t.audit(),
    "standing": lambda t: t.standing(),
    "limits": lambda t: (t.limits(), t.weight(), t.paused()),
}


@pytest.fixture
def crowd(jobs: Duly, raw: Raw) -> Tenant:
    """A tenant with few jobs among tenants with very many, in every place."""
    for tenant, first, n in (("aaaa", 0, OTHERS // 2), ("mine", OTHERS, OWN), ("zzzz", OTHERS + OWN, OTHERS // 2)):
        fill(raw, tenant, first, n)
    raw.rows("ANALYZE")
    return jobs.tenant("mine")


def fill(raw: Raw, tenant: str, first: int, n: int) -> None:
    pg = raw.is_postgres
    numbers = f"generate_series({first + 1}, {first + n}) AS i" if pg else "n"
    head = (
        ""
        if pg
        else f"WITH RECURSIVE n(i) AS (SELECT {first + 1} UNION ALL SELECT i + 1 FROM n WHERE i < {first + n}) "
    )
    job_id = (
        "('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid"
        if pg
        else "'00000000-0000-7000-8000-' || printf('%012d', i)"
    )
    worker = "'00000000-0000-4000-8000-000000000001'"
    own = f"'default', '{tenant}', 'work'"

    def put(table: str, columns: str, values: str, where: str = "") -> None:
        raw.rows(f"INSERT INTO duly.{table} ({columns}) {head}SELECT {values} FROM {numbers} {where}")

    put("jobs", "id, queue, tenant, task, args, created_at", f"{job_id}, {own}, '{{}}', 0")
    later = "9000000000000000 + i"
    put("scheduled", "id, queue, tenant, task, run_at, priority", f"{job_id}, {own}, {later}, 0", "WHERE i % 5 = 0")
    put("waiting", "id, queue, tenant, task, run_at, rank, priority", f"{job_id}, {own}, i, i, 0", "WHERE i % 5 = 1")
    put(
        "parked",
        "id, queue, tenant, task, run_at, priority, parked_at, reason",
        f"{job_id}, {own}, i, 0, i, 'arguments'",
        "WHERE i % 5 = 2",
    )
    ended = "id, state, finished_at, token, attempt, crashes"
    put("ended", ended, f"{job_id}, 'succeeded', i, 1, 1, 0", "WHERE i % 5 = 3")
    put("ended", ended, f"{job_id}, 'failed', i, 1, 1, 0", "WHERE i % 5 = 4")
    put(
        "runs",
        "job_id, token, attempt, outcome, started_at, finished_at, worker_id",
        f"{job_id}, 1, 1, 'succeeded', i, i, {worker}",
        "WHERE i % 5 >= 3",
    )
    put("audit", "at, via, action, job_id, tenant", f"i, 'cli', 'boost', {job_id}, '{tenant}'", "WHERE i % 5 = 1")


@contextmanager
def counted(jobs: Duly, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """What each statement costs: pages on PostgreSQL, thousands of instructions on SQLite."""
    costs: list[tuple[str, int]] = []
    database: Any = jobs.store.database
    url, compiled = jobs.settings.url, database._compiled
    if url.startswith("postgresql:"):
        connection = psycopg.connect(url, autocommit=True, options=PLANNER + " -c plan_cache_mode=force_generic_plan")
        real = database._execute

        def execute(own: Any, call: Any) -> Any:
            sql, order = compiled.get(call.name)
            given = {name: call.params[name] for name in order}
            given = {name: list(value) if isinstance(value, list) else value for name, value in given.items()}
            text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}"
            row = connection.execute(text.encode(), given, prepare=True).fetchone()
            assert row is not None
            plan = row[0][0] if not isinstance(row[0], str) else json.loads(row[0])[0]
            costs.append((call.name, plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]))
            return real(own, call)

        monkeypatch.setattr(database, "_execute", execute)
        try:
            yield costs
        finally:
            monkeypatch.undo()
            connection.close()
    else:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as lite:
            steps = [0]

            def step() -> int:
                steps[0] += 1
                return 0

            lite.set_progress_handler(step, 1_000)

            def read(op: Callable[[], Any]) -> Any:
                run = op()
                try:
                    call = next(run)
                    while True:
                        sql, order = compiled.get(call.name)
                        before = steps[0]
                        given = dict(call.params) | {"now": 0}
                        rows = lite.execute(sql, [given[name] for name in order]).fetchall()
                        costs.append((call.name, steps[0] - before))
                        call = run.send(rows)
                except StopIteration as stop:
                    return stop.value

            monkeypatch.setattr(database, "read", read)
            yield costs
            monkeypatch.undo()


@pytest.mark.requirement("E9")
@pytest.mark.timeout(240)
def test_a_tenants_looks_cost_the_same_however_much_others_have(
    crowd: Tenant, jobs: Duly, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 1_500 if raw.is_postgres else 40  # a walk over the others would take ten times as much and more
    walked = {}
    with counted(jobs, monkeypatch) as costs:
        for look, do in LOOKS.items():
            costs.clear()
            do(crowd)
            assert costs, look
            walked[look] = {name: cost for name, cost in costs if cost > most}
    assert not {look: names for look, names in walked.items() if names}
    share = OWN // KINDS
    assert [len(crowd.list(state=state)) for state in ("scheduled", "succeeded", "failed")] == [share] * 3
    assert len(crowd.list(state="queued")) == 2 * share
    assert crowd.counts().ended == {"succeeded": share, "failed": share}
    assert len(crowd.runs(limit=1_000)) == 2 * share
    assert len(crowd.audit()) == share


@pytest.mark.requirement("E9")
def test_listing_with_a_tenant_goes_the_same_way(crowd: Tenant, jobs: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    with counted(jobs, monkeypatch) as costs:
        jobs.list(tenant="mine", state="failed")
        jobs.runs(tenant="mine")
        jobs.recurring_jobs(tenant="mine")
        assert {name for name, _ in costs} >= {"list_ended_of", "recent_runs_of", "list_recurring_of"}
    assert [each.name for each in jobs.tenants()] == ["aaaa", "mine", "zzzz"]
