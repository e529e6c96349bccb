"""A unique key is locked while it changes hands, and one tenant's is not another's."""

from __future__ import annotations

from typing import Any

import pytest

from duly.domain.ids import uuid7
from duly.domain.unique import storage_key
from duly.store import ops_enqueue, ops_jobs, ops_settle
from duly.store.call import Dialect
from tests.guards.racing import Beside, Pair, held, interrupted, locks_in_order
from tests.store.factory import Factory, succeeded

PG = Dialect.POSTGRES


def keys(make: Factory, tenant: str) -> list[tuple[Any, ...]]:
    return make.raw.rows(f"SELECT job_id, next_id FROM duly.unique_keys WHERE tenant = '{tenant}'")


def test_a_key_that_its_job_let_go_is_taken_from_no_other_tenant(make: Factory) -> None:
    ours, theirs = (make.unique(tenant=tenant, scope="queued") for tenant in ("a", "b"))
    make.take(tenant="a")
    assert make.unique(tenant="a", scope="queued").created
    assert keys(make, "b") == [(theirs.id, None)]
    assert make.unique(tenant="b", scope="queued") == (theirs.id, False)
    assert ours.created


def test_a_job_that_follows_waits_for_its_own_tenants_key_alone(make: Factory) -> None:
    first = {tenant: make.unique(tenant=tenant, mode="keep_latest").id for tenant in ("a", "b")}
    runs = {tenant: make.take(tenant=tenant) for tenant in first}
    following = make.unique(tenant="a", mode="keep_latest").id
    assert keys(make, "b") == [(first["b"], None)]
    assert make.finish(runs["a"])
    assert keys(make, "a") == [(following, None)]
    assert keys(make, "b") == [(first["b"], None)]


def test_ending_a_job_waits_for_no_other_tenants_key(pair: Pair) -> None:
    ours, _ = (pair.one.unique(tenant=tenant) for tenant in ("a", "b"))
    cancel = Beside(pair.raw, lambda: pair.other.store.cancel(ours.id, "enough"))
    with held(pair.raw, "SELECT key FROM duly.unique_keys WHERE tenant = 'b' FOR UPDATE"):
        cancel.must_not_wait()
    assert cancel.answer() == ("cancelled", None)


def test_a_cancel_holds_the_key_before_the_job_as_all_do(pair: Pair) -> None:
    """Else it has the job and waits for the key, while an enqueue has the key and waits for the job."""
    first = pair.one.unique(mode="keep_latest")
    coming = Beside(pair.raw, lambda: pair.other.unique(mode="keep_latest"))
    op = ops_jobs.cancel(PG, first.id, "enough")
    pair.one.store.run(lambda: interrupted(op, "take_unstarted", coming.must_wait))
    second = coming.answer()
    assert second.created
    assert pair.one.take().id == second.id


@pytest.mark.parametrize("place", ["scheduled", "waiting", "parked"])
def test_a_job_does_not_start_with_its_old_arguments_while_they_are_replaced(pair: Pair, place: str) -> None:
    told: dict[str, dict[str, Any]] = {"scheduled": {"delay_us": 1}, "parked": {"limit_key": "send/x"}}
    options = told.get(place, {})
    first = pair.one.unique(mode="replace", **options)
    pair.one.clock.advance(1)
    assert pair.raw.count(place) == 1

    def start() -> None:
        pair.other.look()
        assert pair.other.claim() == [], "it starts"

    new = pair.one.new(args='{"v": 2}', unique_key="k", unique_mode="replace", unique_scope="live")
    starting = Beside(pair.raw, start)
    op = interrupted(ops_enqueue.enqueue(PG, new), "lock_unstarted", starting.start)
    assert pair.one.store.run(lambda: op) == (first.id, False)
    starting.answer()
    pair.one.look()
    assert pair.one.take().args == '{"v": 2}'


def test_many_keys_are_held_in_one_order_by_all(pair: Pair) -> None:
    names = sorted(storage_key(key) for key in ("ka", "kb"))
    for key in ("ka", "kb"):
        pair.one.unique(key)
    first, second = (f"SELECT key FROM duly.unique_keys WHERE key = '{name}' FOR UPDATE" for name in names)
    model = pair.one.new(unique_mode="skip", unique_scope="live")
    batch = [(uuid7(), "{}", key) for key in ("kb", "ka")]
    answers = locks_in_order(pair.raw, first, second, lambda: pair.other.store.enqueue_many(model, batch))
    assert [answer.created for answer in answers] == [False, False]


def test_a_job_that_comes_to_wait_while_the_holder_of_its_key_ends_is_not_forgotten(pair: Pair) -> None:
    pair.one.unique(mode="keep_latest")
    job = pair.one.take()
    op = ops_settle.settle_keyed(PG, succeeded(job), job.hold)
    coming = Beside(pair.raw, lambda: pair.other.unique(mode="keep_latest"))
    pair.one.store.run(lambda: interrupted(op, "key_of", coming.must_wait))
    second = coming.answer()
    assert [each.id for each in pair.one.claim()] == [second.id]


def test_an_enqueue_repeated_after_its_job_has_ended_leaves_a_key_for_its_time(make: Factory) -> None:
    job = make.new(unique_key="k", unique_mode="skip", unique_scope="window", unique_window_us=3_600_000_000)
    make.store.enqueue(job)
    make.finish(make.take())
    assert make.store.enqueue(job).created
    assert make.unique() == (job.id, False)
