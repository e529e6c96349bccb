"""What a statement tells one tenant is the same whether or not there is another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest

from duly import Duly, InvalidOption, RecurringJobNotFound
from duly.domain.ids import uuid7
from duly.domain.limits import Says
from duly.domain.principal import TokenRecord
from duly.domain.records import Lane
from duly.store import ops_tokens
from duly.store.call import Call, Dialect, Op, Rows
from duly.store.store import Store
from duly.testing import TestClock
from tests.databases import Databases, Kind
from tests.guards.rows.tenants import STATEMENTS
from tests.helpers import opened
from tests.store.raw import Raw
from tests.tenant.world import LEASE_US, WITH_JOB, WITH_TENANT, Owned, World

END_OF_TIME = 2**62
NAMES = sorted({*(name.partition(" ")[0] for name in STATEMENTS), "tenant_standing"})
LISTS = (
    *("list_jobs_of", "list_scheduled_of", "list_parked_of", "list_running_of", "list_ended_of"),
    *("list_waiting_of", "list_disabled_of"),
)
STATES = ("succeeded", "failed", "cancelled")


@pytest.fixture
def world(databases: Databases, database_kind: Kind) -> Iterator[World]:
    """Two tenants, acme and globex, with the same of everything, at a time that stands."""
    with (
        databases.fresh(database_kind) as url,
        closing(Raw(url)) as raw,
        opened(url, clock=TestClock()) as jobs,
    ):
        world = World(jobs, raw)
        for owned in (world.acme, world.globex):
            _set_aside(jobs, world, owned)
        yield world


def _set_aside(jobs: Duly, world: World, owned: Owned) -> None:
    tenant = owned.handle
    owned.ids["parked"] = tenant.enqueue(world.hold, {"secret": owned.secret}).id
    lanes = [Lane(tenant.name, "hold")]
    [job] = jobs.store.claim(
        "default", lanes, 1, worker_id=str(uuid4()), lease_us=LEASE_US, gates=[("tenant", tenant.name)]
    )
    assert jobs.store.park(job.id, job.token, reason="arguments", detail="no", mark="x")
    jobs.store.gates.set_limit("tenant", tenant.name, Says(slots=5, most_waiting=9))
    jobs.store.gates.pause("tenant", tenant.name, by="me", reason=owned.secret, until=None, for_us=None)


def without_globex(world: World) -> None:
    own = "(SELECT id FROM duly.jobs WHERE tenant = 'globex')"
    for table, column in WITH_JOB.items():
        world.raw.rows(f"DELETE FROM duly.{table} WHERE {column} IN {own}")
    for table in reversed(WITH_TENANT):
        world.raw.rows(f"DELETE FROM duly.{table} WHERE tenant = 'globex'")
    for table in ("gates", "tenants"):
        world.raw.rows(f"DELETE FROM duly.{table} WHERE name = 'globex'")


def answers(world: World, name: str) -> list[Any]:
    """What a statement tells acme: by the id of each job that there is, and in each state that it may ask for."""
    postgres = world.jobs.store.dialect is Dialect.POSTGRES
    ids = [*world.acme.ids.values(), *world.globex.ids.values()]
    fixed: dict[str, Any] = dict.fromkeys(
        ("task", "queue", "tag", "text", "before_id", "who", "action", "since_at", "until_at", "enabled")
    )
    fixed |= {"tenant": "acme", "in_queue": "default", "limit": 100, "offset": 0, "n": 100, "most": 100, "skip": 0}
    fixed |= {"after_tenant": "", "after_task": "", "after_key": "", "name": "nightly", "key": "same", "failures": 0}
    fixed |= {"from_at": 0, "by_tenant": True, "by_task": True, "by_queue": True}
    fixed |= {"ids": ids if postgres else json.dumps(ids)}
    fixed |= {"starts": [0]} if postgres else {"periods": json.dumps([(0, END_OF_TIME)])}
    if name.startswith("sum_"):
        fixed["until_at"] = END_OF_TIME
    some: list[dict[str, Any]] = [fixed | {"id": job_id, "job_id": job_id} for job_id in ids]
    if name not in ("is_of_tenant", "get_job_of", "is_recurring_of", "get_recurring", "list_audit_of"):
        some = [fixed | {"state": state} for state in STATES] if name == "list_ended_of" else [fixed]
    return [sorted(world.jobs.store.run(lambda params=params: ask(name, params)), key=repr) for params in some]  # type: ignore[misc]


def ask(name: str, params: dict[str, Any]) -> Op[Rows]:
    return (yield Call(name, params))


@pytest.mark.requirement("E9")
def test_a_tenant_is_told_the_same_whether_or_not_there_is_another(world: World) -> None:
    names = [*(name for name in NAMES if name != "own"), *LISTS]
    beside = {name: answers(world, name) for name in names}
    without_globex(world)
    for name in names:
        alone = answers(world, name)
        assert any(alone), f"{name} tells nothing at all"
        assert beside[name] == alone, name


@pytest.mark.requirement("E9")
def test_a_tenants_operations_find_no_recurring_job_of_another(world: World) -> None:
    store, theirs = world.jobs.store, world.globex.ids["recurring"]
    ours = store.recurring_by(None, tenant="acme")
    assert store.run(lambda: ours.find("globex", "work", "same")) is None
    with pytest.raises(RecurringJobNotFound):
        store.run(lambda: ours.lock(theirs))
    new = world.globex.handle[world.work].new_recurring("new", every="1h", args={"secret": "s"})
    with pytest.raises(InvalidOption):
        store.run(lambda: ours.recur(new))


@pytest.mark.requirement("E9")
def test_two_tenants_have_recurring_jobs_of_one_key_and_name(databases: Databases, database_kind: Kind) -> None:
    with databases.fresh(database_kind) as url, closing(Raw(url)) as raw, opened(url) as jobs:

        @jobs.task
        def fetch() -> None: ...

        for tenant in ("a", "b"):
            jobs.tenant(tenant)[fetch].recur("x", every="1h", name="nightly")
        assert raw.rows("SELECT tenant FROM duly.schedules ORDER BY tenant") == [("a",), ("b",)]


def test_somebody_who_is_let_in_again_after_a_lost_reply_is_in_once(store: Store) -> None:
    record = TokenRecord(uuid7(), "token", "ci", "read", None, 0, None, None, None)
    for _ in range(2):
        store.run(lambda: ops_tokens.add(record, "a hash", None, actor=None))
    assert [each.name for each in store.database.read(ops_tokens.everyone)] == ["ci"]
