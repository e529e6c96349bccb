"""What people do to jobs: cancel, retry, delete, end by hand, reprioritise, reschedule, and how they find them."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from duly.domain.ids import uuid7
from duly.domain.records import Filter, Settled
from duly.domain.states import State
from duly.store.store import Store
from duly.testing import TestClock
from tests.clock import us
from tests.store.factory import OTHER_WORKER, WORKER, Factory, crashed, released, retried, succeeded
from tests.store.raw import Raw

pytestmark = pytest.mark.everywhere

UNKNOWN = uuid7()


def park(make: Factory, **options: Any) -> str:
    job = make.running(**options)
    make.store.park(job.id, job.token, reason="arguments", detail="", mark="v1")
    return job.id


# -- cancel -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["queued", "scheduled", "parked"])
def test_a_job_that_has_not_started_is_cancelled_at_once(make: Factory, store: Store, place: str) -> None:
    job_id = park(make) if place == "parked" else make.enqueue(delay_us=us(5) if place == "scheduled" else 0)
    assert store.cancel(job_id, "no longer wanted") == ("cancelled", None)
    found = make.get(job_id)
    assert (found.state, found.reason) == (State.CANCELLED, "no longer wanted")
    assert make.claim() == []


def test_a_running_job_is_asked_to_stop(make: Factory, store: Store, clock: TestClock) -> None:
    job = make.running()
    assert store.cancel(job.id, "first") == ("asked", WORKER)
    clock.advance(1)
    assert store.cancel(job.id, "second") == ("asked", WORKER)
    assert make.get(job.id).cancel_at == clock.now_us() - us(1)
    assert store.cancel_requests(WORKER) == [(job.id, job.token, "first")]


def test_cancelling_what_has_ended_or_never_was_changes_nothing(make: Factory, store: Store) -> None:
    ended = make.ended("failed")
    assert store.cancel(ended, "late") == ("ended", None)
    assert make.state(ended) == "failed"
    assert store.cancel(UNKNOWN, "what") == ("unknown", None)


# -- retry --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["failed", "succeeded", "cancelled"])
def test_a_finished_job_runs_again_with_its_attempts_at_zero(
    make: Factory, store: Store, clock: TestClock, state: str
) -> None:
    job_id = make.ended(state)
    clock.advance(60)
    assert store.retry(job_id) == ("queued", None)
    found = make.get(job_id)
    assert (found.state, found.attempt, found.crashes, found.run_at) == (State.QUEUED, 0, 0, clock.now_us())
    job = make.take()
    assert (job.id, job.attempt, job.token) == (job_id, 1, 2)


def test_the_history_of_a_job_stays_when_it_is_retried(make: Factory, store: Store) -> None:
    job_id = make.ended("failed")
    store.retry(job_id)
    make.finish(make.take())
    assert [(run.token, run.outcome) for run in store.runs_of(job_id)] == [(1, "failed"), (2, "succeeded")]


@pytest.mark.parametrize("place", ["scheduled", "parked", "queued"])
def test_a_job_that_waits_is_made_due_now(make: Factory, store: Store, clock: TestClock, place: str) -> None:
    job_id = park(make) if place == "parked" else make.enqueue(delay_us=us(60) if place == "scheduled" else 0)
    clock.advance(1)
    assert store.retry(job_id) == ("queued", None)
    found = make.get(job_id)
    assert (found.reason, found.run_at) == (None, clock.now_us())
    assert make.take().id == job_id


def test_a_retry_takes_a_suspect_out_of_suspicion(make: Factory, store: Store) -> None:
    job_id = make.enqueue()
    make.settle(crashed(make.take()))
    make.settle(crashed(make.take()))
    store.retry(job_id)
    assert make.take().crashes == 0


def test_a_running_job_cannot_be_retried(make: Factory, store: Store) -> None:
    job = make.running()
    assert store.retry(job.id) == ("running", None)
    assert store.retry(UNKNOWN) == ("unknown", None)
    assert make.settle(succeeded(job)) == {job.id}


def test_the_priority_of_a_retried_job_is_its_latest(make: Factory, store: Store, clock: TestClock) -> None:
    job_id = make.enqueue(priority=10)
    store.set_priority(job_id, 90)
    make.finish(make.take(), "failed")
    make.enqueue(priority=50)
    store.retry(job_id)
    assert make.take().id == job_id


# -- delete -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["queued", "scheduled", "parked", "ended"])
def test_deleting_a_job_leaves_nothing_of_it(make: Factory, store: Store, raw: Raw, place: str) -> None:
    match place:
        case "parked":
            job_id = park(make)
        case "ended":
            job_id = make.ended("failed")
        case _:
            job_id = make.enqueue(delay_us=us(5) if place == "scheduled" else 0)
    kept = make.ended(task="kept")
    assert store.delete(job_id) == "deleted"
    assert store.get(job_id) is None
    assert store.runs_of(job_id) == []
    assert raw.rows("SELECT id FROM duly.jobs") == [(kept,)]
    assert len(store.runs_of(kept)) == 1


def test_a_running_job_cannot_be_deleted(make: Factory, store: Store) -> None:
    job = make.running()
    assert store.delete(job.id) == "running"
    assert store.delete(UNKNOWN) == "unknown"
    assert make.state(job.id) == "running"


# -- end by hand --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED])
def test_a_waiting_job_can_be_ended_by_hand(make: Factory, store: Store, clock: TestClock, state: State) -> None:
    job_id = make.enqueue(delay_us=us(5))
    assert store.end_by_hand(job_id, state, "done by phone") == "ended"
    found = make.get(job_id)
    assert (found.state, found.reason, found.finished_at) == (state, "done by phone", clock.now_us())


def test_only_a_waiting_job_can_be_ended_by_hand(make: Factory, store: Store) -> None:
    running = make.running()
    assert store.end_by_hand(running.id, State.FAILED, "no") == "running"
    assert store.end_by_hand(UNKNOWN, State.FAILED, "no") == "unknown"
    ended = make.ended(task="other")
    assert store.end_by_hand(ended, State.FAILED, "no") == "unknown"
    assert make.state(ended) == "succeeded"


# -- priority -----------------------------------------------------------------------------------------------------


def test_priority_moves_a_waiting_job_to_its_new_place(make: Factory, store: Store, clock: TestClock) -> None:
    first = make.enqueue()
    clock.advance(1)
    second = make.enqueue()
    assert store.set_priority(second, 1) is True
    assert [job.id for job in make.claim(2)] == [second, first]
    assert make.get(second).priority == 1


def test_priority_goes_along_with_a_scheduled_job(make: Factory, store: Store, clock: TestClock) -> None:
    later = make.enqueue(delay_us=us(5))
    assert store.set_priority(later, 100)
    clock.advance(5)
    make.enqueue(priority=99)
    store.promote()
    assert make.take().id == later


def test_priority_of_what_runs_or_has_ended_is_not_changed(make: Factory, store: Store) -> None:
    running = make.running()
    ended = make.ended(task="other")
    for job_id in (running.id, ended, UNKNOWN):
        assert store.set_priority(job_id, 50) is False
    assert make.get(running.id).priority == 0


def test_priority_follows_the_horizon_of_the_queue(make: Factory, store: Store, raw: Raw, clock: TestClock) -> None:
    store.set_horizon("default", us(100))
    job_id = make.enqueue()
    store.set_priority(job_id, 10)
    assert raw.one("SELECT rank FROM duly.waiting") == clock.now_us() - us(10)


# -- reschedule ---------------------------------------------------------------------------------------------------


def test_a_waiting_job_can_be_put_off(make: Factory, store: Store, clock: TestClock) -> None:
    job_id = make.enqueue(priority=30)
    assert store.reschedule(job_id, delay_us=us(30)) is True
    found = make.get(job_id)
    assert (found.state, found.run_at, found.priority) == (State.SCHEDULED, clock.now_us() + us(30), 30)


def test_a_scheduled_job_can_be_given_another_time(make: Factory, store: Store, clock: TestClock) -> None:
    job_id = make.enqueue(delay_us=us(30))
    at = clock.now_us() + us(3)
    assert store.reschedule(job_id, run_at=at) is True
    assert make.get(job_id).run_at == at
    assert store.reschedule(job_id) is True
    assert make.take().id == job_id


def test_a_time_past_makes_the_job_due(make: Factory, store: Store, clock: TestClock) -> None:
    job_id = make.enqueue(delay_us=us(30))
    assert store.reschedule(job_id, run_at=clock.now_us() - us(1)) is True
    store.promote()
    assert make.take().id == job_id


def test_rescheduling_keeps_attempts_crashes_and_token(make: Factory, store: Store, clock: TestClock) -> None:
    job = make.running()
    make.settle(retried(job, 5, crashes=2))
    store.reschedule(job.id, delay_us=us(1))
    found = make.get(job.id)
    assert (found.attempt, found.crashes, found.token) == (1, 2, 1)
    store.reschedule(job.id)
    assert make.claim() == []
    assert make.take(suspect=True).token == 2


def test_what_runs_or_has_ended_cannot_be_rescheduled(make: Factory, store: Store) -> None:
    running = make.running()
    assert store.reschedule(running.id, delay_us=1) is False
    assert store.reschedule(make.ended(task="other"), delay_us=1) is False
    assert store.reschedule(UNKNOWN, delay_us=1) is False


# -- races --------------------------------------------------------------------------------------------------------


def test_verbs_on_a_job_that_keeps_moving_find_it(make: Factory, store: Store) -> None:
    """While a job goes from place to place a verb waits for it, and never says that it has ended or is not there."""
    over = threading.Event()
    job_id = make.enqueue()

    def move() -> None:
        while not over.is_set():
            make.clock.advance(0.001)
            store.promote()
            for job in make.claim():
                make.settle(released(job) if job.token % 2 else retried(job, 0))

    def ask() -> set[str]:
        answers = set()
        for n in range(60):
            answers.add(store.retry(job_id)[0] if n % 2 else f"reschedule {store.reschedule(job_id, delay_us=n % 3)}")
            answers.add(f"priority {store.set_priority(job_id, n)}")
        return answers

    with ThreadPoolExecutor(3) as pool:
        movers = [pool.submit(move), pool.submit(move)]
        answers = pool.submit(ask).result()
        over.set()
        for mover in movers:
            mover.result()
    assert "unknown" not in answers
    answer = store.cancel(job_id, "enough")
    assert answer in [("cancelled", None), ("asked", WORKER)]


def test_a_cancel_is_never_lost_to_a_run_that_ends_meanwhile(make: Factory, store: Store) -> None:
    """Whatever the order, after `cancel` a job that was to go back to its queue is cancelled."""
    for _ in range(25):
        job = make.running()
        barrier = threading.Barrier(2)

        def cancel(job_id: str = job.id, barrier: threading.Barrier = barrier) -> str:
            barrier.wait()
            return store.cancel(job_id, "enough")[0]

        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(cancel)
            barrier.wait()
            make.settle(released(job))
            assert asked.result() in ("asked", "cancelled")
        assert make.state(job.id) == "cancelled"


def test_tokens_only_grow_while_operators_and_workers_race(make: Factory, store: Store) -> None:
    job_ids = make.many(4)
    seen: dict[str, list[int]] = {job_id: [] for job_id in job_ids}
    lock = threading.Lock()

    def work(worker: str) -> None:
        chance = random.Random(worker)
        for _ in range(60):
            make.clock.advance(0.001)
            store.promote()
            with lock:
                jobs = make.claim(2, worker=worker)
                for job in jobs:
                    seen[job.id].append(job.token)
            for job in jobs:
                make.finish(job, chance.choice(["succeeded", "queued", "scheduled", "failed"]))

    def operate() -> None:
        chance = random.Random(5)
        for _ in range(120):
            job_id = chance.choice(job_ids)
            if chance.random() < 0.5:
                store.retry(job_id)
            else:
                store.reschedule(job_id, delay_us=1)

    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(work, WORKER), pool.submit(work, OTHER_WORKER), pool.submit(operate)]:
            each.result()
    assert all(tokens == sorted(set(tokens)) for tokens in seen.values())
    assert sum(map(len, seen.values())) > 4


# -- find ---------------------------------------------------------------------------------------------------------


def test_jobs_are_listed_newest_first_by_every_state(make: Factory, store: Store) -> None:
    places = {
        State.SUCCEEDED: make.ended("succeeded"),
        State.FAILED: make.ended("failed"),
        State.CANCELLED: make.ended("cancelled"),
        State.RUNNING: make.running().id,
        State.SCHEDULED: make.enqueue(delay_us=us(5)),
        State.QUEUED: make.enqueue(),
    }
    for state, job_id in places.items():
        assert [(job.id, job.state) for job in store.find(Filter(state=state))] == [(job_id, state)]
    assert [job.id for job in store.find(Filter())] == list(places.values())[::-1]


def test_jobs_are_found_by_task_queue_and_tenant(make: Factory, store: Store) -> None:
    a = make.enqueue("a", queue="q", tenant="acme")
    b = make.enqueue("b", queue="q")
    c = make.enqueue("a", queue="r", delay_us=1)
    assert [job.id for job in store.find(Filter(task="a"))] == [c, a]
    assert [job.id for job in store.find(Filter(queue="q"))] == [b, a]
    assert [job.id for job in store.find(Filter(tenant="acme"))] == [a]
    assert [job.id for job in store.find(Filter(tenant=""))] == [c, b]
    assert [job.id for job in store.find(Filter(task="a", state=State.QUEUED))] == [a]


def test_jobs_are_found_by_tag_and_text_to_the_letter(make: Factory, store: Store) -> None:
    plain = make.enqueue(tags='["a_b","50%"]', args='{"name": "Anna_B"}')
    other = make.enqueue(tags='["axb","A_B","a_bc"]', args='{"name": "anna-b 100%"}')
    assert [job.id for job in store.find(Filter(tag="a_b"))] == [plain]
    assert [job.id for job in store.find(Filter(tag="A_B"))] == [other]
    assert [job.id for job in store.find(Filter(tag="50%"))] == [plain]
    assert store.find(Filter(tag="b")) == []
    assert [job.id for job in store.find(Filter(text="Anna_"))] == [plain]
    assert [job.id for job in store.find(Filter(text="0%"))] == [other]
    assert [job.id for job in store.find(Filter(text="anna", state=State.QUEUED))] == [other]


def test_tags_with_quotes_and_letters_beyond_ascii_are_found(make: Factory, store: Store) -> None:
    tagged = make.enqueue(tags='["grün","say \\"hi\\""]')
    assert [job.id for job in store.find(Filter(tag="grün"))] == [tagged]
    assert [job.id for job in store.find(Filter(tag='say "hi"'))] == [tagged]


@pytest.mark.parametrize("state", [None, State.QUEUED, State.SUCCEEDED])
def test_pages_join_without_gap_or_overlap(make: Factory, store: Store, clock: TestClock, state: State | None) -> None:
    ids = []
    for n in range(11):
        if state is State.SUCCEEDED:
            ids.append(make.running().id)
        else:
            ids.append(park(make) if n % 3 == 0 else make.enqueue(task=f"t{n}"))
    if state is State.SUCCEEDED:  # the first to start is the last to end
        for job_id, token in sorted(store.held_by(WORKER), reverse=True):
            clock.advance(1)
            make.settle(Settled(job_id, token, "succeeded", "succeeded"))
    whole = [job.id for job in store.find(Filter(state=state))]
    assert sorted(whole) == sorted(ids)
    by_offset = [job.id for start in range(0, 12, 4) for job in store.find(Filter(state=state, limit=4, offset=start))]
    assert by_offset == whole
    by_id: list[str] = []
    while page := store.find(Filter(state=state, limit=4, before_id=by_id[-1] if by_id else None)):
        by_id += [job.id for job in page]
    assert by_id == whole
    if state is State.SUCCEEDED:
        assert whole == sorted(ids)


def test_finished_jobs_are_listed_by_when_they_finished(make: Factory, store: Store, clock: TestClock) -> None:
    make.many(2)
    first, second = make.claim(2)
    make.finish(second)
    clock.advance(1)
    make.finish(first)
    assert [job.id for job in store.find(Filter(state=State.SUCCEEDED))] == [first.id, second.id]
