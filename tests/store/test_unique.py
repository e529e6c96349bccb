"""Unique keys: at most one job per key in its scope, and never an answer that names a job which is not there."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from duly.domain.ids import uuid7
from duly.domain.records import Enqueued, Settled
from duly.domain.states import State
from duly.domain.unique import dedupe_key
from duly.store import ops_enqueue
from duly.store.call import Op
from duly.store.store import Store
from duly.testing import TestClock
from tests.clock import us
from tests.store.factory import SETTLES, Factory, released, retried, snoozed, succeeded
from tests.store.raw import Raw

pytestmark = pytest.mark.everywhere

HOUR = us(3600)
RACES = [("skip", "live"), ("skip", "queued"), ("debounce", "queued"), ("replace", "live"), ("keep_latest", "live")]


def live_jobs(raw: Raw) -> int:
    return sum(raw.count(place) for place in ("scheduled", "waiting", "parked", "running"))


# -- skip ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("B5", "C3")
def test_second_enqueue_of_a_key_is_answered_with_the_first_job(make: Factory, raw: Raw) -> None:
    first = make.unique("feed:1")
    again = make.unique("feed:1", args='{"newer": true}')
    assert (first.created, again) == (True, Enqueued(first.id, created=False))
    assert make.get(first.id).args == "{}"
    assert raw.count("jobs") == 1


def test_other_keys_and_other_tenants_are_other_jobs(make: Factory, raw: Raw) -> None:
    assert all(
        make.unique(key, tenant=tenant).created for key, tenant in [("a", ""), ("b", ""), ("a", "acme"), ("a", "corp")]
    )
    assert raw.count("jobs") == 4


def test_a_key_of_mode_none_holds_nothing(make: Factory) -> None:
    assert make.unique("a", mode="none", scope="none").created
    assert make.unique("a", mode="none", scope="none").created


@pytest.mark.requirement("B5")
def test_equal_arguments_make_an_equal_key_whatever_their_order(make: Factory) -> None:
    first = make.unique(dedupe_key("send", None, {"a": 1, "b": [2, 3]}))
    assert not make.unique(dedupe_key("send", None, {"b": [2, 3], "a": 1})).created
    assert make.unique(dedupe_key("send", None, {"b": [3, 2], "a": 1})).id != first.id


def test_a_key_of_any_length_is_one_key(make: Factory) -> None:
    long = "k" * 100_000
    assert make.unique(long).created
    assert not make.unique(long).created
    assert make.unique(long + "!").created


# -- scopes -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("B5")
def test_scope_live_holds_the_key_until_the_job_has_ended(make: Factory) -> None:
    first = make.unique(scope="live")
    job = make.take()
    assert not make.unique(scope="live").created
    make.finish(job)
    second = make.unique(scope="live")
    assert second.created
    assert second.id != first.id


@pytest.mark.requirement("B5")
def test_scope_queued_frees_the_key_when_the_job_starts(make: Factory) -> None:
    make.unique(scope="queued")
    assert not make.unique(scope="queued").created
    make.take()
    assert make.unique(scope="queued").created


@pytest.mark.requirement("B5")
def test_scope_window_holds_the_key_for_its_time_whatever_becomes_of_the_job(make: Factory, clock: TestClock) -> None:
    first = make.unique(scope="window", unique_window_us=HOUR)
    make.finish(make.take())
    clock.advance(3599)
    assert make.unique(scope="window", unique_window_us=HOUR) == (first.id, False)
    clock.advance(1)
    assert make.unique(scope="window", unique_window_us=HOUR).created


def test_scope_window_holds_the_key_of_a_job_that_was_cancelled(make: Factory, store: Store) -> None:
    first = make.unique(scope="window", unique_window_us=HOUR)
    store.cancel(first.id, "enough")
    assert make.unique(scope="window", unique_window_us=HOUR) == (first.id, False)


def test_scope_queued_covers_jobs_scheduled_for_later(make: Factory) -> None:
    first = make.unique(scope="queued", delay_us=HOUR)
    assert make.unique(scope="queued") == (first.id, False)


@pytest.mark.parametrize("scope", ["live", "queued"])
@pytest.mark.parametrize("how", ["succeeded", "failed", "cancelled"])
def test_every_end_of_a_run_frees_the_key(make: Factory, raw: Raw, scope: str, how: str) -> None:
    make.unique(scope=scope)
    make.finish(make.take(), how)
    assert raw.count("unique_keys") == 0
    assert make.unique(scope=scope).created


@pytest.mark.parametrize("scope", ["live", "queued"])
@pytest.mark.parametrize("how", ["cancel", "delete", "end_by_hand"])
def test_every_end_without_a_run_frees_the_key(make: Factory, store: Store, raw: Raw, scope: str, how: str) -> None:
    first = make.unique(scope=scope)
    match how:
        case "cancel":
            store.cancel(first.id, "no longer wanted")
        case "delete":
            store.delete(first.id)
        case _:
            store.end_by_hand(first.id, State.SUCCEEDED, "done by phone")
    assert raw.count("unique_keys") == 0
    assert make.unique(scope=scope).created


def test_deleting_a_job_within_its_window_frees_the_key(make: Factory, store: Store) -> None:
    first = make.unique(scope="window", unique_window_us=HOUR)
    store.delete(first.id)
    assert make.unique(scope="window", unique_window_us=HOUR).created


def test_a_job_is_not_pruned_while_a_key_names_it(make: Factory, store: Store, clock: TestClock) -> None:
    first = make.unique(scope="window", unique_window_us=HOUR)
    make.finish(make.take())
    clock.advance(60)
    assert store.prune_jobs(State.SUCCEEDED, us(1)) == 0
    assert make.unique(scope="window", unique_window_us=HOUR) == (first.id, False)
    clock.advance(3600)
    store.prune_rest(HOUR)
    assert store.prune_jobs(State.SUCCEEDED, us(1)) == 1


# -- replace, debounce --------------------------------------------------------------------------------------------


@pytest.mark.requirement("B5")
@pytest.mark.parametrize("mode", ["replace", "debounce"])
def test_newest_arguments_win_while_the_job_waits(make: Factory, raw: Raw, mode: str) -> None:
    first = make.unique(mode=mode)
    again = make.unique(mode=mode, args='{"v": 2}', enqueued_by="later")
    assert again == (first.id, False)
    found = make.get(first.id)
    assert (found.args, found.enqueued_by) == ('{"v": 2}', "later")
    assert raw.count("jobs") == 1


def test_replace_keeps_the_place_in_the_queue(make: Factory, clock: TestClock) -> None:
    first = make.unique(mode="replace")
    clock.advance(1)
    other = make.enqueue()
    make.unique(mode="replace", args='{"v": 2}')
    assert [job.id for job in make.claim(2)] == [first.id, other]


def test_debounce_moves_the_job_to_the_new_time(make: Factory, store: Store, clock: TestClock) -> None:
    first = make.unique(mode="debounce", delay_us=us(10))
    for _ in range(5):
        clock.advance(9)
        make.unique(mode="debounce", delay_us=us(10))
        store.promote()
        assert make.claim() == []
    clock.advance(10)
    store.promote()
    assert make.take().id == first.id


def test_debounce_without_a_delay_sends_the_job_to_the_end_of_its_lane(make: Factory, clock: TestClock) -> None:
    first = make.unique(mode="debounce")
    clock.advance(1)
    other = make.enqueue()
    clock.advance(1)
    make.unique(mode="debounce", args='{"v": 2}')
    assert [job.id for job in make.claim(2)] == [other, first.id]


def test_debounce_does_not_forget_that_a_job_took_workers_with_it(make: Factory) -> None:
    first = make.unique(mode="debounce")
    for crashes in (1, 2):
        make.finish(make.take(), "queued", outcome="crashed", crashes=crashes)
    make.unique(mode="debounce", args='{"v": 2}')
    assert make.get(first.id).crashes == 2
    assert make.claim() == []
    assert make.take(suspect=True).id == first.id


@pytest.mark.parametrize("mode", ["replace", "debounce"])
def test_a_running_job_is_left_alone(make: Factory, mode: str) -> None:
    first = make.unique(mode=mode)
    make.take()
    assert make.unique(mode=mode, args='{"v": 2}') == (first.id, False)
    assert make.get(first.id).args == "{}"


def test_replace_in_scope_queued_makes_a_new_job_once_the_first_has_started(make: Factory) -> None:
    first = make.unique(mode="replace", scope="queued")
    make.take()
    second = make.unique(mode="replace", scope="queued", args='{"v": 2}')
    assert second.created
    assert second.id != first.id


# -- keep latest --------------------------------------------------------------------------------------------------


def keep_latest(make: Factory, args: str = "{}") -> Enqueued:
    return make.unique(mode="keep_latest", scope="live", args=args)


def test_keep_latest_changes_a_job_that_waits(make: Factory, raw: Raw) -> None:
    first = keep_latest(make)
    assert keep_latest(make, '{"v": 2}') == (first.id, False)
    assert make.get(first.id).args == '{"v": 2}'
    assert raw.count("jobs") == 1


def test_keep_latest_sets_exactly_one_aside_while_one_runs(make: Factory, raw: Raw) -> None:
    first = keep_latest(make)
    running = make.take()
    second = keep_latest(make, '{"v": 2}')
    third = keep_latest(make, '{"v": 3}')
    assert second.created
    assert third == (second.id, False)
    found = make.get(second.id)
    assert (found.state, found.reason, found.args) == (State.QUEUED, "parked: unique", '{"v": 3}')
    assert first.id in (found.detail or "")
    assert make.claim() == []
    make.finish(running)
    assert make.take().id == second.id
    assert raw.count("jobs") == 2


@pytest.mark.parametrize("how", ["succeeded", "failed", "cancelled"])
def test_the_job_set_aside_goes_into_its_lane_however_the_run_ends(make: Factory, how: str) -> None:
    keep_latest(make)
    running = make.take()
    second = keep_latest(make, '{"v": 2}')
    make.finish(running, how)
    job = make.take()
    assert (job.id, job.args) == (second.id, '{"v": 2}')
    assert not make.unique().created


def test_the_job_set_aside_waits_while_the_first_retries(make: Factory, store: Store, clock: TestClock) -> None:
    first = keep_latest(make)
    running = make.take()
    second = keep_latest(make, '{"v": 2}')
    make.retry_later(running, 10)
    clock.advance(10)
    store.promote()
    again = make.take()
    assert again.id == first.id
    make.finish(again)
    assert make.take().id == second.id


def test_cancelling_the_first_while_it_retries_starts_the_job_set_aside(make: Factory, store: Store) -> None:
    first = keep_latest(make)
    running = make.take()
    second = keep_latest(make, '{"v": 2}')
    make.retry_later(running)
    assert store.cancel(first.id, "stop") == ("cancelled", None)
    assert make.take().id == second.id


@pytest.mark.parametrize("how", ["cancel", "delete", "end_by_hand"])
def test_key_is_free_when_the_job_set_aside_is_gone_by_then(make: Factory, store: Store, raw: Raw, how: str) -> None:
    keep_latest(make)
    running = make.take()
    second = keep_latest(make, '{"v": 2}')
    match how:
        case "cancel":
            assert store.cancel(second.id, "stop") == ("cancelled", None)
        case "delete":
            assert store.delete(second.id) == "deleted"
        case _:
            assert store.end_by_hand(second.id, State.FAILED, "no") == "ended"
    make.finish(running)
    assert raw.count("unique_keys") == 0
    assert keep_latest(make).created


def test_after_the_job_set_aside_was_cancelled_another_can_be(make: Factory, store: Store) -> None:
    keep_latest(make)
    running = make.take()
    store.cancel(keep_latest(make).id, "stop")
    third = keep_latest(make, '{"v": 3}')
    assert third.created
    make.finish(running)
    assert make.take().id == third.id


def test_the_job_set_aside_cannot_be_made_to_run_beside_the_first(make: Factory, store: Store) -> None:
    first = keep_latest(make)
    make.take()
    second = keep_latest(make)
    assert store.retry(second.id) == ("held", first.id)
    assert store.reschedule(second.id) is False
    assert make.claim() == []


# -- retries meet keys --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["live", "queued"])
@pytest.mark.parametrize("how", ["scheduled", "queued"])
def test_a_job_that_goes_back_holds_its_key_again(make: Factory, scope: str, how: str) -> None:
    first = make.unique(scope=scope)
    make.finish(make.take(), how)
    assert make.unique(scope=scope) == (first.id, False)


@pytest.mark.parametrize("how", [retried, snoozed, released])
def test_a_retry_into_a_held_key_is_superseded(make: Factory, store: Store, how: Callable[..., Settled]) -> None:
    first = make.unique(scope="queued")
    running = make.take()
    second = make.unique(scope="queued")
    assert store.settle_keyed(how(running), running.hold)
    found = make.get(first.id)
    assert (found.state, found.reason) == (State.CANCELLED, f"superseded by {second.id}")
    assert make.unique(scope="queued") == (second.id, False)


def test_what_was_given_back_unstarted_is_superseded_too(make: Factory, store: Store) -> None:
    first = make.unique(scope="queued")
    running = make.take()
    second = make.unique(scope="queued")
    assert store.give_back([(running.id, running.token)]) == 1
    assert make.get(first.id).reason == f"superseded by {second.id}"


def test_a_job_whose_arguments_do_not_fit_is_superseded_too(make: Factory, store: Store) -> None:
    first = make.unique(scope="queued")
    running = make.take()
    second = make.unique(scope="queued")
    assert store.park(running.id, running.token, reason="arguments", detail="no such field", mark="v1")
    assert make.get(first.id).reason == f"superseded by {second.id}"


def test_a_parked_job_holds_its_key(make: Factory, store: Store) -> None:
    first = make.unique(scope="queued")
    running = make.take()
    store.park(running.id, running.token, reason="arguments", detail="no such field", mark="v1")
    assert make.unique(scope="queued") == (first.id, False)
    assert store.release_parked("send", "v2") == 1
    assert make.take().id == first.id


@pytest.mark.parametrize("scope", ["live", "queued"])
def test_a_worker_that_lost_its_lease_cannot_touch_the_key(make: Factory, store: Store, raw: Raw, scope: str) -> None:
    make.unique(scope=scope)
    stale = make.take()
    assert store.settle_keyed(released(stale), stale.hold)
    current = make.take()
    held = raw.rows("SELECT * FROM duly.unique_keys")
    for way in SETTLES.values():
        assert store.settle_keyed(way(stale), stale.hold) is False
        assert raw.rows("SELECT * FROM duly.unique_keys") == held
    assert store.settle_keyed(succeeded(current), current.hold)
    for way in SETTLES.values():
        assert store.settle_keyed(way(stale), stale.hold) is False
        assert raw.count("unique_keys") == 0
    assert make.unique(scope=scope).created


@pytest.mark.parametrize("scope", ["live", "queued"])
def test_one_that_was_asked_to_stop_and_is_given_back_frees_its_key(
    make: Factory, store: Store, raw: Raw, scope: str
) -> None:
    first = make.unique(scope=scope)
    job = make.take()
    store.cancel(first.id, "stop")
    assert store.give_back([(job.id, job.token)]) == 1
    assert make.state(first.id) == "cancelled"
    assert make.unique(scope=scope).created


def test_one_that_was_asked_to_stop_and_is_given_back_lets_the_job_set_aside_run(make: Factory, store: Store) -> None:
    make.unique(mode="keep_latest")
    job = make.take()
    following = make.unique(mode="keep_latest")
    store.cancel(job.id, "stop")
    store.give_back([(job.id, job.token)])
    assert make.take().id == following.id


@pytest.mark.parametrize("first", ["runs", "has ended"])
def test_who_holds_a_key_for_a_time_is_not_waited_for(make: Factory, first: str) -> None:
    """It never hands its key on: who was set aside behind it used to wait for ever."""
    make.unique(scope="window", unique_window_us=HOUR)
    job = make.take()
    if first == "has ended":
        make.finish(job)
    latest = make.unique(mode="keep_latest")
    assert latest.created
    assert make.take().id == latest.id


@pytest.mark.parametrize("scope", ["live", "queued", "window"])
def test_an_operators_retry_into_a_held_key_names_the_holder(
    make: Factory, store: Store, clock: TestClock, scope: str
) -> None:
    first = make.unique(scope=scope, unique_window_us=HOUR if scope == "window" else None)
    make.finish(make.take(), "failed")
    clock.advance(3600)
    second = make.unique(scope=scope, unique_window_us=HOUR if scope == "window" else None)
    assert store.retry(first.id) == ("held", second.id)
    assert make.state(first.id) == "failed"


@pytest.mark.parametrize("scope", ["live", "queued", "window"])
def test_an_operators_retry_takes_the_key_again(make: Factory, store: Store, scope: str) -> None:
    first = make.unique(scope=scope, unique_window_us=HOUR if scope == "window" else None)
    make.finish(make.take(), "failed")
    assert store.retry(first.id) == ("queued", None)
    assert make.unique(scope=scope, unique_window_us=HOUR if scope == "window" else None) == (first.id, False)


def test_an_operators_retry_does_not_change_the_scope(make: Factory, store: Store) -> None:
    first = make.unique(scope="queued")
    make.finish(make.take(), "failed")
    store.retry(first.id)
    make.take()
    assert make.unique(scope="queued").created


def test_an_operators_retry_within_the_window_leaves_the_window_as_it_was(
    make: Factory, store: Store, clock: TestClock, raw: Raw
) -> None:
    """It used to count on its key until it ended, which it lost to the next comer when the window was over."""
    first = make.unique(scope="window", unique_window_us=HOUR)
    make.finish(make.take(), "failed")
    store.retry(first.id)
    clock.advance(3600)
    second = make.unique(scope="window", unique_window_us=HOUR)
    assert second.created
    assert raw.rows("SELECT hold FROM duly.waiting") == [(3,), (3,)]


def test_an_operators_retry_of_a_job_without_a_key_takes_none(make: Factory, store: Store, raw: Raw) -> None:
    first = make.unique("a", mode="none", scope="none")
    make.finish(make.take(), "failed")
    assert store.retry(first.id) == ("queued", None)
    assert raw.count("unique_keys") == 0


# -- repeated enqueues --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["live", "queued", "window"])
def test_an_enqueue_repeated_at_once_is_the_same_job(make: Factory, store: Store, raw: Raw, scope: str) -> None:
    job = make.new(unique_key="k", unique_mode="skip", unique_scope=scope, unique_window_us=HOUR)
    assert store.enqueue(job) == store.enqueue(job) == (job.id, True)
    assert raw.count("jobs") == 1


@pytest.mark.parametrize("scope", ["live", "queued"])
def test_an_enqueue_repeated_after_its_job_has_ended_leaves_the_key_free(
    make: Factory, store: Store, raw: Raw, scope: str
) -> None:
    job = make.new(unique_key="k", unique_mode="skip", unique_scope=scope)
    store.enqueue(job)
    make.finish(make.take())
    assert store.enqueue(job) == (job.id, True)
    assert raw.count("unique_keys") == 0
    assert make.unique(scope=scope).created


def test_an_enqueue_repeated_while_its_job_runs_leaves_a_queued_key_free(make: Factory, store: Store) -> None:
    job = make.new(unique_key="k", unique_mode="skip", unique_scope="queued")
    store.enqueue(job)
    make.take()
    store.enqueue(job)
    assert make.unique(scope="queued").created


@pytest.mark.parametrize("mode", ["skip", "replace", "debounce", "keep_latest"])
@pytest.mark.parametrize("other", ["waits", "runs"])
def test_an_enqueue_repeated_when_another_has_its_key_is_the_same_job_and_changes_nothing(
    make: Factory, store: Store, raw: Raw, mode: str, other: str
) -> None:
    """Kept behind another, it used to be parked a second time, beside where it had ended."""
    job = make.new(args='{"old": 1}', unique_key="k", unique_mode=mode, unique_scope="live")
    store.enqueue(job)
    make.finish(make.take())
    second = make.unique(args='{"new": 1}')
    if other == "runs":
        make.take()
    assert store.enqueue(job) == (job.id, True)
    assert make.state(job.id) == "succeeded"
    assert make.get(second.id).args == '{"new": 1}'
    assert raw.count("parked") == 0


# -- many at once -------------------------------------------------------------------------------------------------


def bulk(make: Factory, store: Store, keys: list[str | None], **options: Any) -> list[Enqueued]:
    how: dict[str, Any] = {"unique_mode": "skip", "unique_scope": "live", **options}
    rows = [(uuid7(), f'{{"n": {n}}}', key) for n, key in enumerate(keys)]
    return store.enqueue_many(make.new(**how), rows)


@pytest.mark.requirement("B5")
def test_in_bulk_each_key_makes_one_job(make: Factory, store: Store, raw: Raw) -> None:
    answers = bulk(make, store, ["b", "a", "b", "c", "a"])
    assert [each.created for each in answers] == [True, True, False, True, False]
    assert answers[2].id == answers[0].id
    assert answers[4].id == answers[1].id
    assert raw.count("jobs") == raw.count("unique_keys") == 3


def test_in_bulk_a_held_key_is_answered_with_its_holder(make: Factory, store: Store) -> None:
    held = make.unique("b")
    answers = bulk(make, store, ["a", "b", "c"])
    assert [each.created for each in answers] == [True, False, True]
    assert answers[1].id == held.id


def test_in_bulk_jobs_without_a_key_are_all_made(make: Factory, store: Store, raw: Raw) -> None:
    answers = bulk(make, store, [None, "a", None, "a", None])
    assert [each.created for each in answers] == [True, True, True, False, True]
    assert raw.count("unique_keys") == 1
    assert [each.created for each in bulk(make, store, [None, None])] == [True, True]


@pytest.mark.parametrize("mode", ["replace", "debounce", "keep_latest"])
def test_in_bulk_the_last_arguments_win(make: Factory, store: Store, mode: str) -> None:
    held = make.unique("b", mode=mode)
    answers = bulk(make, store, ["a", "b", "a", "b"], unique_mode=mode)
    assert [each.created for each in answers] == [True, False, False, False]
    assert make.get(answers[0].id).args == '{"n": 2}'
    assert make.get(held.id).args == '{"n": 3}'


def test_a_bulk_enqueue_with_keys_may_be_repeated(make: Factory, store: Store, raw: Raw) -> None:
    rows = [(uuid7(), "{}", key) for key in ("a", "b", "a", None)]
    model = make.new(unique_mode="skip", unique_scope="live")
    first = store.enqueue_many(model, rows)
    make.finish(make.take())
    again = store.enqueue_many(model, rows)
    assert again[0] == first[0]
    assert again[1] == first[1]
    assert again[3] == first[3]
    assert raw.rows("SELECT count(*) FROM duly.jobs WHERE unique_key IS NULL") == [(1,)]


def test_bulk_calls_in_opposite_order_do_not_deadlock(make: Factory, store: Store, raw: Raw) -> None:
    keys: list[str | None] = [f"k{n:05}" for n in range(300)]
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(bulk, make, store, keys[::step]) for step in (1, -1) * 4]
        answers = [call.result() for call in calls]
    assert raw.count("jobs") == 300
    assert sum(each.created for answer in answers for each in answer) == 300


# -- races --------------------------------------------------------------------------------------------------------


class RollBack(Exception):
    """The caller of this enqueue changed its mind."""


@pytest.mark.requirement("B5", "C3")
@pytest.mark.parametrize("mode", ["skip", "replace", "debounce", "keep_latest"])
def test_fifty_threads_and_random_rollbacks_leave_at_most_one_live_job(
    make: Factory, store: Store, raw: Raw, mode: str
) -> None:
    """F27: and no answer that was committed names a job that does not exist."""
    chance = random.Random(27)
    coins = [chance.random() < 0.4 for _ in range(50)]
    barrier = threading.Barrier(50)

    def enqueue(rolls_back: bool) -> Enqueued | None:
        job = make.new(unique_key="k", unique_mode=mode, unique_scope="live")

        def op() -> Op[Enqueued]:
            answer = yield from ops_enqueue.enqueue(store.dialect, job)
            if rolls_back:
                raise RollBack
            return answer

        barrier.wait()
        try:
            return store.run(op)
        except RollBack:
            return None

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(enqueue, coins))
    committed = [answer for answer in answers if answer is not None]
    assert len(committed) == coins.count(False)
    assert live_jobs(raw) == raw.count("jobs") == 1
    assert sum(answer.created for answer in committed) == 1
    for answer in committed:
        assert store.get(answer.id) is not None


@pytest.mark.parametrize("mode,scope", RACES)
def test_keys_stay_true_while_producers_workers_and_operators_race(
    make: Factory, store: Store, raw: Raw, mode: str, scope: str
) -> None:
    """Enqueue, claim, finish, retry and cancel at once; the invariants are checked when the test is over."""
    over = threading.Event()

    def produce(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(60):
            answer = make.unique(chance.choice("abc"), mode=mode, scope=scope, delay_us=chance.choice([0, 0, 1]))
            assert store.get(answer.id) is not None
            if chance.random() < 0.1:
                store.cancel(answer.id, "changed my mind")
            if chance.random() < 0.1:
                store.retry(answer.id)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        while not over.is_set() or raw.count("waiting"):
            make.clock.advance(0.001)
            store.promote()
            for job in make.claim(3):
                make.finish(job, chance.choice(["succeeded", "succeeded", "failed", "scheduled", "queued"]), delay_us=1)

    with ThreadPoolExecutor(5) as pool:
        workers = [pool.submit(work, seed) for seed in (1, 2)]
        for producer in [pool.submit(produce, seed) for seed in (3, 4, 5)]:
            producer.result()
        over.set()
        for worker in workers:
            worker.result()
    queued = [row[0] for row in raw.rows("SELECT unique_key FROM duly.jobs j JOIN duly.waiting w ON w.id = j.id")]
    assert len(queued) == len(set(queued))
