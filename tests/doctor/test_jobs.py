"""Jobs that are lost, doubled or stuck: found, and mended without losing one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from duly import Duly
from duly.doctor.finding import Severity
from duly.domain.ids import uuid7
from duly.store.ops_repair import FENCE_GAP
from duly.testing import TestClock
from tests.doctor.look import bad, findings, only
from tests.store import invariants
from tests.store.factory import Factory, crashed, failed, released, succeeded
from tests.store.raw import Raw

pytestmark = pytest.mark.requirement("C15")


def mend(jobs: Duly, raw: Raw, check: str) -> tuple[str, ...]:
    """Mend what one check finds; afterwards all must hold, and nothing be left to find."""
    finding = only(jobs, "jobs", check, fix=True)
    assert finding.severity is Severity.ERROR
    assert finding.next
    assert finding.fixed, finding.refused
    assert bad(findings(jobs, "jobs", check)) == []
    invariants.check(raw)
    return finding.fixed


# -- in no place ------------------------------------------------------------------------------------------------------


def test_a_job_that_never_ran_goes_back_to_its_lane(timed: Duly, make: Factory, raw: Raw) -> None:
    job_id = make.enqueue(priority=7)
    raw.rows("DELETE FROM duly.waiting")
    assert mend(timed, raw, "nowhere") == (f"{job_id} is back in its lane",)
    assert make.take().id == job_id


def test_a_lost_run_cannot_be_finished_once_its_job_runs_again(timed: Duly, make: Factory, raw: Raw) -> None:
    lost = make.running()
    raw.rows("DELETE FROM duly.running")
    mend(timed, raw, "nowhere")
    again = make.take()
    assert again.token == lost.token + FENCE_GAP
    assert not make.finish(lost)
    assert make.finish(again)


@pytest.mark.parametrize("outcome", ["succeeded", "cancelled"])
def test_a_job_whose_last_run_was_its_last_has_ended_when_it_did(
    timed: Duly, make: Factory, raw: Raw, clock: TestClock, outcome: str
) -> None:
    job_id = make.ended(outcome)
    [(finished, token)] = raw.rows("SELECT finished_at, token FROM duly.ended")
    raw.rows("DELETE FROM duly.ended")
    clock.advance(timedelta(hours=1))
    assert outcome in mend(timed, raw, "nowhere")[0]
    assert make.state(job_id) == outcome
    assert raw.rows("SELECT finished_at FROM duly.ended") == [(finished,)]
    assert raw.one("SELECT token FROM duly.ended") > token


def test_a_job_that_failed_for_good_stays_failed_and_one_that_may_try_again_does(
    timed: Duly, make: Factory, raw: Raw
) -> None:
    for_good = make.running(max_attempts=1)
    make.settle(failed(for_good))
    again = make.running(max_attempts=3)
    make.retry_later(again)
    raw.rows("DELETE FROM duly.ended")
    raw.rows("DELETE FROM duly.scheduled")
    mend(timed, raw, "nowhere")
    assert make.state(for_good.id) == "failed"
    assert make.state(again.id) == "queued"
    assert make.take().attempt == 2


def test_a_job_that_took_workers_with_it_stays_a_suspect(timed: Duly, make: Factory, raw: Raw) -> None:
    job = make.running()
    for _ in range(2):
        make.settle(crashed(job))
        job = make.take(suspect=job.crashes + 1 > 1)
    make.settle(released(job))
    raw.rows("DELETE FROM duly.waiting")
    mend(timed, raw, "nowhere")
    assert raw.rows("SELECT crashes, suspect FROM duly.waiting") == [(2, 1)]


def test_a_lost_job_keeps_its_unique_key_or_passes_it_on(timed: Duly, make: Factory, raw: Raw) -> None:
    kept = make.unique("kept").id
    ended = make.unique("ended", mode="keep_latest")
    run = next(job for job in make.claim(2) if job.id == ended.id)
    follower = make.unique("ended", mode="keep_latest").id
    raw.rows("DELETE FROM duly.running")
    raw.rows(
        "INSERT INTO duly.runs (job_id, token, attempt, outcome, started_at, finished_at, worker_id)"
        f" VALUES ('{run.id}', 1, 1, 'succeeded', 1, 2, '{uuid7()}')"
    )
    mend(timed, raw, "nowhere")
    assert make.state(kept) == "queued"
    assert make.unique("kept").id == kept
    assert make.state(run.id) == "succeeded"
    assert {job.id for job in make.claim(5)} == {kept, follower}


# -- in two places ----------------------------------------------------------------------------------------------------


def double(raw: Raw, job_id: str, token: int) -> None:
    raw.rows(
        "INSERT INTO duly.waiting (queue, tenant, task, rank, id, run_at, priority, token)"
        f" SELECT queue, tenant, task, created_at, id, created_at, 0, {token} FROM duly.jobs WHERE id = '{job_id}'"
    )


def test_the_place_with_the_highest_fence_is_the_right_one(timed: Duly, make: Factory, raw: Raw) -> None:
    held, behind = make.running(), make.running()
    double(raw, held.id, 0)
    double(raw, behind.id, 5)
    said = mend(timed, raw, "twice")
    assert {line.partition(" ")[0] for line in said} == {held.id, behind.id}
    assert make.finish(held)
    assert not make.finish(behind)
    assert make.take().id == behind.id


def test_a_job_that_ended_and_waits_with_the_same_fence_has_ended(timed: Duly, make: Factory, raw: Raw) -> None:
    job_id = make.ended()
    double(raw, job_id, 1)
    mend(timed, raw, "twice")
    assert make.state(job_id) == "succeeded"


def test_a_job_that_somebody_wanted_again_after_its_end_waits(timed: Duly, make: Factory, raw: Raw) -> None:
    job = make.running(max_attempts=5)
    make.settle(failed(job))  # ended by a decision, with attempts left
    double(raw, job.id, 1)
    mend(timed, raw, "twice")
    assert make.take().id == job.id


def test_a_place_without_a_job_is_removed(timed: Duly, make: Factory, raw: Raw) -> None:
    make.enqueue()
    raw.rows("DELETE FROM duly.jobs")
    mend(timed, raw, "jobless")
    assert raw.count("waiting") == 0


# -- unique keys ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["live", "window"])
def test_a_key_held_by_a_job_that_is_gone_is_free_again(timed: Duly, make: Factory, raw: Raw, scope: str) -> None:
    old = make.unique("k", scope=scope, unique_window_us=3_600_000_000 if scope == "window" else None).id
    for table in ("waiting", "jobs"):
        raw.rows(f"DELETE FROM duly.{table}")
    assert make.unique("k").id == old  # which nobody will ever run
    mend(timed, raw, "keys")
    assert make.unique("k").created


def test_a_key_that_an_ended_job_kept_goes_to_the_job_that_waits_for_it(timed: Duly, make: Factory, raw: Raw) -> None:
    make.unique("k", mode="keep_latest")
    run = make.take()
    follower = make.unique("k", mode="keep_latest").id
    make.settle(succeeded(run))  # as if it held no key
    mend(timed, raw, "keys")
    assert make.take().id == follower


def test_a_job_that_waits_for_a_key_in_vain_gets_it(timed: Duly, make: Factory, raw: Raw) -> None:
    make.unique("k", mode="keep_latest")
    run = make.take()
    follower = make.unique("k", mode="keep_latest").id
    make.settle(succeeded(run))  # as if it held no key
    raw.rows("DELETE FROM duly.unique_keys")
    mend(timed, raw, "keyless")
    assert make.take().id == follower


def test_a_job_that_waits_for_a_key_in_vain_follows_whoever_has_it_now(timed: Duly, make: Factory, raw: Raw) -> None:
    make.unique("k", mode="keep_latest")
    run = make.take()
    follower = make.unique("k", mode="keep_latest").id
    raw.rows("UPDATE duly.unique_keys SET next_id = NULL")
    assert mend(timed, raw, "keyless") == (f"{follower} runs after {run.id}",)
    assert make.finish(run)
    assert make.take().id == follower


def test_a_job_that_lost_its_key_holds_it_again_unless_another_does(timed: Duly, make: Factory, raw: Raw) -> None:
    waits, runs = make.unique("a").id, make.unique("b", task="other").id
    make.take(task="other")
    raw.rows("DELETE FROM duly.unique_keys")
    newer = make.unique("b").id
    said = mend(timed, raw, "unheld")
    assert said == (f"{waits} holds its key again", f"{runs} goes on without its key, which {newer} has")
    assert not make.unique("a").created


@pytest.mark.parametrize("newer", [True, False])
def test_of_two_that_follow_one_key_the_newer_stands(timed: Duly, make: Factory, raw: Raw, newer: bool) -> None:
    make.unique("k", mode="keep_latest")
    run = make.take()
    first = make.unique("k", mode="keep_latest").id
    raw.rows("UPDATE duly.unique_keys SET next_id = NULL")
    second = make.unique("k", mode="keep_latest").id
    if newer:  # the newer one is the one that was lost
        raw.rows(f"UPDATE duly.unique_keys SET next_id = '{first}'")
    mend(timed, raw, "keyless")
    assert make.finish(run)
    assert make.take().id == second
    assert make.state(first) == "cancelled"


# -- stuck ------------------------------------------------------------------------------------------------------------


def test_a_lease_that_lapsed_long_ago_is_told(timed: Duly, make: Factory, clock: TestClock) -> None:
    make.running()
    clock.advance(timedelta(seconds=20))
    assert only(timed, "jobs", "leases").severity is Severity.OK  # that soon somebody may still come
    clock.advance(timedelta(minutes=10))
    finding = only(timed, "jobs", "leases")
    assert (finding.severity, finding.evidence["runs"]) == (Severity.WARNING, 1)


def test_a_due_job_that_nobody_puts_into_its_lane_is_told(timed: Duly, make: Factory, clock: TestClock) -> None:
    make.enqueue(delay_us=1_000_000)
    assert only(timed, "jobs", "due").severity is Severity.OK
    clock.advance(timedelta(minutes=10))
    finding = only(timed, "jobs", "due")
    assert (finding.severity, finding.evidence["jobs"], finding.evidence["recurring"]) == (Severity.WARNING, 1, 0)


def test_jobs_that_are_set_aside_are_told_with_the_reason(timed: Duly, make: Factory) -> None:
    job = make.running()
    timed.store.park(job.id, job.token, reason="arguments", detail="x is missing", mark="1")
    make.unique("k", mode="keep_latest", task="other")
    make.take(task="other")
    make.unique("k", mode="keep_latest", task="other")
    told = {each.evidence["reason"]: each.severity for each in findings(timed, "jobs", "parked")}
    assert told == {"arguments": Severity.WARNING, "unique": Severity.INFO}


def test_the_oldest_job_of_each_queue_is_told(timed: Duly, make: Factory, clock: TestClock) -> None:
    make.enqueue(queue="mail")
    clock.advance(timedelta(hours=2))
    make.enqueue()
    told = {each.evidence["queue"]: each for each in findings(timed, "jobs", "waiting")}
    assert told["mail"].severity is Severity.WARNING
    assert told["mail"].evidence["oldest_seconds"] == 7200
    assert told["default"].severity is Severity.OK


def test_what_came_right_by_itself_is_left_alone(timed: Duly, make: Factory, raw: Raw) -> None:
    job_id = make.enqueue()
    raw.rows("DELETE FROM duly.waiting")
    finding = only(timed, "jobs", "nowhere")
    assert only(timed, "jobs", "nowhere", fix=True).fixed == (f"{job_id} is back in its lane",)
    assert finding.fix is not None
    assert timed.store.run(finding.fix) == []
    assert [each for each in bad(timed.doctor()) if each[0] == "jobs"] == []
    invariants.check(raw)
