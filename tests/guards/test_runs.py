"""A write about a run counts only with its token, also where another guard stands before it."""

from __future__ import annotations

from typing import Any

import pytest

from duly.domain.errors import StaleRun
from duly.domain.limits import Says
from duly.domain.records import Claimed, Lane, Settled
from duly.store import ops_complete, ops_jobs
from duly.store.call import Dialect
from duly.store.ops_complete import Looked
from tests.clock import us
from tests.guards.racing import Beside, Pair, held, interrupted, locks_in_order
from tests.store.factory import LEASE, OTHER_WORKER, SETTLES, Factory, crashed, failed, succeeded

PG = Dialect.POSTGRES
LEASE_US = us(LEASE)


def handed_on(make: Factory, **options: Any) -> tuple[Claimed, Claimed]:
    """A run that lost its job, and the run that has it now."""
    stale = make.running(**options)
    make.finish(stale, "queued", outcome="released", uncounted=1, ran_us=-1)
    return stale, make.take(worker=OTHER_WORKER)


@pytest.mark.parametrize("how", SETTLES)
def test_a_stale_token_beside_the_good_one_in_a_batch_counts_for_nothing(make: Factory, how: str) -> None:
    stale, good = handed_on(make)
    end = SETTLES[how]
    assert make.settle(end(stale, ran_us=7), end(good, ran_us=5)) == {good.id}
    assert [run.token for run in make.store.runs_of(good.id)] == [good.token]
    assert make.raw.rows("SELECT sum(runs), sum(ran_us) FROM duly.rollups") == [(1, 5)]


def test_an_earlier_run_that_ended_alike_is_not_taken_for_a_lost_reply(make: Factory) -> None:
    make.retry_later(make.running(), delay=1)
    make.clock.advance(2)
    make.store.promote()
    second = make.take()
    make.settle(crashed(second))
    assert make.store.settle([failed(second)], repeated=True) == set()


def test_progress_of_a_run_that_lost_its_job_is_not_written(make: Factory) -> None:
    stale, good = handed_on(make)
    make.store.progress(good.id, good.token, 0.5, "half")
    make.store.progress(stale.id, stale.token, 0.9, "nearly")
    assert make.raw.rows("SELECT progress, progress_text FROM duly.running") == [(0.5, "half")]


def test_the_log_is_kept_with_the_run_that_wrote_it(make: Factory) -> None:
    first = make.running()
    make.finish(first)
    make.store.retry(first.id)
    second = make.take()
    make.finish(second)
    make.store.completions.keep_log(first.id, first.token, "[]")
    assert [run.log for run in make.store.runs_of(first.id)] == ["[]", None]


# -- completing -----------------------------------------------------------------------------------------------


def complete(make: Factory, job: Claimed) -> Any:
    done = Settled(job.id, job.token, "succeeded", "succeeded", ran_us=1)
    return make.store.completions.complete(job, done, shard=0)


def test_completing_a_run_that_lost_its_job_is_refused(make: Factory) -> None:
    stale, good = handed_on(make)
    assert not make.store.completions.is_held(stale)
    assert make.store.completions.is_held(good)
    with pytest.raises(StaleRun):
        make.store.run(lambda: complete(make, stale))
    assert make.state(good.id) == "running"


def test_a_run_that_lost_its_job_is_not_waited_for_as_if_it_were_open(make: Factory) -> None:
    stale, _ = handed_on(make)
    pair = [(stale.id, stale.token)]
    assert make.store.completions.look(pair) == Looked(set(), {stale.id}, set())
    assert make.store.run(lambda: ops_complete.let_go(make.store.dialect, pair)) == set()


def test_an_earlier_run_that_succeeded_is_not_taken_for_this_one(make: Factory) -> None:
    first = make.running()
    make.finish(first)
    make.store.retry(first.id)
    second = make.take()
    assert make.store.completions.look([(second.id, second.token)]).recorded == set()


def test_a_run_is_not_rescued_while_its_handler_completes_it(pair: Pair) -> None:
    job = pair.one.running()
    pair.one.clock.advance(60)
    rescue = Beside(pair.raw, lambda: pair.other.settle(crashed(job), only_expired=True))
    pair.one.store.run(lambda: interrupted(complete(pair.one, job), "lock_run", rescue.must_wait))
    assert rescue.answer() == set()
    assert pair.one.state(job.id) == "succeeded"


def test_a_run_that_its_handler_is_about_to_end_is_not_looked_at_by_the_rescuer(pair: Pair) -> None:
    job, other = pair.one.running(), pair.one.running()
    pair.one.clock.advance(60)
    with held(pair.raw, f"SELECT id FROM duly.running WHERE id = '{job.id}' FOR UPDATE"):
        assert [run.id for run in pair.one.store.lapsed(LEASE_US)] == [other.id]


def test_a_run_that_its_handler_is_about_to_end_is_seen_as_open(pair: Pair) -> None:
    job = pair.one.running()
    look = Beside(pair.raw, lambda: pair.one.store.completions.look([(job.id, job.token)]))
    with held(pair.raw, f"SELECT id FROM duly.running WHERE id = '{job.id}' FOR UPDATE"):
        look.must_not_wait()
    assert look.answer() == Looked(set(), set(), {job.id})


# -- renewing -------------------------------------------------------------------------------------------------


def test_renewing_goes_round_a_run_that_its_handler_holds(pair: Pair) -> None:
    mine, free = pair.one.running(), pair.one.running()
    pairs = [(mine.id, mine.token), (free.id, free.token)]
    renewing = Beside(pair.raw, lambda: pair.one.store.renew(pairs, LEASE_US))
    with held(pair.raw, f"SELECT id FROM duly.running WHERE id = '{mine.id}' FOR UPDATE"):
        renewing.must_not_wait()
    assert renewing.answer() == {mine.id: None, free.id: False}


def test_a_run_that_lost_its_job_does_not_hold_because_another_is_about_to_end_it(pair: Pair) -> None:
    stale, good = handed_on(pair.one)
    with held(pair.raw, f"SELECT id FROM duly.running WHERE id = '{good.id}' FOR UPDATE"):
        assert pair.one.store.renew([(stale.id, stale.token)], LEASE_US) == {}


def test_a_lapsed_lease_under_a_limit_does_not_hold_because_its_row_is_locked(pair: Pair) -> None:
    pair.one.store.gates.set_limit("task", "send", Says(slots=5))
    pair.one.enqueue()
    job = pair.one.take(limited=True)
    pair.one.clock.advance(60)
    with held(pair.raw, f"SELECT id FROM duly.running WHERE id = '{job.id}' FOR UPDATE"):
        assert pair.one.store.renew([(job.id, job.token)], LEASE_US) == {}


# -- others ---------------------------------------------------------------------------------------------------


def test_giving_back_a_run_that_another_has_now_changes_nothing(make: Factory) -> None:
    stale, good = handed_on(make)
    assert make.store.give_back([(stale.id, stale.token)]) == 0
    assert make.store.held_by(OTHER_WORKER) == [(good.id, good.token)]


def test_setting_aside_a_run_that_another_has_now_changes_nothing(make: Factory) -> None:
    stale, good = handed_on(make)
    assert not make.store.park(stale.id, stale.token, reason="arguments", detail="no", mark="x")
    assert make.store.held_by(OTHER_WORKER) == [(good.id, good.token)]
    assert make.raw.count("parked") == 0


def test_each_claim_raises_the_token_and_counts_an_attempt(make: Factory) -> None:
    first = make.running()
    make.settle(crashed(first))
    second = make.take()
    assert (second.token, second.attempt) == (first.token + 1, first.attempt + 1)


def test_two_who_retry_a_job_at_once_have_it_queued_once(pair: Pair) -> None:
    job_id = pair.one.ended("failed")
    again = Beside(pair.raw, lambda: pair.other.store.retry(job_id))
    retry = ops_jobs.retry(PG, job_id)
    pair.one.store.run(lambda: interrupted(retry, "lock_ended", again.must_wait))
    assert again.answer() == ("queued", None)
    assert pair.raw.count("waiting") == 1


def test_runs_are_ended_in_one_order_by_all(pair: Pair) -> None:
    pair.one.many(500)  # among so many, they are looked up in the order in which they are named
    jobs = sorted(pair.one.claim(500), key=lambda job: job.id)[100:102]
    pair.raw.rows("ANALYZE duly.running")
    first, second = (f"SELECT id FROM duly.running WHERE id = '{job.id}' FOR UPDATE" for job in jobs)
    batch = [succeeded(job) for job in reversed(jobs)]
    assert len(locks_in_order(pair.raw, first, second, lambda: pair.other.settle(*batch))) == 2


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_claim_goes_round_what_another_is_about_to_take(pair: Pair, limited: bool, lanes: int) -> None:
    if limited:
        pair.one.store.gates.set_limit("task", "send", Says(slots=5))
    first, second = pair.one.enqueue(), pair.one.enqueue()
    some = [Lane("", "send"), Lane("other", "send")][:lanes]
    claim = Beside(pair.raw, lambda: pair.other.claim(2, lanes=some, limited=limited))
    with held(pair.raw, f"SELECT id FROM duly.waiting WHERE id = '{first}' FOR UPDATE"):
        claim.must_not_wait()
    assert [job.id for job in claim.answer()] == [second]


def test_promoting_goes_round_what_somebody_moves(pair: Pair) -> None:
    first, second = (pair.one.enqueue(delay_us=1) for _ in range(2))
    pair.one.clock.advance(1)
    promoting = Beside(pair.raw, lambda: pair.other.store.promote())
    with held(pair.raw, f"SELECT id FROM duly.scheduled WHERE id = '{first}' FOR UPDATE"):
        promoting.must_not_wait()
        promoting.answer()
    assert pair.one.places([first, second]) == ["scheduled", "waiting"]
