"""What an operator's edit may say, and what it leaves alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from duly import Backoff, Conflict, Duly, InvalidOption, Snooze, current_job
from duly.domain.records import HOLD, Lane, Settled
from duly.store.ops_recurring_runs import end_runs
from duly.testing import TestClock, drain
from tests.helpers import eventually
from tests.store.factory import WORKER, add_worker
from tests.store.raw import Raw


def test_a_run_that_was_asked_for_comes_though_the_job_is_edited_first(jobs: Duly) -> None:
    ran: list[str] = []

    @jobs.task
    def work(name: str) -> None:
        ran.append(name)

    job = work.recur("k", cron="0 0 1 1 *", args={"name": "first"})
    tick = job.next_run_at
    job.run_now()
    job.edit(priority=5, args={"name": "second"})
    job.edit(cron="0 0 1 2 *")
    with jobs.worker():
        eventually(lambda: ran == ["second"])
        eventually(lambda: job.refresh().last_outcome == "succeeded")
    assert job.next_run_at is not None
    assert tick is not None
    assert job.next_run_at.month == 2
    assert ran == ["second"]


@pytest.mark.parametrize("ending", ["success", "failure", "snooze"])
def test_an_edit_of_queue_and_priority_while_it_runs_holds_for_the_next_run(
    timed: Duly, clock: TestClock, raw: Raw, ending: str
) -> None:
    @timed.task(retry=Backoff.fixed(60))
    def work() -> None:
        if job.refresh().record.queue == "other":
            return
        job.edit(queue="other", priority=7)
        if ending == "failure":
            raise ValueError("no")
        if ending == "snooze":
            raise Snooze(timedelta(seconds=60))

    job = work.recur("k", every="1h", priority=3)
    drain(timed)
    assert raw.rows("SELECT queue, priority, hold FROM duly.scheduled") == [("other", 7, HOLD["recurs"])]
    clock.advance("1h")
    assert not drain(timed, queues=["default"]).runs
    assert [run.outcome for run in drain(timed, queues=["other"]).runs] == ["succeeded"]
    assert raw.rows("SELECT queue, priority, attempt FROM duly.scheduled") == [("other", 7, 0)]


def test_a_job_that_is_to_make_a_job_per_tick_does_so_after_the_run_during_which_that_was_said(
    timed: Duly, clock: TestClock, raw: Raw
) -> None:
    ran: list[str] = []

    @timed.task
    def work() -> None:
        ran.append(current_job().id)
        if len(ran) == 1:
            job.edit(overlap="allow")

    job = work.recur("k", every="1h")
    drain(timed)
    assert raw.rows("SELECT hold FROM duly.scheduled") == [(HOLD["spawns"],)]
    for _ in range(2):
        clock.advance("1h")
        drain(timed)
    assert ran[0] == job.id
    assert len(set(ran)) == 3, "each tick has a job of its own"


@pytest.mark.parametrize("how", ["given back", "crashed", "set aside"])
def test_an_edit_while_it_is_claimed_holds_for_a_run_that_did_not_come_about(
    timed: Duly, clock: TestClock, raw: Raw, how: str
) -> None:
    @timed.task
    def work() -> None: ...

    job = work.recur("k", every="1h")
    store = timed.store
    add_worker(store)
    store.promote()
    (claimed,) = store.claim("default", [Lane("", "work")], 1, worker_id=WORKER, lease_us=10**7)
    job.edit(queue="other", priority=7)
    match how:
        case "given back":
            assert store.give_back([(job.id, claimed.token)]) == 1
        case "crashed":
            lost = Settled(job.id, claimed.token, "queued", "crashed", crashes=1)
            ended = store.run(lambda: end_runs(store.recurring, [lost], shard=0))
            assert set(ended.accepted) == {job.id}
        case _:
            assert store.park(job.id, claimed.token, reason="arguments", detail="no", mark="old")
    assert [run.outcome for run in drain(timed, queues=["other"]).runs] == ["succeeded"]
    assert raw.rows("SELECT queue, priority FROM duly.scheduled") == [("other", 7)]


def test_a_recurring_job_set_aside_for_its_arguments_runs_with_the_ones_it_is_given(timed: Duly, raw: Raw) -> None:
    ran: list[str] = []

    @timed.task
    def work(name: str) -> None:
        ran.append(name)

    job = work.recur("k", every="1h", args={"name": "first"})
    store = timed.store
    add_worker(store)
    store.promote()
    (claimed,) = store.claim("default", [Lane("", "work")], 1, worker_id=WORKER, lease_us=10**7)
    mark = timed.registry.tasks["work"].signature.fingerprint
    assert store.park(job.id, claimed.token, reason="arguments", detail="no", mark=mark)
    drain(timed)
    assert not ran
    job.edit(priority=0)
    assert raw.count("parked") == 1, "nothing was said of its arguments"
    job.edit(args={"name": "second"})
    drain(timed)
    assert ran == ["second"]


def test_a_recurring_job_whose_new_arguments_have_another_key_waits_for_that_one(timed: Duly, raw: Raw) -> None:
    @timed.task(concurrency_key=lambda args: args.name)
    def work(name: str) -> None: ...

    job = work.recur("k", every="1h", args={"name": "x"})
    timed.store.promote()
    assert raw.one("SELECT mark FROM duly.parked") == "work/x"
    job.edit(args={"name": "y"})
    timed.store.promote()
    assert raw.one("SELECT mark FROM duly.parked") == "work/y"
    assert [run.outcome for run in drain(timed).runs] == ["succeeded"]


@pytest.mark.requirement("A4")
def test_a_rule_given_to_a_disabled_job_while_it_runs_begins_with_its_first_tick(timed: Duly, clock: TestClock) -> None:
    @timed.task
    def work() -> None:
        job.disable()
        job.edit(cron="0 12 * * *")

    job = work.recur("k", every="1h")
    drain(timed)
    noon = clock.now().replace(hour=12, minute=0, second=0, microsecond=0)
    assert job.refresh().next_run_at == (noon if noon > clock.now() else noon + timedelta(days=1))


def test_a_disabled_job_that_runs_cannot_be_rescheduled_either(timed: Duly, clock: TestClock) -> None:
    """What follows from its run would take that back."""
    refused: list[str] = []

    @timed.task
    def work() -> None:
        job.disable()
        with pytest.raises(Conflict, match="is running") as error:
            job.reschedule(clock.now() + timedelta(minutes=7))
        refused.append(str(error.value))

    job = work.recur("k", every="1h")
    drain(timed)
    assert refused
    later = clock.now() + timedelta(minutes=7)
    job.reschedule(later)
    assert job.refresh().next_run_at == later


@pytest.mark.parametrize(
    "change, message",
    [
        ({"description": "a\x00b"}, "description must not contain a control character"),
        ({"description": 5}, "description must be text"),
        ({"description": "x" * 5_000}, "at most 2000 bytes"),
        ({"overlap": "allow"}, "without a rule there are none"),
        ({"overlap": "alow"}, "Did you mean 'allow'"),
        ({"evry": "5m"}, "Did you mean 'every'"),
        ({"every": "5m", "cron": "* * * * *"}, "give every or cron, not both"),
        ({"args": {"nmae": 1}}, "nmae"),
        ({"name": ""}, "must not be empty"),
        ({"priority": 101}, "101"),
        ({"cap": 0}, "cap must be a whole number"),
        ({"timezone": "Europe/Berln"}, "Europe/Berlin"),
    ],
)
def test_an_edit_is_checked_as_a_new_job_is(jobs: Duly, change: dict[str, Any], message: str) -> None:
    @jobs.task
    def work(name: str = "") -> timedelta:
        return timedelta(hours=1)

    job = work.recur("k")
    before = job.record
    with pytest.raises((InvalidOption, ValueError), match=message):
        job.edit(**change)
    after = job.refresh().record
    assert (after.rule, after.args, after.overlap, after.updated_at) == (
        before.rule,
        before.args,
        before.overlap,
        before.updated_at,
    )


@pytest.mark.parametrize("limit, offset", [(0, 0), (-1, 0), (10_001, 0), (1, -1)])
def test_a_list_of_impossible_length_is_refused(jobs: Duly, limit: int, offset: int) -> None:
    with pytest.raises(InvalidOption, match=r"limit must be 1 to 10000|offset must not be negative"):
        jobs.recurring_jobs(limit=limit, offset=offset)


@pytest.mark.requirement("A12")
def test_a_run_whose_mirror_failed_three_times_backs_off_as_any_failed_run(jobs: Duly, raw: Raw) -> None:
    @jobs.task(mirror="UPDATE feeds SET n = :failures WHERE key = :key")
    def work() -> None: ...

    raw.rows("CREATE TABLE feeds (key varchar(9), n integer)")
    job = work.recur("k", every="1h")
    raw.rows("DROP TABLE feeds")
    with jobs.worker():
        eventually(lambda: job.refresh().consecutive_failures == 1, within=10)
        assert job.last_error is not None
        assert "MirrorFailed" in job.last_error
        assert job.next_run_at is not None
        assert job.last_run_at is not None
        assert job.next_run_at - job.last_run_at < timedelta(minutes=1), "as after any failure, not in an hour"
        raw.rows("CREATE TABLE feeds (key varchar(9), n integer)")
        eventually(lambda: job.refresh().last_outcome == "succeeded", within=10)
