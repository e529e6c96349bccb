"""A worker stops by itself what it may have lost, and takes nothing from those that live."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from duly import Duly
from duly.domain.errors import DatabaseError
from duly.domain.records import Claimed, Lane, Settled
from duly.maintenance.rescue import Deaths, rescue_dead, rescue_lapsed
from duly.store.store import Store
from duly.worker.context import Run, lease_time
from duly.worker.identity import this_process
from duly.worker.keeper import Keeper
from tests.store.factory import Factory

LEASE = 10.0


class Kept:
    """A run that a keeper looks after, without a database."""

    def __init__(self, *, age: float = 0.0, limited: bool = False, renew: Callable[..., Any] = lambda *_: {}) -> None:
        job = cast(Claimed, SimpleNamespace(id="j", token=2, task="send", timeout_us=None))
        self.run = Run(job, cast(Any, None), lease_time() - age)
        self.run.limited = limited
        self.stopped: list[Run] = []
        self.requests: list[tuple[str, int, str | None]] = []
        store = SimpleNamespace(renew=renew, cancel_requests=lambda worker_id: self.requests, progress=lambda *_: None)
        self.keeper = Keeper(cast(Store, store), "w", {"j": self.run}, self.stopped.append, lease=LEASE)


def test_a_run_whose_lease_nobody_confirms_is_stopped_before_it_ends() -> None:
    young, old = Kept(age=LEASE * 0.5), Kept(age=LEASE * 0.95)
    for kept in (young, old):
        kept.keeper.watch()
    assert (young.stopped, old.stopped) == ([], [old.run])
    assert old.run.fenced


def test_a_lease_counts_from_before_it_was_asked_for() -> None:
    def slowly(*_: Any) -> dict[str, bool]:
        time.sleep(0.02)
        return {"j": False}

    kept = Kept(age=LEASE * 0.5, renew=slowly)
    asked = lease_time()
    kept.keeper.step()
    assert asked <= kept.run.leased_at < asked + 0.02


def test_a_run_that_another_worker_has_is_stopped() -> None:
    kept = Kept(age=LEASE * 0.5)
    kept.keeper.step()
    assert kept.stopped == [kept.run]
    assert kept.run.lost


def test_a_lapsed_lease_under_a_limit_is_given_up_though_it_could_be_renewed() -> None:
    free, limited = (Kept(age=LEASE * 1.1, limited=limited, renew=lambda *_: {"j": False}) for limited in (False, True))
    for kept in (free, limited):
        kept.keeper.step()
    assert (free.run.lost, limited.run.lost) == (False, True)


def test_a_run_is_not_stopped_because_an_earlier_one_was_to_be() -> None:
    kept = Kept()
    kept.requests = [("j", 1, "enough")]
    kept.keeper.step()
    assert kept.stopped == []
    kept.requests, kept.keeper.look_for_cancels = [("j", 2, "enough")], True
    kept.keeper.step()
    assert kept.stopped == [kept.run]


def test_after_an_outage_a_worker_gives_back_only_what_it_does_not_know_of(lite: Duly) -> None:
    @lite.task
    def send() -> None: ...

    for _ in range(2):
        send.enqueue()
    worker = lite.worker()._worker
    known, unknown = lite.store.claim("default", [Lane("", "send")], 2, worker_id=worker.id, lease_us=60_000_000)
    worker._held[known.id] = Run(known, send.definition, lease_time())
    worker._lost_touch(RuntimeError("the reply was lost"))
    claimer = cast(Any, worker._claimer)
    claimer.step = lambda: 1.0
    worker._claim()
    assert lite.store.held_by(worker.id) == [(known.id, known.token)]
    assert unknown.attempt == 1
    assert lite.get(unknown.id).attempts == 0


def test_nobody_is_rescued_by_time_before_a_lease_of_unbroken_contact(
    make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make.running()
    make.clock.advance(60)
    for unbroken, rescued in ((14_000_000, 0), (16_000_000, 1)):
        monkeypatch.setattr(make.store.database, "unbroken_us", lambda _, unbroken=unbroken: unbroken)
        assert rescue_lapsed(make.store, lease_us=15_000_000, crash_limit=3) == rescued
    assert make.state(job.id) == "queued"


def test_the_runs_of_a_worker_that_may_live_are_left_to_it(make: Factory) -> None:
    worker = str(uuid4())
    make.store.add_worker(
        worker, this_process(), lease_us=15_000_000, queues="[]", tasks="[]", slots=1, wake=None, version="0"
    )
    make.enqueue()
    make.take(worker=worker)
    for gone in (False, True):
        is_gone, deaths = (lambda process, gone=gone: gone), Deaths(make.store)
        assert rescue_dead(make.store, make.store.workers(), is_gone, crash_limit=3, deaths=deaths) == gone


def test_one_run_that_cannot_be_rescued_strands_no_other(make: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = sorted((make.running(), make.running()), key=lambda job: job.id)
    make.clock.advance(60)
    real = make.store.settle

    def settle(batch: Sequence[Settled], **options: Any) -> set[str]:
        if any(settled.id == jobs[0].id for settled in batch):
            raise DatabaseError("this row cannot be rescued")
        return real(batch, **options)

    monkeypatch.setattr(make.store, "settle", settle)
    monkeypatch.setattr(make.store.database, "unbroken_us", lambda _: 60_000_000)
    assert rescue_lapsed(make.store, lease_us=15_000_000, crash_limit=3) == 1
    assert [make.state(job.id) for job in jobs] == ["running", "queued"]
