"""Races on PostgreSQL, statement by statement: whatever meets whatever, no disabled job is in a place, no fence steps
back, and a caller's open transaction delays nobody else."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from duly import Conflict, Duly, JobNotFound, RecurringJob
from duly.domain.records import Claimed, Lane, Settled
from duly.recurring_options import edited
from duly.store import ops_claim, ops_jobs, ops_recurring_runs, ops_settle, ops_upkeep
from duly.store.call import Dialect, Op
from duly.testing import TestClock
from tests.helpers import eventually, never, opened
from tests.recurring.killed import LEASE_US, claim
from tests.stepping import Beside, run_with
from tests.store import invariants
from tests.store.raw import Raw

PG = Dialect.POSTGRES
WORKER = str(uuid4())


class Scene:
    """A recurring job and two applications that do things with it."""

    def __init__(self, one: Duly, other: Duly, clock: TestClock, raw: Raw) -> None:
        self.one, self.other, self.clock, self.raw = one, other, clock, raw
        self._keys = itertools.count(1)

    def job(self, **options: Any) -> RecurringJob:
        """One that is due."""
        return self.one["fetch"].recur(next(self._keys), **{"every": "1h", **options})

    def claimed(self) -> tuple[RecurringJob, Claimed]:
        """One that runs."""
        job = self.job()
        return job, claim(self.one, "fetch")

    def settle(self, job: RecurringJob) -> None:
        """End its run if it has one; then nothing may be left that must not be."""
        invariants.check(self.raw)
        rows = self.raw.rows(f"SELECT token FROM duly.running WHERE id = '{job.id}'")
        if rows:
            done = Settled(job.id, rows[0][0], "succeeded", "succeeded", ran_us=1)
            assert job.id in self.one.store.end_recurring([done]).accepted
            invariants.check(self.raw)

    def fence(self, job: RecurringJob) -> int:
        """Run it once more, whatever was done to it; returns the fence of that run."""
        job.enable()
        job.reschedule(self.clock.now())
        token = claim(self.one, "fetch", queue=job.refresh().record.queue).token
        self.settle(job)
        job.delete()
        return token


@pytest.fixture
def scene(pg_url: str, raw: Raw, clock: TestClock) -> Iterator[Scene]:
    with opened(pg_url, clock=clock) as one, opened(pg_url, clock=clock) as other:

        @one.task
        def fetch() -> None: ...

        other.task(name="fetch")(fetch.definition.fn)
        before = deadlocks(raw)
        yield Scene(one, other, clock, raw)
        assert deadlocks(raw) == before, "PostgreSQL had to break a deadlock"


def deadlocks(raw: Raw) -> int:
    return int(raw.one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))


Prepared = tuple[RecurringJob, int, Callable[[Duly], Op[Any]]]


def claiming(scene: Scene) -> Prepared:
    job = scene.job()
    scene.one.store.promote()
    lanes = [Lane("", "fetch")]
    return (
        job,
        0,
        lambda app: ops_claim.claim(PG, queue="default", from_lanes=lanes, n=5, worker_id=WORKER, lease_us=LEASE_US),
    )


def promoting(scene: Scene) -> Prepared:
    return scene.job(), 0, lambda app: ops_upkeep.promote(PG, 10)


def finishing(scene: Scene) -> Prepared:
    job, run = scene.claimed()
    done = Settled(job.id, run.token, "succeeded", "succeeded", ran_us=1)
    return job, run.token, lambda app: ops_recurring_runs.end_runs(app.store.recurring, [done], shard=0)


def failing(scene: Scene) -> Prepared:
    job, run = scene.claimed()
    done = Settled(job.id, run.token, "scheduled", "failed", delay_us=60_000_000, ran_us=1, error="oops")
    return job, run.token, lambda app: ops_recurring_runs.end_runs(app.store.recurring, [done], shard=0)


def rescuing(scene: Scene) -> Prepared:
    job, run = scene.claimed()
    scene.clock.advance(5)
    lost = Settled(job.id, run.token, "queued", "crashed", crashes=1)
    return (
        job,
        run.token,
        lambda app: ops_recurring_runs.end_runs(app.store.recurring, [lost], shard=0, only_expired=True),
    )


def releasing(scene: Scene) -> Prepared:
    job, run = scene.claimed()
    return job, run.token, lambda app: ops_settle.give_back(PG, [(job.id, run.token)])


def parking(scene: Scene) -> Prepared:
    job, run = scene.claimed()
    return (
        job,
        run.token,
        lambda app: ops_settle.park(PG, job_id=job.id, token=run.token, reason="arguments", detail="no", mark="x"),
    )


def spawning(scene: Scene) -> Prepared:
    job = scene.job(cron="@hourly", every=None, overlap="allow")
    scene.clock.advance("1h")
    return job, 0, lambda app: ops_recurring_runs.spawn(app.store.recurring, 10)


def hastening(scene: Scene) -> Prepared:
    job = scene.job()
    return job, 0, lambda app: ops_jobs.set_priority(job.id, 70)


SIDES = [claiming, promoting, finishing, failing, rescuing, releasing, parking, spawning, hastening]
VERBS: dict[str, Callable[[Duly, RecurringJob, TestClock], Op[Any]]] = {
    "disable": lambda app, job, clock: app.store.recurring.set_enabled(job.id, False, by=None, reason="enough"),
    "condition": lambda app, job, clock: app.store.recurring.set_enabled_if(job.id, "1 = 0", {}, by=None, reason="no"),
    "edit": lambda app, job, clock: editing(app, job, {"every": "2h"}),
    "move": lambda app, job, clock: editing(app, job, {"queue": "other"}),
    "reschedule": lambda app, job, clock: app.store.recurring.reschedule(job.id, clock.now_us() + 5_000_000),
    "run now": lambda app, job, clock: app.store.recurring.run_now(job.id),
    "delete": lambda app, job, clock: app.store.recurring.delete(job.id),
}


def editing(app: Duly, job: RecurringJob, changes: dict[str, Any]) -> Op[Any]:
    return app.store.recurring.edit(job.id, lambda old: edited(old, changes))


OFTEN = ("disable", "edit", "delete")
EVERY_VERB = [pytest.param(verb, marks=() if verb in OFTEN else pytest.mark.deep) for verb in VERBS]


def judge(scene: Scene, job: RecurringJob, verb: str, fence: int) -> None:
    """What must be true however the two met."""
    scene.settle(job)
    gone = not scene.raw.rows(f"SELECT id FROM duly.recurring WHERE id = '{job.id}'")
    assert gone == (verb == "delete")
    if gone:
        return
    if verb in ("disable", "condition"):
        assert not job.refresh().enabled
        scene.clock.advance("5h")
        scene.one.store.promote()
        assert scene.raw.rows(f"SELECT id FROM duly.places WHERE id = '{job.id}' AND state <> 'disabled'") == []
    else:
        assert job.refresh().enabled
    if job.record.overlap != "allow":
        last = scene.raw.one(f"SELECT max(token) FROM duly.runs WHERE job_id = '{job.id}'")
        assert scene.fence(job) > max(fence, last or 0)


@pytest.mark.requirement("A3", "A4")
@pytest.mark.parametrize("verb", EVERY_VERB)
@pytest.mark.parametrize("side", SIDES)
def test_a_verb_in_the_midst_of_a_move(scene: Scene, side: Callable[[Scene], Prepared], verb: str) -> None:
    for after in itertools.count(1):
        job, fence, make = side(scene)
        beside = Beside(lambda job=job: scene.other.store.run(lambda: VERBS[verb](scene.other, job, scene.clock)))  # type: ignore[misc]
        _, began = run_with(scene.one.store, lambda make=make: make(scene.one), after, beside)  # type: ignore[misc]
        if not began:
            break
        if isinstance(beside.error, Conflict):  # it runs: there is nothing to move
            assert verb in ("reschedule", "run now")
        elif beside.error is not None:
            raise beside.error
        judge(scene, job, verb if beside.error is None else "", fence)
        clear(scene)


@pytest.mark.requirement("A3", "A4")
@pytest.mark.parametrize("verb", EVERY_VERB)
@pytest.mark.parametrize("side", SIDES)
def test_a_move_in_the_midst_of_a_verb(scene: Scene, side: Callable[[Scene], Prepared], verb: str) -> None:
    for after in itertools.count(1):
        job, fence, make = side(scene)
        beside = Beside(lambda make=make: scene.other.store.run(lambda: make(scene.other)))  # type: ignore[misc]
        verbal: Callable[[], Op[Any]] = lambda job=job: VERBS[verb](scene.one, job, scene.clock)  # type: ignore[misc] # noqa: E731
        refused = False
        try:
            _, began = run_with(scene.one.store, verbal, after, beside)
        except Conflict:
            refused, began = True, beside.began
            assert verb in ("reschedule", "run now")
        if not began:
            break
        if beside.error is not None:
            raise beside.error
        judge(scene, job, "" if refused else verb, fence)
        clear(scene)


def clear(scene: Scene) -> None:
    """Forget all jobs, so that the next round has only its own."""
    for job in scene.one.recurring_jobs():
        job.delete()
    for each in scene.one.list():
        rows = scene.raw.rows(f"SELECT token FROM duly.running WHERE id = '{each.id}'")
        if rows:
            scene.one.store.settle([Settled(each.id, rows[0][0], "succeeded", "succeeded")])
        scene.one.delete(each.id)


@pytest.mark.requirement("A1")
def test_recur_makes_anew_what_is_deleted_meanwhile(scene: Scene) -> None:
    new = scene.one["fetch"].new_recurring("again", every="1h")
    for after in itertools.count(1):
        job = scene.one["fetch"].recur("again", every="1h", enabled=False)
        beside = Beside(lambda job=job: scene.other.recurring_by_id(job.id).delete())  # type: ignore[misc]
        standing, began = run_with(scene.one.store, lambda: scene.one.store.recurring.recur(new), after, beside)
        if not began:
            break
        assert beside.error is None
        # Made after it was deleted, or deleted after it was enabled.
        assert scene.raw.count("schedules") == int(standing.created)
        invariants.check(scene.raw)
        clear(scene)


# -- a caller's open transaction --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["recur", "set_enabled"])
def test_a_callers_open_transaction_delays_only_its_own_job(pg_url: str, raw: Raw, how: str) -> None:
    go_on = threading.Event()
    with opened(pg_url) as jobs, psycopg.connect(pg_url) as caller:

        @jobs.task
        def fetch() -> None:
            assert go_on.wait(20)

        @jobs.task
        def plain() -> None: ...

        held, others = fetch.recur("held", cron="@yearly"), [fetch.recur(n, cron="@yearly") for n in range(3)]
        for job in (held, *others):
            job.run_now()
        with jobs.worker(lease=1.0, renew_every=0.2):
            eventually(lambda: raw.count("running") == 4)
            if how == "recur":
                fetch.recur("held", cron="@yearly", priority=7, connection=caller)
            else:
                held.set_enabled(sql="1 = 1", connection=caller)
            go_on.set()
            for job in others:
                eventually(lambda job=job: job.refresh().last_outcome, 2)  # type: ignore[misc]
            plain.enqueue().wait(2)
            never(lambda: held.refresh().last_outcome, 2.0)  # two leases long
            assert held.running
            caller.commit()
            eventually(lambda: held.refresh().last_outcome, 3)
        assert held.last_outcome == "succeeded"
        assert [run.outcome for run in held.runs()] == ["succeeded"]


def test_a_callers_open_transaction_does_not_keep_others_from_being_parked_or_settled(pg_url: str, raw: Raw) -> None:
    """A run whose arguments do not fit waits for the caller; what ends beside it does not."""
    with opened(pg_url) as producer, opened(pg_url) as jobs, psycopg.connect(pg_url) as caller:

        @producer.task(name="fetch")
        def before(feed: int, old: int = 0) -> None: ...

        @jobs.task
        def fetch(feed: int) -> None: ...

        @jobs.task
        def plain() -> None: ...

        held = before.recur("held", every="1h", args={"feed": 1, "old": 2})
        held.set_enabled(sql="1 = 1", connection=caller)
        with jobs.worker(lease=1.0, renew_every=0.2):
            eventually(lambda: raw.count("running") == 1)
            for _ in range(3):
                plain.using(unique=True).enqueue().wait(2)
            never(lambda: raw.count("parked"), 1.5)
            caller.commit()
            eventually(lambda: raw.count("parked") == 1)
        assert held.refresh().enabled
        held.disable()
        assert raw.count("parked") == 0


def test_a_callers_open_transaction_does_not_keep_others_from_being_given_back(pg_url: str, raw: Raw) -> None:
    with opened(pg_url) as jobs, psycopg.connect(pg_url) as caller:

        @jobs.task
        def fetch() -> None: ...

        held, other = fetch.recur("held", every="1h"), fetch.recur("other", every="1h")
        runs = [claim(jobs, "fetch") for _ in range(2)]
        held.disable(connection=caller)
        beside = Beside(lambda: jobs.store.give_back([(run.id, run.token) for run in runs]), moment=5.0)
        beside.start()
        assert not beside.waited
        assert raw.rows("SELECT id FROM duly.waiting") == [(other.id,)]
        caller.commit()
        assert jobs.store.give_back([(run.id, run.token) for run in runs]) == 1
        assert raw.count("running") == 0


def test_ticks_of_others_are_made_while_a_caller_holds_a_schedule(pg_url: str, raw: Raw, clock: TestClock) -> None:
    with opened(pg_url, clock=clock) as jobs, psycopg.connect(pg_url) as caller:

        @jobs.task
        def fetch() -> None: ...

        held, _ = (fetch.recur(n, cron="@hourly", overlap="allow") for n in range(2))
        clock.advance("1h")
        held.disable(connection=caller)
        assert len(jobs.store.spawn()) == 1
        caller.rollback()
        assert len(jobs.store.spawn()) == 1
        assert held.refresh().next_run_at == clock.now() + timedelta(hours=1)


def test_what_is_gone_when_its_run_ends_is_not_waited_for(scene: Scene) -> None:
    job, run = scene.claimed()
    job.delete()
    ended = scene.one.store.end_recurring([Settled(job.id, run.token, "succeeded", "succeeded", ran_us=1)])
    assert (ended.accepted, ended.held) == ({}, set())
    with pytest.raises(JobNotFound):
        scene.one.get(job.id)
