"""The repository alone (B6): a caller's own loop with nothing but `duly.store.store` and the values of the domain."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

import duly.store.store
from duly.domain.ids import uuid7
from duly.domain.outcome import after_error
from duly.domain.records import Claimed, Lane, NewJob, Settled
from duly.domain.retry import Backoff
from duly.domain.states import State
from duly.store.store import Store

LEASE_US = 15_000_000
ME = uuid7()


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = Store.open(database_url)
    yield store
    store.close()


def enqueue(store: Store, task: str, **args: object) -> str:
    job = NewJob(id=uuid7(), task=task, args=json.dumps(args), retry=Backoff.fixed(0).to_data(), max_attempts=3)
    return store.enqueue(job).id


def claim(store: Store, *tasks: str, n: int = 10) -> list[Claimed]:
    store.promote()
    return store.claim("default", [Lane("", task) for task in tasks], n, worker_id=ME, lease_us=LEASE_US)


def mark_success(store: Store, job: Claimed, result: object) -> bool:
    settled = Settled(job.id, job.token, "succeeded", "succeeded", ran_us=10, result=json.dumps(result))
    return job.id in store.settle([settled])


def mark_failure(store: Store, job: Claimed, error: Exception) -> bool:
    policy = Backoff.from_data(job.retry, job.max_attempts)
    return job.id in store.settle([after_error(job, error, policy, ran_us=10, log=None, random=random.random)])


@pytest.mark.requirement("B6", "B4")
@pytest.mark.everywhere
def test_a_loop_of_ones_own_enqueues_claims_and_marks_success_or_failure(store: Store) -> None:
    good, bad = enqueue(store, "double", n=4), enqueue(store, "fail")
    handlers = {"double": lambda n: 2 * n, "fail": lambda: 1 // 0}
    rounds = 0
    while jobs := claim(store, *handlers):
        rounds += 1
        for job in jobs:
            try:
                result = handlers[job.task](**json.loads(job.args))  # type: ignore[operator]
            except Exception as error:
                assert mark_failure(store, job, error)  # noqa: PT017
            else:
                assert mark_success(store, job, result)
    assert rounds == 3, "the one that fails has three runs"
    done, failed = store.get(good), store.get(bad)
    assert done is not None
    assert failed is not None
    assert (done.state, done.attempt) == (State.SUCCEEDED, 1)
    assert (failed.state, failed.attempt) == (State.FAILED, 3)
    (run,) = store.runs_of(good)
    assert (run.result, run.outcome, run.worker_id) == ("8", "succeeded", ME)
    assert [each.error_kind for each in store.runs_of(bad)] == ["ZeroDivisionError"] * 3


@pytest.mark.requirement("B6")
@pytest.mark.everywhere
def test_what_is_claimed_is_claimed_once_and_only_the_holder_may_end_it(store: Store) -> None:
    job_id = enqueue(store, "work")
    (mine,) = claim(store, "work")
    assert claim(store, "work") == []
    forged = mine._replace(token=mine.token + 1)
    assert not mark_success(store, forged, None)
    assert store.give_back([(mine.id, mine.token)]) == 1
    (again,) = claim(store, "work")
    assert (again.token > mine.token, again.attempt) == (True, 1)
    assert not mark_success(store, mine, "stale")
    assert store.renew([(mine.id, mine.token)], LEASE_US) == {}
    assert store.renew([(again.id, again.token)], LEASE_US) == {again.id: False}
    assert mark_success(store, again, "fresh")
    assert not mark_success(store, again, "twice")
    record = store.get(job_id)
    assert record is not None
    assert record.state is State.SUCCEEDED
    assert [run.result for run in store.runs_of(job_id)] == ['"fresh"']


@pytest.mark.requirement("B6", "C5")
def test_only_the_lanes_named_are_claimed_and_nothing_before_its_time(store: Store) -> None:
    wanted = enqueue(store, "mine")
    enqueue(store, "theirs")
    store.enqueue(NewJob(id=uuid7(), task="mine", args="{}", tenant="acme"))
    store.enqueue(NewJob(id=uuid7(), task="mine", args="{}", delay_us=60_000_000))
    store.enqueue(NewJob(id=uuid7(), task="mine", args="{}", queue="other"))
    assert [job.id for job in claim(store, "mine")] == [wanted]
    assert sorted(lane for lane, _ in store.lanes("default")) == [Lane("", "theirs"), Lane("acme", "mine")]


def test_the_module_says_how_to_use_it() -> None:
    import duly.store.store as module

    assert module.__doc__ is not None
    for word in ("Store.open", "enqueue", "claim", "lease_us", "settle"):
        assert word in module.__doc__


EXAMPLE = "\n".join(line[4:] for line in (duly.store.store.__doc__ or "").splitlines() if line.startswith("    "))


@pytest.mark.requirement("B6")
@pytest.mark.everywhere
def test_the_example_in_the_docstring_runs_and_gives_the_key_back(
    database_url: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert EXAMPLE.count("sqlite:///jobs.db") == 1
    program = EXAMPLE.replace("sqlite:///jobs.db", database_url)
    for _ in range(2):  # the second finds the key free
        exec(compile(program, "the example", "exec"), {})  # noqa: S102 - our own docstring
        assert 'runs with {"user_id": 42}' in capsys.readouterr().out
    assert store.counts().ended == {"succeeded": 2}
