"""The search finds nothing wrong with the fence, and at once without it; and the real store takes the same steps."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from duly.domain.records import Claimed, Lane, NewJob, Settled
from duly.store.opening import open_database
from duly.store.store import Store
from duly.testing import TestClock
from tests.model.exhaustive import JOBS, WORKERS, State, Step, after, search, steps_from, wrong_in
from tests.model.machine import nth_id
from tests.store import invariants
from tests.store.raw import Raw

LEASE = 15_000_000
HOUR = 3_600_000_000
IDS = {worker: nth_id(at, kind=9) for at, worker in enumerate(WORKERS, 1)}


def test_no_order_of_steps_ends_a_job_twice_loses_one_or_lets_a_stale_worker_end_it() -> None:
    found = search()
    assert found.counterexample is None, str(found)
    assert found.states > 7_000, "it looked at too little"


@pytest.mark.deep
def test_nor_does_it_with_a_third_claim_of_each_job() -> None:
    found = search(most=3)
    assert found.counterexample is None, str(found)
    assert found.states > 100_000, "it looked at too little"


def test_without_the_fence_a_worker_that_was_paused_ends_the_run_of_another() -> None:
    """The counter-example that must keep failing: with only `WHERE id = ...` the search finds this, nothing shorter."""
    found = search(fenced=False)
    print(f"without the fence: {found}")
    assert found.wrong == "a stale end was accepted"
    assert [step.verb for step in found.counterexample or []] == ["claim", "expire", "rescue", "claim", "finish"]


class Replay:
    """The two jobs of the search in a real store. What is timed for one job alone is set behind the store's back."""

    def __init__(self, raw: Raw, store: Store) -> None:
        self.raw = raw
        self.store = store
        self.state = State()
        self.ids = {job: nth_id(job + 1) for job in JOBS}
        for job, job_id in self.ids.items():
            store.enqueue(NewJob(id=job_id, task=f"task{job}", args="{}"))

    def do(self, step: Step) -> None:
        """One step of the search, of the store, and what they came to side by side."""
        before, self.state = self.state, after(self.state, step)
        job = before.jobs[step.job]
        accepted = self._do(step, self.ids[step.job], last=job.token >= before.most)
        if step.verb in ("finish", "snooze"):
            assert accepted == (self.state.accepted != before.accepted), f"{step}: the store says {accepted}"
        if step.verb == "renew":
            assert accepted == (job.running and job.token == step.token), f"{step}: the store says {accepted}"
        with self.raw.at_once():
            assert self.seen() == self.expected(), f"after {step}"
            invariants.check(self.raw)

    def _do(self, step: Step, job_id: str, *, last: bool) -> bool:
        match step.verb:
            case "claim":
                worker = IDS[step.worker]
                lanes = [Lane("", f"task{step.job}")]
                [claimed] = self.store.claim("default", lanes, 1, worker_id=worker, lease_us=LEASE)
                assert isinstance(claimed, Claimed)
            case "expire":
                self.raw.rows(f"UPDATE duly.running SET leased_until = 0 WHERE id = '{job_id}'")
            case "rescue":
                token = int(self.raw.one(f"SELECT token FROM duly.running WHERE id = '{job_id}'"))
                lost = Settled(job_id, token, "failed" if last else "queued", "crashed")
                assert self.store.settle([lost], only_expired=True) == {job_id}
            case "due":
                self.raw.rows(f"UPDATE duly.scheduled SET run_at = 0 WHERE id = '{job_id}'")
                self.store.promote()
            case "cancel":
                self.store.cancel(job_id, "stop")
            case "renew":
                return job_id in self.store.renew([(job_id, step.token)], LEASE)
            case "snooze":
                state = "failed" if last else "scheduled"
                snoozed = Settled(job_id, step.token, state, "snoozed", delay_us=HOUR, uncounted=1, ran_us=1)
                return bool(self.store.settle([snoozed]))
            case _:
                return bool(self.store.settle([Settled(job_id, step.token, "succeeded", "succeeded", ran_us=1)]))
        return True

    def seen(self) -> dict[int, tuple[str, int, bool]]:
        """Where each job is, its token, and whether its lease holds."""
        places = invariants.places_of(self.raw)
        found = {}
        for job, job_id in self.ids.items():
            place = places[job_id]
            token = int(self.raw.one(f"SELECT token FROM duly.{place} WHERE id = '{job_id}'"))
            lapsed = (
                place == "running" and self.raw.one(f"SELECT leased_until FROM duly.running WHERE id = '{job_id}'") == 0
            )
            found[job] = (place, token, lapsed)
        return found

    def expected(self) -> dict[int, tuple[str, int, bool]]:
        places = ("scheduled", "waiting", "running", "ended")
        return {
            at: (next(place for place in places if getattr(job, place)), job.token, job.lapsed)
            for at, job in enumerate(self.state.jobs)
        }


@pytest.fixture
def store(raw: Raw) -> Iterator[Store]:
    store = Store(open_database(raw.url, TestClock(), synchronous="off"))
    yield store
    store.close()


def replayed(raw: Raw, store: Store, trace: list[Step]) -> Replay:
    for table in ("jobs", "scheduled", "waiting", "running", "ended", "runs", "rollups"):
        raw.rows(f"DELETE FROM duly.{table}")
    replay = Replay(raw, store)
    for step in trace:
        replay.do(step)
    return replay


def walk(chance: random.Random, longest: int = 16) -> list[Step]:
    """Any steps, one after the other; expiry, rescue and claims are not outnumbered by what is said."""
    state, trace = State(), list[Step]()
    while len(trace) < longest and (steps := list(steps_from(state))):
        verb = chance.choice(sorted({step.verb for step in steps if step.verb != "cancel"} or {"cancel"}))
        verb = "cancel" if chance.random() < 0.05 else verb
        step = chance.choice([step for step in steps if step.verb == verb] or steps)
        trace.append(step)
        state = after(state, step)
    assert not wrong_in(state)
    return trace


def test_the_store_takes_the_steps_of_the_search(raw: Raw, store: Store) -> None:
    chance = random.Random(1)
    taken: set[str] = set()
    for _ in range(30):
        trace = walk(chance)
        replayed(raw, store, trace)
        taken |= {step.verb for step in trace}
    assert taken == {"claim", "expire", "rescue", "due", "cancel", "renew", "snooze", "finish"}


def test_the_store_refuses_what_goes_wrong_without_the_fence(raw: Raw, store: Store) -> None:
    trace = search(fenced=False).counterexample
    assert trace is not None
    replay = replayed(raw, store, trace)
    assert replay.seen()[0] == ("running", 2, False), "the stale end changed the job"
