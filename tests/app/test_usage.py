"""Usage: sums by tenant, task, queue and period that are exact and outlive the runs; and a sink for those who meter."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from duly import Backoff, Duly, InvalidOption, Usage, UsageRecord
from duly.domain.periods import HOUR_US, begin_of, periods
from duly.testing import TestClock
from duly.worker.meter import Meter
from tests.helpers import eventually, opened
from tests.store.raw import Raw

START = datetime(2026, 3, 28, 22, 30, tzinfo=UTC)  # Berlin changes its clocks on the 29th


def insert(
    raw: Raw, at: datetime, *, tenant: str = "", task: str = "work", queue: str = "default", runs: int = 1
) -> None:
    """Count runs as if they had ended then: by the hour, as old counts are."""
    period_at = int(at.timestamp()) // 3600 * HOUR_US
    raw.rows(
        "INSERT INTO duly.rollups (period_at, period_us, tenant, queue, task, shard, runs, succeeded, ran_us)"
        f" VALUES ({period_at}, {HOUR_US}, '{tenant}', '{queue}', '{task}', 0, {runs}, {runs}, {runs * 2_000_000})"
    )


@pytest.fixture
def raw(database_url: str) -> Raw:
    return Raw(database_url)


@pytest.mark.requirement("B9")
@pytest.mark.everywhere
def test_what_ran_is_summed_by_what_is_asked_for_also_after_the_runs_were_pruned(database_url: str) -> None:
    with opened(database_url, retention_succeeded=0, retention_failed=0) as jobs:

        @jobs.task(retry=Backoff.fixed(0, max_attempts=2))
        def work(n: int) -> None:
            time.sleep(0.005)
            if n == 0:
                raise ValueError

        @jobs.task(queue="mail")
        def send() -> None: ...

        with jobs.worker():
            stored = [work.using(tenant=tenant).enqueue(n) for tenant in "ab" for n in range(3)]
            stored += [send.using(tenant="b").enqueue() for _ in range(2)]
            eventually(lambda: all(job.refresh().state.terminal for job in stored))
        before = jobs.usage()
        assert jobs.prune() == 8
        assert jobs.runs() == []
        assert jobs.usage() == before
        found = {(each.tenant, each.task): each for each in before}
        assert set(found) == {("a", "work"), ("b", "work"), ("b", "send")}
        a = found["a", "work"]
        assert (a.runs, a.succeeded, a.failed, a.retried, a.cancelled, a.crashed) == (4, 2, 2, 1, 0, 0)
        assert timedelta(milliseconds=20) <= a.ran < timedelta(seconds=5)
        assert a.queue is None
        assert {(each.queue, each.runs) for each in jobs.usage(by="queue")} == {("default", 8), ("mail", 2)}
        assert [(each.tenant, each.queue, each.runs) for each in jobs.usage(by=("tenant", "queue"), tenant="b")] == [
            ("b", "default", 4), ("b", "mail", 2),
        ]  # fmt: skip
        (total,) = jobs.usage(by=())
        assert (total.runs, total.tenant, total.task) == (10, None, None)
        assert total.ran == sum((each.ran for each in before), timedelta(0))
        (day,) = jobs.usage(by=(), period="day")
        assert (day.runs, day.ends_at - day.starts_at) != (0, timedelta(0))
        assert [each.runs for each in jobs.usage(task="send")] == [2]


@pytest.mark.requirement("E9", "B9")
def test_a_tenant_counts_none_of_anothers_runs_also_with_the_same_id(jobs: Duly) -> None:
    ran: list[str] = []
    soon = datetime.now(UTC) + timedelta(seconds=1)
    for tenant, times in (("a", 1), ("b", 3)):
        for n in range(times):
            jobs.register(tenant, f"sync {n}", soon, "1h", lambda tenant=tenant: ran.append(tenant))
    with jobs.worker():
        eventually(lambda: len(ran) == 4)
    assert sum(each.runs for each in jobs.usage(tenant="a")) == 1
    assert sum(each.runs for each in jobs.usage(tenant="b")) == 3
    assert jobs.usage(tenant="c") == jobs.usage(tenant="A") == []
    both = {(each.tenant, each.runs) for each in jobs.usage() if each.task == jobs.usage(tenant="a")[0].task}
    assert both == {("a", 1), ("b", 1)}


# -- periods ----------------------------------------------------------------------------------------------------------


def runs_by_day(found: list[Usage], pattern: str = "%d") -> dict[str, int]:
    return {each.starts_at.strftime(pattern): each.runs for each in found}


@pytest.mark.requirement("B9")
@pytest.mark.everywhere
def test_days_and_months_are_those_of_utc_or_of_a_time_zone(jobs: Duly, raw: Raw) -> None:
    for hour in range(72):
        insert(raw, START + timedelta(hours=hour))
    raw.close()
    span = {"since": START - timedelta(days=40), "until": START + timedelta(days=40), "by": ()}

    def ask(**more: object) -> list[Usage]:
        return jobs.usage(**{**span, **more})  # type: ignore[arg-type]

    assert runs_by_day(ask(period="day")) == {"28": 2, "29": 24, "30": 24, "31": 22}
    berlin = ask(period="day", timezone="Europe/Berlin")
    assert runs_by_day(berlin) == {"28": 1, "29": 23, "30": 24, "31": 24}, "the 29th had 23 hours"
    assert berlin[1].ends_at - berlin[1].starts_at == timedelta(days=1), "wall time"
    assert berlin[1].ends_at.astimezone(UTC) - berlin[1].starts_at.astimezone(UTC) == timedelta(hours=23)
    assert runs_by_day(ask(period="month"), "%m") == {"03": 72}
    assert runs_by_day(ask(period="month", timezone="Pacific/Kiritimati"), "%m") == {"03": 60, "04": 12}
    assert len(ask(period="hour")) == 72
    assert [each.runs for each in ask()] == [72]
    assert sum(each.runs for each in ask(period="day", until=START + timedelta(hours=1))) == 2


@pytest.mark.requirement("B9")
def test_bounds_are_widened_to_whole_hours_and_say_so(jobs: Duly, raw: Raw) -> None:
    for hour in range(4):
        insert(raw, START + timedelta(hours=hour), runs=10**hour)
    raw.close()
    (found,) = jobs.usage(since=START + timedelta(hours=1), until=START + timedelta(hours=1, minutes=1), by=())
    assert found.runs == 10
    assert (found.starts_at, found.ends_at) == (START.replace(hour=23, minute=0), datetime(2026, 3, 29, tzinfo=UTC))


def test_how_long_ago_begins_with_a_whole_period(database_url: str, raw: Raw) -> None:
    clock = TestClock(START)
    insert(raw, START.replace(hour=0) - timedelta(days=1))
    raw.close()
    with opened(database_url, clock=clock) as jobs:
        assert [each.runs for each in jobs.usage(since="1d", period="day")] == [1]
        assert jobs.usage(since="1d") == []
        assert [each.starts_at.day for each in jobs.usage(since="1d", period="month")] == [1]


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Australia/Lord_Howe", "Asia/Kathmandu"])
def test_a_zone_that_is_not_whole_hours_from_utc_is_refused(lite: Duly, zone: str) -> None:
    for period in ("hour", "day", "month"):
        with pytest.raises(InvalidOption, match="whole hours"):
            lite.usage(since=START, until=START + timedelta(days=300), period=period, timezone=zone)


def test_a_day_whose_midnight_is_left_out_begins_after_it() -> None:
    from zoneinfo import ZoneInfo

    zone = ZoneInfo("America/Sao_Paulo")  # 2018-11-04 began at one o'clock
    noon = int(datetime(2018, 11, 4, 15, tzinfo=UTC).timestamp()) * 1_000_000
    begin = begin_of("day", noon, zone)
    assert datetime.fromtimestamp(begin / 1e6, zone).strftime("%d %H:%M") == "04 01:00"
    days = periods("day", begin, begin + 3 * 24 * HOUR_US, zone)
    assert [b - a for a, b in pairwise(days)] == [23 * HOUR_US, 24 * HOUR_US, 24 * HOUR_US]


@pytest.mark.parametrize(
    "ask",
    [
        lambda jobs: jobs.usage(by="tennant"),
        lambda jobs: jobs.usage(period="week"),
        lambda jobs: jobs.usage(since=datetime(2026, 1, 1)),  # noqa: DTZ001
        lambda jobs: jobs.usage(since=START, until=START),
        lambda jobs: jobs.usage(since="3000d", period="hour"),
        lambda jobs: jobs.usage(since="soon"),
    ],
)
def test_what_makes_no_sense_is_refused(lite: Duly, ask: Callable[[Duly], object]) -> None:
    with pytest.raises(InvalidOption):
        ask(lite)


# -- the sink ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("B9")
def test_the_sink_is_told_of_every_run_after_it_was_settled(jobs: Duly) -> None:
    told: list[UsageRecord] = []
    unsettled: list[str] = []

    @jobs.on_usage
    def meter(records: list[UsageRecord]) -> None:
        told.extend(records)
        unsettled.extend(each.job_id for each in records if jobs.store.runs_of(each.job_id) == [])

    @jobs.task(retry=Backoff.fixed(0, max_attempts=2))
    def work(n: int) -> None:
        time.sleep(0.01)
        if n == 0:
            raise ValueError

    with jobs.worker(["default", "mail"]) as worker:
        stored = [work.using(tenant="acme", queue="mail").enqueue(n) for n in range(30)]
        plain = work.enqueue(5)
        recurring = work.recur("r", every="1h", args={"n": 1})
        eventually(lambda: all(job.refresh().state.terminal for job in [*stored, plain]))
        eventually(lambda: recurring.refresh().last_run_at)
    assert len(told) == 33
    assert unsettled == []
    assert len({(each.job_id, each.token) for each in told}) == 33
    for record in told:
        (run,) = [run for run in jobs.get(record.job_id).runs if run.token == record.token]
        assert (record.attempt, record.outcome, record.duration) == (run.attempt, run.outcome, run.duration)
        assert abs(record.started_at - run.started_at) < timedelta(seconds=2)
    assert {(each.tenant, each.queue, each.task) for each in told} == {
        ("acme", "mail", "work"),
        ("", "default", "work"),
    }
    assert sum(each.runs for each in jobs.usage()) == 33
    assert worker.meter is not None
    assert (worker.meter.delivered, worker.meter.failed, worker.meter.dropped) == (33, 0, 0)


def test_a_run_whose_mirror_failed_for_good_is_told_as_it_was_recorded(jobs: Duly, raw: Raw) -> None:
    told: list[UsageRecord] = []
    jobs.on_usage(told.extend)

    @jobs.task
    def work() -> None:
        if raw.count("mirrors") == 0:
            raw.rows("INSERT INTO duly.mirrors (task, sql) VALUES ('work', 'UPDATE there_is_no_such_table SET a = 1')")

    job = work.recur("k", every="1h")
    with jobs.worker():
        eventually(lambda: jobs.get(job.id).runs)
    raw.close()
    assert [each.outcome for each in told] == [run.outcome for run in jobs.get(job.id).runs] == ["failed"]


def test_an_async_sink_is_awaited(jobs: Duly) -> None:
    told: list[UsageRecord] = []

    @jobs.on_usage
    async def meter(records: list[UsageRecord]) -> None:
        told.extend(records)

    @jobs.task
    async def work() -> None: ...

    with jobs.worker():
        work.enqueue().wait(5)
    assert len(told) == 1


def test_without_a_sink_there_is_no_thread_and_nothing_to_do(jobs: Duly) -> None:
    @jobs.task
    def work() -> None: ...

    with jobs.worker() as worker:
        work.enqueue().wait(5)
        assert worker.meter is None
        assert worker._finisher.report is None
        assert "duly-usage" not in {thread.name for thread in threading.enumerate()}


def test_what_a_sink_raises_is_logged_and_counted_and_harms_nobody(
    jobs: Duly, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[UsageRecord] = []

    @jobs.on_usage
    def broken(records: list[UsageRecord]) -> None:
        raise SystemExit

    @jobs.on_usage
    def whole(records: list[UsageRecord]) -> None:
        told.extend(records)

    @jobs.task
    def work() -> None: ...

    with jobs.worker() as worker:
        for _ in range(3):
            work.enqueue().wait(5)
    assert len(told) == 3, "the other sink is told all the same"
    assert worker.meter is not None
    assert (worker.meter.failed, worker.meter.delivered) == (3, 0)
    assert "are not given to it again" in caplog.text


def test_a_slow_sink_delays_no_job_and_is_waited_for_at_the_end(jobs: Duly) -> None:
    told: list[UsageRecord] = []
    go = threading.Event()

    @jobs.on_usage
    def slow(records: list[UsageRecord]) -> None:
        go.wait(10)
        told.extend(records)

    @jobs.task
    def work() -> None: ...

    with jobs.worker():
        for _ in range(20):
            work.enqueue().wait(5)
        assert told == []
        go.set()
    assert len(told) == 20


def test_a_sink_that_hangs_does_not_keep_the_worker_from_stopping(jobs: Duly, caplog: pytest.LogCaptureFixture) -> None:
    go = threading.Event()

    @jobs.on_usage
    def hangs(records: list[UsageRecord]) -> None:
        go.wait(30)

    @jobs.task
    def work() -> None: ...

    worker = jobs.worker()
    worker.start()
    for _ in range(3):
        work.enqueue().wait(5)
    began = time.monotonic()
    worker.stop(grace=0.2)
    assert time.monotonic() - began < 5
    assert "busy when the worker stopped" in caplog.text
    go.set()


def test_what_a_sink_is_too_slow_for_is_dropped_and_counted(lite: Duly, caplog: pytest.LogCaptureFixture) -> None:
    from tests.worker.concluded import concluded

    caplog.set_level(logging.WARNING)
    told: list[UsageRecord] = []
    meter = Meter([told.extend], lambda: 1_000_000_000, most=25)
    for _ in range(4):
        meter.report([concluded() for _ in range(10)])
    assert meter.dropped == 20
    assert meter.step() == 0.0
    assert (len(told), meter.delivered, meter.step()) == (20, 20, 1.0)
    meter.report([concluded()])
    meter.report([concluded(outcome="released", ran_us=-1)])
    meter.step()
    assert len(told) == 21, "a job that was given back before it began has not run"
    assert caplog.text.count("dropping them") == 1
    assert caplog.text.count("20 records were dropped") == 1
