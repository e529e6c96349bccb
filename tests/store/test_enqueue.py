"""One job is stored: where it stands, what is kept of it, and that asking twice stores it once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from duly.domain.errors import DatabaseError
from duly.domain.ids import uuid7
from duly.domain.records import NewJob
from duly.domain.states import State
from duly.store.opening import open_database
from duly.store.store import Store
from duly.testing import TestClock
from tests.clock import TickingClock, us
from tests.store import invariants
from tests.store.factory import Factory
from tests.store.raw import Raw

pytestmark = pytest.mark.everywhere


@pytest.mark.requirement("B1", "D9")
def test_everything_said_at_enqueue_is_kept(make: Factory, store: Store, clock: TestClock) -> None:
    job = NewJob(
        id=uuid7(),
        task="report.build",
        args='{"n": 1, "text": "ä€😀 \\"quoted\\" \\\\ back"}',
        queue="slow",
        tenant="acme",
        priority=70,
        max_attempts=9,
        retry='{"kind": "fixed"}',
        timeout_us=5_000_000,
        expires_us=us(60),
        enqueued_by="web-1",
        tags='["a","b"]',
        headers='{"trace": "1"}',
    )
    answer = store.enqueue(job)
    found = make.get(job.id)
    assert answer == (job.id, True)
    assert (found.task, found.args, found.queue, found.tenant, found.priority) == (
        "report.build",
        job.args,
        "slow",
        "acme",
        70,
    )
    assert (found.max_attempts, found.retry, found.timeout_us) == (9, job.retry, 5_000_000)
    assert (found.enqueued_by, found.tags, found.headers) == ("web-1", '["a","b"]', '{"trace": "1"}')
    assert (found.created_at, found.run_at, found.expires_at) == (
        clock.now_us(),
        clock.now_us(),
        clock.now_us() + us(60),
    )
    assert (found.state, found.token, found.attempt, found.crashes) == (State.QUEUED, 0, 0, 0)


def test_defaults_are_those_of_the_record(make: Factory) -> None:
    found = make.get(make.enqueue())
    assert (found.queue, found.tenant, found.priority, found.max_attempts) == ("default", "", 0, 5)
    assert (found.retry, found.timeout_us, found.expires_at, found.unique_key) == (None, None, None, None)


@pytest.mark.requirement("B7")
def test_job_with_a_delay_is_scheduled(make: Factory, clock: TestClock) -> None:
    job_id = make.enqueue(delay_us=us(30))
    found = make.get(job_id)
    assert (found.state, found.run_at) == (State.SCHEDULED, clock.now_us() + us(30))


@pytest.mark.requirement("B7")
def test_job_for_a_later_time_is_scheduled(make: Factory, clock: TestClock) -> None:
    at = clock.now_us() + us(timedelta(days=3))
    found = make.get(make.enqueue(run_at=at))
    assert (found.state, found.run_at) == (State.SCHEDULED, at)


def test_job_for_a_time_past_is_queued_at_its_place_by_that_time(make: Factory, clock: TestClock) -> None:
    now_due = make.enqueue()
    overdue = make.enqueue(run_at=clock.now_us() - us(60))
    assert make.state(overdue) == "queued"
    assert [job.id for job in make.claim(2)] == [overdue, now_due]


def test_job_for_this_very_moment_is_queued(make: Factory, clock: TestClock) -> None:
    assert make.state(make.enqueue(run_at=clock.now_us())) == "queued"


def test_expiry_counts_from_when_the_job_is_due(make: Factory, clock: TestClock) -> None:
    later = make.get(make.enqueue(delay_us=us(60), expires_us=us(10)))
    fixed = make.get(make.enqueue(delay_us=us(60), expires_at=clock.now_us() + 5))
    assert later.expires_at == clock.now_us() + us(70)
    assert fixed.expires_at == clock.now_us() + 5


@pytest.mark.requirement("B6")
def test_enqueue_may_be_repeated_with_the_same_id(make: Factory, store: Store, raw: Raw) -> None:
    job = make.new()
    assert store.enqueue(job) == store.enqueue(job) == (job.id, True)
    assert raw.count("jobs") == raw.count("waiting") == 1


def test_repeating_an_enqueue_does_not_bring_a_job_back_that_has_run(make: Factory, store: Store) -> None:
    job = make.new()
    store.enqueue(job)
    claimed = make.take()
    store.enqueue(job)
    assert make.state(job.id) == "running"
    make.finish(claimed)
    store.enqueue(job)
    assert make.state(job.id) == "succeeded"
    assert make.claim() == []


def test_repeating_an_enqueue_with_a_delay_changes_nothing(make: Factory, store: Store, clock: TestClock) -> None:
    job = make.new(delay_us=us(30))
    store.enqueue(job)
    due = clock.now_us() + us(30)
    clock.advance(10)
    store.enqueue(job)
    assert make.get(job.id).run_at == due


def test_job_whose_time_comes_between_two_statements_is_not_lost(database_url: str, raw: Raw) -> None:
    clock = TickingClock()
    store = Store(open_database(database_url, clock))
    for ahead in range(1, 30):
        store.enqueue(NewJob(id=uuid7(), task="t", args="{}", run_at=clock.now_us() + ahead))
        store.enqueue(NewJob(id=uuid7(), task="t", args="{}", delay_us=ahead))
    store.close()
    assert len(invariants.places_of(raw)) == 58


@pytest.mark.parametrize("unique", [False, True])
def test_job_with_a_limit_key_whose_time_comes_between_two_statements_is_in_one_place(
    database_url: str, raw: Raw, unique: bool
) -> None:
    clock = TickingClock()
    store = Store(open_database(database_url, clock))
    for ahead in range(1, 10):
        job = NewJob(id=uuid7(), task="t", args="{}", limit_key="t/a")
        if unique:
            job = job._replace(unique_key=f"k{ahead}", unique_mode="skip", unique_scope="queued")
        store.enqueue(job._replace(delay_us=ahead))
        store.enqueue(NewJob(id=uuid7(), task="t", args="{}", limit_key="t/a", run_at=clock.now_us() + ahead))
    store.close()
    assert len(invariants.places_of(raw)) == 18


@pytest.mark.requirement("D8")
def test_ids_sort_by_when_the_jobs_were_made(make: Factory, store: Store, raw: Raw) -> None:
    made = [make.enqueue() for _ in range(20)]
    assert [row[0] for row in raw.rows("SELECT id FROM duly.jobs ORDER BY id")] == made


@pytest.mark.parametrize("wrong", [{"priority": 101}, {"priority": -1}, {"max_attempts": 0}, {"timeout_us": 0}])
def test_database_refuses_what_no_job_may_be(make: Factory, raw: Raw, wrong: dict[str, Any]) -> None:
    with pytest.raises(DatabaseError, match="refused"):
        make.enqueue(**wrong)
    assert raw.count("jobs") == 0


def test_large_numbers_and_long_texts_come_back_whole(make: Factory) -> None:
    far, long = 2**53 + 1, '{"text": "' + "x" * 200_000 + '"}'
    job_id = make.enqueue(args=long, run_at=far)
    found = make.get(job_id)
    assert (found.args, found.run_at) == (long, far)


def test_text_with_line_breaks_and_tabs_comes_back_as_it_was(make: Factory) -> None:
    args = '{\n\t"a": 1\r\n}'
    assert make.get(make.enqueue(args=args)).args == args


def test_looking_for_what_is_no_id_finds_nothing(make: Factory, store: Store) -> None:
    assert store.get("nonsense") is None
    assert store.get(uuid7()) is None


def test_the_store_tells_the_time_of_its_clock(store: Store, clock: TestClock) -> None:
    before = store.now_us()
    clock.advance(60)
    assert (before, store.now_us()) == (clock.now_us() - us(60), clock.now_us())


def test_a_job_with_a_limit_key_is_stored_with_its_place_or_not_at_all(
    make: Factory, store: Store, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a repetition would find it stored, and nobody would ever run it."""
    new = make.new(limit_key="send/a")
    execute = type(store.database)._execute  # type: ignore[attr-defined]

    def fail(database: Any, connection: Any, call: Any, *args: Any) -> Any:
        rows = execute(database, connection, call, *args)
        if getattr(call, "name", "") in ("insert_job", "enqueue_at"):
            raise RuntimeError("the process is gone")
        return rows

    with monkeypatch.context() as patched:
        patched.setattr(type(store.database), "_execute", fail)
        with pytest.raises(RuntimeError):
            store.enqueue(new)
    assert raw.count("jobs") == raw.count("parked"), "PostgreSQL stores both by one statement"
    assert store.enqueue(new).created
    assert raw.count("parked") == 1
