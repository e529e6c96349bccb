"""Jobs completed by their handlers: in one transaction with the effect, once, whatever happens around the commit."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from duly import Backoff, Breaker, Duly, NotCommitted, State, current_job
from duly.testing import drain
from tests.helpers import ROOT, eventually, never

SOON = Backoff.fixed(0.01, max_attempts=3)


@contextmanager
def own_connection(url: str) -> Iterator[Any]:
    """A connection of the application's, which commits at the end unless something is raised."""
    if url.startswith("postgres"):
        with psycopg.connect(url) as by_psycopg:
            yield by_psycopg
    else:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as by_sqlite, by_sqlite:
            yield by_sqlite


@pytest.fixture
def counter(database_url: str) -> Counter:
    return Counter(database_url)


class Counter:
    """A table of the application's own, in which each effect is a row."""

    def __init__(self, url: str) -> None:
        self.url = url
        with own_connection(url) as connection:
            connection.execute("CREATE TABLE effects (what varchar(40))")

    def add(self, connection: Any, what: str = "done") -> None:
        connection.execute(f"INSERT INTO effects VALUES ('{what}')")

    @property
    def effects(self) -> list[str]:
        with own_connection(self.url) as connection:
            return [str(row[0]) for row in connection.execute("SELECT what FROM effects ORDER BY what").fetchall()]


def test_effect_and_completion_are_one(jobs: Duly, counter: Counter, caplog: pytest.LogCaptureFixture) -> None:
    @jobs.task
    def pay(what: str) -> None:
        with own_connection(counter.url) as connection, current_job().completing(connection) as completion:
            counter.add(connection, what)
            completion.result = {"paid": what}

    with jobs.worker() as worker:
        job = pay.enqueue("rent")
        assert job.wait(10) == {"paid": "rent"}
        eventually(lambda: worker.busy == 0)
    job.refresh()
    assert (job.state, [run.outcome for run in job.runs], job.attempts) == (State.SUCCEEDED, ["succeeded"], 1)
    assert counter.effects == ["rent"]
    usage = jobs.store.usage(0, 1 << 60)
    assert [(row[2], row[3], row[4]) for row in usage] == [(job.task, 1, 1)], "counted once"
    assert "lost its lease" not in caplog.text


def test_an_async_handler_completes_on_an_async_connection(jobs: Duly, counter: Counter) -> None:
    @jobs.task
    async def pay(what: str) -> None:
        async with async_connection(counter.url) as connection:
            async with current_job().completing(connection):
                await connection.execute(f"INSERT INTO effects VALUES ('{what}')")
            await connection.commit()
        await asyncio.sleep(0.05)

    with jobs.worker():
        job = pay.enqueue("rent")
        job.wait(10)
    assert job.refresh().state is State.SUCCEEDED
    assert counter.effects == ["rent"]


def async_connection(url: str) -> Any:
    if url.startswith("postgres"):
        return _opened(url)
    import aiosqlite

    return aiosqlite.connect(url.removeprefix("sqlite:///"))


class _opened:
    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> psycopg.AsyncConnection:
        self._connection = await psycopg.AsyncConnection.connect(self._url)
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()


def test_a_handler_that_raises_after_its_commit_is_not_run_again(
    jobs: Duly, counter: Counter, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[object] = []

    @jobs.task(retry=SOON, on_failure=lambda job, error: told.append(error))
    def pay() -> None:
        with own_connection(counter.url) as connection, current_job().completing(connection):
            counter.add(connection)
        raise ZeroDivisionError("too late to matter")

    with jobs.worker() as worker:
        job = pay.enqueue()
        job.wait(10)
        eventually(lambda: worker.busy == 0)
        never(lambda: len(counter.effects) > 1, within=0.2)
    assert [run.outcome for run in job.refresh().runs] == ["succeeded"]
    assert "too late to matter" in caplog.text
    assert told == []


def test_a_block_that_raises_is_retried(jobs: Duly, counter: Counter) -> None:
    @jobs.task(retry=SOON)
    def pay() -> None:
        with own_connection(counter.url) as connection, current_job().completing(connection):
            counter.add(connection)
            if current_job().attempt < 3:
                raise ZeroDivisionError

    with jobs.worker():
        job = pay.enqueue()
        job.wait(10)
    assert [run.outcome for run in job.refresh().runs] == ["failed", "failed", "succeeded"]
    assert counter.effects == ["done"]


def test_a_commit_that_fails_is_retried_and_one_whose_reply_was_lost_is_not(jobs: Duly, counter: Counter) -> None:
    """Both look the same to the handler: an error at the commit. What happened is found out by looking."""

    @jobs.task(retry=SOON)
    def pay(reaches: bool) -> None:
        with own_connection(counter.url) as connection:
            with current_job().completing(connection):
                counter.add(connection, "reached" if reaches else "not")
            if not reaches and current_job().attempt == 1:
                connection.rollback()
                raise ConnectionError("the commit never arrived")
            connection.commit()
            if reaches:
                raise ConnectionError("the reply was lost")

    with jobs.worker():
        lost, failed = pay.enqueue(True), pay.enqueue(False)
        lost.wait(10)
        failed.wait(10)
    assert [run.outcome for run in lost.refresh().runs] == ["succeeded"]
    assert [run.outcome for run in failed.refresh().runs] == ["failed", "succeeded"]
    assert counter.effects == ["not", "reached"]


def test_a_handler_that_returns_without_committing_has_failed(jobs: Duly, counter: Counter) -> None:
    told: list[BaseException] = []

    @jobs.task(retry=Backoff.none(), on_failure=lambda job, error: told.append(error))
    def pay() -> None:
        with own_connection(counter.url) as connection:
            with current_job().completing(connection):
                counter.add(connection)
            connection.rollback()

    with jobs.worker():
        job = pay.enqueue()
        eventually(lambda: job.refresh().state is State.FAILED)
    assert [run.error_kind for run in job.runs] == ["duly.domain.errors.NotCommitted"]
    assert counter.effects == []
    assert [type(error) for error in told] == [NotCommitted]


def test_a_transaction_left_open_is_waited_for(jobs: Duly, counter: Counter) -> None:
    """Its connection ends a moment after the handler has returned: then, and not before, the run has failed."""
    left: list[Any] = []

    @jobs.task(retry=SOON)
    def pay() -> None:
        if left:
            return
        if counter.url.startswith("postgres"):
            connection: Any = psycopg.connect(counter.url)
        else:
            connection = sqlite3.connect(counter.url.removeprefix("sqlite:///"), check_same_thread=False)
        left.append(connection)
        with current_job().completing(connection):
            counter.add(connection)

    lease = 1.0 if counter.url.startswith("postgres") else 15.0  # on SQLite nothing can be renewed meanwhile
    with jobs.worker(lease=lease) as worker:
        job = pay.enqueue()
        eventually(lambda: left)
        never(lambda: job.refresh().state is not State.RUNNING, within=1.5)
        assert worker.busy == 1
        left[0].close()
        eventually(lambda: job.refresh().state is State.SUCCEEDED)
    assert [run.outcome for run in job.runs] == ["failed", "succeeded"]
    assert counter.effects == []


def test_work_after_the_commit_keeps_its_lease(jobs: Duly, counter: Counter, caplog: pytest.LogCaptureFixture) -> None:
    """The row of the run is gone, and that is no lost lease: the handler is left to end."""
    ended = threading.Event()

    @jobs.task
    def pay() -> None:
        with own_connection(counter.url) as connection, current_job().completing(connection):
            counter.add(connection)
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            assert not current_job().cancelled()
            time.sleep(0.01)
        logging.getLogger("shop").warning("said afterwards")
        ended.set()

    with jobs.worker(lease=0.6) as worker:
        job = pay.enqueue()
        assert ended.wait(10)
        eventually(lambda: worker.busy == 0)
    assert "stopped:" not in caplog.text
    assert (job.refresh().state, job.attempts) == (State.SUCCEEDED, 1)
    assert "said afterwards" in "".join(job.runs[0].log)


def test_a_run_cancelled_in_its_block_ends_as_cancelled(jobs: Duly, counter: Counter, database_url: str) -> None:
    @jobs.task(retry=SOON)
    def pay() -> None:
        jobs.store.cancel(current_job().id, "changed my mind")
        with own_connection(counter.url) as connection, current_job().completing(connection):
            counter.add(connection)

    with jobs.worker():
        job = pay.enqueue()
        eventually(lambda: job.refresh().state is State.CANCELLED)
    assert [run.outcome for run in job.runs] == ["cancelled"]
    assert counter.effects == []


def test_the_next_job_of_a_key_starts_when_the_commit_frees_its_slot(jobs: Duly, counter: Counter) -> None:
    @jobs.task(concurrency_key=lambda args: "shop", breaker=Breaker())
    def pay(n: int) -> None:
        with own_connection(counter.url) as connection, current_job().completing(connection):
            counter.add(connection, str(n))

    with jobs.worker():
        many = [pay.enqueue(n) for n in range(20)]
        began = time.monotonic()
        for job in many:
            job.wait(10)
    assert time.monotonic() - began < 5
    assert counter.effects == sorted(map(str, range(20)))
    assert {job.refresh().state for job in many} == {State.SUCCEEDED}


def test_a_slot_freed_by_a_worker_that_died_at_once_is_found_by_another(jobs: Duly, counter: Counter) -> None:
    """The mark is part of the transaction; nobody was told."""

    @jobs.task(concurrency_key=lambda args: "shop")
    def pay(n: int) -> None: ...

    jobs.store.gates.declare(jobs.registry.limits(), jobs.registry.key_groups())
    first, second = pay.enqueue(1), pay.enqueue(2)
    while jobs.store.gates.admit():
        pass
    from duly.domain.ids import uuid7
    from duly.domain.records import Lane
    from duly.worker.context import Run

    (claimed,) = jobs.store.claim("default", [Lane("", first.task)], 2, worker_id=uuid7(), lease_us=60_000_000)
    run = Run(claimed, jobs.registry.get(first.task), 0.0)
    run.start()
    with own_connection(counter.url) as connection, run.completing(connection):
        counter.add(connection)
    with jobs.worker():
        second.wait(10)
    assert first.refresh().state is State.SUCCEEDED


def test_a_recurring_job_goes_on_to_its_next_tick(jobs: Duly, counter: Counter) -> None:
    @jobs.task
    def poll() -> None:
        with own_connection(counter.url) as connection, current_job().completing(connection):
            counter.add(connection, f"tick {current_job().fence}")

    job = poll.recur("news", every="300ms")
    with jobs.worker():
        eventually(lambda: len(counter.effects) >= 3, within=10)
    assert job.refresh().enabled
    outcomes = [run.outcome for run in jobs.store.runs_of(job.id)]
    assert outcomes == ["succeeded"] * len(counter.effects)
    assert len(set(counter.effects)) == len(counter.effects)


@pytest.mark.requirement("A7")
def test_a_recurring_job_says_when_it_wants_to_run_next(jobs: Duly, counter: Counter) -> None:
    @jobs.task
    def poll() -> None:
        with own_connection(counter.url) as connection, current_job().completing(connection) as completion:
            counter.add(connection)
            completion.result = timedelta(hours=2)

    job = poll.recur("news", every="200ms")
    with jobs.worker():
        eventually(lambda: counter.effects, within=10)
        never(lambda: len(counter.effects) > 1, within=0.8)
    job.refresh()
    assert job.next_run_at is not None
    assert job.last_run_at is not None
    assert timedelta(hours=1.9) < job.next_run_at - job.last_run_at < timedelta(hours=2.1)


def test_a_mirror_is_written_in_the_same_transaction(jobs: Duly, counter: Counter) -> None:
    @jobs.task(mirror="INSERT INTO effects VALUES ('mirrored')")
    def poll() -> None:
        with own_connection(counter.url) as connection, current_job().completing(connection):
            counter.add(connection)

    job = poll.recur("news", every="1h")
    before = counter.effects.count("mirrored")
    with jobs.worker():
        eventually(lambda: "done" in counter.effects, within=10)
    assert counter.effects == ["done", *["mirrored"] * (before + 1)]
    assert [run.outcome for run in jobs.store.runs_of(job.id)] == ["succeeded"]


def test_drain_runs_handlers_that_complete_their_jobs(jobs: Duly, counter: Counter) -> None:
    @jobs.task(retry=Backoff.none())
    def pay(commits: bool) -> None:
        with own_connection(counter.url) as connection:
            with current_job().completing(connection):
                counter.add(connection)
            if not commits:
                connection.rollback()

    good, bad = pay.enqueue(True), pay.enqueue(False)
    drained = drain(jobs)
    assert [run.outcome for run in drained.runs] == ["succeeded", "failed"]
    assert (good.refresh().state, bad.refresh().state) == (State.SUCCEEDED, State.FAILED)
    assert counter.effects == ["done"]


@pytest.mark.parametrize("dies", [False, True])
def test_a_task_in_a_child_process_completes_its_job(
    jobs: Duly, counter: Counter, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """Also if the child dies right after the commit, before it could say so."""
    monkeypatch.setenv("COMPLETING_URL", counter.url)
    from tests.worker import completing_app

    task = jobs.task(isolation="process", retry=SOON, name="tests.worker.completing_app.pay")(
        completing_app.pay.definition.fn
    )
    assert os.environ["COMPLETING_URL"] == counter.url
    with jobs.worker(process_slots=1, app_path="tests.worker.completing_app:jobs") as worker:
        job = task.enqueue(dies)
        job.wait(20)
        eventually(lambda: worker.busy == 0)
    assert [run.outcome for run in job.refresh().runs] == ["succeeded"]
    assert counter.effects == ["done"]


@pytest.mark.parametrize("point", ["in the block", "before the commit", "after the commit"])
def test_a_worker_killed_around_the_commit_leaves_one_effect(
    jobs: Duly, counter: Counter, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv("COMPLETING_URL", counter.url)
    from tests.worker import completing_app

    task = jobs.task(name="tests.worker.completing_app.pay_at")(completing_app.pay_at.definition.fn)
    job = task.enqueue()
    dying = subprocess.Popen(
        [sys.executable, "-m", "tests.worker.completing_app"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "DIE_AT": point},
        stdin=subprocess.PIPE,
    )
    with dying:
        assert dying.wait(60) == -signal.SIGKILL
    with jobs.worker():
        eventually(lambda: job.refresh().state is State.SUCCEEDED, within=30)
    outcomes = ["succeeded"] if point == "after the commit" else ["crashed", "succeeded"]
    assert [run.outcome for run in job.runs] == outcomes
    assert counter.effects == ["done"]
