"""The audit: every operator's action is kept, with who, before and after, in the transaction of the action itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from duly import Backoff, Conflict, Duly, InvalidOption, JobFailed, RecurringJob, State, Task
from duly.audit import ACTIONS, AuditRecord
from duly.domain.audit import Actor
from duly.store import ops_jobs
from duly.store.call import Dialect
from duly.store.foreign import run_on
from duly.store.statements import load
from duly.testing import TestClock
from tests.helpers import eventually, opened
from tests.store.raw import Raw

ADA = Actor("ada", "python", True)


@pytest.fixture
def work(jobs: Duly) -> Task[[int], int]:
    @jobs.task(retry=Backoff.none())
    def work(n: int) -> int:
        if n < 0:
            raise ValueError(n)
        return n

    return work


def connect(url: str) -> Any:
    import sqlite3

    return psycopg.connect(url) if url.startswith("postgresql") else sqlite3.connect(url.removeprefix("sqlite:///"))


def deeds(records: list[AuditRecord]) -> list[tuple[str, str | None]]:
    return [(record.action, record.who) for record in records]


# -- what is kept -----------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
def test_an_action_is_kept_with_who_what_before_and_after(jobs: Duly, work: Task[[int], int]) -> None:
    job = work.using(tenant="acme", delay=60, priority=3).enqueue(1)
    with jobs.acting_as("alice", via="api"):
        jobs.cancel(job.id, "not needed")
    (record,) = jobs.audit()
    assert (record.who, record.via, record.action) == ("alice", "api", "cancel")
    assert (record.job_id, record.tenant, record.task, record.reason) == (job.id, "acme", "work", "not needed")
    assert record.before is not None
    assert record.after is not None
    assert (record.before["state"], record.after["state"]) == ("scheduled", "cancelled")
    assert "priority" not in record.before, "only what changed"
    assert abs(record.at - datetime.now(UTC)) < timedelta(seconds=30)
    assert record.to_dict()["at"] == record.at.isoformat()


@pytest.mark.everywhere
def test_every_verb_on_jobs_is_kept(jobs: Duly, work: Task[[int], int]) -> None:
    with jobs.worker():
        failed = work.enqueue(-1)
        with pytest.raises(JobFailed):
            failed.wait(5)
    waiting = [work.using(delay=3600).enqueue(n) for n in range(7)]
    with jobs.acting_as("ada"):
        jobs.retry(failed.id)
        jobs.set_priority(waiting[0].id, 7)
        jobs.boost(waiting[0].id, 5)
        jobs.reschedule(waiting[0].id, delay=60)
        jobs.set_state(waiting[1].id, "succeeded")
        jobs.set_state(waiting[2].id, "cancelled")
        jobs.set_state(waiting[3].id, "queued")
        jobs.delete(waiting[4].id)
        jobs.cancel(waiting[5].id)
        jobs.set_aging("mail", "1h")
    found = jobs.audit()
    assert deeds(found) == [
        (action, "ada")
        for action in (
            "set_aging", "cancel", "delete", "set_state", "set_state", "set_state", "reschedule", "boost",
            "set_priority", "retry",
        )
    ]  # fmt: skip
    by_action = {record.action: record for record in found}
    assert (by_action["boost"].before, by_action["boost"].after) == ({"priority": 7}, {"priority": 12})
    assert by_action["delete"].after is None
    assert set(by_action["delete"].before or {}) == {"state", "priority", "run_at", "attempt"}
    assert by_action["set_aging"].subject == "mail"
    assert by_action["set_aging"].after == {"horizon_us": 3_600_000_000}
    retried = by_action["retry"]
    assert (retried.before or {})["state"] == "failed"
    assert (retried.after or {})["state"] == "queued"
    assert {record.action for record in found} <= set(ACTIONS)


def test_a_run_that_is_asked_to_stop_is_kept_once(jobs: Duly) -> None:
    over = threading.Event()

    @jobs.task
    def hang() -> None:
        over.wait(10)

    job = hang.enqueue()
    with jobs.worker():
        eventually(lambda: job.refresh().state is State.RUNNING)
        assert jobs.cancel(job.id) == "asked"
        assert jobs.cancel(job.id) == "asked"
        (record,) = jobs.audit(job=job.id)
        assert list(record.after or {}) == ["cancel_at"]
        over.set()


@pytest.mark.everywhere
def test_every_job_of_a_bulk_verb_has_a_record(jobs: Duly, work: Task[[int], int]) -> None:
    ids = [job.id for job in work.using(delay=60).enqueue_many([{"n": n} for n in range(230)])]
    with jobs.acting_as("ada"):
        assert len(jobs.cancel_many(ids).done) == 230
        assert len(jobs.cancel_many(ids).refused) == 230
        assert len(jobs.retry_many(ids[:3]).done) == 3
        assert len(jobs.delete_many(ids[3:5]).done) == 2
    assert {record.job_id for record in jobs.audit(action="cancel", limit=1_000)} == set(ids)
    assert len(jobs.audit(action="cancel", limit=1_000)) == 230, "what is refused changes nothing, and leaves none"
    assert len(jobs.audit(action="retry")) == 3
    assert {record.job_id for record in jobs.audit(action="delete")} == set(ids[3:5])


def test_pruning_by_hand_is_kept_and_pruning_by_a_worker_is_not(database_url: str) -> None:
    clock = TestClock()
    with opened(database_url, clock=clock, retention_cancelled="1h") as jobs:

        @jobs.task
        def work() -> None: ...

        for _ in range(3):
            jobs.store.cancel(work.enqueue().id, "")
        clock.advance("2h")
        with jobs.acting_as("ada"):
            assert jobs.prune() == 3
            assert jobs.prune() == 0
        (record,) = jobs.audit()
        assert (record.action, record.subject, record.after) == (
            "prune", "cancelled jobs", {"gone": 3, "keep_us": 3_600_000_000},
        )  # fmt: skip
        jobs.store.cancel(work.enqueue().id, "")
        clock.advance("2h")
        jobs.tick()
        assert jobs.counts().ended == {}
        assert len(jobs.audit()) == 1


def test_what_was_refused_or_changed_nothing_leaves_no_record(jobs: Duly, work: Task[[int], int]) -> None:
    job = work.using(priority=5).enqueue(1)
    jobs.set_priority(job.id, 5)
    jobs.set_aging("mail", None)
    jobs.store.cancel(job.id, "by a loop of one's own")
    with pytest.raises(Conflict):
        jobs.cancel(job.id)
    with pytest.raises(Conflict):
        jobs.set_priority(job.id, 8)
    assert jobs.audit() == []


# -- recurring jobs ---------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
def test_every_verb_on_recurring_jobs_is_kept(jobs: Duly) -> None:
    @jobs.task
    def fetch(n: int = 0) -> None: ...

    job = fetch.recur("f", every="1h")
    assert jobs.audit() == [], "that it recurs is the application's business"
    with jobs.acting_as("ada"):
        job.disable("too much")
        job.disable("again")
        job.enable()
        job.edit(every="2h", args={"n": 3})
        job.reschedule(datetime.now(UTC) + timedelta(minutes=5))
        job.run_now()
        job.delete()
    found = jobs.audit(job=job.id)
    assert deeds(found) == [
        (action, "ada") for action in ("delete", "run_now", "reschedule", "edit", "enable", "disable")
    ]
    deleted, _, _, edited, _, disabled = found
    assert (disabled.subject, disabled.reason, disabled.task) == ("fetch/f", "too much", "fetch")
    assert (disabled.before, disabled.after) == ({"enabled": True}, {"enabled": False})
    assert (edited.before or {})["args"] == "{}"
    assert (edited.after or {})["args"] == '{"n":3}'
    assert "@every 1h" in (edited.before or {})["rule"]
    assert deleted.after is None
    assert "args" not in (deleted.before or {}), "what is deleted shall be gone"


def test_who_acts_is_also_who_disabled_it_and_by_wins(jobs: Duly) -> None:
    @jobs.task
    def fetch() -> None: ...

    job = fetch.recur("f", every="1h")
    with jobs.acting_as("ada", via="api"):
        job.disable()
        assert job.record.disabled_by == "ada"
        job.enable()
        job.disable(by="bob")
        assert job.record.disabled_by == "bob"
    assert [(record.who, record.via) for record in jobs.audit(action="disable")] == [("bob", "api"), ("ada", "api")]


def test_the_applications_own_calls_are_not_kept_unless_somebody_acts(jobs: Duly) -> None:
    @jobs.task
    def fetch() -> None: ...

    job = fetch.recur("f", every="1h")
    assert not job.set_enabled(sql="1 = 0")
    assert job.set_enabled(sql="1 = 1")
    fetch.recur("f", every="2h")
    jobs.register("acme", "a", datetime.now(UTC), 60, lambda: None)
    jobs.unregister("acme", "a")
    fetch.enqueue()
    assert jobs.audit() == []
    job.set_enabled(sql="1 = 0", by="ada")
    with jobs.acting_as("bob"):
        job.set_enabled(sql="1 = 1")
        fetch.recur("f", every="3h")
        fetch.recur("f", every="3h")
        fetch.recur("g", every="3h")
        fetch.enqueue()
    job.set_enabled(False)
    (added,) = jobs.audit(action="add")
    assert added.before is None
    assert (added.after or {})["enabled"] is True
    assert "args" not in (added.after or {})
    assert deeds(jobs.audit()) == [
        ("disable", None), ("add", "bob"), ("edit", "bob"), ("enable", "bob"), ("disable", "ada"),
    ]  # fmt: skip


def test_what_duly_does_by_itself_is_not_kept(jobs: Duly) -> None:
    @jobs.task
    def fails() -> None:
        raise ValueError

    @jobs.recurring("@daily")
    def declared() -> None: ...

    job = fails.recur("f", every="1h", pause_after=1)
    with jobs.acting_as("ada"), jobs.worker():
        eventually(lambda: not job.refresh().enabled)
    assert jobs.audit() == []


# -- the transaction --------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
def test_on_the_callers_connection_the_record_comes_and_goes_with_the_transaction(
    jobs: Duly, work: Task[[int], int], database_url: str
) -> None:
    @jobs.task
    def fetch() -> None: ...

    recurring, job = fetch.recur("f", every="1h"), work.using(delay=60).enqueue(1)
    with closing(connect(database_url)) as connection, jobs.acting_as("ada"):
        for end, expected in ((connection.rollback, []), (connection.commit, ["cancel", "disable"])):
            recurring.disable(connection=connection)
            run_on(
                connection,
                lambda: ops_jobs.cancel(jobs.store.dialect, job.id, "no", actor=ADA),
                database=jobs.store.database,
            )
            end()
            assert [record.action for record in jobs.audit()] == expected


def test_an_action_whose_mirror_fails_leaves_no_record(jobs: Duly) -> None:
    @jobs.task
    def other() -> None: ...

    job = other.recur("f", every="1h")
    raw = Raw(jobs.settings.url)
    raw.rows("INSERT INTO duly.mirrors (task, sql) VALUES ('other', 'UPDATE there_is_no_such_table SET a = 1')")
    raw.close()
    with pytest.raises(Exception, match="mirror"):
        job.disable()
    assert jobs.audit() == []


def test_no_statement_changes_a_record_and_only_age_removes_one() -> None:
    for dialect in Dialect:
        about = {name: sql for name, sql in load(dialect).items() if "duly.audit" in sql}
        writes = {name: sql.split()[0] for name, sql in about.items() if not sql.startswith("SELECT")}
        assert writes == {"insert_audit": "INSERT", "prune_audit": "DELETE"}


# -- who --------------------------------------------------------------------------------------------------------------


def test_who_acts_holds_for_the_coroutine_and_not_for_its_neighbours(jobs: Duly) -> None:
    @jobs.task
    def fetch() -> None: ...

    made = {name: fetch.recur(name, every="1h") for name in ("ada", "bob", "nobody")}

    async def disable(name: str, job: RecurringJob) -> None:
        if name == "nobody":
            await job.adisable()
            return
        with jobs.acting_as(name):
            await asyncio.sleep(0.01)
            await job.adisable()
            await asyncio.to_thread(job.enable)

    async def main() -> None:
        await asyncio.gather(*(disable(name, job) for name, job in made.items()))

    asyncio.run(main())
    for name, job in made.items():
        records = jobs.audit(job=job.id)
        assert {record.who for record in records} == {None if name == "nobody" else name}
        assert len(records) == (1 if name == "nobody" else 2)


def test_the_inner_block_wins_and_the_outer_comes_back(lite: Duly) -> None:
    @lite.task
    def work() -> None: ...

    ids = [work.enqueue().id for _ in range(4)]
    with lite.acting_as("outer"):
        with lite.acting_as("inner", via="api"):
            lite.cancel(ids[0])
        lite.cancel(ids[1])
        other = threading.Thread(target=lite.cancel, args=(ids[2],))
        other.start()
        other.join()
    lite.cancel(ids[3])
    who = {record.job_id: (record.who, record.via) for record in lite.audit()}
    assert [who[each] for each in ids] == [
        ("inner", "api"), ("outer", "python"), (None, "python"), (None, "python"),
    ]  # fmt: skip


# -- looking ----------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere
def test_records_are_found_by_who_what_tenant_and_time_page_by_page(database_url: str) -> None:
    clock = TestClock()
    with opened(database_url, clock=clock, retention_audit="10d") as jobs:

        @jobs.task
        def work() -> None: ...

        ids = []
        for n in range(6):
            job = work.using(tenant="ab"[n % 2], delay="90d").enqueue()
            ids.append(job.id)
            with jobs.acting_as(f"user {n % 3}"):
                jobs.set_priority(job.id, 5)
                jobs.cancel(job.id)
            clock.advance("1h")
        everything = jobs.audit()
        assert [record.id for record in everything] == sorted((record.id for record in everything), reverse=True)
        assert len(everything) == 12
        assert [record.job_id for record in jobs.audit(by="user 1", action="cancel")] == [ids[4], ids[1]]
        assert {record.job_id for record in jobs.audit(tenant="a")} == {ids[0], ids[2], ids[4]}
        assert [record.action for record in jobs.audit(job=ids[2])] == ["cancel", "set_priority"]
        assert len(jobs.audit(since="90m")) == 2
        assert len(jobs.audit(since=clock.now() - timedelta(hours=3), until=clock.now() - timedelta(hours=1))) == 4
        paged: list[AuditRecord] = []
        while page := jobs.audit(before=paged[-1].id if paged else None, limit=5):
            paged += page
        assert paged == everything
        clock.advance("9d20h")
        jobs.tick()
        assert len(jobs.audit()) < 12, "what is older than the retention is forgotten by upkeep"
        clock.advance("10d")
        jobs.tick()
        assert jobs.audit() == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda jobs: jobs.audit(limit=0),
        lambda jobs: jobs.audit(job="x"),
        lambda jobs: jobs.audit(action="cancle"),
        lambda jobs: jobs.audit(since="yesterday"),
        lambda jobs: jobs.acting_as("").__enter__(),
        lambda jobs: jobs.acting_as("ada", via="fax").__enter__(),
    ],
)
def test_what_makes_no_sense_is_refused(lite: Duly, ask: Callable[[Duly], object]) -> None:
    with pytest.raises(InvalidOption):
        ask(lite)


def test_of_a_long_text_the_beginning_is_kept(jobs: Duly) -> None:
    @jobs.task
    def fetch(text: str) -> None: ...

    job = fetch.recur("f", every="1h", args={"text": "a"})
    job.edit(args={"text": "b" * 50_000})
    (record,) = jobs.audit()
    assert len((record.after or {})["args"]) == 2_001


def test_pauses_and_shares_are_kept(jobs: Duly) -> None:
    with jobs.acting_as("alice", via="cli"):
        jobs.pause(queue="mail", reason="the relay is down")
        jobs.resume(queue="mail")
        jobs.resume(queue="mail")
        jobs.set_weight("acme", 3)
        jobs.set_weight("acme", 3)
        jobs.set_fair("mail", False)
    kept = [(row.action, row.subject, row.tenant, row.who, row.reason) for row in reversed(jobs.audit())]
    assert kept == [
        ("pause", "queue mail", None, "alice", "the relay is down"),
        ("resume", "queue mail", None, "alice", None),
        ("set_weight", None, "acme", "alice", None),
        ("set_fair", "mail", None, "alice", None),
    ], "what changed nothing is not kept"
    jobs.pause(task="work", by="bob")
    assert jobs.paused()[0].by == jobs.audit()[0].who == "bob"
