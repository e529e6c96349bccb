"""Why a job is set aside or lost: arguments, unique keys, suspects, damage, expiry."""

from __future__ import annotations

from datetime import timedelta

import pytest

from duly import Duly, JobNotFound, State, Unique
from duly.domain.ids import uuid7
from duly.domain.records import Lane
from duly.why.answer import Reason
from tests.helpers import eventually, opened
from tests.store.raw import Raw
from tests.why.look import Gate, do, held, reasons

pytestmark = pytest.mark.requirement("C15")


def test_arguments_that_no_longer_fit_say_what_does_not(database_url: str) -> None:
    with opened(database_url) as old:

        @old.task(name="send")
        def older(user_id: int, colour: str) -> None: ...

        job_id = older.enqueue(1, "red").id
    with opened(database_url) as new:

        @new.task
        def send(user_id: int) -> None: ...

        with new.worker():
            eventually(lambda: new.counts().parked)
        why = new.why(job_id)
        assert (why.reason, why.answer.name, why.state) == (Reason.ARGUMENTS, "send", "queued")
        assert "colour" in why.text
        assert why.since is not None
    with opened(database_url) as mended:

        @mended.task(name="send")
        def newest(user_id: int, colour: str = "", size: int = 0) -> int:
            return user_id

        with mended.worker():
            assert mended.get(job_id).wait(10) == 1, "as the text promised, without anybody's doing"


def test_a_job_behind_its_unique_holder_names_it(jobs: Duly, gate: Gate) -> None:
    @jobs.task
    def sync(n: int) -> int:
        if n == 1:
            gate.wait()
        return n

    unique = Unique(key="everything", mode="keep_latest", scope="live")
    with held(jobs, gate):
        first = sync.using(unique=unique).enqueue(1)
        gate.has_started()
        second = sync.using(unique=unique).enqueue(2)
        why = second.why()
        assert (why.reason, why.answer.scope) == (Reason.UNIQUE, "unique key")
        (holder,) = why.answer.holders
        assert (holder.job_id, holder.place, holder.worker_id) == (first.id, "running", jobs.workers()[0].id)
        assert why.next == f"duly why {first.id}"
        do(jobs, why)
        gate.over.set()
        assert second.wait(10) == 2


def test_a_job_that_took_workers_with_it_runs_alone(jobs: Duly, gate: Gate, raw: Raw) -> None:
    @jobs.task
    def nap() -> None:
        gate.wait()

    with held(jobs, gate):
        nap.enqueue()
        gate.has_started()
        job = nap.using(delay=3600).enqueue()
        raw.rows(f"UPDATE duly.scheduled SET crashes = 2, attempt = 2 WHERE id = '{job.id}'")
        raw.rows("UPDATE duly.scheduled SET run_at = run_at - 3601000000")
        eventually(lambda: job.refresh().state is State.QUEUED, within=30)
        why = job.why()
        assert (why.reason, why.answer.details["crashes"]) == (Reason.SUSPECT, 2)
        assert "runs alone" in why.text
        assert why.next == f"duly jobs show {job.id}"


def test_a_job_in_no_place_says_so_and_is_mended_as_advised(jobs: Duly, raw: Raw) -> None:
    @jobs.task
    def send() -> int:
        return 1

    job = send.enqueue()
    raw.rows(f"DELETE FROM duly.waiting WHERE id = '{job.id}'")
    why = job.why()
    assert (why.reason, why.state, why.next) == (Reason.NOWHERE, "nowhere", "duly doctor --fix")
    jobs.doctor(fix=True)
    with jobs.worker():
        assert job.wait(10) == 1


def test_a_job_in_two_places_says_so(jobs: Duly, raw: Raw) -> None:
    @jobs.task
    def send() -> None: ...

    job = send.enqueue()
    columns = "id, state, finished_at, token, attempt, crashes"
    raw.rows(f"INSERT INTO duly.ended ({columns}) VALUES ('{job.id}', 'failed', 1, 0, 0, 0)")
    why = job.why()
    assert (why.reason, why.next) == (Reason.TWO_PLACES, "duly doctor --fix")
    assert set(why.answer.details["places"]) == {"waiting", "failed"}


def test_a_job_whose_time_to_start_is_over_says_that_it_will_be_cancelled(jobs: Duly) -> None:
    @jobs.task
    def send() -> None: ...

    job = send.using(expires=timedelta(milliseconds=1)).enqueue()
    eventually(lambda: job.why().reason is Reason.EXPIRED)
    assert reasons(job.why()) == ["expired", "no_worker"]
    with jobs.worker():
        eventually(lambda: job.refresh().state is State.CANCELLED)
    why = job.why()
    assert (why.reason, why.next) == (Reason.EXPIRED, None)
    assert "could not start in time" in why.text


def test_a_reason_to_be_set_aside_that_is_not_known_is_told_as_it_stands(jobs: Duly, raw: Raw) -> None:
    @jobs.task
    def send() -> None: ...

    job = send.enqueue()
    (claimed,) = jobs.store.claim("default", [Lane("", "send")], 1, worker_id=uuid7(), lease_us=15_000_000)
    jobs.store.park(job.id, claimed.token, reason="by hand", detail="wait for Ann", mark="")
    why = job.why()
    assert (why.reason, why.answer.because) == (Reason.PARKED, "by hand: wait for Ann")
    do(jobs, why)
    assert reasons(job.why()) == ["no_worker"]


def test_a_job_that_there_is_not_is_an_error(jobs: Duly) -> None:
    with pytest.raises(JobNotFound):
        jobs.why(uuid7())
    with pytest.raises(JobNotFound):
        jobs.why("no id")
