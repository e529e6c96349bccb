"""Keys as users know them: through tasks, workers, drain, schedules, unique keys and the caller's transactions."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from duly import Backoff, Breaker, Duly, RateLimited, State, Unique, current_job
from duly.domain.errors import ArgumentError, InvalidOption
from duly.store import ops_jobs
from duly.store.database import Hint
from duly.store.foreign import run_on
from duly.testing import TestClock, drain
from tests.clock import us
from tests.helpers import Ledger, eventually, never, opened
from tests.store import invariants
from tests.store.raw import Raw

pytestmark = pytest.mark.requirement("D6")


class Gauge:
    """How many handlers run at once, by key, at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.order: list[str] = []

    def __call__(self, key: str, seconds: float = 0.005, name: str = "") -> None:
        with self._lock:
            self._now[key] += 1
            self.most[key] = max(self.most[key], self._now[key])
            self.order.append(name)
        time.sleep(seconds)
        with self._lock:
            self._now[key] -= 1


@pytest.fixture
def gauge() -> Gauge:
    return Gauge()


@pytest.fixture
def jobs(database_url: str, raw: Raw) -> Any:
    """As ever; afterwards the tables are sound."""
    with opened(database_url) as jobs:
        yield jobs
        invariants.check(raw)


@pytest.fixture
def still(database_url: str, raw: Raw, clock: TestClock) -> Any:
    """By a clock that stands, for `drain`."""
    with opened(database_url, clock=clock) as jobs:
        yield jobs
        invariants.check(raw, clock.now_us())


def test_no_two_jobs_of_a_key_run_at_once_and_all_run(jobs: Duly, gauge: Gauge) -> None:
    @jobs.task(concurrency_key=lambda args: args.host)
    def fetch(host: str, n: int) -> None:
        gauge(host)

    stored = fetch.enqueue_many([{"host": f"h{n % 5}", "n": n} for n in range(60)])
    with jobs.worker(thread_slots=10):
        stored += [fetch.enqueue(f"h{n % 5}", n) for n in range(20)]
        for job in stored:
            job.wait(30)
    assert gauge.most == {f"h{n}": 1 for n in range(5)}


def test_so_many_of_a_key_run_as_may(jobs: Duly, gauge: Gauge) -> None:
    @jobs.task(concurrency_key=lambda args: args.host, per_key=3)
    async def fetch(host: str) -> None:
        await asyncio.to_thread(gauge, host, 0.05)

    stored = fetch.enqueue_many([{"host": "a"}] * 20)
    with jobs.worker():
        for job in stored:
            job.wait(30)
    assert gauge.most == {"a": 3}


def test_jobs_of_a_key_run_in_the_order_of_their_ranks(still: Duly, gauge: Gauge) -> None:
    @still.task(concurrency_key=lambda args: args.host)
    def fetch(host: str, name: str) -> None:
        gauge(host, 0, name)

    for name, priority in (("first", 0), ("second", 0), ("urgent", 100), ("soon", 50)):
        fetch.using(priority=priority).enqueue("a", name)
    assert len(drain(still).runs) == 4
    assert gauge.order == ["urgent", "soon", "first", "second"]


def test_drain_finds_jobs_that_stand_aside_for_their_key(still: Duly, gauge: Gauge) -> None:
    @still.task(concurrency_key=lambda args: args.host, queue="far")
    def fetch(host: str) -> None:
        gauge(host, 0)

    fetch.enqueue_many([{"host": "a"}] * 3)
    fetch.enqueue("b")
    assert len(drain(still).runs) == 4


def test_drain_until_done_waits_for_the_rate_of_a_key(still: Duly, gauge: Gauge) -> None:
    @still.task(concurrency_key=lambda args: args.host, rate_per_key="1/m")
    def fetch(host: str) -> None:
        gauge(host, 0)

    stored = fetch.enqueue_many([{"host": "a"}] * 3)
    began = still.clock.now_us()
    assert len(drain(still, until_done=True).runs) == 3
    assert still.clock.now_us() - began >= us(120)
    assert all(job.refresh().state is State.SUCCEEDED for job in stored)


def test_a_retry_lets_another_of_its_key_go_first(still: Duly, gauge: Gauge) -> None:
    @still.task(concurrency_key=lambda args: args.host, retry=Backoff.fixed(10, max_attempts=3))
    def fetch(host: str, name: str) -> None:
        gauge(host, 0, name)
        if name == "fails" and current_job().attempt < 2:
            raise ValueError

    fetch.enqueue("a", "fails")
    fetch.enqueue("a", "other")
    drain(still, until_done=True)
    assert gauge.order == ["fails", "other", "fails"]


def test_a_scheduled_job_waits_for_its_key_when_its_time_comes(still: Duly, gauge: Gauge) -> None:
    @still.task(concurrency_key=lambda args: args.host, per_key=1)
    def fetch(host: str, name: str) -> None:
        gauge(host, 0, name)

    late = fetch.using(delay=60).enqueue("a", "late")
    now = fetch.enqueue("a", "now")
    assert [run.job.id for run in drain(still).runs] == [now.id]
    still.clock.advance(61)  # type: ignore[attr-defined]
    assert [run.job.id for run in drain(still).runs] == [late.id]


@pytest.mark.parametrize("mode", ["skip", "replace", "keep_latest"])
def test_keys_and_unique_keys_go_together(still: Duly, gauge: Gauge, mode: Any) -> None:
    @still.task(concurrency_key=lambda args: args.host)
    def fetch(host: str, name: str) -> None:
        gauge(host, 0, name)

    for name in ("one", "two", "three"):
        fetch.using(unique=Unique(key="k", mode=mode)).enqueue("a", name)
    fetch.enqueue("a", "plain")
    drain(still)
    assert gauge.order == [{"skip": "one", "replace": "three", "keep_latest": "three"}[mode], "plain"]


@pytest.mark.parametrize("overlap", ["skip", "allow"])
def test_a_recurring_job_has_its_key(still: Duly, gauge: Gauge, raw: Raw, overlap: Any) -> None:
    @still.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> None:
        gauge(host, 0)

    fetch.recur("a", every="1m", args={"host": "a"}, overlap=overlap)
    ran = 0
    for _ in range(4):
        still.clock.advance(60)  # type: ignore[attr-defined]
        ran += len(drain(still).runs)
    assert ran == 4
    assert raw.one("SELECT count(*) FROM duly.jobs WHERE limit_key IS NOT NULL") >= 1
    assert not raw.rows("SELECT 1 FROM duly.parked"), "none stands aside for ever"


def test_a_tick_runs_one_of_a_key_after_the_other(jobs: Duly, gauge: Gauge) -> None:
    @jobs.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> None:
        gauge(host)

    stored = fetch.enqueue_many([{"host": host} for host in "aab" for _ in range(2)])
    ran = sum(jobs.tick(2).claimed for _ in range(3))
    assert ran == len(stored)
    assert gauge.most == {"a": 1, "b": 1}


def test_a_group_of_keys_is_shared_by_tasks_and_tenants(jobs: Duly, gauge: Gauge) -> None:
    @jobs.task(concurrency_key=lambda args: args.host, key_group="hosts")
    def fetch(host: str) -> None:
        gauge(host)

    @jobs.task(concurrency_key=lambda args: args.url, key_group="hosts")
    def crawl(url: str) -> None:
        gauge(url)

    stored = []
    for n in range(12):
        stored += [fetch.using(tenant=f"t{n % 3}").enqueue("a"), crawl.using(tenant=f"t{n % 2}").enqueue("a")]
    with jobs.worker(thread_slots=8):
        for job in stored:
            job.wait(20)
    assert gauge.most == {"a": 1}


@pytest.mark.parametrize("which", ["keys", "key"])
def test_a_rate_by_hand_for_keys_that_tasks_share_is_spent_by_all_of_them(jobs: Duly, gauge: Gauge, which: str) -> None:
    """Which tasks have these keys only workers know: they see to it that claims count."""

    @jobs.task(concurrency_key=lambda args: args.host, key_group="hosts")
    def fetch(host: str) -> None:
        gauge(host, 0, "ran")

    @jobs.task(concurrency_key=lambda args: args.host, key_group="hosts")
    def crawl(host: str) -> None:
        gauge(host, 0, "ran")

    def metered() -> bool:
        said = {each.name for each in jobs.store.gates.limits() if each.scope == "task" and each.says.meters_keys}
        return {"fetch", "crawl"} <= said

    with jobs.worker():
        crawl.enqueue("b").wait(10)
        jobs.set_limit(**{which: "hosts" if which == "keys" else "hosts/a"}, rate="1/m")  # type: ignore[arg-type]
        eventually(metered)
        gauge.order.clear()
        stored = [task.enqueue("a") for task in (fetch, crawl, fetch, crawl)]
        eventually(lambda: gauge.order)
        never(lambda: len(gauge.order) > 1, 0.5)
        jobs.unset_limit(**{which: "hosts" if which == "keys" else "hosts/a"})
        for job in stored:
            job.wait(10)


def test_the_keys_of_two_tenants_are_two(jobs: Duly) -> None:
    both = threading.Barrier(2)

    @jobs.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> None:
        both.wait(10)

    with jobs.worker(thread_slots=4):
        stored = [fetch.using(tenant=tenant).enqueue("a") for tenant in ("one", "two/2")]
        for job in stored:
            job.wait(10)


def test_a_job_without_a_key_is_bound_by_none(jobs: Duly) -> None:
    both = threading.Barrier(2)

    @jobs.task(concurrency_key=lambda args: args.host)
    def fetch(host: str | None = None) -> None:
        both.wait(10)

    with jobs.worker(thread_slots=4):
        for job in fetch.enqueue_many([{}, {"host": None}]):
            job.wait(10)


ODD = [
    "a/b",
    "a@b",
    "",
    " ",
    "'; DROP TABLE jobs; --",
    "%",
    "_",
    "ключ",
    "𝄞",
    '"',
    "\\",
    "a" * 255,
    "A",
    "é",
    "e\u0301",
    "{}",
    ":now",
]


@pytest.mark.parametrize("tenant", ["", "a/b", "a@b", "a|b", "@", "ü"])
def test_odd_keys_and_tenants_are_keys_as_any(still: Duly, tenant: str, raw: Raw) -> None:
    @still.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> None: ...

    stored = fetch.using(tenant=tenant).enqueue_many([{"host": odd} for odd in ODD for _ in range(2)])
    assert raw.one("SELECT count(DISTINCT limit_key) FROM duly.jobs") == len(ODD)
    assert len(drain(still).runs) == len(stored)


def test_tenants_that_differ_in_a_stroke_have_keys_of_their_own(still: Duly, raw: Raw) -> None:
    @still.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> None: ...

    for tenant in ("a/b", "a|b", "a", "a@b"):
        fetch.using(tenant=tenant).enqueue("x")
    assert raw.one("SELECT count(DISTINCT limit_key) FROM duly.jobs") == 4


@pytest.mark.parametrize("host", ["a" * 256, "nul\x00", "\ud800", "line\nbreak"])
def test_a_key_that_no_database_takes_is_refused_at_enqueue(lite: Duly, host: str) -> None:
    @lite.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> None: ...

    with pytest.raises((InvalidOption, ArgumentError, ValueError)):
        fetch.enqueue(host)
    assert lite.list() == []


def test_a_key_function_that_fails_says_what_it_was_given(lite: Duly) -> None:
    @lite.task(concurrency_key=lambda args: args.hots)
    def fetch(host: str, port: int = 80) -> None: ...

    with pytest.raises(ArgumentError, match=r"concurrency_key of task 'fetch' raised AttributeError.*hots.*host, port"):
        fetch.enqueue("a")
    with pytest.raises(ArgumentError, match="concurrency_key"):
        fetch.enqueue_many([{"host": "a"}])


@pytest.mark.parametrize(
    "options, match",
    [
        ({"per_key": 2}, "per_key is for jobs with keys"),
        ({"rate_per_key": "1/s"}, "rate_per_key is for jobs with keys"),
        ({"key_group": "g"}, "key_group is for jobs with keys"),
        ({"burst": 2}, "burst says how many of a rate"),
        ({"burst_per_key": 2, "concurrency_key": str}, "burst_per_key says how many"),
        ({"concurrency_key": "host"}, "must be a function"),
        ({"concurrency": 0}, "concurrency must be a whole number from 1"),
        ({"concurrency": True}, "concurrency must be a whole number"),
        ({"concurrency_key": str, "per_key": 0}, "per_key must be a whole number from 1"),
        ({"concurrency_key": str, "key_group": "a/b"}, "a/b"),
        ({"breaker": 0.5}, "breaker must be a duly.Breaker"),
        ({"rate": "often"}, "rate must be a number per time"),
    ],
)
def test_nonsense_in_a_declaration_is_refused(lite: Duly, options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidOption, match=match):
        lite.task(name="fetch", **options)(print)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"rate": 0}, "rate"),
        ({"rate": 1.1}, "rate"),
        ({"rate": True}, "rate"),
        ({"least": 0}, "least"),
        ({"window": 0}, "window"),
        ({"cooldown": -1}, "cooldown"),
        ({"cooldown": "soon"}, "cooldown"),
    ],
)
def test_nonsense_in_a_breaker_is_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidOption, match=match):
        Breaker(**options)


# -- lowering, raising, pausing while it runs ----------------------------------------------------------------------


def test_a_lower_number_for_each_key_counts_at_once(still: Duly, raw: Raw) -> None:
    @still.task(concurrency_key=lambda args: args.host, per_key=3)
    def fetch(host: str) -> None: ...

    fetch.enqueue_many([{"host": host} for host in "ab" for _ in range(5)])
    drain(still, limit=1)
    waiting = "SELECT count(*) FROM duly.waiting"
    assert raw.one(waiting) > 2
    still.set_limit(keys="fetch", concurrency=1)
    assert raw.one(waiting) == 2
    still.set_limit(key="fetch/a", concurrency=0)
    assert raw.one(waiting) == 1
    still.unset_limit(key="fetch/a")
    still.unset_limit(keys="fetch")
    assert raw.one(waiting) == 6


def test_a_deployment_with_another_number_counts_at_once(database_url: str, clock: TestClock, raw: Raw) -> None:
    def deploy(per_key: int | None) -> None:
        with opened(database_url, clock=clock) as jobs:
            options = {} if per_key is None else {"concurrency_key": lambda args: args.host, "per_key": per_key}

            @jobs.task(**options)  # type: ignore[call-overload, untyped-decorator]
            def fetch(host: str) -> None: ...

            if not raw.count("jobs"):
                fetch.enqueue_many([{"host": "a"}] * 10)
            drain(jobs, limit=1)

    seen = []
    for per_key in (3, 1, 4, None):
        deploy(per_key)
        seen.append(raw.one("SELECT count(*) FROM duly.waiting"))
        invariants.check(raw, clock.now_us())
    assert seen == [3, 1, 4, 6]


def test_a_paused_key_waits_and_the_others_go_on(jobs: Duly) -> None:
    @jobs.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> str:
        return host

    jobs.pause(key="fetch/a", reason="they asked", by="ann")
    with jobs.worker():
        held = [fetch.enqueue("a") for _ in range(3)]
        assert fetch.enqueue("b").wait(10) == "b"
        never(lambda: any(job.refresh().state is not State.QUEUED for job in held), 0.3)
        [pause] = jobs.paused()
        assert (pause.scope, pause.name, pause.by, pause.reason) == ("key", "fetch/a", "ann", "they asked")
        assert jobs.resume(key="fetch/a")
        assert [job.wait(10) for job in held] == ["a"] * 3
        assert not jobs.resume(key="fetch/a")
    assert jobs.paused() == []


def test_a_pause_of_a_key_ends_by_itself(jobs: Duly) -> None:
    @jobs.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> str:
        return host

    with jobs.worker():
        jobs.pause(key="fetch/a", duration=0.4)
        began = time.monotonic()
        assert fetch.enqueue("a").wait(10) == "a"
        assert 0.3 < time.monotonic() - began < 5
    assert jobs.paused() == []


# -- 429 -----------------------------------------------------------------------------------------------------------


def limited_once(jobs: Duly, how: str, seen: Ledger, **options: Any) -> Any:
    if how == "async":

        @jobs.task(name="fetch", **options)
        async def afetch(host: str) -> None:
            seen.write(host, "start")
            if seen.count("start", host) == 1:
                raise RateLimited(retry_after=0.5, reason="HTTP 429")

        return afetch

    @jobs.task(name="fetch", **options)
    def fetch(host: str) -> None:
        seen.write(host, "start")
        if seen.count("start", host) == 1:
            raise RateLimited(retry_after=timedelta(seconds=0.5), reason="HTTP 429")

    return fetch


@pytest.mark.parametrize("how", ["thread", "async"])
@pytest.mark.parametrize("keyed", [True, False])
def test_a_job_that_is_told_to_wait_holds_its_key_or_its_task(
    jobs: Duly, ledger: Ledger, how: str, keyed: bool
) -> None:
    options = {"concurrency_key": lambda args: args.host, "per_key": 2} if keyed else {}
    fetch = limited_once(jobs, how, ledger, **options)
    with jobs.worker():
        first = fetch.enqueue("a")
        eventually(lambda: ledger.count("start", "a"))
        eventually(lambda: first.refresh().state is State.SCHEDULED)
        second, other = fetch.enqueue("a"), fetch.enqueue("b")
        for job in (first, second, other):
            job.wait(20)
    starts = {name: [each.at for each in ledger.entries("start", name)] for name in "ab"}
    assert starts["a"][1] - starts["a"][0] >= 0.49
    assert (starts["b"][0] - starts["a"][0] < 0.4) == keyed, "another key goes on, a task without keys does not"
    assert first.refresh().attempts == 1, "the first run does not count"
    assert [run.outcome for run in first.runs] == ["snoozed", "succeeded"]


@pytest.mark.parametrize("keyed", [True, False])
def test_somebody_may_end_the_rest_that_a_job_asked_for(jobs: Duly, keyed: bool) -> None:
    @jobs.task(concurrency_key=(lambda args: args.host) if keyed else None)
    def fetch(host: str, limited: bool) -> None:
        if limited:
            raise RateLimited(retry_after="1h", reason="HTTP 429")

    held: dict[str, Any] = {"key": "fetch/a"} if keyed else {"task": "fetch"}
    with jobs.worker():
        first = fetch.enqueue("a", limited=True)
        eventually(lambda: first.refresh().state is State.SCHEDULED)
        second = fetch.enqueue("a", limited=False)
        jobs.pause(**held)
        assert jobs.resume(**held)
        never(lambda: second.refresh().state is State.SUCCEEDED, within=0.3)  # that ended the pause alone
        assert jobs.resume(**held)
        second.wait(10)
    assert not jobs.resume(**held)
    assert not any(each.blocked_until for each in jobs.limits())


def test_somebody_may_have_an_open_breaker_try_one_job_now(jobs: Duly) -> None:
    @jobs.task(
        concurrency_key=lambda args: args.host,
        breaker=Breaker(rate=0.5, least=2, cooldown="1h"),
        retry=Backoff.none(),
    )
    def fetch(host: str, fails: bool) -> None:
        if fails:
            raise ValueError(host)

    with jobs.worker():
        fetch.enqueue_many([{"host": "a", "fails": True}] * 2)
        eventually(lambda: [each for each in jobs.limits() if each.blocked_until])
        after = fetch.enqueue("a", fails=False)
        never(lambda: after.refresh().state is State.SUCCEEDED, within=0.3)
        assert jobs.resume(key="fetch/a")
        after.wait(10)
        fetch.enqueue("a", fails=False).wait(10)


def test_a_job_in_a_child_process_may_ask_for_rest(jobs: Duly, ledger: Ledger) -> None:
    from tests.limits import child

    task = jobs.task(isolation="process", concurrency_key=lambda args: args.host)(child.fetch)
    with jobs.worker(process_slots=1):
        job = task.enqueue("a", str(ledger.path))
        job.wait(30)
    assert [run.outcome for run in job.runs] == ["snoozed", "succeeded"]
    first, second = ledger.entries("start")
    assert second.at - first.at >= 0.29


# -- the caller's transaction --------------------------------------------------------------------------------------


def connect(url: str) -> Any:
    if url.startswith("postgresql"):
        return psycopg.connect(url)
    return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10)


def test_keyed_jobs_in_the_callers_transaction_come_with_its_commit(
    jobs: Duly, database_url: str, gauge: Gauge
) -> None:
    @jobs.task(concurrency_key=lambda args: args.host)
    def fetch(host: str) -> None:
        gauge(host)

    with jobs.worker():
        connection = connect(database_url)
        try:
            one = fetch.using(connection=connection).enqueue("a")
            many = fetch.using(connection=connection).enqueue_many([{"host": "a"}, {"host": "b"}])
            connection.rollback()
            assert jobs.list() == []
            kept = [fetch.using(connection=connection).enqueue("a")]
            kept += fetch.using(connection=connection).enqueue_many([{"host": "a"}, {"host": "b"}])
            connection.commit()
        finally:
            connection.close()
        for job in kept:
            job.wait(15)
    assert {job.id for job in jobs.list()}.isdisjoint({one.id, *(job.id for job in many)})
    assert gauge.most == {"a": 1, "b": 1}


def cancel(jobs: Duly, connection: Any, job_id: str) -> None:
    """Cancel in the caller's transaction."""
    run_on(connection, lambda: ops_jobs.cancel(jobs.store.dialect, job_id, "stop"), database=jobs.store.database)


def test_two_callers_with_open_transactions_hold_up_neither_each_other_nor_workers(pg_url: str, gauge: Gauge) -> None:
    """Each cancels a job of both keys, in opposite order; meanwhile other jobs of these keys run and end."""
    with opened(pg_url) as jobs:

        @jobs.task(concurrency_key=lambda args: args.host, per_key=4, rate_per_key="1000/s", burst_per_key=100)
        def fetch(host: str) -> None:
            gauge(host)

        with jobs.worker():
            fetch.enqueue("a").wait(10)
        jobs.pause(task="fetch")
        stored = {host: fetch.enqueue_many([{"host": host}] * 4) for host in "ab"}
        with jobs.worker():
            eventually(lambda: jobs.store.next_due_us() is None)
        with psycopg.connect(pg_url) as one, psycopg.connect(pg_url) as two:
            for connection in (one, two):
                connection.execute("SET statement_timeout = '5s'")
            cancel(jobs, one, stored["a"][0].id)
            cancel(jobs, two, stored["b"][0].id)
            cancel(jobs, one, stored["b"][1].id)
            cancel(jobs, two, stored["a"][1].id)
            jobs.resume(task="fetch")
            with jobs.worker():
                for host in "ab":
                    for job in stored[host][2:]:
                        job.wait(10)
                later = fetch.enqueue("a")
                later.wait(10)
                one.commit()
                two.rollback()
                jobs.store.poke(Hint("look"))  # nobody is told of a rollback; else the next poll finds them
                stored["b"][0].wait(10)
                stored["a"][1].wait(10)
        assert stored["a"][0].refresh().state is State.CANCELLED
