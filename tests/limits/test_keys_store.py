"""Keys in the store: jobs with one key share its slots; each is let into its lane only while there is room."""

from __future__ import annotations

from typing import Any

import pytest

from duly.domain.limits import Breaker, Rate, Says
from duly.store.ops_keys import Freed, group_of
from tests.clock import us
from tests.limits.keyed import Keyed

pytestmark = pytest.mark.requirement("D6")


def test_no_more_than_the_slots_of_a_key_come_into_their_lane(keyed: Keyed) -> None:
    keyed.says(2)
    ids = [keyed.put() for _ in range(4)]
    assert keyed.places(ids) == ["waiting", "waiting", "key", "key"]
    assert keyed.place(keyed.put("other")) == "waiting"
    assert len(keyed.grab()) == 3
    assert keyed.grab() == []


def test_the_next_comes_in_by_rank_in_the_transaction_that_frees_the_slot(keyed: Keyed) -> None:
    keyed.says(1)
    first, late, early = keyed.put(), keyed.put(priority=1), keyed.put(priority=9)
    [job] = keyed.grab(1)
    assert job.id == early, "the best of them had the place, though it came last"
    freed = Freed([job.limit_key or ""])
    keyed.store.settle([], freed=freed)
    assert not freed.lanes
    keyed.end(job)
    assert keyed.places([first, late]) == ["key", "waiting"]
    [job] = keyed.grab()
    assert job.id == late


@pytest.mark.parametrize("how", ["succeeded", "failed", "cancelled", "retried", "snoozed"])
def test_however_a_run_ends_its_slot_goes_to_the_next(keyed: Keyed, how: str) -> None:
    keyed.says(1)
    _, second = keyed.put(), keyed.put()
    [job] = keyed.grab()
    keyed.end(job, how=how)
    assert keyed.place(second) == "waiting"


@pytest.mark.parametrize("how", ["released", "crashed"])
def test_a_run_that_goes_back_to_its_lane_keeps_its_slot(keyed: Keyed, how: str) -> None:
    keyed.says(1)
    first, second = keyed.put(), keyed.put()
    [job] = keyed.grab()
    keyed.end(job, how=how)
    assert keyed.places([first, second]) == ["waiting", "key"]


@pytest.mark.parametrize("verb", ["cancel", "delete", "later", "end"])
def test_a_job_that_is_taken_out_of_its_lane_makes_room(keyed: Keyed, verb: str) -> None:
    keyed.says(1)
    first, second = keyed.put(), keyed.put()
    match verb:
        case "cancel":
            keyed.store.cancel(first, "stop")
        case "delete":
            keyed.store.delete(first)
        case _:
            keyed.store.reschedule(first, run_at=None, delay_us=us(60))
    assert (keyed.store.next_due_us() or 0) <= 0, "somebody must look"
    keyed.look()
    assert keyed.place(second) == "waiting"


def test_a_job_that_is_put_back_now_counts_when_it_is_let_in_again(keyed: Keyed) -> None:
    keyed.says(1)
    first = keyed.put()
    keyed.store.reschedule(first, run_at=None, delay_us=0)
    keyed.look()
    second = keyed.put()
    assert keyed.places([first, second]) == ["waiting", "key"]
    keyed.look()
    assert len(keyed.grab()) == 1


@pytest.mark.parametrize("how", ["released", "crashed"])
def test_a_run_that_goes_back_while_its_key_is_closed_waits_for_it(keyed: Keyed, how: str) -> None:
    keyed.says(1)
    first = keyed.put()
    [job] = keyed.grab()
    keyed.pause()
    keyed.end(job, how=how)
    assert keyed.place(first) == "key"
    assert keyed.grab() == []
    keyed.resume()
    keyed.look()
    assert keyed.place(first) == "waiting"


def test_a_newcomer_with_a_better_rank_changes_places_with_one_that_has_not_started(keyed: Keyed) -> None:
    keyed.says(2)
    low = [keyed.put() for _ in range(3)]
    urgent = keyed.put(priority=100)
    assert keyed.places([*low, urgent]) == ["waiting", "key", "key", "waiting"]
    assert [job.id for job in keyed.grab(1)] == [urgent]


def test_a_newcomer_does_not_push_out_what_runs(keyed: Keyed) -> None:
    keyed.says(1)
    keyed.put()
    assert len(keyed.grab()) == 1
    urgent = keyed.put(priority=100)
    assert keyed.place(urgent) == "key"


def test_a_boost_of_a_job_that_waits_for_its_key_lets_it_in_first(keyed: Keyed) -> None:
    keyed.says(1)
    first, second = keyed.put(), keyed.put()
    keyed.store.set_priority(second, 90)
    keyed.look()
    assert keyed.places([first, second]) == ["key", "waiting"]


def test_a_closed_key_holds_back_what_has_not_started(
    keyed: Keyed,
) -> None:
    keyed.says(2)
    ids = [keyed.put() for _ in range(3)]
    keyed.pause(seconds=60)
    assert keyed.places(ids) == ["key"] * 3
    assert keyed.place(keyed.put()) == "key"
    assert keyed.place(keyed.put("other")) == "waiting"
    keyed.clock.advance(61)
    keyed.look()
    assert keyed.places(ids) == ["waiting", "waiting", "key"]


def test_the_breaker_keeps_a_longer_wish_to_be_left_alone(keyed: Keyed) -> None:
    keyed.says(2, breaker=Breaker(rate=0.5, least=1, cooldown=5))
    keyed.put()
    [job] = keyed.grab()
    keyed.block(seconds=600)
    keyed.end(job, how="failed", counted=True)
    second = keyed.put()
    keyed.clock.advance(60)
    keyed.look()
    assert keyed.place(second) == "key"


def test_a_rate_that_is_set_by_hand_for_one_key_holds(keyed: Keyed) -> None:
    keyed.says(None)
    keyed.store.gates.set_key_limit("send/x", Says.limits(None, Rate(1, us(60), 1)))
    ids = [keyed.put() for _ in range(3)]
    started = 0
    for _ in range(5):
        gates = [limit.gate for limit in keyed.store.gates.limits() if limit.binds_claims]
        jobs = keyed.grab(metered=bool(gates))
        started += len(jobs)
        keyed.end(*jobs)
        keyed.look()
    assert started == 1, keyed.places(ids)


@pytest.mark.parametrize("scope", ["task", "keys"])
def test_the_rate_of_one_key_holds_though_a_limit_beside_it_is_taken_back(keyed: Keyed, scope: str) -> None:
    keyed.says(None)
    keyed.store.gates.set_key_limit("send/x", Says.limits(None, Rate(1, us(60), 1)))
    keyed.store.gates.set_limit(scope, "send", Says(slots=9))
    keyed.store.gates.unset_limit(scope, "send")
    metered = {each.gate for each in keyed.store.gates.limits() if each.says.meters_keys}
    assert metered == {("task", "send"), ("keys", "send")}


@pytest.mark.parametrize(
    "key, group", [("send/x", "send"), ("send@acme/x", "send"), ("send/x/y@z", "send"), ("g/a@b", "g")]
)
def test_the_group_of_a_key(keyed: Keyed, key: str, group: str) -> None:
    assert group_of(key) == group


def test_the_last_job_that_a_rate_lets_in_is_counted_too(keyed: Keyed) -> None:
    """Its key has nothing more to say when it opens, but a start to count."""
    keyed.says(None, Rate(1, us(60), 1))
    keyed.put()
    keyed.put()
    keyed.end(*keyed.grab(metered=True))
    keyed.clock.advance(61)
    keyed.look()
    [second] = keyed.grab(metered=True)
    keyed.end(second)
    third = keyed.put()
    assert keyed.place(third) == "key"


# -- new arguments ------------------------------------------------------------------------------------------------


def replaced(keyed: Keyed, key: str | None, *, mode: str = "replace", **options: Any) -> str:
    """Enqueue a job with a unique key, or give new arguments to the one that waits."""
    limit_key = None if key is None else f"send/{key}"
    return keyed.unique("u", mode=mode, args=f'{{"to": "{key}"}}', limit_key=limit_key, **options).id


@pytest.mark.parametrize("stands", ["waiting", "key"])
def test_a_job_whose_new_arguments_have_another_key_moves_to_it(keyed: Keyed, stands: str) -> None:
    keyed.says(1)
    if stands == "key":
        keyed.put("x")
    job_id = replaced(keyed, "x")
    keyed.look()
    before = keyed.get(job_id)
    assert keyed.place(job_id) == stands
    first_of_other, second_of_old = keyed.put("y"), keyed.put("x")
    keyed.clock.advance(1)
    assert replaced(keyed, "y") == job_id
    keyed.look()
    assert keyed.places([job_id, first_of_other]) == ["key", "waiting"]
    assert keyed.place(second_of_old) == ("key" if stands == "key" else "waiting"), "where it stood is free"
    assert (keyed.get(job_id).run_at, keyed.get(job_id).args) == (before.run_at, '{"to": "y"}')
    jobs = keyed.grab()
    assert job_id not in [job.id for job in jobs]
    keyed.end(*jobs)
    assert (job_id, "send/y") in [(job.id, job.limit_key) for job in keyed.grab()]


def test_a_job_whose_new_arguments_have_no_key_leaves_the_one_it_had(keyed: Keyed) -> None:
    keyed.says(1)
    job_id = replaced(keyed, "x")
    keyed.look()
    others = [keyed.put("x", priority=9), keyed.put("x")]
    assert keyed.places([job_id, *others]) == ["key", "waiting", "key"]
    [first] = keyed.grab()
    keyed.end(first)
    assert keyed.places([job_id, *others]) == ["waiting", "ended", "key"]
    assert replaced(keyed, None) == job_id
    assert keyed.place(job_id) == "waiting"
    better = keyed.put("x", priority=9)
    assert keyed.places([job_id, better]) == ["waiting", "waiting"], "nor is it put aside for one that has that key"
    assert {job.id for job in keyed.grab()} == {job_id, better}
    assert keyed.place(others[1]) == "key"


def test_a_job_for_later_keeps_its_time_when_its_key_changes(keyed: Keyed) -> None:
    keyed.says(1)
    job_id = replaced(keyed, "x", delay_us=us(60))
    due = keyed.get(job_id).run_at
    assert replaced(keyed, "y") == job_id
    assert (keyed.place(job_id), keyed.get(job_id).run_at) == ("scheduled", due)
    keyed.clock.advance(60)
    other = keyed.put("y")
    assert keyed.places([job_id, other]) == ["waiting", "key"]


@pytest.mark.parametrize("key", [None, "x"])
@pytest.mark.parametrize("mode", ["replace", "debounce"])
def test_a_job_set_aside_for_its_arguments_may_try_with_new_ones(keyed: Keyed, key: str | None, mode: str) -> None:
    keyed.says(1)
    job_id = replaced(keyed, key, mode=mode)
    keyed.look()
    [job] = keyed.grab()
    assert keyed.store.park(job.id, job.token, reason="arguments", detail="no", mark="v1", freed=Freed({"send/x"}))
    assert keyed.place(job_id) == "arguments"
    assert replaced(keyed, key, mode=mode) == job_id
    keyed.look()
    [again] = keyed.grab()
    assert (again.id, again.attempt) == (job_id, 1)


def test_the_job_that_follows_another_goes_to_the_key_of_its_newest_arguments(keyed: Keyed) -> None:
    keyed.says(1)
    replaced(keyed, "x", mode="keep_latest")
    keyed.look()
    [job] = keyed.grab()
    following = replaced(keyed, "x", mode="keep_latest")
    assert replaced(keyed, "y", mode="keep_latest") == following
    assert keyed.place(following) == "unique"
    assert keyed.finish(job)
    keyed.look()
    assert [(each.id, each.limit_key) for each in keyed.grab()] == [(following, "send/y")]
