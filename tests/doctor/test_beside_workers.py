"""A check-up, and a repair, beside workers at work: it finds nothing that is not there, and takes nothing from them."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from duly import Backoff, Duly
from duly.doctor.finding import Severity
from duly.domain.ids import uuid7
from duly.domain.records import NewJob
from tests.doctor.look import findings, only
from tests.helpers import Ledger, eventually
from tests.store import invariants
from tests.store.raw import Raw

pytestmark = pytest.mark.requirement("C15")


def test_a_check_up_beside_busy_workers_finds_nothing_wrong(jobs: Duly, raw: Raw) -> None:
    done = threading.Semaphore(0)

    @jobs.task
    def work(n: int) -> None:
        done.release()

    @jobs.task
    def beat() -> None: ...

    beat.recur(every="20ms")
    with jobs.worker():
        for start in range(0, 300, 30):
            work.enqueue_many([{"n": n} for n in range(start, start + 30)])
            for _ in range(3):
                wrong = [each for each in jobs.doctor(fix=True) if each.fix is not None]
                assert wrong == []
        for _ in range(300):
            assert done.acquire(timeout=20)
        eventually(lambda: raw.one("SELECT count(*) FROM duly.ended") == 300, 20)
        beat_job = jobs.recurring_job("beat")
        beat_job.disable()
    invariants.check(raw)


def test_jobs_lost_under_a_worker_run_after_the_repair_and_only_once(jobs: Duly, raw: Raw, ledger: Ledger) -> None:
    @jobs.task
    def note(name: str) -> None:
        ledger.write(name)

    names = [f"job {n}" for n in range(20)]
    for name in names:
        note.enqueue(name=name)
    raw.rows("DELETE FROM duly.waiting")
    with jobs.worker():
        with ThreadPoolExecutor(4) as pool:  # four doctors at one bed
            said = [each for found in pool.map(lambda _: jobs.doctor(fix=True), range(4)) for each in found]
        assert not [each.refused for each in said if each.refused]
        eventually(lambda: len(jobs.list(state="succeeded")) == 20, 20)
    assert sorted(entry.name for entry in ledger.entries()) == sorted(names)
    invariants.check(raw)


def test_jobs_that_go_on_being_lost_under_a_worker_all_run_in_the_end(jobs: Duly, raw: Raw) -> None:
    @jobs.task(retry=Backoff.fixed("5ms", max_attempts=50))
    def work(n: int) -> None:
        if n % 3 == 0 and random.random() < 0.5:
            raise ValueError("again")

    made = {work.using(unique=f"k{n % 7}" if n % 5 == 0 else None).enqueue(n=n).id for n in range(100)}
    with jobs.worker():
        for n in range(10):
            raw.rows(f"DELETE FROM duly.{('waiting', 'scheduled', 'running')[n % 3]}")
            found = jobs.doctor(fix=True)
            assert not [each.refused for each in found if each.refused]
        eventually(lambda: jobs.doctor(fix=True) and raw.count("ended") == len(made), 30, 0.05)
    assert {job.id for job in jobs.list(limit=1000)} == made
    raw.rows("DELETE FROM duly.workers")
    invariants.check(raw)


def test_a_job_that_a_worker_claims_while_it_is_mended_stays_with_the_worker(pg: Duly, pg_url: str, raw: Raw) -> None:
    job_id = pg.store.enqueue(NewJob(uuid7(), "send", "{}")).id
    raw.rows(
        "INSERT INTO duly.ended (id, state, finished_at, token, attempt, crashes)"
        f" VALUES ('{job_id}', 'succeeded', 1, 0, 0, 0)"
    )
    with psycopg.connect(pg_url) as claim, ThreadPoolExecutor(1) as pool:
        claim.execute("DELETE FROM duly.waiting")
        claim.execute(
            "INSERT INTO duly.running (id, token, queue, tenant, task, priority, run_at, attempt, crashes, hold,"
            " worker_id, claimed_at, leased_until)"
            f" SELECT id, 1, queue, tenant, task, 0, created_at, 1, 0, 0, '{uuid7()}', created_at,"
            " created_at + 60000000 FROM duly.jobs"
        )
        mending = pool.submit(only, pg, "jobs", "twice", fix=True)
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        eventually(lambda: raw.rows(waits))
        claim.commit()
        finding = mending.result(20)
    assert finding.severity is Severity.ERROR
    assert finding.fixed == (f"{job_id} stays in running (fence 1), no longer in ended",)
    assert raw.count("running") == 1
    assert findings(pg, "jobs", "twice") == []
