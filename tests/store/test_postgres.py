"""PostgreSQL alone: lost connections and servers, bad addresses, plans that use the indexes on a large table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from duly.domain.clock import SystemClock
from duly.domain.errors import (
    ConfigurationError,
    DatabaseError,
    DatabaseUnavailable,
    SchemaMissing,
)
from duly.domain.ids import is_job_id, uuid7, uuid7_many
from duly.domain.records import Lane, NewJob, ProcessIdentity, Settled
from duly.domain.states import State
from duly.store import ops_claim, ops_enqueue, ops_jobs, ops_settle, ops_upkeep
from duly.store.call import Call, Dialect, Op, Rows, rows_of
from duly.store.database import Hint
from duly.store.opening import open_database
from duly.store.postgres import PLANNER, PostgresDatabase
from duly.store.statements import Compiled
from duly.store.store import Store
from duly.testing import TestClock
from tests.databases import Databases, Kind
from tests.plans import plans
from tests.postgres import PostgresServer
from tests.stepping import Beside
from tests.store import invariants
from tests.store.factory import WORKER, Factory, succeeded
from tests.store.processes import SOURCES
from tests.store.raw import Raw

LEASE_US = 15_000_000
LANE = [Lane("", "send")]


@pytest.fixture
def pg(pg_url: str) -> Iterator[Factory]:
    clock, raw = TestClock(), Raw(pg_url)
    store = Store(open_database(pg_url, clock))
    yield Factory(store, clock, raw)
    store.close()
    raw.close()


def new_job(**options: Any) -> NewJob:
    return NewJob(id=uuid7(), task="send", args="{}", **options)


def cut_connections(raw: Raw) -> int:
    """End every connection of the store, as a restart or a firewall does."""
    rows = raw.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'duly'")
    return len(rows)


def open_connections(store: Store, n: int) -> None:
    """Have the store open `n` connections, which it then keeps."""
    barrier = threading.Barrier(n)

    def op() -> Op[None]:
        yield Call("clock", {"queue": "", "horizon": 0})
        barrier.wait(20)

    with ThreadPoolExecutor(n) as pool:
        list(pool.map(lambda _: store.run(op), range(n)))


def wait_for_a_lock(raw: Raw) -> None:
    """Return when a connection of the store waits for another."""
    deadline = time.monotonic() + 20
    while not raw.one("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.005)


# -- lost connections ---------------------------------------------------------------------------------------------


def test_every_operation_goes_on_after_its_connection_was_cut(pg: Factory) -> None:
    store, raw = pg.store, pg.raw
    job_id = uuid7()
    store.counts()
    steps: list[Callable[[], Any]] = [
        lambda: store.enqueue(NewJob(id=job_id, task="send", args="{}")),
        lambda: store.enqueue_many(new_job(), [(each, "{}", None) for each in uuid7_many(3)]),
        lambda: store.lanes("default"),
        lambda: store.promote(),
        lambda: store.cancel(job_id, "enough"),
        lambda: store.retry(job_id),
        lambda: store.set_priority(job_id, 3),
        lambda: store.counts(),
        lambda: store.prune_jobs(State.FAILED, 1),
    ]
    for step in steps:
        assert cut_connections(raw) == 1
        step()
    assert raw.count("jobs") == raw.count("waiting") == 4


def test_one_cut_of_many_idle_connections_costs_one_repetition(pg: Factory) -> None:
    """All of them are gone: trying them one after the other would use up the tries."""
    open_connections(pg.store, 8)
    assert cut_connections(pg.raw) == 8
    job_id = pg.enqueue()
    assert pg.state(job_id) == "queued"


def test_a_claim_is_not_repeated_blindly_and_works_the_next_time(pg: Factory) -> None:
    open_connections(pg.store, 4)
    pg.enqueue()
    cut_connections(pg.raw)
    with pytest.raises(DatabaseUnavailable, match="lost postgresql://"):
        pg.claim()
    assert len(pg.claim()) == 1


@pytest.mark.parametrize("how", ["one", "many", "unique", "many unique"])
def test_an_enqueue_is_repeated_safely_when_the_reply_was_lost(
    pg: Factory, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """F14: the connection is cut after the commit and before we hear of it."""
    database = pg.store.database
    assert isinstance(database, PostgresDatabase)
    drive, cuts = PostgresDatabase._drive, iter([True])

    def drive_and_cut(self: PostgresDatabase, connection: psycopg.Connection, op: Callable[[], Op[Any]]) -> Any:
        answer = drive(self, connection, op)
        if self is database and next(cuts, False):
            connection.execute("COMMIT")
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return answer

    monkeypatch.setattr(PostgresDatabase, "_drive", drive_and_cut)
    unique = {"unique_mode": "skip", "unique_scope": "live"} if "unique" in how else {}
    keys = "abc" if unique else (None,) * 3
    if "many" in how:
        rows = [(job_id, "{}", key) for job_id, key in zip(uuid7_many(3), keys, strict=True)]
        answers = pg.store.enqueue_many(new_job(**unique), rows)
        assert [answer.created for answer in answers] == [True] * 3
    else:
        assert pg.store.enqueue(new_job(unique_key=keys[0], **unique)).created
    n = 3 if "many" in how else 1
    assert (pg.raw.count("jobs"), pg.raw.count("waiting")) == (n, n)
    assert next(cuts, "cut") == "cut"


def test_a_bulk_enqueue_repeated_while_the_lost_one_is_still_under_way_is_stored_once(pg: Factory) -> None:
    """F14: our connection is gone, but its backend has not noticed and commits after the repetition has begun."""
    rows: list[tuple[str, str, str | None]] = [(job_id, "{}", None) for job_id in uuid7_many(3)]
    lost = Store.open(pg.raw.url)
    under_way, repeated = threading.Event(), threading.Event()

    def first() -> Op[None]:
        yield from ops_enqueue.enqueue_many(Dialect.POSTGRES, new_job(), rows, copy=True)
        under_way.set()
        assert repeated.wait(20)

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(lost.run, first)
        assert under_way.wait(20)
        other = pool.submit(pg.store.enqueue_many, new_job(), rows)
        wait_for_a_lock(pg.raw)
        repeated.set()
        one.result(20)
        assert [answer.created for answer in other.result(20)] == [True] * 3
    lost.close()
    assert pg.raw.count("jobs") == pg.raw.count("waiting") == 3


def test_an_id_that_is_twice_in_one_bulk_enqueue_is_refused_soon(pg: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    run = PostgresDatabase._run

    def counted(self: PostgresDatabase, op: Callable[[], Op[Any]], atomic: bool) -> Any:
        tries.append(1)
        return run(self, op, atomic)

    pg.store.caps.check("default", "")  # which reads what may be enqueued
    monkeypatch.setattr(PostgresDatabase, "_run", counted)
    with pytest.raises(DatabaseError, match="duplicate key"):
        pg.store.enqueue_many(new_job(), [(uuid7(), "{}", None)] * 2)
    assert len(tries) == 2
    assert pg.raw.count("jobs") == 0


@pytest.mark.parametrize(
    "state, told",
    [
        (
            "40P01",
            r"stood in the way of an operation on postgres.*, also when it was repeated: .*\(40P01\)\. Look",
        ),
        (
            "55P03",
            r"stood in the way of an operation on postgres.*, also when it was repeated: .*\(55P03\)\. Look",
        ),
        ("57014", r"^postgresql://.* did not carry out an operation: .*\(57014\)$"),
        ("57P01", r"^lost postgresql://"),
    ],
)
def test_what_failed_in_vain_says_what_happened(
    pg: Factory, monkeypatch: pytest.MonkeyPatch, state: str, told: str
) -> None:
    def refuse(self: PostgresDatabase, *_: Any) -> None:
        raise psycopg.errors.lookup(state)("what PostgreSQL says")

    monkeypatch.setattr(PostgresDatabase, "_run", refuse)
    monkeypatch.setattr("duly.store.postgres.time.sleep", lambda _: None)
    with pytest.raises(DatabaseUnavailable, match=told):
        pg.store.counts()


def test_a_settle_is_repeated_safely_when_the_reply_was_lost(pg: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    job = pg.running()
    drive, cuts = PostgresDatabase._drive, iter([True])

    def drive_and_cut(self: PostgresDatabase, connection: psycopg.Connection, op: Callable[[], Op[Any]]) -> Any:
        answer = drive(self, connection, op)
        if next(cuts, False):
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return answer

    monkeypatch.setattr(PostgresDatabase, "_drive", drive_and_cut)
    assert pg.settle(succeeded(job)) == {job.id}
    assert pg.raw.count("runs") == 1
    assert pg.raw.one("SELECT runs FROM duly.rollups") == 1


def test_a_transaction_cut_in_the_middle_leaves_nothing_and_is_done_whole(pg: Factory) -> None:
    cuts = iter([True])

    def op() -> Op[None]:
        yield from ops_enqueue.enqueue(Dialect.POSTGRES, new_job())
        if next(cuts, False):
            cut_connections(pg.raw)
        yield from ops_enqueue.enqueue(Dialect.POSTGRES, new_job())

    pg.store.run(op)
    assert pg.raw.count("jobs") == 2


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_the_server_is_survived_without_a_new_start(pg_server: PostgresServer, mode: Any) -> None:
    store = Store.open(pg_server.url())
    store.migrate()
    reserved = store.reserved("lease keeper")
    job = new_job()
    store.enqueue(job)
    (claimed,) = store.claim("default", LANE, 1, worker_id=WORKER, lease_us=LEASE_US)
    pg_server.stop(mode)
    with pytest.raises(DatabaseUnavailable, match="postgresql://"):
        store.counts()
    with pytest.raises(DatabaseUnavailable, match=r"cannot connect to postgresql://.*Check the address"):
        store.enqueue(new_job())
    assert store.database.unbroken_us() == 0
    pg_server.start()
    assert reserved.renew([(claimed.id, claimed.token)], LEASE_US) == {job.id: False}
    assert store.settle([Settled(claimed.id, claimed.token, "succeeded", "succeeded")]) == {job.id}
    assert store.enqueue(new_job()).created
    store.close()


def test_a_server_that_has_just_started_robs_no_one(pg_server: PostgresServer) -> None:
    """After an outage leases have lapsed although their workers live: those have a whole lease to renew."""
    store = Store.open(pg_server.url())
    store.migrate()
    store.enqueue(new_job())
    store.claim("default", LANE, 1, worker_id=WORKER, lease_us=-1)
    assert store.lapsed(lease_us=3_600_000_000) == []
    assert len(store.lapsed(lease_us=-1_000_000)) == 1
    store.close()


def test_unbroken_time_counts_from_the_last_break(pg: Factory) -> None:
    database = pg.store.database
    assert database.unbroken_us() == 0
    pg.store.counts()
    first = database.unbroken_us()
    pg.store.counts()
    assert database.unbroken_us() > first > 0
    cut_connections(pg.raw)
    with pytest.raises(DatabaseUnavailable):
        pg.claim()
    assert database.unbroken_us() == 0


def test_a_pool_of_one_connection_makes_progress(pg_url: str) -> None:
    store = Store(PostgresDatabase(pg_url, SystemClock(), size=1))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: store.enqueue(new_job()), range(40)))
    raw = Raw(pg_url)
    assert raw.count("jobs") == 40
    assert raw.one("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'duly'") == 1
    raw.close()
    store.close()


def test_reserved_connections_cannot_be_taken_by_others(pg_url: str) -> None:
    store = Store(PostgresDatabase(pg_url, SystemClock(), size=1))
    reserved = store.reserved("lease keeper")
    busy, go_on = threading.Event(), threading.Event()

    def op() -> Op[None]:
        yield Call("clock", {"queue": "", "horizon": 0})
        busy.set()
        go_on.wait(20)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(store.run, op)
        busy.wait(20)
        assert reserved.renew([(uuid7(), 1)], LEASE_US) == {}
        go_on.set()
        holding.result()
    store.close()


def test_errors_leave_no_connection_behind(pg_url: str) -> None:
    """F23: a hundred refused operations, and the store still has one connection."""
    store = Store.open(pg_url)
    for _ in range(100):
        with pytest.raises(DatabaseError, match="refused an operation"):
            store.enqueue(new_job(priority=1000))
    raw = Raw(pg_url)
    assert raw.one("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'duly'") <= 1
    raw.close()
    store.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # 3.12 on, beside threads
def test_a_forked_child_opens_connections_of_its_own(pg_url: str) -> None:
    store = Store.open(pg_url)
    job = new_job()
    store.enqueue(job)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.enqueue(new_job())
            os.write(writing, str(len(store.counts().waiting)).encode())
            store.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 10) == b"1"
    assert store.get(job.id) is not None
    assert store.counts().waiting[0][3] == 2
    os.close(reading)
    os.close(writing)
    store.close()


# -- by the server's clock ----------------------------------------------------------------------------------------


@pytest.fixture
def real(pg_url: str) -> Iterator[Store]:
    """A store as in production: by the server's clock, where a plain job takes a way of its own."""
    store = Store.open(pg_url)
    yield store
    store.close()


def test_a_plain_job_is_stored_as_any_other(real: Store, pg: Factory) -> None:
    plain = new_job(queue="q", tenant="acme", priority=30)
    other = new_job(queue="q", tenant="acme", priority=30, enqueued_by="me")
    before = real.now_us()
    assert (real.enqueue(plain), real.enqueue(other)) == ((plain.id, True), (other.id, True))
    first, second = pg.get(plain.id), pg.get(other.id)
    assert before <= first.created_at <= second.created_at <= real.now_us()
    assert first.run_at == first.created_at
    same: dict[str, Any] = {"id": "", "created_at": 0, "run_at": 0, "enqueued_by": None}
    assert replace(first, **same) == replace(second, **same)
    invariants.check(pg.raw)
    real.set_horizon("q", 100_000_000)
    third = new_job(queue="q", priority=30)
    real.enqueue(third)
    run_at = pg.get(third.id).run_at
    assert run_at is not None
    assert pg.raw.one(f"SELECT rank FROM duly.waiting WHERE id = '{third.id}'") == run_at - 30_000_000


def test_a_plain_job_may_be_enqueued_again_and_does_not_come_back(real: Store, pg: Factory) -> None:
    job = new_job()
    assert real.enqueue(job) == real.enqueue(job) == (job.id, True)
    claimed = pg.take()
    real.enqueue(job)
    assert pg.state(job.id) == "running"
    pg.finish(claimed)
    real.enqueue(job)
    assert pg.state(job.id) == "succeeded"
    invariants.check(pg.raw)


def test_a_plain_job_is_stored_although_connections_were_cut(real: Store, pg: Factory) -> None:
    open_connections(real, 6)
    for _ in range(3):
        assert cut_connections(pg.raw) >= 1
        assert real.enqueue(new_job()).created
    assert pg.raw.count("waiting") == 3


@pytest.mark.parametrize(
    "args", ['{"text": "\\\\ \\" \' ä€😀"}', '{\n\t"a": 1\r\n}', '"' + "x" * 300_000 + '"', "null"]
)
def test_difficult_arguments_of_a_plain_job_come_back_as_they_were(real: Store, pg: Factory, args: str) -> None:
    job = new_job()._replace(args=args)
    real.enqueue(job)
    assert pg.get(job.id).args == args


def test_a_plain_job_that_cannot_be_stored_says_why_and_the_next_one_can(real: Store, pg: Factory) -> None:
    for wrong in ({"args": "not json"}, {"id": "not an id"}, {"priority": 1000}, {"max_attempts": 0}):
        with pytest.raises(DatabaseError, match="PostgreSQL refused an operation"):
            real.enqueue(new_job()._replace(**wrong))
        assert real.enqueue(new_job()).created
    assert pg.raw.count("jobs") == 4


def test_a_plain_job_wakes_a_sleeping_worker_after_its_commit(real: Store, pg: Factory) -> None:
    waker = real.waker(WORKER)
    me = ProcessIdentity(host="h", boot_id="b", pid_namespace="n", pid=1, process_started_at="s")
    real.add_worker(WORKER, me, lease_us=1, queues="q", tasks="t", slots=1, wake=None, version="1")
    while waker.wait(0.2):
        pass
    real.enqueue(new_job(queue="mail", tenant="acme"))
    assert waker.wait(5.0) == [Hint("jobs", "mail", "acme", "send")]
    assert [job.id for job in pg.claim(queue="mail", tenant="acme")]
    rows = [(job_id, "{}", None) for job_id in uuid7_many(3)]
    real.enqueue_many(new_job(queue="mail", tenant="acme", priority=7), rows)
    ranks = {row[0] for row in pg.raw.rows("SELECT rank FROM duly.waiting")}
    assert waker.wait(5.0) == [Hint("jobs", "mail", "acme", "send", *ranks)]
    real.enqueue_many(new_job(queue="mail", tenant="acme"), rows)
    assert waker.wait(5.0) == [Hint("jobs", "mail", "acme", "send")], "a repetition: nobody knows their rank"
    real.set_idle(WORKER, False)
    real.enqueue(new_job())
    assert waker.wait(0.2) == [], "nobody sleeps"
    waker.dispose()


# -- one statement at a time --------------------------------------------------------------------------------------


def interrupted(op: Op[Any], after: str, what: Callable[[], object]) -> Op[Any]:
    """Run an operation; when the statement `after` has been run, do something else before it goes on."""
    rows: Rows = ()
    call = next(op)
    while True:
        rows = yield call
        if isinstance(call, Call) and call.name == after:
            what()
        try:
            call = op.send(rows)
        except StopIteration as stop:
            return stop.value


@pytest.fixture
def other(pg_url: str, pg: Factory) -> Iterator[Factory]:
    """Somebody else at the same database."""
    store = Store(open_database(pg_url, pg.clock))
    yield Factory(store, pg.clock, pg.raw)
    store.close()


class Waiting:
    """Work in another thread that must wait for what this one has locked."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._thread = threading.Thread(target=lambda: self._answers.append(work()))
        self._answers: list[Any] = []

    def start(self) -> None:
        self._thread.start()
        self._thread.join(0.1)
        assert self._thread.is_alive(), f"it did not wait, and said {self._answers}"

    def answer(self) -> Any:
        self._thread.join(20)
        return self._answers[0]


def test_a_claim_takes_what_nobody_else_is_taking(pg: Factory, other: Factory) -> None:
    ids = pg.many(4)
    found: list[Any] = []
    op = interrupted(claim_some(2), "claim_lane", lambda: found.extend(other.claim(2)))
    assert [job.id for job in pg.store.run(lambda: op)] == ids[:2]
    assert [job.id for job in found] == ids[2:]


def claim_some(n: int) -> Op[Any]:
    return ops_claim.claim(Dialect.POSTGRES, queue="default", from_lanes=LANE, n=n, worker_id=WORKER, lease_us=LEASE_US)


def test_promoting_goes_round_what_somebody_else_is_moving(pg: Factory, other: Factory) -> None:
    pg.many(3, delay_us=1)
    pg.clock.advance(1)
    moved: list[Any] = []
    op = interrupted(ops_upkeep.promote(Dialect.POSTGRES, 2), "promote", lambda: moved.extend(other.store.promote(3)))
    assert [lane[4] for lane in pg.store.run(lambda: op)] == [2]
    assert [lane[4] for lane in moved] == [1]


@pytest.mark.parametrize("verb", ["cancel", "retry", "reschedule", "end by hand", "delete"])
def test_a_verb_finds_a_job_that_is_being_promoted(pg: Factory, other: Factory, verb: str) -> None:
    """It waits for the promoter, and then looks in the lane, not only in the schedule where the job was."""
    job_id = pg.enqueue(delay_us=1)
    pg.clock.advance(1)
    verbs: dict[str, tuple[Callable[[], Any], Any]] = {
        "cancel": (lambda: other.store.cancel(job_id, "enough"), ("cancelled", None)),
        "retry": (lambda: other.store.retry(job_id), ("queued", None)),
        "reschedule": (lambda: other.store.reschedule(job_id, delay_us=5), True),
        "end by hand": (lambda: other.store.end_by_hand(job_id, State.FAILED, "no"), "ended"),
        "delete": (lambda: other.store.delete(job_id), "deleted"),
    }
    work, expected = verbs[verb]
    waiting = Waiting(work)
    pg.store.run(lambda: interrupted(ops_upkeep.promote(Dialect.POSTGRES, 5), "promote", waiting.start))
    assert waiting.answer() == expected
    invariants.check(pg.raw)


def test_replacing_arguments_finds_a_job_that_is_being_promoted(pg: Factory, other: Factory) -> None:
    first = pg.unique(mode="replace", delay_us=1)
    pg.clock.advance(1)
    waiting = Waiting(lambda: other.unique(mode="replace", args='{"v": 2}'))
    pg.store.run(lambda: interrupted(ops_upkeep.promote(Dialect.POSTGRES, 5), "promote", waiting.start))
    assert waiting.answer() == (first.id, False)
    assert pg.get(first.id).args == '{"v": 2}'


def test_arguments_for_a_queued_job_that_is_being_claimed_make_a_new_one(pg: Factory, other: Factory) -> None:
    """Newest wins: they must not be lost to a job that starts with the old ones."""
    first = pg.unique(mode="replace", scope="queued")
    waiting = Waiting(lambda: other.unique(mode="replace", scope="queued", args='{"v": 2}'))
    (claimed,) = pg.store.run(lambda: interrupted(claim_some(1), "claim_lane", waiting.start))
    assert claimed.id == first.id
    second = waiting.answer()
    assert second.created
    assert pg.get(second.id).args == '{"v": 2}'


@pytest.mark.parametrize("scope", ["live", "queued"])
def test_a_cancel_waits_for_a_keyed_run_that_is_being_settled(pg: Factory, other: Factory, scope: str) -> None:
    """Else the job would end, and its key be left behind."""
    pg.unique(scope=scope)
    job = pg.take()
    if scope == "queued":  # a newer job has had the key meanwhile, and has ended
        pg.unique(scope=scope)
        pg.finish(pg.take())
    settled = Settled(job.id, job.token, "scheduled", "failed", delay_us=5)
    op = ops_settle.settle_keyed(Dialect.POSTGRES, settled, job.hold)
    waiting = Waiting(lambda: other.store.cancel(job.id, "enough"))
    pg.store.run(lambda: interrupted(op, "lock_run", waiting.start))
    assert waiting.answer() == ("cancelled", None)
    invariants.check(pg.raw)
    assert pg.unique(scope=scope).created


def test_a_job_that_comes_to_wait_while_the_first_ends_is_not_forgotten(pg: Factory, other: Factory) -> None:
    pg.unique(mode="keep_latest")
    first = pg.take()
    settled = Settled(first.id, first.token, "succeeded", "succeeded")
    op = ops_settle.settle_keyed(Dialect.POSTGRES, settled, first.hold)
    waiting = Waiting(lambda: other.unique(mode="keep_latest", args='{"v": 2}'))
    pg.store.run(lambda: interrupted(op, "settle_plain", waiting.start))
    second = waiting.answer()
    assert pg.take().id == second.id


def test_pruning_leaves_a_job_that_ended_anew_in_another_state(pg: Factory, other: Factory) -> None:
    old = pg.ended("failed")
    pg.clock.advance(10)

    def again() -> None:
        other.store.retry(old)
        other.finish(other.take(), "succeeded")

    op = ops_upkeep.prune_jobs(Dialect.POSTGRES, State.FAILED, 1, 10)
    assert pg.store.run(lambda: interrupted(op, "old_ended", again)) == 0
    assert pg.state(old) == "succeeded"


def test_pruning_waits_for_nobody_who_holds_one_of_the_jobs(pg: Factory, other: Factory) -> None:
    held, free = pg.ended("failed"), pg.ended("failed")
    pg.clock.advance(10)
    pruning = Beside(lambda: other.store.prune_jobs(State.FAILED, 1, 10), moment=5.0)
    op = ops_jobs.retry(Dialect.POSTGRES, held)
    assert pg.store.run(lambda: interrupted(op, "lock_ended", pruning.start)) == ("queued", None)
    pruning.end()
    assert (pruning.waited, pruning.answer) == (False, 1)
    assert pg.store.get(free) is None
    assert pg.take().id == held


# -- bad addresses and rights -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://127.0.0.1:1/none",
        "postgresql://localhost:notaport/db",
        "postgresql:///db?host=/nowhere",
        "postgresql://host.invalid/db",
        "postgres://127.0.0.1:1/none",
    ],
)
def test_an_address_where_nobody_answers_is_named(url: str) -> None:
    store = Store.open(url)
    with pytest.raises(DatabaseUnavailable, match=re.escape(f"cannot connect to {url}: ")):
        store.enqueue(new_job())
    store.close()


def test_a_server_without_a_free_connection_is_told_from_one_that_is_away(pg_server: PostgresServer) -> None:
    with psycopg.connect(pg_server.url(), autocommit=True) as owner:
        owner.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
    store = Store.open(pg_server.url().replace("postgres@", "crowded@", 1))
    with pytest.raises(DatabaseUnavailable) as refused:
        store.counts()
    assert "too many connections" in str(refused.value)
    assert "raise max_connections, run fewer workers" in str(refused.value)
    assert "that the server is running" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["postgresql://me:s3cret@127.0.0.1:1/none", "postgresql://127.0.0.1:1/none?user=me&password=s3cret"]
)
def test_a_password_is_not_shown(url: str) -> None:
    store = Store.open(url)
    with pytest.raises(DatabaseUnavailable) as caught:
        store.counts()
    assert "s3cret" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)
    store.close()


@pytest.mark.parametrize("url", ["mysql://x/y", "postgre://x/y", "duly.db", "", "://"])
def test_an_address_that_is_none_of_ours_is_refused_with_examples(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"sqlite:///file\.db.*postgresql://user@host/database"):
        Store.open(url)


def test_options_in_the_address_are_kept(pg_url: str) -> None:
    """Some providers route by them."""
    url = f"{pg_url}&application_name=mine&options=-c%20work_mem%3D7MB"
    store = Store.open(url)
    store.counts()
    raw = Raw(pg_url)
    assert raw.one("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mine'") == 1
    raw.close()
    database = store.database
    assert isinstance(database, PostgresDatabase)
    with database.connect() as connection:
        (memory,) = connection.execute("SHOW work_mem").fetchone() or ("",)
        (scans,) = connection.execute("SHOW enable_seqscan").fetchone() or ("",)
    assert (memory, scans) == ("7MB", "off")
    store.close()


def test_a_database_that_cannot_be_written_says_so(pg: Factory) -> None:
    name = pg.raw.one("SELECT current_database()")
    pg.raw.rows(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(DatabaseUnavailable, match=r"is read-only.*Connect to the primary"):
        pg.enqueue()
    pg.raw.rows("SET default_transaction_read_only = off")
    pg.raw.rows(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    pg.store.close()
    assert pg.enqueue()


def test_a_user_without_rights_is_told_what_to_grant(pg_url: str, pg: Factory) -> None:
    user = f"guest_{os.getpid()}"
    pg.raw.rows(f"CREATE ROLE {user} LOGIN")
    pg.raw.rows(f"GRANT USAGE ON SCHEMA duly TO {user}")
    pg.raw.rows(f"GRANT SELECT ON duly.schema_version TO {user}")
    store = Store.open(pg_url.replace("postgres@", f"{user}@"))
    with pytest.raises(DatabaseError, match=r"permission denied.*Grant this user the rights to schema duly"):
        store.enqueue(new_job())
    store.close()
    pg.raw.rows(f"DROP OWNED BY {user}")
    pg.raw.rows(f"DROP ROLE {user}")


def test_tables_dropped_under_a_running_program_are_missed_by_name(pg: Factory) -> None:
    pg.store.counts()
    pg.raw.rows("DROP SCHEMA duly CASCADE")
    with pytest.raises(DatabaseError, match="Run: duly migrate --url postgresql://"):
        pg.enqueue()
    with pytest.raises(SchemaMissing):
        pg.enqueue()


WITHOUT_PSYCOPG = """
import sys
sys.modules["psycopg"] = None
from duly.domain.errors import ConfigurationError
from duly.store.store import Store
try:
    Store.open("postgresql:///x").counts()
except ConfigurationError as error:
    print(error)
"""


def test_without_psycopg_the_extra_is_named() -> None:
    said = subprocess.check_output([sys.executable, "-c", WITHOUT_PSYCOPG], env={"PYTHONPATH": SOURCES}, text=True)
    assert "Run: pip install 'duly[postgres]'" in said


# -- plans --------------------------------------------------------------------------------------------------------

BIG = """
INSERT INTO duly.jobs (id, task, args, created_at)
SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 't' || n % 7, '{}', n
FROM generate_series(1, 200000) n;
INSERT INTO duly.waiting (queue, suspect, tenant, task, rank, id, run_at, priority)
SELECT 'default', 0, '', task, created_at, id, created_at, 0 FROM duly.jobs WHERE created_at <= 120000;
INSERT INTO duly.scheduled (id, run_at, queue, tenant, task, priority)
SELECT id, created_at * 1000000, 'default', '', task, 0 FROM duly.jobs WHERE created_at BETWEEN 120001 AND 160000;
INSERT INTO duly.running (id, token, queue, tenant, task, priority, run_at, attempt, crashes, hold, limited,
                          worker_id, claimed_at, leased_until)
SELECT id, 1, 'default', '', task, 0, 1, 1, 0, 0, created_at % 2,
       '00000000-0000-4000-8000-000000000001', 1, 9000000000000000 FROM duly.jobs
WHERE created_at BETWEEN 160001 AND 162000;
INSERT INTO duly.ended (id, state, finished_at, token, attempt, crashes)
SELECT id, 'succeeded', created_at, 1, 1, 0 FROM duly.jobs WHERE created_at > 162000;
INSERT INTO duly.unique_keys (tenant, key, job_id, scope)
SELECT '', 'k' || created_at, id, 2 FROM duly.jobs WHERE created_at <= 20000;
"""
IDS = [f"00000000-0000-7000-8000-{n:012x}" for n in range(160_001, 160_101)]
PAIRS = [(job_id, 1) for job_id in IDS]


@pytest.fixture(scope="module")
def big(databases: Databases) -> Iterator[str]:
    """A database with 200,000 jobs, once without statistics and then with."""
    with databases.fresh(Kind.PG18) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER TABLE duly.waiting SET (autovacuum_enabled = off)")
            connection.execute(BIG.encode())
        yield url


def settled_batch(outcome: str = "succeeded") -> list[Settled]:
    return [Settled(job_id, 1, outcome, outcome) for job_id in IDS]


def claim_op(*, limited: bool = False, n: int = 7) -> Op[Any]:
    lanes = [Lane("", f"t{number}") for number in range(1 if limited else n)]
    return ops_claim.claim(
        Dialect.POSTGRES,
        queue="default",
        from_lanes=lanes,
        n=500,
        worker_id=WORKER,
        lease_us=1,
        gates=[("task", "t0")] if limited else [],
    )


def of_pairs(statement: str) -> Op[Rows]:
    return rows_of(Call(statement, ops_settle.params_of_pairs(Dialect.POSTGRES, PAIRS)))


OPERATIONS: dict[str, tuple[Callable[[], Op[Any]], str]] = {
    "lanes": (lambda: ops_claim.lanes(Dialect.POSTGRES, "default", suspect=False), "waiting_lane"),
    "look": (lambda: ops_claim.look(Dialect.POSTGRES, "default"), "waiting_lane"),
    "claim": (claim_op, "waiting_lane"),
    "claim from one lane": (lambda: claim_op(n=1), "waiting_lane"),
    "claim with a limit": (lambda: claim_op(limited=True), ""),
    "settle": (lambda: ops_settle.settle(Dialect.POSTGRES, settled_batch("failed")), "running_pkey"),
    "settle what succeeded": (lambda: ops_settle.settle(Dialect.POSTGRES, settled_batch()), "running_pkey"),
    "still held": (lambda: of_pairs("still_held"), "running_pkey"),
    "held pairs": (lambda: of_pairs("held_pairs"), "running_pkey"),
    "completed runs": (lambda: of_pairs("completed_runs"), "running_pkey"),
    "runs let go": (lambda: of_pairs("runs_let_go"), "running_pkey"),
    "ending": (lambda: of_pairs("ending"), "running_pkey"),
    "renew": (lambda: ops_settle.renew(Dialect.POSTGRES, [(job_id, 1) for job_id in IDS], 1), "running_pkey"),
    "promote": (lambda: ops_upkeep.promote(Dialect.POSTGRES, 1_000), "scheduled_by_time"),
    "next due": (ops_upkeep.next_due, "scheduled_by_time"),
    "prune": (lambda: ops_upkeep.prune_jobs(Dialect.POSTGRES, State.SUCCEEDED, 1, 1_000), "ended_by_state"),
    "enqueue": (lambda: ops_enqueue.enqueue(Dialect.POSTGRES, new_job()), ""),
    "enqueue with a key": (
        lambda: ops_enqueue.enqueue(
            Dialect.POSTGRES, new_job(unique_key="k7", unique_mode="replace", unique_scope="live")
        ),
        "waiting_pkey",
    ),
}


def answer(call: Call) -> Rows:
    """What the statements in the middle of an operation come back with."""
    match call.name:
        case "old_ended":
            return [(job_id,) for job_id in IDS]
        case "next_due" | "prune_jobs":
            return [(1,)]
        case "hold_key":
            return [(IDS[0], None, 2)]
        case "settle" | "settle_plain":
            return [("",)]
        case _:
            return ()


@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_plans_use_the_indexes_on_a_large_table(big: str, name: str, analysed: bool) -> None:
    """Also where statistics are missing: tables grow from nothing to a million rows between two runs of ANALYZE."""
    if analysed:
        with psycopg.connect(big, autocommit=True) as connection:
            connection.execute("ANALYZE")
    op, index = OPERATIONS[name]
    found = plans(big, op(), answer)
    for statement, plan in found.items():
        scanned = set(re.findall(r"Seq Scan on (\w+)", plan)) - {"queues", "gates", "keys", "rollups"}
        assert not scanned, f"{statement}:\n{plan}"
    assert index in "\n".join(found.values())


@pytest.fixture(scope="module")
def emptied(databases: Databases) -> Iterator[str]:
    """A database whose tables VACUUM found empty, but cannot shrink: somebody's transaction is open."""
    with databases.fresh(Kind.PG18) as url, psycopg.connect(url) as reader:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(BIG.encode())
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT txid_current()")
            for table in ("jobs", "waiting", "scheduled", "running", "ended", "unique_keys"):
                connection.execute(f"DELETE FROM duly.{table}".encode())
            connection.execute("VACUUM ANALYZE")
            row = connection.execute(
                "SELECT reltuples, relpages > 20 FROM pg_class WHERE oid = 'duly.running'::regclass"
            )
            assert row.fetchone() == (0, True)
        yield url


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_table_that_seems_empty_is_not_gone_through_from_end_to_end(emptied: str, name: str) -> None:
    """It may have filled since, or hold a million rows that are dead: each row is looked up by its key all the same."""
    for statement, plan in plans(emptied, OPERATIONS[name][0](), answer).items():
        whole = re.findall(r"(.*)\n.*Scan(?: Backward)? using \w+ on (\w+).*\n(?!\s*Index Cond)", plan)
        small = ("queues", "gates", "keys", "rollups", "mirrors")
        gone_through = {table for above, table in whole if "Limit" not in above and table not in small}
        assert not gone_through, f"{statement}, {gone_through}:\n{plan}"


def test_a_claim_reads_little_more_than_it_takes(big: str) -> None:
    compiled = Compiled(Dialect.POSTGRES, "pyformat", "duly", server_clock=True)
    with psycopg.connect(big, options=PLANNER) as connection:
        connection.execute("ANALYZE")
        call = next(claim_op())
        assert isinstance(call, Call)
        sql, _ = compiled.get(call.name)
        lines = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS OFF, TIMING OFF) {sql}".encode(), dict(call.params))
        text = "\n".join(str(line[0]) for line in lines)
        connection.rollback()
    walked = [float(n) * int(loops) for n, loops in re.findall(r"Index.*?actual rows=([\d.]+) loops=(\d+)", text)]
    assert sum(walked) < 500 * 12, text


def test_getting_one_job_probes_each_place_once(big: str) -> None:
    compiled = Compiled(Dialect.POSTGRES, "pyformat", "duly", server_clock=True)
    with psycopg.connect(big, options=PLANNER) as connection:
        sql, _ = compiled.get("get_job")
        lines = connection.execute(f"EXPLAIN {sql}".encode(), {"id": IDS[0]})
        plan = "\n".join(str(line[0]) for line in lines)
    assert "Seq Scan" not in plan
    for place in ("scheduled", "waiting", "parked", "running", "ended"):
        assert f"{place}_pkey" in plan


# -- verbs for many jobs ------------------------------------------------------------------------------------------


def test_many_jobs_are_gone_through_in_the_order_in_which_a_bulk_enqueue_takes_their_keys(pg: Factory) -> None:
    """Else two who do something to many jobs, or one and a bulk enqueue, wait for each other in a circle."""
    last, first, none = pg.unique("b").id, pg.unique("a").id, pg.enqueue()
    gone_through: list[str] = []

    def do(job_id: str) -> Op[str]:
        gone_through.append(job_id)
        if is_job_id(job_id):
            yield Call("wanted_key", {"id": job_id})
        return job_id.upper()

    given = [last, none, "no id", first]
    answers = pg.store.database.write(lambda: ops_jobs.each_of(Dialect.POSTGRES, given, do))
    assert gone_through == [none, "no id", first, last]
    assert list(answers.items()) == [(each, each.upper()) for each in given]


@pytest.mark.parametrize("how", [{"result": '"a\0b"'}, {"error": "a\0b"}], ids=["plain", "any"])
def test_text_that_cannot_be_stored_is_refused_and_not_cut_short(pg_url: str, how: Any) -> None:
    """libpq takes a NUL for the end. Our own worker cleans what it hands in; others have loops of their own."""
    store = Store.open(pg_url)
    store.enqueue(NewJob(id=uuid7(), task="send", args="{}"))
    (job,) = store.claim("default", [Lane("", "send")], 1, worker_id=uuid7(), lease_us=60_000_000)
    with pytest.raises(DatabaseError, match="NUL"):
        store.settle([Settled(job.id, job.token, "succeeded", "succeeded", **how)])
    kept = store.get(job.id)
    store.close()
    assert kept is not None
    assert kept.state is State.RUNNING


@pytest.mark.parametrize("said_by", ["address", "environment"])
def test_text_is_the_same_whatever_encoding_a_client_would_have(
    pg_url: str, monkeypatch: pytest.MonkeyPatch, said_by: str
) -> None:
    """What goes by libpq itself is written in UTF-8, and what comes back is read in what the connection has."""
    if said_by == "environment":
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    else:
        pg_url += ("&" if "?" in pg_url else "?") + "client_encoding=latin1"
    store = Store.open(pg_url)
    job = NewJob(id=uuid7(), task="größe", args='{"a": "ü"}', tenant="é")
    store.enqueue(job)
    ((lane, _),) = store.look("default").lanes
    (claimed,) = store.claim("default", [lane], 1, worker_id=uuid7(), lease_us=60_000_000)
    assert (claimed.task, claimed.tenant, claimed.args) == ("größe", "é", '{"a": "ü"}')
    store.settle([Settled(claimed.id, claimed.token, "failed", "failed", error="à")])
    last = store.last_run(claimed.id)
    store.close()
    assert last is not None
    assert last.error == "à"
