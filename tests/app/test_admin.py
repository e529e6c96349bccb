"""What operators do: look, filter, cancel, retry, delete, set states and priorities, reschedule, prune."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import (
    Backoff,
    Conflict,
    Duly,
    InvalidOption,
    Job,
    JobFailed,
    JobNotFound,
    JobNotRetryable,
    State,
    Task,
)
from tests.helpers import eventually, opened

MISSING = "0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12"


@pytest.fixture
def work(jobs: Duly) -> Task[[int], int]:
    @jobs.task(retry=Backoff.none())
    def work(n: int) -> int:
        if n < 0:
            raise ValueError(f"{n} is too little")
        return n

    return work


@pytest.fixture
def busy(jobs: Duly) -> threading.Event:
    """A task `hang` that runs until the event is set."""
    over = threading.Event()

    @jobs.task
    def hang() -> None:
        over.wait(10)

    return over


@pytest.mark.requirement("C8", "D9", "C10")
@pytest.mark.everywhere
def test_a_job_keeps_what_happened_to_it(jobs: Duly) -> None:
    fails = [True]

    @jobs.task(retry=Backoff.fixed(0.05))
    def flaky() -> str:
        time.sleep(0.02)
        if fails.pop():
            fails.append(False)
            raise OSError("no route")
        return "fine"

    with jobs.worker():
        job = flaky.enqueue()
        assert job.wait(5) == "fine"
        (worker,) = jobs.workers()
    job.refresh()
    assert (job.state, job.attempts, job.retries) == (State.SUCCEEDED, 2, 1)
    assert job.last_error == "no route"
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.created_at <= job.started_at < job.finished_at <= datetime.now(UTC) + timedelta(seconds=1)
    assert job.duration is not None
    assert timedelta(seconds=0.02) <= job.duration < timedelta(seconds=2)
    assert job.updated_at == job.finished_at
    assert job.run_at is None
    first, second = job.runs
    assert [(run.attempt, run.outcome) for run in (first, second)] == [(1, "failed"), (2, "succeeded")]
    assert (first.error_kind, first.error) == ("OSError", "no route")
    assert first.traceback is not None
    assert "in flaky" in first.traceback
    assert second.error is None
    assert first.finished_at + timedelta(seconds=0.04) <= second.started_at
    assert first.worker_id == second.worker_id == worker.id
    assert first.token < second.token
    assert first.to_dict()["outcome"] == "failed"
    assert [run.job_id for run in jobs.runs(task="flaky")] == [job.id, job.id]
    assert jobs.runs(task="other") == []


@pytest.mark.requirement("C10")
def test_a_job_that_waits_for_its_retry_says_when(jobs: Duly) -> None:
    @jobs.task(retry=Backoff.fixed(60))
    def fails() -> None:
        raise OSError("no route")

    with jobs.worker():
        job = fails.enqueue()
        eventually(lambda: job.refresh().state is State.SCHEDULED)
    assert (job.attempts, job.max_attempts, job.last_error) == (1, 5, "no route")
    assert job.run_at is not None
    assert timedelta(seconds=50) < job.run_at - datetime.now(UTC) < timedelta(seconds=61)


@pytest.mark.everywhere
def test_jobs_are_listed_newest_first_and_by_what_they_are(jobs: Duly, work: Task[[int], int]) -> None:
    @jobs.task
    def other(n: int) -> None: ...

    plain = work.enqueue(1)
    mail = work.using(queue="mail").enqueue(2)
    acme = work.using(tenant="acme").enqueue(3)
    tagged = work.using(tags=["red", "größe"]).enqueue(4)
    later = work.using(delay=60).enqueue(5)
    last = other.enqueue(6)

    def ids(**filters: object) -> list[str]:
        return [job.id for job in jobs.list(**filters)]  # type: ignore[arg-type]

    everything: list[Job[Any]] = [last, later, tagged, acme, mail, plain]
    assert ids() == [job.id for job in everything]
    assert ids(task="other") == [last.id]
    assert ids(queue="mail") == [mail.id]
    assert ids(tenant="acme") == [acme.id]
    assert ids(tag="red") == ids(tag="größe") == [tagged.id]
    assert ids(tag="re") == ids(tag="r_d") == ids(tag="RED") == ids(tag="%") == []
    assert ids(state="scheduled") == [later.id]
    assert ids(state=State.QUEUED, task="work") == [tagged.id, acme.id, mail.id, plain.id]
    assert ids(state="pending", tenant="acme") == [acme.id]
    assert ids(state="failed") == []
    assert ids(text='"n":3') == [acme.id]
    assert ids(text="%") == ids(text="_") == []
    assert ids(limit=2) == [last.id, later.id]
    assert ids(limit=2, offset=2) == [tagged.id, acme.id]
    assert ids(limit=3, before=tagged.id) == [acme.id, mail.id, plain.id]


@pytest.mark.requirement("B1")
def test_every_state_can_be_listed_also_by_other_words(
    jobs: Duly, work: Task[[int], int], busy: threading.Event
) -> None:
    good, bad = work.enqueue(1), work.enqueue(-1)
    jobs.enqueue("hang")
    with jobs.worker():
        good.wait(5)
        with pytest.raises(JobFailed):
            bad.wait(5)
        eventually(lambda: jobs.list(state="running"))
        cancelled = work.using(delay=60).enqueue(3)
        cancelled.cancel()
        words = {
            "succeeded": 1,
            "success": 1,
            "completed": 1,
            "failed": 1,
            "cancelled": 1,
            "running": 1,
            "processing": 1,
        }
        assert {word: len(jobs.list(state=word)) for word in words} == words
        assert len(jobs.list(state="crawling", task="hang")) == 1
        busy.set()
    counts = jobs.counts()
    assert counts.ended == {"succeeded": 2, "failed": 1, "cancelled": 1}


def test_a_page_of_queued_jobs_goes_on_into_the_parked_ones(jobs: Duly, database_url: str) -> None:
    @jobs.task
    def work(n: int) -> None: ...

    for n in range(3):
        work.enqueue(n)
    with opened(database_url) as newer:

        def other(m: str) -> None: ...

        newer.task(name="work")(other)
        with newer.worker():
            eventually(lambda: newer.counts().parked == {"arguments": 3})
    for n in range(3):
        work.enqueue(n)
    whole = [job.id for job in jobs.list(state="queued")]
    pages = [job.id for offset in (0, 2, 4) for job in jobs.list(state="queued", limit=2, offset=offset)]
    assert len(set(pages)) == 6
    assert pages == whole


@pytest.mark.parametrize(
    "filters",
    [{"limit": 0}, {"limit": 10_001}, {"limit": -1}, {"offset": -1}, {"state": "sleeping"}, {"before": "yesterday"}],
    ids=str,
)
def test_a_bad_filter_is_refused(jobs: Duly, filters: dict[str, object]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(filters))):
        jobs.list(**filters)  # type: ignore[arg-type]


def test_a_waiting_job_is_cancelled_and_never_runs(jobs: Duly, work: Task[[int], int]) -> None:
    job = work.enqueue(1)
    assert jobs.cancel(job.id, "no longer needed") == "cancelled"
    found = jobs.get(job.id)
    assert (found.state, found.reason, found.attempts) == (State.CANCELLED, "no longer needed", 0)
    with pytest.raises(Conflict, match="already ended: it is cancelled"):
        jobs.cancel(job.id)
    with jobs.worker():
        work.enqueue(2).wait(5)
    assert jobs.get(job.id).runs == []


@pytest.mark.requirement("C8")
def test_a_failed_job_is_retried_with_its_attempts_at_0(jobs: Duly) -> None:
    works: list[int] = []

    @jobs.task(retry=Backoff.fixed(0, max_attempts=2))
    def flaky() -> int:
        if not works:
            raise OSError("no route")
        return 7

    with jobs.worker():
        job = flaky.enqueue()
        with pytest.raises(JobFailed):
            job.wait(5)
        assert (job.attempts, job.state) == (2, State.FAILED)
        works.append(True)
        jobs.retry(job.id)
        assert job.wait(5) == 7
        assert (job.refresh().attempts, len(job.runs)) == (1, 3)
        assert [run.outcome for run in job.runs] == ["failed", "failed", "succeeded"]


@pytest.mark.requirement("B3")
def test_a_running_job_cannot_be_retried_deleted_or_ended_by_hand(jobs: Duly, busy: threading.Event) -> None:
    job = jobs.enqueue("hang")
    with jobs.worker():
        eventually(lambda: job.refresh().state is State.RUNNING)
        with pytest.raises(JobNotRetryable, match="is running"):
            jobs.retry(job.id)
        with pytest.raises(Conflict, match="is running"):
            jobs.delete(job.id)
        for state in ("queued", "success", "failed", "running", "scheduled"):
            with pytest.raises(Conflict):
                jobs.set_state(job.id, state)
        with pytest.raises(Conflict, match="running"):
            jobs.set_priority(job.id, 3)
        with pytest.raises(Conflict, match="running"):
            jobs.reschedule(job.id, delay=3)
        assert job.refresh().state is State.RUNNING
        busy.set()
        job.wait(5)


def test_a_scheduled_job_is_retried_at_once(jobs: Duly, work: Task[[int], int]) -> None:
    job = work.using(delay=3600).enqueue(5)
    with jobs.worker():
        jobs.retry(job.id)
        assert job.wait(5) == 5


def test_a_deleted_job_leaves_nothing(jobs: Duly, work: Task[[int], int]) -> None:
    with jobs.worker():
        done = work.enqueue(1)
        done.wait(5)
    waiting = work.enqueue(2)
    for job in (done, waiting):
        jobs.delete(job.id)
        with pytest.raises(JobNotFound):
            jobs.get(job.id)
    assert jobs.list() == []
    assert jobs.runs() == []


@pytest.mark.everywhere
def test_states_are_set_by_hand(jobs: Duly, work: Task[[int], int]) -> None:
    ended = {}
    for word in ("success", "failed", "cancelled"):
        job = work.using(delay=60).enqueue(1)
        jobs.set_state(job.id, word)
        ended[word] = (job.refresh().state, job.finished_at is not None)
    assert ended == {
        "success": (State.SUCCEEDED, True),
        "failed": (State.FAILED, True),
        "cancelled": (State.CANCELLED, True),
    }
    again = jobs.list(state="failed")[0]
    jobs.set_state(again.id, "pending")
    assert again.refresh().state is State.QUEUED
    with pytest.raises(Conflict, match="cannot be set to running"):
        jobs.set_state(again.id, "running")
    with pytest.raises(InvalidOption, match="Unknown state"):
        jobs.set_state(again.id, "sleeping")


@pytest.mark.requirement("C1")
def test_the_priority_of_a_waiting_job_changes_its_place(jobs: Duly) -> None:
    ran: list[int] = []

    @jobs.task
    def note(n: int) -> None:
        ran.append(n)

    stored = [note.enqueue(n) for n in range(4)]
    scheduled = note.using(delay=0.3).enqueue(9)
    jobs.set_priority(stored[2].id, 50)
    assert jobs.boost(stored[3].id) == 10
    assert jobs.boost(stored[3].id, by=20) == 30
    jobs.set_priority(scheduled.id, 99)
    assert jobs.boost(scheduled.id) == 100
    assert (stored[3].refresh().priority, scheduled.refresh().priority) == (30, 100)
    eventually(lambda: time.time() > (scheduled.record.run_at or 0) / 1e6)
    with jobs.worker(thread_slots=1):
        stored[1].wait(5)
    assert ran == [9, 2, 3, 0, 1]


def test_a_priority_that_is_none_is_refused(jobs: Duly, work: Task[[int], int]) -> None:
    job = work.enqueue(1)
    with pytest.raises(InvalidOption, match="priority"):
        jobs.set_priority(job.id, 101)
    with pytest.raises(InvalidOption, match="priority"):
        jobs.boost(job.id, -10)
    assert job.refresh().priority == 0


def test_a_waiting_job_is_given_another_time(jobs: Duly, work: Task[[int], int]) -> None:
    job = work.enqueue(1)
    jobs.reschedule(job.id, delay="1h")
    assert job.refresh().state is State.SCHEDULED
    assert job.run_at is not None
    assert timedelta(minutes=59) < job.run_at - datetime.now(UTC) <= timedelta(minutes=61)
    with jobs.worker():
        jobs.reschedule(job.id)
        assert job.wait(5) == 1
    with pytest.raises(InvalidOption, match="delay must not be negative"):
        jobs.reschedule(job.id, delay=-1)


@pytest.mark.parametrize(
    "verb", ["get", "cancel", "retry", "delete", "boost", "reschedule", "set_state", "set_priority"]
)
def test_a_job_that_is_not_there_is_not_found(jobs: Duly, verb: str) -> None:
    known: dict[str, list[object]] = {"set_state": ["failed"], "set_priority": [5]}
    arguments = known.get(verb, [])
    for job_id in (MISSING, "nonsense"):
        with pytest.raises(JobNotFound):
            getattr(jobs, verb)(job_id, *arguments)


@pytest.mark.parametrize("reason", ["a\x00b", "\ud800", "x" * 100_000])
def test_a_reason_that_no_database_could_store_is_made_storable(
    jobs: Duly, work: Task[[int], int], reason: str
) -> None:
    job = work.enqueue(1)
    assert jobs.cancel(job.id, reason) == "cancelled"
    assert job.refresh().state is State.CANCELLED
    assert 0 < len(job.reason or "") < 20_000


@pytest.mark.requirement("C11")
def test_prune_forgets_what_is_older_than_the_retention_of_its_state(database_url: str) -> None:
    strict = {"retention_succeeded": 0, "retention_failed": "30d", "retention_cancelled": 3600}
    with (
        opened(database_url) as worked,
        opened(database_url, **strict) as jobs,
    ):  # a strict worker would prune by itself

        @worked.task(retry=Backoff.none())
        def work(n: int) -> int:
            return 1 // n

        with worked.worker():
            done = work.enqueue_many([{"n": 1}] * 20)
            failed = work.enqueue(0)
            with pytest.raises(JobFailed):
                failed.wait(5)
            for job in done:
                job.wait(5)
        cancelled = work.enqueue(2)
        cancelled.cancel()
        waiting = work.enqueue(3)
        assert jobs.prune() == 20
        assert {job.id for job in jobs.list()} == {failed.id, cancelled.id, waiting.id}
        assert {run.job_id for run in jobs.runs()} == {failed.id}
        assert jobs.prune() == 0
