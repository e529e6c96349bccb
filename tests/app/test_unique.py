"""Unique keys through the API: every mode, every scope, and what happens while the job runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from duly import Backoff, Duly, InvalidOption, State, Task, Unique, UniqueKeyHeld, dedupe_key
from tests.helpers import eventually, opened


class Gate:
    """A task that waits for the test in every run, and notes what it was given."""

    def __init__(self, jobs: Duly) -> None:
        self.ran: list[int] = []
        self.started = threading.Semaphore(0)
        self.open = threading.Semaphore(0)

        def refresh(n: int, other: int = 0) -> int:
            self.ran.append(n)
            self.started.release()
            assert self.open.acquire(timeout=10)
            if n < 0:
                raise ValueError(n)
            return n

        self.task: Task[..., int] = jobs.task(refresh)

    def wait_started(self) -> None:
        """Wait until one more run has started."""
        assert self.started.acquire(timeout=5)


@pytest.fixture
def gate(jobs: Duly) -> Gate:
    return Gate(jobs)


def by(mode: str = "skip", scope: str = "live", key: str | None = "k") -> Unique:
    return Unique(key=key, mode=mode, scope=scope)  # type: ignore[arg-type]


@pytest.mark.requirement("B5", "C3")
def test_a_duplicate_returns_the_job_that_is_there(jobs: Duly, gate: Gate) -> None:
    task = gate.task.using(unique="k")
    first, second = task.enqueue(1), task.enqueue(2)
    assert (first.created, second.created) == (True, False)
    assert second.id == first.id
    assert jobs.get(first.id).args == {"n": 1}
    assert len(jobs.list()) == 1


@pytest.mark.requirement("B5")
def test_equal_arguments_are_one_key_whatever_their_order(jobs: Duly) -> None:
    @jobs.task
    def index(filters: dict[str, int], page: int = 1) -> None: ...

    one = index.using(unique=True).enqueue(filters={"a": 1, "b": 2}, page=3)
    same = index.using(unique=True).enqueue(page=3, filters={"b": 2, "a": 1})
    other = index.using(unique=True).enqueue(page=4, filters={"b": 2, "a": 1})
    elsewhere = index.using(unique=True, tenant="acme").enqueue(page=3, filters={"b": 2, "a": 1})
    assert same.id == one.id
    assert len({one.id, other.id, elsewhere.id}) == 3
    assert one.unique_key == 'index::global::{"filters":{"a":1,"b":2},"page":3}'
    assert elsewhere.unique_key == dedupe_key("index", "acme", {"page": 3, "filters": {"b": 2, "a": 1}})


def test_one_key_of_two_tasks_is_two_keys(jobs: Duly, gate: Gate) -> None:
    @jobs.task
    def other(n: int) -> None: ...

    assert gate.task.using(unique="k").enqueue(1).created
    assert other.using(unique="k").enqueue(1).created


def test_a_key_of_another_tenant_is_another_key(jobs: Duly, gate: Gate) -> None:
    assert gate.task.using(unique="k", tenant="a").enqueue(1).created
    assert gate.task.using(unique="k", tenant="b").enqueue(1).created
    assert gate.task.using(unique="k").enqueue(1).created


def test_a_very_long_key_is_a_key_too(jobs: Duly, gate: Gate) -> None:
    long = "ü" * 5_000
    first = gate.task.using(unique=long).enqueue(1)
    assert gate.task.using(unique=long).enqueue(2).id == first.id
    assert gate.task.using(unique=long + "!").enqueue(3).created


def test_unique_can_be_switched_off_again(jobs: Duly, gate: Gate) -> None:
    task = gate.task.using(unique="k")
    assert task.enqueue(1).created
    assert task.using(unique=False).enqueue(1).created
    assert task.using(unique=Unique(key="k", mode="none")).enqueue(1).created


@pytest.mark.requirement("B5")
@pytest.mark.parametrize("scope", ["queued", "live"])
def test_replace_gives_the_waiting_job_the_newest_arguments(jobs: Duly, gate: Gate, scope: str) -> None:
    task = gate.task.using(unique=by("replace", scope), delay=60)
    first = task.enqueue(1)
    run_at = first.run_at
    second = task.using(delay=3600).enqueue(2)
    assert (second.id, second.created) == (first.id, False)
    assert jobs.get(first.id).args == {"n": 2}
    assert jobs.get(first.id).run_at == run_at, "replace keeps the time"


@pytest.mark.requirement("B5")
@pytest.mark.everywhere
def test_debounce_gives_the_waiting_job_the_newest_arguments_and_time(jobs: Duly, gate: Gate) -> None:
    task = gate.task.using(unique=by("debounce", "queued"), delay=60)
    first = task.enqueue(1)
    before = first.run_at
    assert before is not None
    task.using(delay=120).enqueue(2)
    after = jobs.get(first.id)
    assert after.args == {"n": 2}
    assert after.run_at is not None
    assert after.run_at - before >= timedelta(seconds=59)
    task.using(delay=0).enqueue(3)
    assert (jobs.get(first.id).state, jobs.get(first.id).args) == (State.QUEUED, {"n": 3})
    assert len(jobs.list()) == 1


@pytest.mark.requirement("B5")
def test_a_key_held_while_queued_is_free_as_soon_as_the_job_runs(jobs: Duly, gate: Gate) -> None:
    task = gate.task.using(unique=by("skip", "queued"))
    with jobs.worker():
        first = task.enqueue(1)
        gate.wait_started()
        second = task.enqueue(2)
        assert (second.created, second.id == first.id) == (True, False)
        gate.wait_started()
        gate.open.release(2)
        assert (first.wait(5), second.wait(5)) == (1, 2)


@pytest.mark.requirement("B5")
def test_a_key_held_while_live_is_free_when_the_job_has_ended(jobs: Duly, gate: Gate) -> None:
    task = gate.task.using(unique=by("skip", "live"))
    with jobs.worker():
        first = task.enqueue(1)
        gate.wait_started()
        assert task.enqueue(2).id == first.id
        gate.open.release()
        first.wait(5)
        third = task.enqueue(3)
        assert third.created
        gate.open.release()
        third.wait(5)
    assert gate.ran == [1, 3]


@pytest.mark.requirement("B5")
def test_a_key_held_for_a_window_outlives_the_job_and_ends_with_the_window(jobs: Duly, gate: Gate) -> None:
    task = gate.task.using(unique=Unique(key="k", scope="window", window=timedelta(seconds=0.6)))
    gate.open.release(5)
    with jobs.worker():
        first = task.enqueue(1)
        assert first.wait(5) == 1
        assert task.enqueue(2).id == first.id, "the window is still open though the job has ended"
        second = eventually(lambda: found if (found := task.enqueue(2)).created else None)
        assert second is not None
        assert second.wait(5) == 2
    assert gate.ran == [1, 2]


@pytest.mark.requirement("B5")
@pytest.mark.everywhere
def test_keep_latest_runs_exactly_once_more_with_the_newest_data(jobs: Duly, gate: Gate) -> None:
    task = gate.task.using(unique=by("keep_latest"))
    with jobs.worker():
        first = task.enqueue(1)
        gate.wait_started()
        later = [task.enqueue(n) for n in (2, 3, 4)]
        assert {job.id for job in later} == {later[0].id}
        assert [job.created for job in later] == [True, False, False]
        follower = jobs.get(later[0].id)
        assert follower.state is State.QUEUED
        assert follower.reason is not None
        assert first.id in follower.reason
        gate.open.release()
        first.wait(5)
        gate.wait_started()
        gate.open.release()
        assert later[0].wait(5) == 4
        last = task.enqueue(5)
        assert last.created
        gate.open.release()
        last.wait(5)
    assert gate.ran == [1, 4, 5]


def test_keep_latest_replaces_the_data_of_a_job_that_has_not_started(jobs: Duly, gate: Gate) -> None:
    task = gate.task.using(unique=by("keep_latest"))
    first = task.enqueue(1)
    assert task.enqueue(2).id == first.id
    assert jobs.get(first.id).args == {"n": 2}


@pytest.mark.parametrize("fate", ["cancel", "delete"])
def test_a_follower_that_was_given_up_does_not_keep_the_key(jobs: Duly, gate: Gate, fate: str) -> None:
    task = gate.task.using(unique=by("keep_latest"))
    with jobs.worker():
        first = task.enqueue(1)
        gate.wait_started()
        follower = task.enqueue(2)
        getattr(jobs, fate)(follower.id)
        gate.open.release()
        first.wait(5)
        third = task.enqueue(3)
        assert third.created, "the key must not be held by a job that will never run"
        gate.open.release()
        assert third.wait(5) == 3
    assert gate.ran == [1, 3]


def test_the_follower_waits_while_the_first_is_retried(jobs: Duly, gate: Gate) -> None:
    task = gate.task.using(unique=by("keep_latest"), retry=Backoff.fixed(0.05, max_attempts=2))
    with jobs.worker(thread_slots=1):
        failing = task.enqueue(-1)
        gate.wait_started()
        follower = task.enqueue(7)
        gate.open.release(9)
        assert follower.wait(5) == 7
    assert gate.ran == [-1, -1, 7]
    assert jobs.get(failing.id).state is State.FAILED


@pytest.mark.parametrize("verb", ["cancel", "delete"])
def test_giving_up_a_waiting_job_frees_its_key(jobs: Duly, gate: Gate, verb: str) -> None:
    task = gate.task.using(unique="k")
    first = task.enqueue(1)
    getattr(jobs, verb)(first.id)
    assert task.enqueue(2).created


def test_an_operators_retry_into_a_held_key_is_refused_and_names_the_holder(jobs: Duly, gate: Gate) -> None:
    task = gate.task.using(unique="k")
    first = task.enqueue(1)
    first.cancel()
    second = task.enqueue(2)
    with pytest.raises(UniqueKeyHeld, match=second.id):
        first.retry()
    second.cancel()
    first.retry()
    assert first.refresh().state is State.QUEUED
    assert task.enqueue(3).id == first.id, "the key is held again"


def test_a_retry_that_finds_its_key_taken_is_superseded(jobs: Duly, gate: Gate) -> None:
    task = gate.task.using(unique=by("skip", "queued"))
    with jobs.worker():
        failing = task.enqueue(-1)
        gate.wait_started()
        newer = task.using(delay=60).enqueue(2)
        assert newer.created
        gate.open.release()
        eventually(lambda: failing.refresh().state is State.CANCELLED)
    assert failing.reason == f"superseded by {newer.id}"


@pytest.mark.requirement("B5")
@pytest.mark.everywhere
def test_fifty_racing_callers_make_one_job_and_all_are_told_of_it(jobs: Duly, database_url: str) -> None:
    def declared(app: Duly) -> Task[[int], None]:
        @app.task
        def work(n: int) -> None: ...

        return work

    declared(jobs).enqueue(0)
    with opened(database_url) as other, ThreadPoolExecutor(50) as pool:
        tasks = [declared(jobs).using(unique="k"), declared(other).using(unique="k")]
        start = threading.Barrier(50)

        def race(n: int) -> tuple[str, bool]:
            start.wait()
            job = tasks[n % 2].enqueue(n)
            return job.id, job.created

        answers = list(pool.map(race, range(50)))
    assert len({job_id for job_id, _ in answers}) == 1
    assert sum(created for _, created in answers) == 1
    assert jobs.get(answers[0][0]).state is State.QUEUED


@pytest.mark.parametrize(
    "make",
    [
        lambda: Unique(mode="once"),  # type: ignore[arg-type]
        lambda: Unique(scope="always"),  # type: ignore[arg-type]
        lambda: Unique(key=""),
        lambda: Unique(scope="window"),
        lambda: Unique(window=timedelta(1)),
        lambda: Unique(scope="window", window=timedelta(0)),
        lambda: Unique(mode="keep_latest", scope="queued"),
        lambda: Unique(mode="debounce", scope="window", window=timedelta(1)),
    ],
)
def test_a_combination_without_a_meaning_is_refused(make: Callable[[], Unique]) -> None:
    with pytest.raises(InvalidOption, match="unique"):
        make()
