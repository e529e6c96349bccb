"""Leases: who renews keeps its run, who does not loses it, and no other clock than the lease clock has a say."""

from __future__ import annotations

from datetime import timedelta

import pytest

from duly.domain.ids import uuid7
from duly.domain.records import Settled, WorkerRecord
from duly.domain.states import State
from duly.store.ops_workers import Seen
from duly.store.store import Store
from duly.testing import TestClock
from tests.clock import boot, set_wall_clock, us
from tests.store.factory import LEASE, ME, OTHER_WORKER, WORKER, Factory, add_worker, crashed, released, succeeded
from tests.store.raw import Raw

pytestmark = pytest.mark.everywhere

SECOND = timedelta(seconds=1)


def lapsed_ids(store: Store) -> list[str]:
    return [run.id for run in store.lapsed(us(LEASE))]


# -- renew --------------------------------------------------------------------------------------------------------


def test_a_renewed_lease_does_not_lapse(make: Factory, store: Store, clock: TestClock) -> None:
    job = make.running()
    for _ in range(10):
        clock.advance(LEASE - SECOND)
        assert store.renew([(job.id, job.token)], us(LEASE)) == {job.id: False}
        assert lapsed_ids(store) == []


def test_renewing_names_each_run_and_no_other(make: Factory, store: Store, clock: TestClock) -> None:
    """A job that this worker holds but does not know of (a lost reply) is not kept alive."""
    make.many(3)
    jobs = make.claim(3)
    clock.advance(LEASE - SECOND)
    store.renew([(job.id, job.token) for job in jobs[:2]], us(LEASE))
    clock.advance(SECOND)
    assert lapsed_ids(store) == [jobs[2].id]


def test_renewing_says_which_runs_still_hold(make: Factory, store: Store) -> None:
    make.many(3)
    jobs = make.claim(3)
    make.settle(succeeded(jobs[0]))
    make.settle(released(jobs[1]))
    make.take(worker=OTHER_WORKER)
    assert store.renew([(job.id, job.token) for job in jobs], us(LEASE)) == {jobs[2].id: False}
    assert store.renew([], us(LEASE)) == {}


def test_renewing_says_who_was_asked_to_stop(make: Factory, store: Store) -> None:
    make.many(2)
    first, second = make.claim(2)
    store.cancel(second.id, "enough")
    pairs = [(job.id, job.token) for job in (first, second)]
    assert store.renew(pairs, us(LEASE)) == {first.id: False, second.id: True}


def test_a_late_renewal_holds_while_nobody_has_taken_the_run(make: Factory, store: Store, clock: TestClock) -> None:
    """After an outage for all, the one who lives goes on."""
    job = make.running()
    clock.advance(LEASE * 3)
    assert store.renew([(job.id, job.token)], us(LEASE)) == {job.id: False}
    assert lapsed_ids(store) == []


def test_a_worker_learns_which_of_its_runs_were_asked_to_stop(make: Factory, store: Store) -> None:
    make.many(3)
    first, _ = make.claim(2)
    (other,) = make.claim(1, worker=OTHER_WORKER)
    store.cancel(first.id, "enough")
    store.cancel(other.id, "enough")
    assert store.cancel_requests(WORKER) == [(first.id, first.token, "enough")]
    assert store.cancel_requests(OTHER_WORKER) == [(other.id, other.token, "enough")]


# -- rescue -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("D1")
def test_a_run_lapses_when_its_lease_is_over_and_not_before(make: Factory, store: Store, clock: TestClock) -> None:
    job = make.running(max_attempts=7, retry="{}")
    clock.advance(LEASE - timedelta(microseconds=1))
    assert store.lapsed(us(LEASE)) == []
    clock.advance(timedelta(microseconds=1))
    assert store.lapsed(us(LEASE)) == [(job.id, 1, 1, 0, WORKER, 7, "{}", "lease", 0, None)]


def test_a_run_past_its_deadline_lapses_though_it_is_renewed(make: Factory, store: Store, clock: TestClock) -> None:
    """A worker that renews and does not stop a run whose time is up has hung."""
    job = make.running(timeout_us=us(5))
    clock.advance(LEASE)
    store.renew([(job.id, job.token)], us(LEASE))
    clock.advance(4)
    assert lapsed_ids(store) == []
    clock.advance(1)
    assert [run.why for run in store.lapsed(us(LEASE))] == ["deadline"]


def test_the_deadline_of_a_run_that_has_not_begun_is_put_off_when_it_is_renewed(
    make: Factory, store: Store, clock: TestClock
) -> None:
    """A child process may take longer than a lease to start; a timeout is for what a handler takes."""
    make.many(3, timeout_us=us(5))
    late, begun, other = make.claim(3)
    clock.advance(LEASE)
    pairs = [(job.id, job.token) for job in (late, begun, other)]
    assert store.renew(pairs, us(LEASE), [late.id]) == {job.id: False for job in (late, begun, other)}
    clock.advance(5)
    assert lapsed_ids(store) == sorted([begun.id, other.id])
    clock.advance(LEASE - 5 * SECOND)
    store.renew([(late.id, late.token)], us(LEASE), [])
    clock.advance(5 * SECOND - timedelta(microseconds=1))
    assert late.id not in lapsed_ids(store)
    clock.advance(timedelta(microseconds=1))
    assert late.id in lapsed_ids(store)


def test_putting_off_gives_no_deadline_to_a_run_without_a_timeout(make: Factory, store: Store, raw: Raw) -> None:
    job = make.running()
    store.renew([(job.id, job.token)], us(LEASE), [job.id])
    assert raw.rows("SELECT deadline_at FROM duly.running") == [(None,)]


def test_setting_the_wall_clock_robs_no_one(make: Factory, store: Store, clock: TestClock) -> None:
    job = make.running()
    set_wall_clock(clock, timedelta(hours=5))
    assert lapsed_ids(store) == []
    set_wall_clock(clock, timedelta(days=-3))
    clock.advance(LEASE)
    assert lapsed_ids(store) == [job.id]


def test_lapsed_runs_are_found_page_by_page(make: Factory, store: Store, clock: TestClock) -> None:
    make.many(5)
    jobs = make.claim(5)
    clock.advance(LEASE)
    assert [run.id for run in store.lapsed(us(LEASE), 3)] == sorted(job.id for job in jobs)[:3]


@pytest.mark.requirement("D1")
def test_a_rescued_job_runs_again_and_the_loser_cannot_finish(make: Factory, store: Store, clock: TestClock) -> None:
    loser = make.running()
    clock.advance(LEASE)
    assert make.settle(crashed(loser), only_expired=True) == {loser.id}
    winner = make.take(worker=OTHER_WORKER)
    assert winner.token > loser.token
    assert make.settle(succeeded(loser, result="1")) == set()
    assert make.settle(succeeded(winner, result="2")) == {winner.id}
    assert [(run.outcome, run.result) for run in store.runs_of(loser.id)] == [("crashed", None), ("succeeded", "2")]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_rescue_that_comes_late_finds_nothing_to_rescue(
    make: Factory, store: Store, clock: TestClock, keyed: bool
) -> None:
    """F6: between the rescuer's look and its write the worker renewed, or finished."""
    for _ in range(2):
        if keyed:
            make.unique(f"k{_}")
        else:
            make.enqueue()
    renewed, finished = make.claim(2)
    clock.advance(LEASE)
    assert len(store.lapsed(us(LEASE))) == 2
    store.renew([(renewed.id, renewed.token)], us(LEASE))
    make.finish(finished)
    for job in (renewed, finished):
        assert store.settle_keyed(crashed(job), job.hold, only_expired=True) is False
    assert (make.state(renewed.id), make.state(finished.id)) == ("running", "succeeded")


def test_a_rescue_by_deadline_is_guarded_too(make: Factory, clock: TestClock) -> None:
    job = make.running(timeout_us=us(5))
    assert make.settle(crashed(job), only_expired=True) == set()
    clock.advance(us(LEASE) / 1e6 + 5)
    assert make.settle(crashed(job), only_expired=True) == {job.id}


def test_the_runs_of_a_worker_known_to_be_gone_are_found_at_once(make: Factory, store: Store) -> None:
    make.many(3)
    mine = make.claim(2)
    make.claim(1, worker=OTHER_WORKER)
    found = store.held_by_dead(WORKER)
    assert sorted((run.id, run.token, run.why) for run in found) == sorted((job.id, job.token, "gone") for job in mine)
    assert len(store.held_by_dead(WORKER, 1)) == 1


def reboot(clock: TestClock, after: timedelta = timedelta(minutes=1)) -> None:
    """The machine is off for a minute; then the lease clock begins anew, and runs for `after`."""
    clock.advance(timedelta(minutes=1) + after)
    boot(clock, after)


def before_boot(store: Store) -> list[str]:
    return [run.id for run in store.held_before_boot(us(LEASE))]


def seen(store: Store, worker_id: str) -> None:
    store.add_worker(worker_id, ME, lease_us=us(LEASE), queues="[]", tasks="[]", slots=1, wake=None, version="0")


@pytest.mark.parametrize("uptime", [timedelta(minutes=10), timedelta(days=400)])
@pytest.mark.parametrize("on_record", [False, True])
def test_runs_of_an_earlier_boot_are_found_though_their_leases_lie_ahead(
    make: Factory, store: Store, clock: TestClock, raw: Raw, uptime: timedelta, on_record: bool
) -> None:
    boot(clock, uptime)
    job = make.running()
    if on_record:
        seen(store, WORKER)
    reboot(clock)
    assert before_boot(store) == ([] if raw.is_postgres else [job.id])
    if raw.is_postgres:
        return
    new = make.running("new", tenant="other")
    (run,) = store.held_before_boot(us(LEASE))
    assert (run.token, run.why) == (job.token, "gone")
    assert make.settle(crashed(job)) == {job.id}
    assert before_boot(store) == []
    assert make.settle(succeeded(new)) == {new.id}


def test_no_live_run_is_taken_for_one_of_an_earlier_boot(make: Factory, store: Store, clock: TestClock) -> None:
    boot(clock, timedelta(hours=1))
    make.many(3)
    (short,) = make.claim(1)
    (long,) = make.claim(1, lease=timedelta(days=2))
    (recorded,) = make.claim(1, lease=timedelta(days=2), worker=OTHER_WORKER)
    assert before_boot(store) == []
    set_wall_clock(clock, timedelta(days=3))  # forward: a machine that boots without a clock of its own
    seen(store, OTHER_WORKER)
    assert short.id not in before_boot(store)
    assert recorded.id not in before_boot(store)
    set_wall_clock(clock, timedelta(days=-3))
    assert before_boot(store) == []
    store.renew([(each.id, each.token) for each in (short, long, recorded)], us(LEASE))
    assert before_boot(store) == []


def test_a_rescuer_needs_nothing_but_the_row(make: Factory, store: Store, clock: TestClock) -> None:
    """F8: attempts and policy are on the row, so a process that does not know the task can rescue it."""
    make.running(max_attempts=1, retry='{"kind": "fixed"}')
    clock.advance(LEASE)
    (run,) = store.lapsed(us(LEASE))
    assert (run.max_attempts, run.attempt, run.retry) == (1, 1, '{"kind": "fixed"}')
    end = Settled(run.id, run.token, "failed", "crashed", crashes=1, reason="attempts used up")
    assert make.settle(end, only_expired=True) == {run.id}


def test_when_the_next_lease_could_lapse_is_known(make: Factory, store: Store, clock: TestClock) -> None:
    assert store.next_lapse_us() is None
    make.running()
    clock.advance(5)
    make.running(timeout_us=1)
    assert store.next_lapse_us() == us(LEASE) - us(5)
    clock.advance(LEASE)
    assert store.next_lapse_us() == -us(5)


def test_a_job_may_outlive_every_worker(make: Factory, store: Store, clock: TestClock) -> None:
    """I5: whatever happens, the token only grows."""
    job_id = make.enqueue()
    tokens: list[int] = []
    for _ in range(5):
        job = make.take(suspect=len(tokens) > 1)
        tokens.append(job.token)
        clock.advance(LEASE)
        make.settle(crashed(job), only_expired=True)
    assert tokens == [1, 2, 3, 4, 5]
    assert make.get(job_id).crashes == 5


# -- workers on record --------------------------------------------------------------------------------------------


def test_a_worker_is_on_record_from_start_to_stop(make: Factory, store: Store, clock: TestClock) -> None:
    add_worker(store)
    assert store.workers() == [
        WorkerRecord(
            id=WORKER,
            process=ME,
            started_at=clock.now_us(),
            seen_at=clock.now_us(),
            lease_us=us(LEASE),
            queues="default",
            tasks="send",
            slots=10,
            wake=None,
            idle=True,
            state="running",
            version="1",
            silent_us=0,
        )
    ]
    store.remove_worker(WORKER)
    assert store.workers() == []


def test_a_worker_says_that_it_lives_and_hears_what_comes(make: Factory, store: Store, clock: TestClock) -> None:
    add_worker(store)
    clock.advance(7)
    assert [worker.silent_us for worker in store.workers()] == [us(7)]
    assert store.see_worker(WORKER, "draining")[:3] == (True, None, None)
    make.enqueue(delay_us=us(40))
    make.enqueue()
    make.take(worker=OTHER_WORKER)
    assert store.see_worker(WORKER, "draining")[:3] == (True, us(40), us(LEASE))
    (worker,) = store.workers()
    assert (worker.silent_us, worker.state) == (0, "draining")


def test_a_worker_says_how_much_memory_it_has(store: Store) -> None:
    add_worker(store)
    assert [worker.memory_bytes for worker in store.workers()] == [None]
    store.see_worker(WORKER, "running", None, 84 * 2**20)
    store.see_worker(WORKER, "running")  # one that cannot tell takes nothing away
    assert [worker.memory_bytes for worker in store.workers()] == [84 * 2**20]


def test_a_worker_struck_off_hears_that_it_was(store: Store) -> None:
    assert store.see_worker(WORKER, "running") == Seen(known=False)


def test_a_worker_says_whether_it_needs_waking(store: Store) -> None:
    add_worker(store)
    store.set_idle(WORKER, False)
    assert [worker.idle for worker in store.workers()] == [False]
    store.set_idle(WORKER, True)
    assert [worker.idle for worker in store.workers()] == [True]


def test_workers_long_silent_are_forgotten_unless_they_hold_something(
    make: Factory, store: Store, clock: TestClock
) -> None:
    add_worker(store)
    add_worker(store, OTHER_WORKER)
    make.running()
    clock.advance(timedelta(days=1) + LEASE + SECOND)
    new = uuid7()
    add_worker(store, new)
    store.prune_rest(us(timedelta(days=400)))
    assert {worker.id for worker in store.workers()} == {WORKER, new}


def test_counts_say_how_many_jobs_stand_where(make: Factory, store: Store, raw: Raw, clock: TestClock) -> None:
    make.ended("failed")
    make.ended("succeeded")
    parked = make.running()
    store.park(parked.id, parked.token, reason="arguments", detail="", mark="")
    make.running("a", tenant="acme")
    start = clock.now_us()
    make.enqueue()
    clock.advance(1)
    make.enqueue()
    make.enqueue(delay_us=us(5))
    counts = store.counts()
    assert counts.waiting == [("default", "", "send", 2, start)]
    assert counts.scheduled == [("default", "", "send", 1, clock.now_us() + us(5))]
    assert counts.running == [("default", "acme", "a", 1, start)]
    assert counts.parked == {"arguments": 1}
    assert counts.ended == {State.FAILED: 1, State.SUCCEEDED: 1}


def test_whether_anything_is_left_to_do(make: Factory, store: Store, clock: TestClock) -> None:
    assert not store.anything_left("default")
    make.enqueue(queue="other")
    assert not store.anything_left("default")
    make.enqueue(delay_us=1)
    assert store.anything_left("default")
    clock.advance(1)
    store.promote()
    assert store.anything_left("default")
    job = make.take()
    assert store.anything_left("default")
    make.finish(job)
    assert not store.anything_left("default")
