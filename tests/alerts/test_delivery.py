"""Delivery: once when an alert starts and once when it ends, from whichever process, also when one dies in it."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from duly import Duly
from duly.alerts import deliver
from duly.store import ops_alerts
from duly.testing import TestClock
from tests.alerts.watching import OFF, Told, active, watching
from tests.helpers import Ledger, WorkerProcess, eventually, never, opened

LOOKS = {**OFF, "depth": 5, "interval": 0.2, "clear_after": 0}


class Looking(WorkerProcess):
    """A process that looks for alerts."""

    program = "tests.alerts.program"


def looking(url: str, ledger: Ledger, **options: Any) -> Looking:
    """Start one."""
    return Looking(url, ledger, **{"alerts": LOOKS, **options})


def flood(jobs: Duly, n: int = 6) -> list[str]:
    """Have more jobs wait than is well, that nobody takes."""

    @jobs.task(queue="mail")
    def send() -> None: ...

    return [send.enqueue().id for _ in range(n)]


# -- several processes ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C13")
def test_of_several_processes_one_tells_and_only_once(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    with ExitStack() as stack:
        processes = [looking(database_url, ledger) for _ in range(4)]
        for each in processes:
            stack.callback(each.close)
        for each in processes:
            each.ready()
        for _ in range(2):  # it starts, ends, and starts again
            ids = flood(jobs)
            eventually(lambda: active(jobs) == ["depth queue mail"], within=15)
            jobs.cancel_many(ids)
            eventually(lambda: not active(jobs), within=15)
        eventually(lambda: len(ledger.entries()) >= 4, within=15)
        never(lambda: len(ledger.entries()) > 4, 1.0)
    assert [entry.event for entry in ledger.entries()] == ["started", "ended"] * 2
    assert len({entry.name for entry in ledger.entries()}) == 4  # each with an id of its own
    for alert in jobs.alerts(all=True):
        told = Counter((each.channel, each.event) for each in jobs.alerts.told(alert.id) if each.done_at)
        assert told == {(channel, event): 1 for channel in ("log", "callback") for event in ("started", "ended")}


@pytest.mark.requirement("C13")
def test_when_the_one_who_looks_dies_another_goes_on(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    flood(jobs)
    doomed = looking(database_url, ledger, fault="die looking")
    try:
        doomed.ready()
        eventually(lambda: doomed.process.poll() is not None, within=15)
        assert ledger.count("died") == 1
        assert active(jobs) == []
        heir = looking(database_url, ledger)
        try:
            heir.ready()
            eventually(lambda: ledger.count("started") == 1, within=15)
            never(lambda: ledger.count("started") > 1, 0.6)
        finally:
            heir.close()
    finally:
        doomed.close()


@pytest.mark.requirement("C13")
def test_when_the_one_who_tells_dies_another_tells_with_the_same_id(
    jobs: Duly, database_url: str, ledger: Ledger
) -> None:
    flood(jobs)
    doomed = looking(database_url, ledger, fault="die telling", lease=0.5)
    try:
        doomed.ready()
        eventually(lambda: doomed.process.poll() is not None, within=15)
        assert ledger.count("started") == 1
        heir = looking(database_url, ledger, lease=0.5)
        try:
            heir.ready()
            eventually(lambda: ledger.count("started") == 2, within=15)
            never(lambda: ledger.count("started") > 2, 1.0)
        finally:
            heir.close()
    finally:
        doomed.close()
    assert len({entry.name for entry in ledger.entries("started")}) == 1  # so that a repeat can be told from news


@pytest.mark.requirement("C13")
@pytest.mark.everywhere
def test_one_who_stood_still_in_the_middle_writes_nothing(database_url: str) -> None:
    """Both look, one at a time; the first comes back when the second has already found that all is well again."""
    with opened(database_url) as slow, opened(database_url) as quick:
        slow.alerts.configure(**LOOKS)
        quick.alerts.configure(**LOOKS)
        ids = flood(slow)
        evaluator = slow.alerts.evaluator()
        real = evaluator._look
        looked, go_on = threading.Event(), threading.Event()

        def stand_still(settings: Any) -> Any:
            look = real(settings)
            looked.set()
            assert go_on.wait(20)
            return look

        evaluator._look = stand_still  # type: ignore[method-assign]
        answers: list[bool] = []
        thread = threading.Thread(target=lambda: answers.append(evaluator.evaluate(now_please=True)))
        thread.start()
        assert looked.wait(10)
        quick.cancel_many(ids)
        eventually(lambda: quick.alerts.evaluator().evaluate(), within=5)  # the turn is free after the interval
        go_on.set()
        thread.join()
        assert answers == [False]
        assert quick.alerts(all=True) == []


def test_only_one_of_many_gets_the_turn(jobs: Duly) -> None:
    turns = [jobs.store.run(lambda: ops_alerts.take_turn("me", 60_000_000)) for _ in range(5)]
    assert turns == [1, None, None, None, None]
    assert jobs.store.run(lambda: ops_alerts.take_turn("me", 60_000_000, now_please=True)) == 2


# -- channels ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C13")
def test_the_log_is_told_with_the_alert_as_data(lite: Duly, caplog: pytest.LogCaptureFixture) -> None:
    lite.alerts.configure(**LOOKS)
    ids = flood(lite)
    with caplog.at_level(logging.INFO, "duly.alerts"):
        lite.alerts.check()
        lite.cancel_many(ids)
        lite.alerts.check()
    started, ended = [record for record in caplog.records if record.name == "duly.alerts"]
    assert (started.levelname, started.getMessage()) == ("WARNING", "alert: 6 jobs wait in queue mail (depth)")
    assert ended.levelname == "INFO"
    assert started.duly_alert["alert"]["rule"] == "depth"  # type: ignore[attr-defined]
    assert ended.duly_alert["event"] == "ended"  # type: ignore[attr-defined]


@pytest.mark.requirement("C13")
def test_callbacks_get_the_alert_also_coroutines_and_one_that_raises_keeps_nobody_else_from_it(jobs: Duly) -> None:
    seen: list[str] = []

    @jobs.on_alert
    def bad(event: object) -> None:
        raise ValueError("no")

    @jobs.on_alert
    async def good(event: object) -> None:
        seen.append(str(event))

    told = Told(jobs)
    jobs.alerts.configure(**LOOKS)
    flood(jobs)
    jobs.alerts.check()
    jobs.alerts.check()
    [event] = told.events
    assert seen == [str(event)]
    assert (event.event, event.rule, event.queue, event.value, event.threshold) == ("started", "depth", "mail", 6, 5)
    assert event.ended_at is None
    assert event.to_dict()["alert"]["message"] == "6 jobs wait in queue mail"  # type: ignore[index]


def test_an_end_is_not_told_before_its_start(jobs: Duly) -> None:
    jobs.alerts.configure(**LOOKS)
    ids = flood(jobs)
    jobs.alerts.evaluator().evaluate(now_please=True)
    jobs.cancel_many(ids)
    jobs.alerts.evaluator().evaluate(now_please=True)
    taken = [jobs.store.run(lambda: ops_alerts.take_notice("callback", 60_000_000)) for _ in range(2)]
    assert taken[0] is not None
    assert taken[0].event == "started"
    assert taken[1] is None  # the start is being told
    started = taken[0].id
    jobs.store.run(lambda: ops_alerts.notice_done(started))
    last = jobs.store.run(lambda: ops_alerts.take_notice("callback", 60_000_000))
    assert last is not None
    assert last.event == "ended"


def test_notices_that_nobody_serves_are_dropped_after_an_hour_and_old_alerts_forgotten(database_url: str) -> None:
    clock = TestClock()
    with opened(database_url, clock=clock) as jobs:
        jobs.alerts.configure(**LOOKS, keep="1d")
        ids = flood(jobs)
        [alert] = jobs.alerts.check()
        jobs.cancel_many(ids)
        jobs.alerts.check()
        assert {each.channel for each in jobs.alerts.told(alert.id) if not each.done_at} == {"webhook", "callback"}
        clock.advance(timedelta(hours=1, seconds=1))
        jobs.alerts.check()
        assert [each.channel for each in jobs.alerts.told(alert.id) if not each.done_at] == []
        assert "no process served" in str([each.error for each in jobs.alerts.told(alert.id)])
        clock.advance(timedelta(days=1))
        assert len(jobs.alerts(all=True)) == 1
        jobs.alerts.check()
        assert jobs.alerts(all=True) == []
        assert jobs.alerts.told(alert.id) == []


def test_a_worker_delivers_what_a_process_before_it_found(jobs: Duly) -> None:
    told = Told(jobs)
    jobs.alerts.configure(**{**LOOKS, "interval": "1h"})
    flood(jobs)
    jobs.alerts.evaluator().evaluate(now_please=True)
    assert told.events == []
    with watching(jobs, ["default"], depth=5):
        eventually(lambda: told.words == ["started depth queue mail"])


def test_alerts_that_are_switched_off_are_not_looked_for(jobs: Duly) -> None:
    jobs.alerts.configure(**LOOKS)
    jobs.alerts.configure(enabled=False)
    flood(jobs)
    jobs.alerts.evaluator().step()
    with jobs.worker(["default"]) as worker:
        assert worker._telling.alerts is None
    assert jobs.alerts(all=True) == []


def test_a_tick_looks_too(jobs: Duly) -> None:
    jobs.alerts.configure(**LOOKS)
    flood(jobs)
    jobs.tick(1, queues=["default"])
    assert active(jobs) == ["depth queue mail"]


def test_leases_of_notices_are_longer_than_a_webhook_may_take() -> None:
    assert deliver.LEASE_US > 30_000_000
    assert sum(min(deliver.LONGEST_PAUSE, deliver.FIRST_PAUSE * 2**n) for n in range(deliver.TRIES - 1)) > 1_800
