"""Making a recurring job: once per (tenant, task, key), whoever asks and however often; when it runs first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import Duly
from duly.testing import TestClock, drain
from tests.helpers import ROOT, opened
from tests.store.raw import Raw

HOUR = timedelta(hours=1)
PROGRAM = """
import json, sys
from datetime import UTC, datetime
from duly import Duly
url, n = sys.argv[1], int(sys.argv[2])
jobs = Duly(url)
@jobs.task
def fetch(n: int = 0) -> None: ...
print("ready", flush=True)
sys.stdin.readline()
made = [fetch.recur("feed", every="1h", start_at=datetime(2020, 1, 1, tzinfo=UTC)) for _ in range(n)]
print(json.dumps([[job.id, job.created] for job in made]))
jobs.close()
"""


def in_processes(url: str, how_many: int, each: int) -> list[list[Any]]:
    """Have several processes recur the same at the same moment; returns (id, created) of every call."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url, str(each)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        )
        for _ in range(how_many)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    answers = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        out, _ = process.communicate(timeout=60)
        answers += json.loads(out)
    return answers


@pytest.mark.requirement("A1")
def test_fifty_racing_callers_make_one(jobs: Duly, raw: Raw) -> None:
    @jobs.task
    def fetch(feed: int) -> None: ...

    barrier = threading.Barrier(50)

    def make(_: int) -> tuple[str, bool]:
        barrier.wait(30)
        job = fetch.recur("feed", every="1h", args={"feed": 1})
        return job.id, job.created

    with ThreadPoolExecutor(50) as pool:
        made = list(pool.map(make, range(50)))
    assert len({job_id for job_id, _ in made}) == 1
    assert [created for _, created in made].count(True) == 1
    assert (raw.count("jobs"), raw.count("schedules"), raw.count("recurring")) == (1, 1, 1)
    assert raw.count("scheduled") + raw.count("waiting") == 1


@pytest.mark.requirement("A1", "E1")
def test_ten_processes_that_register_a_start_long_ago_cause_no_run(jobs: Duly, raw: Raw) -> None:
    ran: list[int] = []

    @jobs.task
    def fetch(n: int = 0) -> None:
        ran.append(n)

    made = in_processes(jobs.settings.url, 10, 5)
    assert len({job_id for job_id, _ in made}) == 1
    assert [created for _, created in made].count(True) == 1
    job = jobs.recurring_job("fetch", "feed")
    assert job.next_run_at is not None
    assert job.next_run_at > datetime.now(UTC)
    assert job.next_run_at.minute == job.next_run_at.second == 0  # on the grid that starts in 2020
    drain(jobs)
    assert ran == []
    assert raw.count("jobs") == 1


@pytest.mark.requirement("A1")
def test_the_same_words_again_change_nothing_but_enable(timed: Duly, clock: TestClock) -> None:
    @timed.task
    def fetch(feed: int) -> None: ...

    def recur() -> Any:
        return fetch.recur("f", every="1h", args={"feed": 1}, name="Feed 1", priority=3)

    first = recur()
    assert first.created
    before = first.refresh().to_dict()
    clock.advance("10m")
    again = recur()
    assert not again.created
    assert again.refresh().to_dict() == before
    again.disable("enough", by="ada")
    assert (again.enabled, again.disabled_reason) == (False, "enough")
    third = recur()
    assert third.enabled
    assert third.disabled_reason is None


@pytest.mark.requirement("A1")
def test_words_that_changed_are_taken_over(timed: Duly, clock: TestClock) -> None:
    @timed.task
    def fetch(feed: int) -> None: ...

    job = fetch.recur("f", every="1h", args={"feed": 1})
    drain(timed)
    clock.advance("10m")
    at = job.refresh().next_run_at
    assert fetch.recur("f", every="1h", args={"feed": 2}, description="two", priority=7).next_run_at == at
    job.refresh()
    assert (job.args, job.description, job.record.priority) == ({"feed": 2}, "two", 7)
    assert timed.get(job.id).priority == 7
    fetch.recur("f", every="25m", args={"feed": 2})
    job.refresh()
    assert job.schedule.rules == ("@every 25m",)
    assert job.next_run_at == clock.now() + timedelta(minutes=15)  # counted from the first run on, not from now
    fetch.recur("f", cron="30 4 * * *", args={"feed": 2})
    assert job.refresh().next_run_at == datetime(2100, 1, 1, 4, 30, tzinfo=UTC)


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("enabled", [True, False])
def test_a_changed_rule_never_sets_the_next_run_into_the_past(timed: Duly, clock: TestClock, enabled: bool) -> None:
    @timed.task
    def fetch() -> None: ...

    job = fetch.recur("f", cron="@hourly")
    if not enabled:
        job.disable()
    clock.advance("5h30m")  # five ticks were missed meanwhile
    fetch.recur("f", every="10m", start_at=datetime(2020, 1, 1, tzinfo=UTC), enabled=enabled)
    assert job.refresh().next_run_at == clock.now() + timedelta(minutes=10)
    assert job.enabled is enabled


@pytest.mark.requirement("A1")
def test_an_operators_edit_stays_until_the_code_says_something_else(timed: Duly, clock: TestClock) -> None:
    @timed.task
    def fetch(feed: int) -> None: ...

    job = fetch.recur("f", every="1h", args={"feed": 1})
    job.edit(every="2h", args={"feed": 9}, priority=50)
    fetch.recur("f", every="1h", args={"feed": 1})
    job.refresh()
    assert (job.schedule.rules, job.args, job.record.priority) == (("@every 2h",), {"feed": 9}, 50)
    fetch.recur("f", every="3h", args={"feed": 1})
    job.refresh()
    assert (job.schedule.rules, job.args, job.record.priority) == (("@every 3h",), {"feed": 1}, 0)


@pytest.mark.requirement("A1")
def test_first_runs(timed: Duly, clock: TestClock) -> None:
    @timed.task
    def fetch() -> None: ...

    now, later, past = clock.now(), clock.now() + timedelta(hours=5), clock.now() - timedelta(minutes=90)
    assert fetch.recur("every", every="1h").next_run_at == now
    assert fetch.recur("cron", cron="15 9 * * *").next_run_at == datetime(2100, 1, 1, 9, 15, tzinfo=UTC)
    assert fetch.recur("start", every="1h", start_at=later).next_run_at == later
    assert fetch.recur("started", every="1h", start_at=past).next_run_at == now + timedelta(minutes=30)
    assert fetch.recur("no rule").next_run_at == now
    assert fetch.recur("no rule, start", start_at=later).next_run_at == later
    assert fetch.recur("no rule, past", start_at=past).next_run_at == now
    assert fetch.recur("zone", cron="0 9 * * *", timezone="America/New_York").next_run_at == datetime(
        2100, 1, 1, 14, tzinfo=UTC
    )
    drained = drain(timed)
    assert sorted(timed.recurring_by_id(run.job.id).key for run in drained.runs) == [
        "every",
        "no rule",
        "no rule, past",
    ]


@pytest.mark.requirement("A2")
def test_after_many_runs_there_is_still_one_row(timed: Duly, clock: TestClock, raw: Raw) -> None:
    @timed.task
    def fetch() -> None: ...

    job = fetch.recur("f", every="1m")
    for _ in range(60):
        assert drain(timed).succeeded == 1
        clock.advance("1m")
    assert (raw.count("jobs"), raw.count("ended"), raw.count("scheduled")) == (1, 0, 1)
    assert raw.count("runs") == 60
    assert [run.outcome for run in job.runs()] == ["succeeded"] * 60
    assert {run.attempt for run in job.runs()} == {1}
    assert job.refresh().next_run_at == clock.now()


@pytest.mark.requirement("A1", "E9")
def test_tenant_task_and_key_tell_jobs_apart(timed: Duly, raw: Raw) -> None:
    ran: list[tuple[str, str]] = []

    @timed.task
    def fetch() -> None: ...

    @timed.task
    def push() -> None: ...

    made = [
        task.recur(key, every="1h", tenant=tenant).id
        for task in (fetch, push) for key in ("", "a", 7) for tenant in ("acme", "zenith")
    ]  # fmt: skip
    made.append(fetch.recur("a", every="1h").id)
    assert len(set(made)) == 13
    assert raw.count("schedules") == 13
    assert timed.recurring_job("fetch", 7, tenant="acme").id == made[4]
    assert [job.key for job in timed.recurring_jobs(tenant="acme", task="push")] == ["", "7", "a"]
    assert ran == []


@pytest.mark.requirement("C7")
def test_a_name_is_unique_per_tenant(timed: Duly) -> None:
    from duly import Conflict

    @timed.task
    def fetch() -> None: ...

    first = fetch.recur("a", every="1h", name="Hourly")
    other = fetch.recur("a", every="1h", name="Hourly", tenant="acme")
    assert timed.recurring_by_name("Hourly") == first
    assert timed.recurring_by_name("Hourly", tenant="acme") == other
    with pytest.raises(Conflict, match=f"the name 'Hourly' belongs to recurring job {first.id}"):
        fetch.recur("b", every="1h", name="Hourly")
    with pytest.raises(Conflict, match="belongs to"):
        fetch.recur("c", every="1h").edit(name="Hourly")
    first.edit(name="Every hour")
    fetch.recur("b", every="1h", name="Hourly")


@pytest.mark.requirement("A1")
def test_in_the_callers_transaction(jobs: Duly, raw: Raw) -> None:
    from tests.foreign.conftest import connect

    @jobs.task
    def fetch() -> None: ...

    connection = connect(jobs.settings.url)
    job = fetch.recur("f", every="1h", connection=connection)
    assert raw.count("schedules") == 0
    connection.rollback()
    assert raw.count("schedules") == 0
    job = fetch.recur("f", every="1h", connection=connection)
    connection.commit()
    connection.close()
    assert jobs.recurring_job(fetch, "f") == job


@pytest.mark.requirement("A1")
def test_two_transactions_that_make_the_same_one_after_the_other(pg_url: str, raw: Raw) -> None:
    """The second waits for the first and finds what it made, or makes it if that was rolled back."""
    import psycopg

    with opened(pg_url) as jobs:

        @jobs.task
        def fetch() -> None: ...

        for commit in (False, True):
            with psycopg.connect(pg_url) as one, psycopg.connect(pg_url) as two, ThreadPoolExecutor(1) as pool:
                first = fetch.recur(f"f{commit}", every="1h", connection=one)
                waiting = pool.submit(lambda key=f"f{commit}", two=two: fetch.recur(key, every="1h", connection=two))  # type: ignore[misc]
                with pytest.raises(TimeoutError):
                    waiting.result(0.2)
                one.commit() if commit else one.rollback()
                second = waiting.result(20)
                two.commit()
                assert (second.id == first.id, second.created) == (commit, not commit)


@pytest.mark.requirement("A1")
def test_tags_are_what_was_said_last(jobs: Duly) -> None:
    @jobs.task
    def work() -> None: ...

    def tags() -> list[str]:
        return list(jobs.get(job.id).tags)

    job = work.using(tags=["a"]).recur("k", every="1h")
    assert tags() == ["a"]
    work.using(tags=["b", "c"]).recur("k", every="1h")
    assert tags() == ["b", "c"]
    job.edit(every="2h")
    assert tags() == ["b", "c"], "an edit says nothing of them"
    work.recur("k", every="1h")
    assert tags() == []
