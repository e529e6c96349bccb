"""After a run that failed: again or not, when, and what is kept; whatever is raised, the worker goes on."""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from duly import Backoff, Cancel, Duly, InvalidOption, JobFailed, Retry, Snooze, State
from duly.domain import outcome
from duly.domain.ids import uuid7
from duly.domain.records import NewJob
from tests.helpers import eventually, opened

SOON = Backoff.fixed(0.02)


def ended(jobs: Duly, job_id: str) -> State:
    """Wait for a job to end and say how."""
    eventually(lambda: jobs.get(job_id).state.terminal, within=10)
    return jobs.get(job_id).state


@pytest.mark.requirement("B3", "B4", "C8")
@pytest.mark.everywhere
def test_max_attempts_counts_runs_and_the_last_error_is_kept(jobs: Duly) -> None:
    runs: list[int] = []

    @jobs.task(retry=Backoff.fixed(0, max_attempts=5))
    def fails() -> None:
        runs.append(1)
        raise OSError(f"run {len(runs)}")

    with jobs.worker():
        job = fails.enqueue()
        with pytest.raises(JobFailed):
            job.wait(10)
    assert len(runs) == 5, "five means five"
    job.refresh()
    assert (job.state, job.attempts, job.max_attempts) == (State.FAILED, 5, 5)
    assert job.last_error == "run 5"
    assert job.reason == "attempts used up (5 of 5)"
    assert [(run.attempt, run.outcome, run.error) for run in job.runs] == [
        (n, "failed", f"run {n}") for n in range(1, 6)
    ]


@pytest.mark.requirement("B3")
def test_max_retries_n_means_n_plus_one_runs(lite: Duly) -> None:
    runs: list[int] = []

    @lite.task(retry=Backoff.fixed(0, max_retries=2))
    def fails() -> None:
        runs.append(1)
        raise OSError

    with lite.worker():
        assert ended(lite, fails.enqueue().id) is State.FAILED
        assert len(runs) == 3
        assert ended(lite, fails.using(max_attempts=1).enqueue().id) is State.FAILED
        assert len(runs) == 4


@pytest.mark.requirement("B2", "B4", "C4", "C5")
@pytest.mark.parametrize(
    "policy, low, high",
    [
        (Backoff.exponential(), 1.0, 1.0),
        (Backoff.patient(), 48.0, 72.0),
        (Backoff.fixed(30), 30.0, 30.0),
        (Backoff.linear("2m"), 120.0, 120.0),
        (Backoff.delays([7, 9]), 7.0, 7.0),
        (Backoff.custom(lambda attempts, error: 40 + attempts), 41.0, 41.0),
    ],
    ids=["exponential", "patient", "fixed", "linear", "list", "custom"],
)
def test_the_policy_says_how_long_the_job_waits(lite: Duly, policy: Backoff, low: float, high: float) -> None:
    @lite.task(retry=policy)
    def fails() -> None:
        raise OSError

    with lite.worker():
        job = fails.enqueue()
        eventually(lambda: job.refresh().state is State.SCHEDULED)
    (run,) = job.runs
    assert job.run_at is not None
    waits = (job.run_at - run.finished_at).total_seconds()
    assert low - 0.01 <= waits <= high + 0.5, "counted from the end of the run, within the time it takes to write it"


@pytest.mark.requirement("B2")
def test_the_delays_grow_from_run_to_run(lite: Duly) -> None:
    @lite.task(retry=Backoff.exponential(0.1, factor=3, max_attempts=4))
    def fails() -> None:
        raise OSError

    with lite.worker():
        job = fails.enqueue()
        assert ended(lite, job.id) is State.FAILED
    runs = job.runs
    waits = [(runs[n + 1].started_at - runs[n].finished_at).total_seconds() for n in range(3)]
    for wait, least in zip(waits, (0.1, 0.3, 0.9), strict=True):
        assert least <= wait < least + 0.6


def test_exceptions_decide_whether_it_is_worth_another_run(jobs: Duly) -> None:
    class Busy(OSError):
        pass

    errors = {"busy": Busy("later"), "bad": ValueError("never"), "other": LookupError("no")}

    @jobs.task(retry=Backoff.fixed(0, max_attempts=3, retry_on=(OSError, LookupError), give_up_on=LookupError))
    def fails(how: str) -> None:
        raise errors[how]

    with jobs.worker():
        stored = {how: fails.enqueue(how) for how in errors}
        for job in stored.values():
            assert ended(jobs, job.id) is State.FAILED
    assert {how: len(job.runs) for how, job in stored.items()} == {"busy": 3, "bad": 1, "other": 1}
    reasons = {how: job.refresh().reason or "" for how, job in stored.items()}
    assert "not in retry_on" in reasons["bad"]
    assert "give_up_on" in reasons["other"]


def test_the_policy_given_at_enqueue_holds_also_for_another_process(database_url: str) -> None:
    with opened(database_url) as producer, opened(database_url) as consumer:

        @producer.task(name="fails")
        def stub() -> None: ...

        @consumer.task(retry=Backoff.fixed(60, max_attempts=2))
        def fails() -> None:
            raise OSError

        job = stub.using(retry=Backoff.fixed(0, max_attempts=4)).enqueue()
        with consumer.worker():
            assert ended(consumer, job.id) is State.FAILED
        assert len(job.runs) == 4


# -- steering ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_snooze_runs_again_later_and_does_not_count(jobs: Duly, kind: str) -> None:
    runs: list[float] = []

    def body() -> str:
        runs.append(time.monotonic())
        if len(runs) < 4:
            raise Snooze(timedelta(seconds=0.1))
        return "done"

    async def abody() -> str:
        return body()

    task = jobs.declare(body if kind == "def" else abody, {"name": "poll", "retry": Backoff.none()})
    with jobs.worker():
        job = task.enqueue()
        assert job.wait(10) == "done"
    assert (job.refresh().attempts, job.max_attempts) == (1, 1)
    assert [run.outcome for run in job.runs] == ["snoozed"] * 3 + ["succeeded"]
    assert all(later - earlier >= 0.1 for earlier, later in itertools.pairwise(runs))


def test_a_cancel_ends_the_job_with_the_reason_and_without_a_retry(jobs: Duly) -> None:
    @jobs.task(retry=SOON)
    async def gone() -> None:
        raise Cancel("the account is closed")

    with jobs.worker():
        job = gone.enqueue()
        assert ended(jobs, job.id) is State.CANCELLED
    assert (job.refresh().reason, len(job.runs)) == ("the account is closed", 1)


@pytest.mark.parametrize(
    "reason", ["nul \x00 sur \ud800", "x" * 50_000_000, 7, object()], ids=["odd", "huge", "int", "object"]
)
def test_a_reason_of_any_kind_can_be_recorded(jobs: Duly, reason: Any) -> None:
    @jobs.task(retry=SOON)
    def gone() -> None:
        raise Cancel(reason)

    @jobs.task
    def after() -> int:
        return 1

    with jobs.worker():
        job = gone.enqueue()
        assert ended(jobs, job.id) is State.CANCELLED
        assert after.enqueue().wait(5) == 1
    assert len(job.refresh().reason or "") < 20_000


def test_a_retry_runs_again_after_its_own_delay_and_counts(jobs: Duly) -> None:
    @jobs.task(retry=Backoff.fixed(60, max_attempts=3))
    def busy() -> None:
        raise Retry(after=timedelta(seconds=0.05), reason="rate limit")

    with jobs.worker():
        job = busy.enqueue()
        assert ended(jobs, job.id) is State.FAILED
    assert job.refresh().attempts == 3
    assert job.last_error is not None
    assert "rate limit" in job.last_error


def test_a_wrong_signal_is_a_failure_like_any_other(lite: Duly) -> None:
    @lite.task(retry=Backoff.none())
    def wrong() -> None:
        raise Snooze(5)  # type: ignore[arg-type]

    with lite.worker():
        job = wrong.enqueue()
        assert ended(lite, job.id) is State.FAILED
    assert job.runs[0].error_kind is not None
    assert job.runs[0].error_kind.endswith(InvalidOption.__name__)


# -- whatever is raised -----------------------------------------------------------------------------------------------


class Mute(Exception):
    """An exception that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("not even this")

    def __repr__(self) -> str:
        raise SystemExit(3)


class Rude(BaseException):
    """Not even an Exception."""


def recurse() -> None:
    recurse()


def _raise(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


TERRIBLE: dict[str, Callable[[], object]] = {
    "system exit": lambda: sys.exit(3),
    "keyboard interrupt": _raise(KeyboardInterrupt()),
    "generator exit": _raise(GeneratorExit()),
    "cancelled error": _raise(asyncio.CancelledError()),
    "stop iteration": _raise(StopIteration(5)),
    "base exception": _raise(Rude("rude")),
    "no message": _raise(Mute()),
    "nul and surrogate": _raise(ValueError("a\x00b \ud800 c")),
    "bytes": _raise(ValueError(b"\xff\xfe")),
    "huge": _raise(ValueError("x" * 50_000_000)),
    "recursion": recurse,
    "memory": _raise(MemoryError()),
    "group": _raise(BaseExceptionGroup("many", [KeyboardInterrupt(), ValueError("v")])),
}


@pytest.mark.requirement("E7")
@pytest.mark.everywhere
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_whatever_a_handler_raises_is_recorded_and_the_worker_goes_on(jobs: Duly, kind: str) -> None:
    def terrible(how: str) -> object:
        return TERRIBLE[how]()

    async def aterrible(how: str) -> object:
        await asyncio.sleep(0)
        return TERRIBLE[how]()

    task = jobs.declare(terrible if kind == "def" else aterrible, {"name": "terrible", "retry": Backoff.none()})

    @jobs.task
    def sound() -> int:
        return 1

    @jobs.task
    async def asound() -> int:
        return 2

    with jobs.worker():
        stored = {how: task.enqueue(how) for how in TERRIBLE}
        states = {how: ended(jobs, job.id) for how, job in stored.items()}
        assert sound.enqueue().wait(10) == 1
        assert asound.enqueue().wait(10) == 2
    assert states == dict.fromkeys(TERRIBLE, State.FAILED)
    kinds = {how: job.runs[0].error_kind for how, job in stored.items()}
    assert kinds["system exit"] == "SystemExit"
    assert kinds["keyboard interrupt"] == "KeyboardInterrupt"
    for how, job in stored.items():
        (run,) = job.runs
        assert len(run.error or "") < 20_000, how
        assert len(run.traceback or "") < 20_000, how


def test_a_handler_that_signals_its_own_process_the_polite_way_is_no_failure_of_the_worker(lite: Duly) -> None:
    got: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))

    @lite.task
    def work() -> int:
        signal.raise_signal(signal.SIGUSR1)
        return 1

    try:
        with lite.worker():
            assert work.enqueue().wait(5) == 1
        assert eventually(lambda: got) == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_history_of_errors_is_bounded(jobs: Duly) -> None:
    @jobs.task(retry=Backoff.fixed(0, max_attempts=30))
    def fails() -> None:
        raise ValueError("y" * 1_000_000)

    with jobs.worker():
        job = fails.enqueue()
        eventually(lambda: jobs.get(job.id).state is State.FAILED, within=20)
    runs = job.runs
    assert len(runs) == 30
    assert sum(len(run.error or "") + len(run.traceback or "") for run in runs) < 30 * 40_000
    assert "cut: 1000000 characters" in (runs[0].error or "")


def test_one_run_that_cannot_be_recorded_keeps_no_other_from_it(jobs: Duly) -> None:
    """Should anything ever slip past the encoders, the others of its batch are still written, and then it too."""
    real = outcome.after_error

    def spoilt(*args: Any, **kwargs: Any) -> Any:
        settled: Any = real(*args, **kwargs)
        return settled._replace(traceback=object())

    @jobs.task(retry=Backoff.none())
    def bad() -> None:
        raise ValueError("x")

    @jobs.task
    def good(n: int) -> int:
        return n

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("duly.domain.outcome.after_error", spoilt)
        with jobs.worker():
            job = bad.enqueue()
            others = [good.enqueue(n) for n in range(20)]
            for n, other in enumerate(others):
                assert other.wait(5) == n
            assert ended(jobs, job.id) is State.FAILED


def test_a_stored_number_of_attempts_beyond_reason_does_not_cost_a_slot(jobs: Duly) -> None:
    """Another program may write any number into the column."""

    @jobs.task(retry=SOON)
    def work(fails: bool) -> str:
        if fails:
            raise ValueError("no")
        return "fine"

    beyond = NewJob(id=uuid7(), task="work", args='{"fails": true}', max_attempts=2_000_000_000)
    jobs.store.enqueue(beyond)
    with jobs.worker(thread_slots=1):
        eventually(lambda: jobs.get(beyond.id).attempts >= 2)
        assert work.enqueue(fails=False).wait(5) == "fine"
