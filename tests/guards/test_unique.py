"""A unique key is locked while it changes hands, and one tenant's is not another's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duly.domain.ids import uuid7
from duly.domain.records import Claimed, Settled
from duly.domain.unique import storage_key
from duly.maintenance.rescue import Deaths, rescue_dead
from duly.store import ops_enqueue, ops_jobs, ops_settle
from duly.store.call import Dialect
from duly.store.ops_unique import Patience
from tests.guards.racing import Beside, Pair, held, interrupted, is_free, locks_in_order
from tests.store.factory import Factory, add_worker, retried, succeeded

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

    limit_key = options.get("limit_key")  # the same: else it also moves
    new = pair.one.new(
        "send", '{"v": 2}', unique_key="k", unique_mode="replace", unique_scope="live", limit_key=limit_key
    )
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


@pytest.mark.parametrize("patience", [Patience.ENDLESS, Patience.NONE], ids=["patient", "not patient"])
def test_a_job_that_comes_to_wait_while_the_holder_of_its_key_ends_is_not_forgotten(
    pair: Pair, patience: Patience
) -> None:
    pair.one.unique(mode="keep_latest")
    job = pair.one.take()
    op = ops_settle.settle_keyed(PG, succeeded(job), job.hold, patience=patience)
    coming = Beside(pair.raw, lambda: pair.other.unique(mode="keep_latest"))
    statement = "key_of" if patience is Patience.ENDLESS else "key_of_if_free"
    pair.one.store.run(lambda: interrupted(op, statement, coming.must_wait))
    second = coming.answer()
    assert [each.id for each in pair.one.claim()] == [second.id]


ENDS: dict[str, Callable[[Claimed], Settled]] = {"for good": succeeded, "for a while": retried}
HELD = "SELECT key FROM duly.unique_keys FOR UPDATE"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("scope", ["live", "queued"])
def test_an_end_goes_round_a_key_that_somebody_holds(pair: Pair, scope: str, end: str) -> None:
    pair.one.unique(scope=scope)
    job = pair.one.take()
    settled = ENDS[end](job)
    ending = Beside(pair.raw, lambda: pair.other.store.settle_keyed(settled, job.hold, patience=Patience.NONE))
    with held(pair.raw, HELD):
        ending.must_not_wait()
        assert ending.answer() is None
        assert pair.raw.count("running") == 1
    assert pair.one.store.settle_keyed(settled, job.hold, patience=Patience.NONE) is True


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("scope", ["live", "queued"])
def test_an_end_that_queues_for_a_key_waits_for_a_moment(pair: Pair, scope: str, end: str) -> None:
    pair.one.unique(scope=scope)
    job = pair.one.take()
    settled = ENDS[end](job)
    ending = Beside(pair.raw, lambda: pair.other.store.settle_keyed(settled, job.hold, patience=Patience.LITTLE))
    with held(pair.raw, HELD):
        ending.must_wait()
        assert ending.answer(within=3) is None
        assert pair.raw.count("running") == 1
    assert pair.one.store.settle_keyed(settled, job.hold, patience=Patience.LITTLE) is True


@pytest.mark.parametrize("end", ENDS)
def test_an_end_that_queues_for_a_key_has_it_when_it_is_free(pair: Pair, end: str) -> None:
    pair.one.unique(scope="queued")
    job = pair.one.take()
    settled = ENDS[end](job)
    ending = Beside(pair.raw, lambda: pair.other.store.settle_keyed(settled, job.hold, patience=Patience.LITTLE))
    with held(pair.raw, HELD):
        ending.must_wait()
    assert ending.answer() is True


def test_an_end_holds_no_other_tenants_key(pair: Pair) -> None:
    for tenant in ("a", "b"):
        pair.one.unique(tenant=tenant, scope="queued")
    job = pair.one.take(tenant="a")
    free: list[bool] = []
    theirs = "SELECT key FROM duly.unique_keys WHERE tenant = 'b' FOR UPDATE"
    op = ops_settle.settle_keyed(PG, retried(job), job.hold, patience=Patience.NONE)
    assert pair.one.store.run(
        lambda: interrupted(op, "lock_key_if_free", lambda: free.append(is_free(pair.raw, theirs)))
    ) == {job.id}
    assert free == [True]


def test_an_end_takes_no_other_tenants_key_for_its_own(pair: Pair) -> None:
    for tenant in ("a", "b"):
        pair.one.unique(tenant=tenant, scope="queued")
    job = pair.one.take(tenant="a")
    pair.one.store.cancel(pair.one.unique(tenant="a", scope="queued").id, "enough")
    assert keys(pair.one, "a") == []
    assert pair.one.store.settle_keyed(retried(job), job.hold, patience=Patience.NONE) is True


@contextmanager
def about_to_take_the_key(pair: Pair) -> Iterator[Claimed]:
    """A run whose key, free by now, somebody is about to have: what is not committed nobody can see."""
    pair.one.unique(scope="queued")
    job = pair.one.take()
    second = pair.one.unique(scope="queued")
    pair.one.store.cancel(second.id, "enough")
    assert pair.raw.count("unique_keys") == 0
    taking = "INSERT INTO duly.unique_keys (tenant, key, job_id, scope) VALUES ('', '{}', '{}', 2) RETURNING key"
    with held(pair.raw, taking.format(storage_key("k"), uuid7())):
        yield job


def test_a_run_that_needs_its_key_again_waits_for_a_moment_for_who_is_about_to_have_it(pair: Pair) -> None:
    with about_to_take_the_key(pair) as job:
        assert pair.one.store.settle_keyed(retried(job), job.hold, patience=Patience.NONE) is None
        assert pair.raw.count("running") == 1
    assert pair.one.store.settle_keyed(retried(job), job.hold, patience=Patience.NONE) is True


def test_a_job_that_is_set_aside_waits_for_a_moment_for_who_is_about_to_have_its_key(pair: Pair) -> None:
    words: Any = {"reason": "arguments", "detail": "no", "mark": "x"}
    with about_to_take_the_key(pair) as job:
        assert pair.one.store.park(job.id, job.token, **words, patience=Patience.NONE) is None
        assert pair.raw.count("running") == 1
    assert pair.one.store.park(job.id, job.token, **words, patience=Patience.NONE) is True


def test_setting_a_job_aside_goes_round_a_key_that_somebody_holds(pair: Pair) -> None:
    pair.one.unique()
    job = pair.one.take()
    words: Any = {"reason": "arguments", "detail": "no", "mark": "x"}
    with held(pair.raw, HELD):
        assert pair.one.store.park(job.id, job.token, **words, patience=Patience.NONE) is None
    assert pair.one.store.park(job.id, job.token, **words, patience=Patience.NONE) is True


@pytest.mark.parametrize("scope", ["live", "queued"])
def test_what_is_given_back_goes_round_a_key_that_somebody_holds(pair: Pair, scope: str) -> None:
    pair.one.unique(scope=scope)
    pair.one.enqueue()
    runs = [(job.id, job.token) for job in pair.one.claim(2)]
    giving = Beside(pair.raw, lambda: pair.other.store.give_back(runs))
    with held(pair.raw, HELD):
        giving.must_not_wait()
        assert giving.answer() == 1
    assert pair.one.store.give_back(runs) == 1


@pytest.mark.parametrize("scope", ["live", "queued"])
def test_rescue_goes_round_a_key_that_somebody_holds(pair: Pair, scope: str) -> None:
    pair.one.unique(scope=scope)
    pair.one.enqueue()
    add_worker(pair.one.store)
    assert len(pair.one.claim(2)) == 2
    gone: Any = {"is_gone": lambda process: True, "crash_limit": 3, "deaths": Deaths(pair.one.store)}
    rescuing = Beside(pair.raw, lambda: rescue_dead(pair.other.store, pair.other.store.workers(), **gone))
    with held(pair.raw, HELD):
        rescuing.must_not_wait()
        assert rescuing.answer() == 1
    assert rescue_dead(pair.one.store, pair.one.store.workers(), **gone) == 1


def test_an_enqueue_repeated_after_its_job_has_ended_leaves_a_key_for_its_time(make: Factory) -> None:
    job = make.new(unique_key="k", unique_mode="skip", unique_scope="window", unique_window_us=3_600_000_000)
    make.store.enqueue(job)
    make.finish(make.take())
    assert make.store.enqueue(job).created
    assert make.unique() == (job.id, False)
