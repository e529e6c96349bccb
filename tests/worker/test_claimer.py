"""The claimer step by step, in a worker that was not started: what it takes, keeps for itself and waits for."""

from __future__ import annotations

from typing import Any

import pytest

from duly import Duly
from duly.domain.errors import DatabaseUnavailable
from duly.domain.records import Claimed
from duly.store.store import Store
from duly.worker.claimer import SUSPECT_AT_LAST, SUSPECT_PATIENCE, Claimer
from duly.worker.context import Run, lease_time
from duly.worker.registry import Kind
from duly.worker.worker import Worker
from tests.helpers import eventually
from tests.worker.test_rescue import take_two_workers

HELD = {"something": None}


@pytest.fixture
def worker(jobs: Duly) -> Worker:
    @jobs.task
    def work() -> None: ...

    @jobs.task(queue="other")
    def other() -> None: ...

    return jobs.worker(queues=["default", "other"])._worker


@pytest.fixture
def claimer(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Claimer:
    monkeypatch.setattr(worker._claimer, "_poll", lambda: 5.0)
    return worker._claimer


@pytest.fixture
def sent(claimer: Claimer, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """What the claimer hands to runners."""
    found: list[Run] = []
    monkeypatch.setattr(claimer, "_dispatch", lambda kind, runs: found.extend(runs))
    return found


def one_runs(worker: Worker) -> None:
    worker._slots.taken(Kind.THREAD, "default", (), 1)


def a_suspect(claimer: Claimer) -> None:
    claimer._lanes["default"].suspects = {("", "work"): 1}


def run_of(jobs: Duly, task: str = "work") -> Run:
    empty = dict.fromkeys(Claimed._fields)
    job = Claimed(**(empty | {"id": "one", "tenant": "", "task": task}))  # type: ignore[arg-type]
    return Run(job, jobs[task].definition, lease_time())


def test_a_worker_beside_whose_run_a_suspect_waits_has_not_found_nothing(
    jobs: Duly, worker: Worker, claimer: Claimer, sent: list[Run]
) -> None:
    """It would be taken for idle as soon as that run has ended, and a tick would leave without the suspect."""
    jobs["work"].enqueue()
    take_two_workers(jobs, "work", 1)
    eventually(lambda: jobs.store.promote(10))
    one_runs(worker)
    for _ in range(4):
        claimer.step()
        assert not claimer.empty
    assert claimer._suspects()
    assert sent == []


def test_a_suspect_that_came_and_went_is_not_remembered_by_the_next(claimer: Claimer) -> None:
    """How long something has not been on record is counted from when that is seen, for each suspect anew."""
    claimer._held = HELD  # type: ignore[assignment]
    a_suspect(claimer)
    assert claimer._hold_for_suspect(100.0)
    claimer._lanes["default"].suspects = {}
    assert not claimer._hold_for_suspect(101.0)
    a_suspect(claimer)
    assert claimer._hold_for_suspect(700.0)


def test_while_others_run_that_something_is_not_on_record_does_not_count(worker: Worker, claimer: Claimer) -> None:
    claimer._held = HELD  # type: ignore[assignment]
    a_suspect(claimer)
    assert claimer._hold_for_suspect(100.0)
    one_runs(worker)
    assert claimer._hold_for_suspect(100.0 + SUSPECT_PATIENCE + 0.1)
    worker._slots.pools[Kind.THREAD].out = 0
    assert claimer._hold_for_suspect(100.0 + SUSPECT_PATIENCE + 0.2)


def test_after_a_suspect_that_began_beside_a_long_run_that_run_is_not_waited_for(
    jobs: Duly, worker: Worker, claimer: Claimer
) -> None:
    one_runs(worker)
    claimer._held = HELD  # type: ignore[assignment]
    claimer._alone = run_of(jobs)
    assert not claimer._hold_for_suspect(100.0)
    assert claimer._alone is None


def test_a_suspect_that_runs_is_waited_for_however_long_and_one_that_ended_for_a_while(
    jobs: Duly, claimer: Claimer
) -> None:
    suspect = claimer._alone = run_of(jobs)
    claimer._held = {suspect.job.id: suspect}
    assert claimer._hold_for_suspect(100.0)
    assert claimer._hold_for_suspect(100_000.0)
    suspect.phase = 2
    assert claimer._hold_for_suspect(200_000.0)
    assert not claimer._hold_for_suspect(200_000.0 + SUSPECT_AT_LAST)


def test_what_was_claimed_before_a_claim_that_failed_is_sent_off(
    jobs: Duly, claimer: Claimer, sent: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be given back as unknown, and be dispatched all the same with the next."""
    claim, failed = Store.claim, list[str]()

    def first_only(store: Store, queue: str, *args: Any, **kwargs: Any) -> list[Claimed]:
        if sent or claimer._gathered:
            failed.append(queue)
            raise DatabaseUnavailable("gone")
        return claim(store, queue, *args, **kwargs)

    for task in ("work", "other"):
        jobs[task].enqueue()
    monkeypatch.setattr(Store, "claim", first_only)
    with pytest.raises(DatabaseUnavailable):
        claimer.step()
    assert len(failed) == 1
    assert len(sent) == 1
    assert claimer._gathered == []


def test_a_claim_that_came_to_nothing_takes_no_slot(
    jobs: Duly, worker: Worker, claimer: Claimer, sent: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs are given back as unknown; the slots would be lost for good."""

    def gone(*_: object) -> Any:
        raise DatabaseUnavailable("gone")

    jobs["work"].recur(key="one", every="1h")
    monkeypatch.setattr(worker._claimer._store, "occurrences", gone)
    with pytest.raises(DatabaseUnavailable):
        claimer.step()
    assert worker._slots.out == 0
    assert sent == []
