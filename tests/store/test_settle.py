"""A run ends: only by the token that holds it, wherever its job goes next, and counted exactly once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from duly.domain.records import Claimed, Settled
from duly.domain.states import State
from duly.store.ops_settle import RUNS_KEPT
from duly.store.store import Store
from duly.testing import TestClock
from tests.clock import us
from tests.store.factory import (
    LEASE,
    OTHER_WORKER,
    SETTLES,
    WORKER,
    Factory,
    cancelled,
    crashed,
    failed,
    released,
    retried,
    snoozed,
    succeeded,
)
from tests.store.raw import PLACES, Raw

pytestmark = pytest.mark.everywhere

TABLES = (*PLACES, "runs", "rollups", "unique_keys")
COUNTS = ("runs", "succeeded", "failed", "retried", "cancelled", "crashed", "recovered", "ran_us", "waited_us")
WAITS_MS = (5, 20, 100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 1_800_000, 7_200_000)


def everything(raw: Raw) -> dict[str, list[tuple[Any, ...]]]:
    """All that a stale write could have changed."""
    return {table: sorted(raw.rows(f"SELECT * FROM duly.{table}"), key=str) for table in TABLES}


@pytest.mark.parametrize("mixed", [False, True], ids=["all succeeded", "one failed"])
def test_what_is_said_of_a_run_is_recorded_with_it_in_whatever_order_they_come(
    make: Factory, raw: Raw, clock: TestClock, mixed: bool
) -> None:
    make.many(6)
    jobs = make.claim(6)
    jobs = [jobs[n] for n in (3, 0, 5, 1, 4, 2)]
    ended = [succeeded(job, result=f'"{job.id}"') for job in jobs]
    if mixed:
        ended[2] = failed(jobs[2], result=f'"{jobs[2].id}"')
    ages = [int(job.id[-6:], 16) for job in jobs]
    assert make.store.settle(ended, ages=ages) == {job.id for job in jobs}
    rows = raw.rows("SELECT job_id, finished_at, result FROM duly.runs")
    now = clock.now_us()
    assert {str(job_id): (finished, result) for job_id, finished, result in rows} == {
        job.id: (now - age, f'"{job.id}"') for job, age in zip(jobs, ages, strict=True)
    }


def test_of_several_runs_those_that_still_hold_are_accepted(make: Factory) -> None:
    make.many(4)
    first, second, third, fourth = make.claim(4)
    make.settle(succeeded(second))
    assert make.settle(succeeded(fourth), succeeded(second), succeeded(first)) == {first.id, fourth.id}
    assert make.settle(succeeded(second), succeeded(first)) == set()
    assert make.settle(succeeded(third), failed(first)) == {third.id}


# -- where jobs go ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("E8")
def test_a_job_that_snoozes_for_ever_does_not_keep_every_run(make: Factory, raw: Raw) -> None:
    """Runs are pruned with their job; this one never ends."""
    job = make.running()
    raw.rows(f"UPDATE duly.running SET token = {2 * RUNS_KEPT - 1}")
    raw.rows(
        "INSERT INTO duly.runs (job_id, token, attempt, outcome, started_at, finished_at, worker_id)"
        f" WITH RECURSIVE n(token) AS (SELECT 1 UNION ALL SELECT token + 1 FROM n WHERE token < {2 * RUNS_KEPT - 2})"
        f" SELECT r.id, n.token, 1, 'snoozed', 1, 2, r.worker_id FROM n, duly.running r"
    )
    make.settle(snoozed(job._replace(token=2 * RUNS_KEPT - 1), 0))
    assert raw.count("runs") == 2 * RUNS_KEPT - 1, "it is not looked after each run"
    make.store.promote(100)
    again = make.take()
    make.settle(snoozed(again, 0))
    kept = [token for (token,) in raw.rows("SELECT token FROM duly.runs ORDER BY token")]
    assert kept == list(range(RUNS_KEPT + 1, 2 * RUNS_KEPT + 1))


@pytest.mark.requirement("B6", "C8")
@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
def test_a_run_that_was_the_last_ends_its_job(make: Factory, clock: TestClock, state: str) -> None:
    job = make.running()
    clock.advance(3)
    settled = Settled(job.id, job.token, state, state, ran_us=us(2), age_us=us(1), reason="because")
    assert make.settle(settled) == {job.id}
    found = make.get(job.id)
    assert (found.state, found.reason, found.finished_at) == (State(state), "because", clock.now_us() - us(1))
    assert (found.attempt, found.token, found.crashes) == (1, 1, 0)


@pytest.mark.requirement("B4", "C8")
def test_a_failure_with_attempts_left_is_queued_again_later(make: Factory, clock: TestClock) -> None:
    job = make.running()
    assert make.settle(retried(job, 60, error="oops")) == {job.id}
    found = make.get(job.id)
    assert (found.state, found.attempt, found.run_at) == (State.SCHEDULED, 1, clock.now_us() + us(60))


@pytest.mark.requirement("B4")
def test_a_failure_without_attempts_left_ends_the_job_with_its_error(make: Factory, store: Store) -> None:
    job = make.running()
    make.settle(failed(job, error_kind="ValueError", error="bad value", traceback="Traceback...", reason="used up"))
    (run,) = store.runs_of(job.id)
    assert (make.state(job.id), run.error_kind, run.error, run.traceback) == (
        "failed",
        "ValueError",
        "bad value",
        "Traceback...",
    )


@pytest.mark.requirement("B4")
def test_attempts_count_the_runs(make: Factory, store: Store, clock: TestClock) -> None:
    make.enqueue()
    for attempt in (1, 2, 3):
        job = make.take()
        assert (job.attempt, job.token) == (attempt, attempt)
        make.settle(retried(job, 1))
        clock.advance(1)
        store.promote()


def test_snoozing_counts_no_attempt_but_moves_the_token_on(make: Factory, store: Store, clock: TestClock) -> None:
    make.enqueue()
    for token in (1, 2, 3):
        job = make.take()
        assert (job.attempt, job.token) == (1, token)
        make.settle(snoozed(job, 30))
        assert make.get(job.id).attempt == 0
        clock.advance(30)
        store.promote()


def test_releasing_gives_the_job_back_to_its_place_unharmed(make: Factory, clock: TestClock) -> None:
    job = make.running()
    clock.advance(1)
    other = make.enqueue()
    make.settle(released(job))
    found = make.get(job.id)
    assert (found.state, found.attempt, found.run_at) == (State.QUEUED, 0, clock.now_us() - us(1))
    again = make.claim(2)
    assert [(each.id, each.token, each.attempt) for each in again] == [(job.id, 2, 1), (other, 1, 1)]


def test_what_never_started_leaves_no_run(make: Factory, store: Store) -> None:
    job = make.running()
    make.settle(released(job))
    assert store.runs_of(job.id) == []


def test_what_was_released_after_it_started_leaves_a_run(make: Factory, store: Store) -> None:
    job = make.running()
    make.settle(released(job, ran_us=us(1)))
    assert [run.outcome for run in store.runs_of(job.id)] == ["released"]


def test_a_crash_is_counted_apart_from_attempts(make: Factory) -> None:
    job = make.running()
    make.settle(crashed(job))
    found = make.get(job.id)
    assert (found.state, found.attempt, found.crashes) == (State.QUEUED, 1, 1)


def test_a_run_that_ends_resets_the_crashes(make: Factory, store: Store, clock: TestClock) -> None:
    make.settle(crashed(make.running()))
    job = make.take()
    assert job.crashes == 1
    make.settle(retried(job, 1))
    assert make.get(job.id).crashes == 0


def test_giving_back_keeps_the_crashes_and_the_attempts(make: Factory, store: Store) -> None:
    """A worker that lost the reply to a claim gives back what it never saw."""
    make.settle(crashed(make.running()))
    job = make.take()
    assert store.give_back([(job.id, job.token), (job.id, job.token - 1)]) == 1
    found = make.get(job.id)
    assert (found.state, found.crashes, found.attempt) == (State.QUEUED, 1, 1)
    assert store.give_back([(job.id, job.token)]) == 0
    assert store.give_back([]) == 0


def test_an_empty_batch_is_nothing(make: Factory) -> None:
    assert make.settle() == set()


def test_a_state_that_is_no_place_is_refused_and_the_job_stays(make: Factory) -> None:
    job = make.running()
    with pytest.raises(ValueError, match="cannot be running"):
        make.settle(Settled(job.id, job.token, "running", "failed"))
    assert make.state(job.id) == "running"


def test_a_run_named_twice_in_a_batch_ends_once(make: Factory, store: Store) -> None:
    job = make.running()
    assert make.settle(succeeded(job), succeeded(job)) == {job.id}
    assert len(store.runs_of(job.id)) == 1


def test_one_batch_ends_runs_in_every_way(make: Factory, store: Store) -> None:
    make.many(70)
    jobs = make.claim(70)
    ways = list(SETTLES)
    batch = [SETTLES[ways[n % len(ways)]](job) for n, job in enumerate(jobs)]
    assert make.settle(*batch) == {job.id for job in jobs}
    places = Counter(make.state(job.id) for job in jobs)
    assert places == {"succeeded": 10, "failed": 10, "scheduled": 20, "queued": 20, "cancelled": 10}


# -- fencing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("since", ["taken over", "ended", "waiting", "scheduled", "parked", "gone"])
def test_a_stale_token_changes_nothing(make: Factory, store: Store, raw: Raw, since: str) -> None:
    stale = make.running()
    match since:
        case "taken over":
            make.settle(released(stale))
            make.take(worker=OTHER_WORKER)
        case "ended":
            make.settle(failed(stale))
        case "waiting":
            make.settle(released(stale))
        case "scheduled":
            make.settle(snoozed(stale))
        case "parked":
            store.park(stale.id, stale.token, reason="arguments", detail="", mark="v1")
        case _:
            make.settle(failed(stale))
            store.delete(stale.id)
    before = everything(raw)
    for way in SETTLES.values():
        assert make.settle(way(stale)) == set()
        assert make.settle(way(stale), only_expired=True) == set()
        assert store.settle_keyed(way(stale), 1) is False
        assert store.settle_keyed(way(stale), 2) is False
    assert store.park(stale.id, stale.token, reason="arguments", detail="", mark="v2") is False
    assert store.renew([(stale.id, stale.token)], us(LEASE)) == {}
    assert store.give_back([(stale.id, stale.token)]) == 0
    store.progress(stale.id, stale.token, 0.5, "half")
    assert everything(raw) == before


def test_a_batch_with_stale_runs_settles_the_others(make: Factory) -> None:
    make.many(3)
    jobs = make.claim(3)
    make.settle(released(jobs[1]))
    assert make.settle(*[succeeded(job) for job in jobs]) == {jobs[0].id, jobs[2].id}
    assert [make.state(job.id) for job in jobs] == ["succeeded", "queued", "succeeded"]


def test_a_token_from_the_future_is_as_bad_as_one_from_the_past(make: Factory) -> None:
    job = make.running()
    assert make.settle(succeeded(job._replace(token=job.token + 1))) == set()
    assert make.state(job.id) == "running"


def test_of_two_who_settle_one_run_at_once_one_is_accepted(make: Factory, store: Store) -> None:
    make.many(60)
    jobs = make.claim(60)
    barrier = threading.Barrier(2)

    def settle(way: str) -> set[str]:
        barrier.wait()
        mine = jobs if way == "succeeded" else jobs[::-1]
        accepted: set[str] = set()
        for start in range(0, 60, 6):
            accepted |= make.settle(*[SETTLES[way](job) for job in mine[start : start + 6]])
        return accepted

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(settle, ["succeeded", "failed"])
    assert first | second == {job.id for job in jobs}
    assert not first & second
    assert {job.id for job in jobs if make.state(job.id) == "succeeded"} == first


def test_settling_and_renewing_at_once_do_not_deadlock(make: Factory, store: Store) -> None:
    make.many(200)
    jobs = make.claim(200)
    shuffled = random.Random(20).sample(jobs, 200)

    def renew(_: int) -> None:
        for _ in range(20):
            store.renew([(job.id, job.token) for job in jobs], us(LEASE))

    def settle(_: int) -> None:
        for start in range(0, 200, 20):
            make.settle(*[succeeded(job) for job in shuffled[start : start + 20]])

    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(renew, 0), pool.submit(settle, 0), pool.submit(renew, 1)]:
            each.result()
    assert store.held_by(WORKER) == []


# -- a lost reply -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [succeeded, failed, retried, snoozed, crashed, cancelled])
def test_a_settle_whose_reply_was_lost_may_be_repeated(make: Factory, store: Store, raw: Raw, way: Any) -> None:
    job = make.running()
    assert make.settle(way(job)) == {job.id}
    before = everything(raw)
    assert store.settle([way(job)], repeated=True) == {job.id}
    assert everything(raw) == before


@pytest.mark.parametrize("hold", [1, 2])
def test_a_settle_with_a_key_whose_reply_was_lost_is_accepted_when_tried_again(
    make: Factory, store: Store, monkeypatch: pytest.MonkeyPatch, hold: int
) -> None:
    make.unique(scope="queued" if hold == 1 else "live")
    job = make.take()
    write, lost = store.database.write, []

    def write_twice(op: Any, **options: Any) -> Any:
        lost.append(write(op, **options))  # committed, but nobody hears of it
        return write(op, **options)

    monkeypatch.setattr(store.database, "write", write_twice)
    assert store.settle_keyed(succeeded(job), job.hold) is True
    assert lost == [{job.id}]


@pytest.mark.parametrize("scope", ["queued", "live"])
def test_a_worker_that_settles_a_run_with_a_key_again_learns_that_it_was_accepted(
    make: Factory, store: Store, raw: Raw, scope: str
) -> None:
    """Else it would say that it lost its lease, of a run that is on record."""
    make.unique(scope=scope)
    job = make.take()
    assert store.settle_keyed(succeeded(job), job.hold)
    before = everything(raw)
    assert store.settle_keyed(succeeded(job), job.hold, repeated=True)
    assert not store.settle_keyed(failed(job), job.hold, repeated=True)
    assert everything(raw) == before


def test_a_worker_that_sets_a_job_aside_again_learns_that_it_was_accepted(make: Factory, store: Store) -> None:
    job = make.running()
    words: dict[str, Any] = {"reason": "arguments", "detail": "no", "mark": "m"}
    assert store.park(job.id, job.token, **words)
    assert not store.park(job.id, job.token, **words)
    assert store.park(job.id, job.token, **words, repeated=True)
    assert not store.park(job.id, job.token + 1, **words, repeated=True)


def test_a_run_that_the_rescuer_ended_is_not_taken_for_our_own_lost_reply(make: Factory, store: Store) -> None:
    """Else a worker would report a success that was never recorded."""
    job = make.running()
    make.settle(crashed(job))
    assert store.settle([succeeded(job)], repeated=True) == set()


# -- cancel -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [retried, snoozed, released, crashed])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_job_asked_to_stop_does_not_go_back_to_its_queue(make: Factory, store: Store, way: Any, keyed: bool) -> None:
    if keyed:
        make.unique()
    else:
        make.enqueue()
    job = make.take()
    assert store.cancel(job.id, "enough") == ("asked", WORKER)
    assert store.settle_keyed(way(job), job.hold) is True
    found = make.get(job.id)
    assert (found.state, found.reason) == (State.CANCELLED, "enough")


def test_a_job_asked_to_stop_that_comes_to_an_end_keeps_that_end(make: Factory, store: Store) -> None:
    make.many(2)
    first, second = make.claim(2)
    store.cancel(first.id, "enough")
    store.cancel(second.id, "enough")
    make.settle(succeeded(first), failed(second, reason="its own"))
    assert (make.state(first.id), make.state(second.id)) == ("succeeded", "failed")
    assert make.get(second.id).reason == "its own"


def test_a_parked_job_that_was_asked_to_stop_ends(make: Factory, store: Store) -> None:
    job = make.running()
    store.cancel(job.id, "enough")
    assert store.park(job.id, job.token, reason="arguments", detail="", mark="v1")
    assert make.get(job.id).reason == "enough"
    assert make.state(job.id) == "cancelled"


# -- history ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("D9")
def test_every_run_is_on_record(make: Factory, store: Store, clock: TestClock) -> None:
    make.enqueue()
    job = make.take()
    clock.advance(5)
    make.settle(retried(job, 1, ran_us=us(3), age_us=us(1), error_kind="E", error="oops", traceback="tb", log="line"))
    clock.advance(1)
    store.promote()
    again = make.take(worker=OTHER_WORKER)
    make.settle(succeeded(again, ran_us=0, result='{"ok": true}'))
    first, second = store.runs_of(job.id)
    ended = clock.now_us() - us(2)
    assert first == (job.id, 1, 1, "failed", ended - us(3), ended, WORKER, "E", "oops", "tb", None, "line")
    assert (second.attempt, second.outcome, second.worker_id) == (2, "succeeded", OTHER_WORKER)
    assert second.result == '{"ok": true}'
    assert (second.started_at, second.finished_at) == (clock.now_us(), clock.now_us())
    assert store.last_run(job.id) == second


def test_a_run_that_never_started_is_on_record_from_its_claim(make: Factory, store: Store, clock: TestClock) -> None:
    job = make.running()
    clock.advance(4)
    make.settle(crashed(job))
    (run,) = store.runs_of(job.id)
    assert (run.started_at, run.finished_at) == (clock.now_us() - us(4), clock.now_us())


def test_recent_runs_can_be_asked_for_by_task_and_tenant(make: Factory, store: Store) -> None:
    for task, tenant in [("a", ""), ("b", "acme"), ("a", "acme")]:
        make.ended(task=task, tenant=tenant)
    assert len(store.recent_runs()) == 3
    assert len(store.recent_runs(task="a")) == 2
    assert len(store.recent_runs(task="a", tenant="acme")) == 1
    assert len(store.recent_runs(n=2)) == 2


def test_which_have_ended_can_be_asked_of_many(make: Factory, store: Store) -> None:
    ended, running = make.ended("failed"), make.running().id
    assert store.ended_among([ended, running]) == {ended: "failed"}
    assert store.ended_among([]) == {}


def test_texts_of_a_run_come_back_whole(make: Factory, store: Store) -> None:
    job = make.running()
    error = "\\ \" ' ä€😀 \t line\nline " + "x" * 20_000
    make.settle(failed(job, error=error, traceback=error, log=error, reason=error, result='{"t": "\\u00e4"}'))
    (run,) = store.runs_of(job.id)
    assert (run.error, run.traceback, run.log, run.result) == (error, error, error, '{"t": "\\u00e4"}')
    assert make.get(job.id).reason == error


# -- counts -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("B9")
def test_rollups_count_every_run_exactly_once(make: Factory, store: Store, clock: TestClock) -> None:
    """Against a plain count in Python, over random ends of random jobs by two stores at once."""
    chance, expected = random.Random(9), dict[tuple[str, str, str], Counter[str]]()
    minute = clock.now_us() - clock.now_us() % us(60)
    other = Store(store.database)
    for _ in range(12):
        for _ in range(8):
            make.enqueue(chance.choice("ab"), tenant=chance.choice(["", "acme"]), queue=chance.choice(["q", "r"]))
        clock.advance(chance.choice([0, 0.004, 0.3, 2, 70]))
        for queue in "qr":
            for lane, _ in store.lanes(queue):
                for job in make.claim(4, lanes=[lane], queue=queue):
                    settled = chance.choice(list(SETTLES.values()))(job, ran_us=us(chance.choice([0, 0.5, 3])))
                    clock.advance(chance.choice([0, 4]))
                    assert chance.choice([store, other]).settle([settled]) == {job.id}
                    count(expected, clock.now_us(), job, settled)
        store.promote()
    found = {tuple(row[:3]): row[3:] for row in store.usage(minute, clock.now_us() + 1)}
    names = [*COUNTS, *[f"wait_{ms}" for ms in WAITS_MS], "wait_more"]
    assert found.keys() == expected.keys()
    for key, counts in expected.items():
        assert dict(zip(names, found[key], strict=True)) == {name: counts[name] for name in names}


def count(into: dict[tuple[str, str, str], Counter[str]], now: int, job: Claimed, settled: Settled) -> None:
    """Count one run as the rollups should."""
    if settled.outcome == "released" and settled.ran_us < 0:
        return  # it never began
    counts = into.setdefault((job.tenant, job.queue, job.task), Counter())
    started = now - settled.ran_us
    waited = started - job.run_at
    counts["runs"] += 1
    counts[settled.outcome] += 1
    counts["retried"] += settled.outcome in ("failed", "crashed") and settled.state in ("scheduled", "queued")
    counts["recovered"] += settled.outcome == "succeeded" and job.attempt > 1
    counts["ran_us"] += settled.ran_us
    counts["waited_us"] += max(waited, 0)
    counts[next((f"wait_{ms}" for ms in WAITS_MS if waited < ms * 1_000), "wait_more")] += 1


def test_rollups_are_kept_by_the_minute_in_which_a_run_ended(make: Factory, store: Store, clock: TestClock) -> None:
    start = clock.now_us()
    make.ended()
    clock.advance(60)
    make.ended()
    assert [row[3] for row in store.usage(start, start + us(60))] == [1]
    assert [row[3] for row in store.usage(start, start + us(120))] == [2]
    assert store.usage(start + us(120), start + us(180)) == []


def test_usage_can_be_asked_for_one_tenant(make: Factory, store: Store, clock: TestClock) -> None:
    make.ended(tenant="acme")
    make.ended(tenant="corp")
    assert [row[:4] for row in store.usage(clock.now_us(), clock.now_us() + 1, "acme")] == [
        ("acme", "default", "send", 1)
    ]


def test_counts_of_usage_are_whole_numbers(make: Factory, store: Store, clock: TestClock) -> None:
    make.ended()
    (row,) = store.usage(clock.now_us(), clock.now_us() + 1)
    assert {type(value) for value in row[3:]} == {int}


# -- progress -----------------------------------------------------------------------------------------------------


def test_progress_is_seen_while_the_job_runs(make: Factory, store: Store) -> None:
    job = make.running()
    store.progress(job.id, job.token, 0.25, "a quarter")
    found = make.get(job.id)
    assert (found.progress, found.progress_text) == (0.25, "a quarter")
    store.progress(job.id, job.token, None, None)
    assert make.get(job.id).progress is None


# -- parking ------------------------------------------------------------------------------------------------------


def test_a_job_whose_arguments_do_not_fit_is_set_aside_with_the_reason(make: Factory, store: Store) -> None:
    job = make.running()
    assert store.park(job.id, job.token, reason="arguments", detail="user_id is missing", mark="v1")
    found = make.get(job.id)
    assert (found.state, found.reason, found.detail) == (State.QUEUED, "parked: arguments", "user_id is missing")
    assert (found.attempt, found.token) == (0, 1)
    assert make.claim() == []
    assert store.runs_of(job.id) == []


def test_what_was_set_aside_comes_back_with_other_code(make: Factory, store: Store) -> None:
    job = make.running()
    store.park(job.id, job.token, reason="arguments", detail="", mark="v1")
    assert store.release_parked("send", "v1") == 0
    assert store.release_parked("other", "v2") == 0
    assert store.release_parked("send", "v2") == 1
    again = make.take()
    assert (again.id, again.attempt, again.token) == (job.id, 1, 2)


def test_a_suspect_that_was_set_aside_is_still_one_when_it_comes_back(make: Factory, store: Store) -> None:
    make.settle(crashed(make.running()))
    make.settle(crashed(make.take()))
    job = make.take(suspect=True)
    store.park(job.id, job.token, reason="arguments", detail="", mark="v1")
    store.release_parked("send", "v2")
    assert make.claim() == []
    assert make.take(suspect=True).crashes == 2
