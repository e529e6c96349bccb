"""Rescue: jobs of workers that are gone run again soon, whoever rescues them; those that kill workers not for ever."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from duly import Backoff, Duly, State, current_job
from duly.domain.clock import SystemClock
from duly.domain.errors import DatabaseError
from duly.domain.ids import uuid7
from duly.domain.records import Lane, ProcessIdentity, Settled
from duly.maintenance.rescue import Deaths, rescue_dead, rescue_lapsed
from duly.store.store import Store
from duly.worker import claimer, identity
from tests.clock import us
from tests.databases import Kind
from tests.helpers import Ledger, WorkerProcess, eventually, never, opened, worker_process
from tests.worker.tasks import declare


def take_two_workers(jobs: Duly, task: str, n: int) -> None:
    """So many jobs are lost with their worker, twice."""
    for _ in range(2):
        eventually(lambda: bool(jobs.store.promote(10)) or len(jobs.list(state="queued")) == n)
        jobs.store.claim("default", [Lane("", task)], n, worker_id=uuid7(), lease_us=1)
        eventually(lambda: rescue_lapsed(jobs.store, lease_us=0, crash_limit=3) == n)


@pytest.mark.requirement("D1", "D7", "A8")
def test_a_killed_workers_job_runs_again_within_3_seconds_where_another_worker_lives(
    jobs: Duly, database_url: str, ledger: Ledger
) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger) as doomed:
        job = tasks.hold.enqueue("one", 0.4)
        eventually(lambda: ledger.count("start"))
        with jobs.worker():
            eventually(lambda: len(jobs.workers()) == 2)
            doomed.kill()
            killed = time.monotonic()
            eventually(lambda: ledger.count("start") == 2)
            assert ledger.entries("start")[1].at - killed < 3.0
            job.wait(5)
    assert [run.outcome for run in job.runs] == ["crashed", "succeeded"]
    assert job.refresh().attempts == 2
    first = job.runs[0]
    assert first.error_kind == "WorkerLost"
    assert "ended" in (first.error or "")


@pytest.mark.requirement("D1")
def test_a_killed_workers_jobs_run_again_within_3_seconds_of_a_new_workers_start(
    jobs: Duly, database_url: str, ledger: Ledger
) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger) as doomed:
        stored = [tasks.hold.enqueue(str(n), 0.5) for n in range(4)]
        later = tasks.note.using(delay=0.2).enqueue("later")
        eventually(lambda: ledger.count("start") == 4)
        doomed.kill()
    waiting = tasks.note.enqueue("waiting")
    started = time.monotonic()
    with jobs.worker():
        eventually(lambda: ledger.count("start") == 8)
        assert max(entry.at for entry in ledger.entries("start")) - started < 3.0
        for job in (*stored, later, waiting):
            job.wait(5)
    assert jobs.workers() == []


def test_without_seeing_the_process_it_takes_a_lease(
    jobs: Duly, database_url: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from another host: only the lease tells."""
    monkeypatch.setattr(identity, "is_gone", lambda *_, **__: False)
    tasks = declare(jobs, ledger)
    with jobs.worker(lease=1.0), worker_process(database_url, ledger, worker={"lease": 1.0}) as doomed:
        job = None
        for n in range(20):  # until one of them lands on the other worker
            job = tasks.hold.enqueue(str(n), 0.7)
            (entry,) = eventually(lambda n=n: ledger.entries("start", str(n)))  # type: ignore[misc]
            if entry.pid == doomed.pid:
                break
        assert job is not None
        doomed.kill()
        killed = time.monotonic()
        job.wait(10)
        again = ledger.entries("start", str(n))[1]
        assert again.at - killed < 1.0 + 5.0
    assert [run.outcome for run in job.runs] == ["crashed", "succeeded"]
    assert "lease" in (job.runs[0].error or "")


@pytest.mark.parametrize("seen", [True, False], ids=["process seen", "lease only"])
def test_a_process_that_knows_no_task_rescues_all_the_same(
    jobs: Duly, database_url: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    """F8: what happens after a crash is stored with the job, so that none is discarded by one who does not know it."""
    if not seen:
        monkeypatch.setattr(identity, "is_gone", lambda *_, **__: False)
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger, worker={"lease": 1.0}) as doomed:
        job = tasks.hold.enqueue("one", 5)
        last = tasks.hold.using(max_attempts=1).enqueue("last", 5)
        eventually(lambda: ledger.count("start") == 2)
        doomed.kill()
    with opened(database_url) as stranger, stranger.worker(lease=1.0):
        eventually(lambda: job.refresh().state is State.QUEUED, within=8)
        eventually(lambda: last.refresh().state is State.FAILED, within=8)
    assert (job.attempts, job.record.crashes) == (1, 1)
    assert last.reason is not None
    assert "1 of 1" in last.reason


def test_one_row_that_cannot_be_rescued_keeps_no_other(jobs: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    """F7: also when there is a whole page of such rows in front."""
    monkeypatch.setattr("duly.maintenance.rescue.PAGE", 3)

    @jobs.task
    def work(n: int) -> int:
        return n

    stored = work.enqueue_many([{"n": n} for n in range(12)])
    held = jobs.store.claim("default", [Lane("", "work")], 12, worker_id=uuid7(), lease_us=1)
    assert len(held) == 12
    cursed = {job.id for job in sorted(stored, key=lambda job: job.id)[:5]}
    real = Store.settle

    def settle(self: Store, batch: Any, **options: Any) -> set[str]:
        if any(settled.id in cursed for settled in batch):
            raise DatabaseError("this row cannot be rescued")
        return real(self, batch, **options)

    monkeypatch.setattr(Store, "settle", settle)
    with jobs.worker(lease=0.3):
        for n, job in enumerate(stored):
            if job.id not in cursed:
                assert job.wait(10) == n
        monkeypatch.setattr(Store, "settle", real)
        for n, job in enumerate(stored):
            assert job.wait(10) == n, "and they are tried again"


def test_what_a_worker_held_is_rescued_all_at_once(jobs: Duly) -> None:
    """A worker may have taken hundreds; one transaction for each would take seconds, and longer where each is slow."""

    @jobs.task
    def work(n: int) -> int:
        return n

    work.enqueue_many([{"n": n} for n in range(700)])
    work.using(unique="one").enqueue(700)
    worker = uuid7()
    assert len(jobs.store.claim("default", [Lane("", "work")], 701, worker_id=worker, lease_us=us(60))) == 701
    jobs.store.add_worker(
        worker, identity.this_process(), lease_us=us(60), queues="[]", tasks="[]", slots=1, wake=None, version="0"
    )
    before = jobs.store.database.calls
    deaths = Deaths(jobs.store)
    assert rescue_dead(jobs.store, jobs.store.workers(), lambda process: True, crash_limit=3, deaths=deaths) == 701
    assert jobs.store.database.calls - before < 40
    assert len(jobs.list(state="queued", limit=1_000)) == 701


def test_a_claim_that_comes_to_its_end_after_its_worker_was_killed_is_found(pg_url: str) -> None:
    """The server may be at it still when the worker's other runs are rescued."""
    with opened(pg_url) as jobs:

        @jobs.task
        def work() -> None: ...

        work.enqueue_many([{}, {}])
        worker, deaths, lane = uuid7(), Deaths(jobs.store), [Lane("", "work")]
        claim = partial(jobs.store.claim, "default", lane, 1, worker_id=worker, lease_us=us(60))
        rescue = partial(rescue_dead, jobs.store, is_gone=lambda process: True, crash_limit=3, deaths=deaths)
        claim()
        jobs.store.add_worker(
            worker, identity.this_process(), lease_us=us(60), queues="[]", tasks="[]", slots=1, wake=None, version="0"
        )
        assert rescue(workers=jobs.store.workers()) == 1
        claim()
        assert rescue(workers=jobs.store.workers()) == 1
        assert [each.id for each in jobs.store.workers()] == [worker]
        deaths.linger = 0.0
        assert rescue(workers=jobs.store.workers()) == 0
        assert jobs.store.workers() == []


def test_a_rescuer_that_read_before_the_job_was_done_changes_nothing(
    jobs: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F6: the holder finishes, or renews, between the look and the write."""

    @jobs.task
    def work(n: int) -> int:
        return n

    done, renewed, gone = work.enqueue_many([{"n": n} for n in range(3)])
    held = {job.id: job for job in jobs.store.claim("default", [Lane("", "work")], 3, worker_id=uuid7(), lease_us=1)}
    eventually(lambda: len(jobs.store.lapsed(0)) == 3)
    stale = jobs.store.lapsed(0)
    assert jobs.store.settle([Settled(done.id, held[done.id].token, "succeeded", "succeeded", ran_us=5)])
    assert jobs.store.renew([(renewed.id, held[renewed.id].token)], 60_000_000)
    looks = iter([stale])
    monkeypatch.setattr(jobs.store, "lapsed", lambda *_: next(looks, []))
    assert rescue_lapsed(jobs.store, lease_us=0, crash_limit=3) == 1
    assert [job.refresh().state for job in (done, renewed, gone)] == [State.SUCCEEDED, State.RUNNING, State.QUEUED]


@pytest.mark.requirement("E7")
def test_those_that_ran_beside_a_job_that_kills_run_alone_one_right_after_another(jobs: Duly) -> None:
    """Which of them it is, nobody knows."""

    @jobs.task
    def work(n: int) -> int:
        return n

    made = work.enqueue_many([{"n": n} for n in range(6)])
    take_two_workers(jobs, "work", 6)
    with jobs.worker():
        until = time.monotonic() + 8
        assert [job.wait(until - time.monotonic()) for job in made] == list(range(6))


@pytest.mark.requirement("E7")
def test_nothing_begins_after_a_suspect_before_it_is_on_record_that_it_ended_well(
    jobs: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever killed the worker then would take the suspect with it, for the third time: an innocent would fail."""
    begun: list[str] = []
    too_soon: list[tuple[str, str]] = []

    @jobs.task
    def work(n: int) -> int:
        too_soon.extend((job.id, job.state) for job in map(jobs.get, begun) if job.state is not State.SUCCEEDED)
        begun.append(current_job().id)
        return n

    suspects = work.enqueue_many([{"n": n} for n in range(4)])
    take_two_workers(jobs, "work", 4)
    ordinary = work.enqueue(4)
    worker = jobs.worker()
    settle = worker._worker._finisher._store.settle

    def settle_late(*some: Any, **more: Any) -> Any:
        time.sleep(0.1)
        return settle(*some, **more)

    monkeypatch.setattr(worker._worker._finisher._store, "settle", settle_late)
    with worker:
        assert [job.wait(10) for job in (*suspects, ordinary)] == list(range(5))
    assert too_soon == []
    assert len(begun) == 5


def test_a_run_that_cannot_be_put_on_record_keeps_a_suspect_waiting_for_a_while_only(
    jobs: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller's transaction may hold the row of a recurring job for long."""
    monkeypatch.setattr(claimer, "SUSPECT_PATIENCE", 0.3)
    monkeypatch.setattr(claimer, "SUSPECT_AT_LAST", 0.6)

    @jobs.task
    def work(n: int) -> int:
        return n

    made = work.enqueue_many([{"n": n} for n in range(2)])
    take_two_workers(jobs, "work", 2)
    worker = jobs.worker()
    within = worker._worker._claimer

    class NeverOnRecord(dict[str, Any]):
        def __bool__(self) -> bool:
            return True

        def get(self, job_id: str, default: Any = None) -> Any:
            return within._alone

    within._held = NeverOnRecord()
    with worker:
        assert [job.wait(10) for job in made] == [0, 1]


@pytest.mark.requirement("E7")
def test_a_job_that_kills_its_worker_is_parked_as_failed_after_three_and_the_others_are_done(
    jobs: Duly, database_url: str, ledger: Ledger
) -> None:
    """F9: a supervisor that starts a new worker whenever one died, as systemd or Kubernetes would."""
    tasks = declare(jobs, ledger)
    poison = tasks.die.enqueue("poison")
    others = [tasks.hold.enqueue(str(n), 0.01) for n in range(30)]
    deaths = 0
    worker = WorkerProcess(database_url, ledger)
    try:
        deadline = time.monotonic() + 40
        while not poison.refresh().state.terminal or not all(job.refresh().state.terminal for job in others):
            assert time.monotonic() < deadline, "not done in time"
            if worker.process.poll() is not None:
                assert worker.process.returncode == -signal.SIGKILL
                worker.close()
                deaths += 1
                worker = WorkerProcess(database_url, ledger)
            time.sleep(0.02)
        worker.leave()
    finally:
        worker.close()
    assert deaths == 3
    assert poison.refresh().state is State.FAILED
    assert poison.reason is not None
    assert poison.reason.startswith("poison: 3 runs in a row")
    assert [run.outcome for run in poison.runs] == ["crashed"] * 3
    assert {job.refresh().state for job in others} == {State.SUCCEEDED}


def test_a_crash_is_forgotten_when_a_run_ends(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    tasks = declare(jobs, ledger)
    job = tasks.die_once.enqueue("once")
    worker = WorkerProcess(database_url, ledger)
    try:
        worker.process.wait(20)
    finally:
        worker.close()
    with jobs.worker():
        job.wait(10)
    assert (job.refresh().state, job.record.crashes, job.attempts) == (State.SUCCEEDED, 0, 2)


def test_a_worker_of_an_earlier_boot_is_gone_where_all_are_on_one_host(
    jobs: Duly, database_kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of SQLite's leases begins anew at every boot: without this a job would wait for days."""

    @jobs.task
    def work() -> int:
        return 1

    before = replace(identity.this_process(), boot_id="another boot", pid=1)
    job = work.enqueue()
    dead = uuid7()
    jobs.store.add_worker(
        dead, before, lease_us=10**15, queues='["default"]', tasks='["work"]', slots=1, wake=None, version="0"
    )
    assert jobs.store.claim("default", [Lane("", "work")], 1, worker_id=dead, lease_us=10**15)
    with jobs.worker():
        if not database_kind.is_postgres:
            assert job.wait(5) == 1
            eventually(lambda: dead not in [worker.id for worker in jobs.workers()])  # struck off after its runs
            return
        never(lambda: job.refresh().state is not State.RUNNING, 1.5)
    assert job.refresh().state is State.RUNNING, "another machine may have this host's name: only its lease tells"


class AnotherBoot(SystemClock):
    """The clocks of a boot that began long before this one."""

    def lease_us(self) -> int:
        return super().lease_us() + 10**13

    def now_us(self) -> int:
        return super().now_us() - super().lease_us() - 10**9


@pytest.mark.parametrize("how", ["worker", "tick"])
def test_a_run_of_an_earlier_boot_whose_worker_is_not_on_record_runs_again(sqlite_url: str, how: str) -> None:
    with opened(sqlite_url) as jobs:

        @jobs.task
        def work() -> int:
            return 1

        job = work.enqueue()
        before = Store.open(sqlite_url, clock=AnotherBoot())
        assert before.claim("default", [Lane("", "work")], 1, worker_id=uuid7(), lease_us=15_000_000)
        before.close()
        if how == "tick":
            jobs.tick(5)
            jobs.tick(5)
            assert job.refresh().state is State.SUCCEEDED
        else:
            with jobs.worker(lease=1):
                assert job.wait(10) == 1
        assert [run.outcome for run in job.runs] == ["crashed", "succeeded"]


def test_who_is_gone_is_told_by_boot_namespace_pid_and_start(monkeypatch: pytest.MonkeyPatch) -> None:
    me = identity.this_process()
    assert not identity.is_gone(me)
    assert identity.is_gone(replace(me, process_started_at="12345")), "a pid that came again is another process"
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert identity.is_gone(replace(me, pid=child))
    for unknown in (replace(me, pid=child, boot_id=""), replace(me, pid=child, pid_namespace="pid:[1]")):
        assert not identity.is_gone(unknown)
    elsewhere = ProcessIdentity(host=me.host, boot_id="x", pid_namespace="", pid=1, process_started_at="")
    assert not identity.is_gone(elsewhere)
    assert identity.is_gone(elsewhere, one_host=True)
    zombie = os.fork()
    if zombie == 0:
        os._exit(0)
    eventually(lambda: identity.is_gone(replace(me, pid=zombie, process_started_at="7")))
    os.waitpid(zombie, 0)


@pytest.mark.parametrize("error", [None, PermissionError, ProcessLookupError])
def test_a_process_that_proc_does_not_show_is_gone_only_if_there_is_none(
    monkeypatch: pytest.MonkeyPatch, error: type[OSError] | None
) -> None:
    """Mounted with hidepid, /proc shows nobody else's processes: a worker of another user would be robbed at once."""
    me = identity.this_process()
    read, asked = Path.read_text, list[int]()

    def hidden(path: Path, *args: Any, **options: Any) -> str:
        if path == Path(f"/proc/{me.pid}/stat"):
            raise FileNotFoundError(path)
        return read(path, *args, **options)

    def kill(pid: int, number: int) -> None:
        asked.append(number)
        if error is not None:
            raise error

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", hidden)
        patched.setattr(os, "kill", kill)
        assert identity.is_gone(me) == (error is ProcessLookupError)
    assert asked == [0], "which asks, and does nothing"


def test_a_restarted_worker_with_the_same_pid_and_host_does_not_hide_the_orphans(
    jobs: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F5: in a container the worker is process 1 of the same host name every time."""

    @jobs.task(retry=Backoff.none().with_max_attempts(2))
    def work() -> int:
        return 1

    job = work.enqueue()
    dead = uuid7()
    before = replace(identity.this_process(), process_started_at="1")
    jobs.store.add_worker(
        dead, before, lease_us=15_000_000, queues='["default"]', tasks="[]", slots=1, wake=None, version="0"
    )
    assert jobs.store.claim("default", [Lane("", "work")], 1, worker_id=dead, lease_us=15_000_000)
    with jobs.worker():
        assert job.wait(5) == 1


def test_a_worker_that_stood_still_does_not_rescue_its_own_runs(jobs: Duly) -> None:
    """It may have been stopped right between looking for lapsed leases and rescuing them."""

    @jobs.task
    def work() -> None: ...

    mine, others, me = work.enqueue(), work.enqueue(), uuid7()
    for worker_id in (me, uuid7()):
        assert jobs.store.claim("default", [Lane("", "work")], 1, worker_id=worker_id, lease_us=1)
    eventually(lambda: len(jobs.store.lapsed(0)) == 2)
    assert rescue_lapsed(jobs.store, lease_us=0, crash_limit=3, is_ours=lambda run: run.worker_id == me) == 1
    assert mine.refresh().state is State.RUNNING
    assert others.refresh().state is State.QUEUED
