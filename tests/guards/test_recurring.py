"""Recurring jobs: the fence never steps back, a disabled job stays where it is, a tick comes once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from duly import Duly, RecurringJob
from duly.domain.records import Settled
from duly.store.call import Call, Op, Rows
from duly.store.foreign import run_on
from duly.testing import TestClock
from tests.databases import Databases, Kind
from tests.guards.racing import Beside, held, interrupted
from tests.helpers import opened
from tests.recurring.killed import claim
from tests.store import invariants
from tests.store.raw import Raw


class Scene:
    """An application with one task, and its tables."""

    def __init__(self, jobs: Duly, raw: Raw, clock: TestClock) -> None:
        self.jobs, self.raw, self.clock = jobs, raw, clock

        @jobs.task
        def fetch() -> None: ...

        self.fetch = fetch

    def job(self, **options: Any) -> RecurringJob:
        return self.fetch.recur("x", **{"every": "1h", **options})

    def fence(self) -> int:
        return int(self.raw.one("SELECT token FROM duly.recurring"))

    def next_token(self, job: RecurringJob) -> int:
        """Enable it, have it run, and say by which token."""
        job.enable()
        self.clock.advance("2h")
        return claim(self.jobs, "fetch").token


@pytest.fixture
def scene(databases: Databases, database_kind: Kind, clock: TestClock) -> Iterator[Scene]:
    with databases.fresh(database_kind) as url, closing(Raw(url)) as raw, opened(url, clock=clock) as jobs:
        yield Scene(jobs, raw, clock)
        invariants.check(raw)


@pytest.fixture
def pg_scene(pg_url: str, clock: TestClock) -> Iterator[Scene]:
    with closing(Raw(pg_url)) as raw, opened(pg_url, clock=clock) as jobs:
        yield Scene(jobs, raw, clock)
        invariants.check(raw)


def ask(name: str, **params: Any) -> Op[Rows]:
    return (yield Call(name, params))


def end(scene: Scene, token: int, job: RecurringJob, **options: Any) -> Any:
    done = Settled(job.id, token, "succeeded", "succeeded", ran_us=1)
    return scene.jobs.store.end_recurring([done], **options)


def test_the_end_of_a_run_that_lost_its_job_says_nothing_of_how_it_stands(scene: Scene) -> None:
    job = scene.job()
    stale = claim(scene.jobs, "fetch")
    scene.jobs.store.give_back([(stale.id, stale.token)])
    good = claim(scene.jobs, "fetch")
    assert end(scene, stale.token, job).accepted == {}
    assert job.refresh().last_outcome is None
    assert scene.jobs.store.held_by(str(scene.raw.one("SELECT worker_id FROM duly.running"))) == [(job.id, good.token)]


def test_a_job_disabled_while_it_ran_goes_on_at_its_fence(scene: Scene) -> None:
    job = scene.job()
    run = claim(scene.jobs, "fetch")
    job.disable("enough")
    assert job.id in end(scene, run.token, job).accepted
    assert scene.raw.rows("SELECT state FROM duly.places") == [("disabled",)]
    assert scene.next_token(job) > run.token


def test_a_job_disabled_while_it_waited_goes_on_at_its_fence(scene: Scene) -> None:
    job = scene.job()
    run = claim(scene.jobs, "fetch")
    scene.jobs.store.give_back([(run.id, run.token)])
    job.disable("enough")
    assert scene.next_token(job) > run.token


def test_a_disabled_job_whose_run_is_given_back_goes_nowhere_and_goes_on_at_its_fence(scene: Scene) -> None:
    job = scene.job()
    run = claim(scene.jobs, "fetch")
    job.disable("enough")
    scene.jobs.store.give_back([(run.id, run.token)])
    assert scene.raw.rows("SELECT state FROM duly.places") == [("disabled",)]
    assert scene.next_token(job) > run.token


def test_a_late_word_does_not_set_the_fence_back(scene: Scene) -> None:
    job = scene.job()
    scene.raw.rows("UPDATE duly.recurring SET token = 9")
    scene.raw.rows("UPDATE duly.scheduled SET token = 3")
    scene.jobs.store.run(lambda: ask("keep_token", id=job.id, token=3))
    assert scene.fence() == 9
    job.disable("enough")
    assert scene.fence() == 9


def test_a_tick_that_comes_twice_makes_one_job(scene: Scene) -> None:
    job = scene.job(cron="@hourly", every=None, overlap="allow")
    scene.clock.advance("1h")
    assert len(scene.jobs.store.spawn()) == 1
    (tick,) = scene.raw.rows("SELECT last_tick_at FROM duly.recurring")
    scene.raw.rows(f"UPDATE duly.scheduled SET run_at = {tick[0]}")
    scene.raw.rows(f"UPDATE duly.recurring SET next_run_at = {tick[0]}, tick_at = {tick[0]}, last_tick_at = NULL")
    assert scene.jobs.store.spawn() == []
    assert scene.raw.count("waiting") == 1
    assert job.refresh().enabled


def test_a_schedule_that_is_not_due_once_it_is_held_makes_nothing(scene: Scene) -> None:
    job = scene.job(cron="@hourly", every=None, overlap="allow")
    assert scene.jobs.store.run(lambda: ask("spawning", id=job.id)) in ([], ())


def test_a_schedule_that_makes_jobs_is_never_run_itself(scene: Scene) -> None:
    scene.job(cron="@hourly", every=None, overlap="allow")
    scene.clock.advance("1h")
    scene.jobs.store.promote()
    assert scene.raw.count("waiting") == 0
    assert scene.raw.count("scheduled") == 1


def test_making_ticks_goes_round_a_schedule_that_somebody_holds(pg_scene: Scene) -> None:
    scene = pg_scene
    job = scene.job(cron="@hourly", every=None, overlap="allow")
    scene.clock.advance("1h")
    spawning = Beside(scene.raw, lambda: scene.jobs.store.spawn())
    with held(scene.raw, f"SELECT id FROM duly.recurring WHERE id = '{job.id}' FOR UPDATE"):
        spawning.must_not_wait()
        assert spawning.answer() == []
    assert len(scene.jobs.store.spawn()) == 1


def test_a_run_that_queues_for_its_job_does_not_end_beside_who_holds_it(pg_scene: Scene) -> None:
    scene = pg_scene
    job = scene.job()
    run = claim(scene.jobs, "fetch")
    ending = Beside(scene.raw, lambda: end(scene, run.token, job, queueing=True))
    with held(scene.raw, f"SELECT id FROM duly.recurring WHERE id = '{job.id}' FOR UPDATE"):
        ending.must_wait()
        ended = ending.answer(within=3)
        assert (ended.accepted, ended.held) == ({}, {job.id})
    assert job.id in end(scene, run.token, job, queueing=True).accepted


def test_an_end_goes_round_a_job_that_somebody_holds(pg_scene: Scene) -> None:
    scene = pg_scene
    job = scene.job()
    run = claim(scene.jobs, "fetch")
    ending = Beside(scene.raw, lambda: end(scene, run.token, job))
    with held(scene.raw, f"SELECT id FROM duly.recurring WHERE id = '{job.id}' FOR UPDATE"):
        ending.must_not_wait()
        assert ending.answer().held == {job.id}
    assert job.id in end(scene, run.token, job).accepted


def test_a_job_that_is_being_disabled_does_not_end_its_run_beside_that(pg_scene: Scene) -> None:
    scene = pg_scene
    job = scene.job()
    run = claim(scene.jobs, "fetch")
    held_back: list[Any] = []
    op = scene.jobs.store.recurring.set_enabled(job.id, False, by=None, reason="enough")
    look = lambda: held_back.append(end(scene, run.token, job).held)  # noqa: E731
    scene.jobs.store.run(lambda: interrupted(op, "lock_recurring", look))
    assert held_back == [{job.id}]
    assert job.id in end(scene, run.token, job).accepted
    assert scene.raw.rows("SELECT state FROM duly.places") == [("disabled",)]


def test_of_two_who_make_a_recurring_job_at_once_the_later_finds_it(pg_scene: Scene, pg_url: str) -> None:
    scene = pg_scene
    new = scene.fetch.new_recurring("x", every="1h")
    with psycopg.connect(pg_url) as caller:
        op = lambda: interrupted(scene.jobs.store.recurring.recur(new), "find_recurring", scene.job)  # noqa: E731
        assert not run_on(caller, op, database=scene.jobs.store.database).created
    assert scene.raw.count("schedules") == 1
