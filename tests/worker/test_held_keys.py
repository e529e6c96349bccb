"""A caller's open transaction that holds a unique key keeps one run from being recorded, and no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Literal

import psycopg
import pytest

from duly import Backoff, Duly, State, Unique
from duly.domain.errors import DatabaseError
from duly.domain.records import Settled
from duly.store.store import Store
from tests.helpers import eventually, never, opened
from tests.store import invariants
from tests.store.raw import Raw


@pytest.fixture
def jobs(pg_url: str) -> Iterator[Duly]:
    with opened(pg_url) as jobs:
        yield jobs
    with closing(Raw(pg_url)) as raw:
        invariants.check(raw)


@pytest.mark.requirement("D6")
@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("mode", ["skip", "keep_latest"])
@pytest.mark.parametrize("retries", [False, True])
def test_a_caller_that_holds_a_key_keeps_no_other_run_from_being_recorded(
    jobs: Duly, pg_url: str, mode: Literal["skip", "keep_latest"], end: str, retries: bool
) -> None:
    go = threading.Event()
    ran: list[int] = []

    @jobs.task(retry=Backoff.fixed(0, max_attempts=2))
    def once(n: int) -> None:
        ran.append(n)
        go.wait(20)
        if retries and len(ran) == 1:
            raise ValueError("once more")

    @jobs.task
    def other() -> None: ...

    of_key = once.using(unique=Unique(key="k", mode=mode))
    first = of_key.enqueue(1)
    with jobs.worker(), psycopg.connect(pg_url) as connection:
        eventually(lambda: ran == [1])
        second = of_key.using(connection=connection).enqueue(2)
        go.set()
        beside = [other.enqueue(), other.using(unique="another").enqueue()]
        eventually(lambda: {each.refresh().state for each in beside} == {State.SUCCEEDED})
        assert first.refresh().state is State.RUNNING
        getattr(connection, end)()
        eventually(lambda: first.refresh().state is State.SUCCEEDED)
        follows = mode == "keep_latest" and end == "commit"
        if follows:
            eventually(lambda: jobs.get(second.id).state is State.SUCCEEDED)
    assert ran == [1] * (1 + retries) + [2] * follows


def test_a_run_whose_key_callers_hold_without_a_gap_is_recorded(jobs: Duly, pg_url: str) -> None:
    go, over = threading.Event(), threading.Event()

    @jobs.task
    def once() -> None:
        go.wait(20)

    of_key = once.using(unique="k")
    first = of_key.enqueue()

    def hold() -> None:
        with psycopg.connect(pg_url, autocommit=True) as connection:
            while not over.is_set():
                with connection.transaction():
                    of_key.using(connection=connection).enqueue()
                    time.sleep(0.02)

    threads = [threading.Thread(target=hold) for _ in range(2)]
    with jobs.worker():
        eventually(lambda: first.refresh().state is State.RUNNING)
        for thread in threads:
            thread.start()
        try:
            go.set()
            eventually(lambda: first.refresh().state is State.SUCCEEDED, within=10)
        finally:
            over.set()
            for thread in threads:
                thread.join()


def test_a_run_that_has_ended_is_not_taken_for_one_that_hangs_while_its_key_is_held(jobs: Duly, pg_url: str) -> None:
    go = threading.Event()

    @jobs.task(timeout=0.2, retry=Backoff.fixed(0, max_attempts=1))
    def once() -> str:
        go.wait(20)
        return "done"

    of_key = once.using(unique="k")
    first = of_key.enqueue()
    with jobs.worker(lease=0.5), psycopg.connect(pg_url) as connection:
        eventually(lambda: first.refresh().state is State.RUNNING)
        of_key.using(connection=connection).enqueue()
        go.set()
        never(lambda: first.refresh().state is not State.RUNNING, 2.0)  # its timeout and a lease have long passed
        connection.rollback()
        assert first.wait(10) == "done"
    assert [run.outcome for run in first.refresh().runs] == ["succeeded"]


def test_a_run_that_cannot_be_recorded_keeps_no_other_from_it(
    jobs: Duly, pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, broken = threading.Event(), threading.Event()
    tries: list[float] = []
    settle_keyed = Store.settle_keyed

    def refused(store: Store, settled: Settled, *given: Any, **options: Any) -> bool | None:
        if broken.is_set() and settled.id == first.id:
            tries.append(time.monotonic())
            raise DatabaseError("PostgreSQL refused an operation: it is broken (XX000)")
        return settle_keyed(store, settled, *given, **options)

    @jobs.task
    def once() -> None:
        go.wait(20)

    @jobs.task
    def other() -> None: ...

    monkeypatch.setattr(Store, "settle_keyed", refused)
    of_key = once.using(unique="k")
    first = of_key.enqueue()
    with jobs.worker(), psycopg.connect(pg_url) as connection:
        eventually(lambda: first.refresh().state is State.RUNNING)
        of_key.using(connection=connection).enqueue()
        go.set()
        other.using(unique="another").enqueue().wait(10)
        broken.set()
        connection.rollback()
        eventually(lambda: len(tries) >= 2)  # as it was, and without what may not be storable
        beside = [other.enqueue(), other.using(unique="a third").enqueue()]
        eventually(lambda: {each.refresh().state for each in beside} == {State.SUCCEEDED})
        assert first.refresh().state is State.RUNNING
        broken.clear()
        eventually(lambda: first.refresh().state is State.SUCCEEDED)
