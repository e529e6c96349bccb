"""What must exist from start-up: declared in code, made once, disabled when the code declares it no more."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from duly import ConfigurationError, Duly, RecurringJob
from duly.maintenance.declare import declare
from duly.testing import TestClock, drain
from tests.helpers import eventually, opened
from tests.store.raw import Raw

MODULE = "an_application"


@pytest.fixture(autouse=True)
def application(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that has been loaded, whose declarations the tests change as a new version of it would."""
    monkeypatch.setitem(sys.modules, MODULE, types.ModuleType(MODULE))


def version(app: Duly, *declarations: dict[str, Any], task: str = "renew") -> Any:
    """What the module declares in one version of the code."""

    def renew() -> None: ...

    renew.__module__ = MODULE
    made = app.task(name=task)(renew)
    for options in declarations:
        app.recurring(**options)(made)
    return made


def start(app: Duly) -> None:
    """What a worker does at its start."""
    declare(app.store, app.registry)


@pytest.mark.requirement("A9")
def test_many_workers_at_once_make_it_once(jobs: Duly, raw: Raw) -> None:
    with ExitStack() as stack:
        apps = [stack.enter_context(opened(jobs.settings.url)) for _ in range(8)]
        for app in apps:
            version(app, *({"key": key, "cron": "@daily"} for key in range(20)))
        barrier = threading.Barrier(8)

        def begin(app: Duly) -> None:
            barrier.wait(20)
            start(app)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(begin, apps))
    assert (raw.count("schedules"), raw.count("scheduled")) == (20, 20)


@pytest.mark.requirement("A9")
def test_a_worker_makes_what_is_declared_and_runs_it(jobs: Duly) -> None:
    ran: list[int] = []

    @jobs.recurring(every="1h", description="Renew subscriptions")
    def renew_websub() -> None:
        ran.append(1)

    @jobs.recurring("@daily", key="night")
    @jobs.recurring("@hourly", key="hour")
    @jobs.task(queue="slow", timeout=60)
    def report() -> None: ...

    assert jobs.recurring_jobs() == []
    with jobs.worker():
        eventually(lambda: ran)
    found = {(job.task, job.key): job for job in jobs.recurring_jobs()}
    assert found.keys() == {("renew_websub", ""), ("report", "hour"), ("report", "night")}
    job = found["report", "night"]
    assert (job.record.queue, job.record.timeout_us, job.schedule.rules) == ("slow", 60_000_000, ("@daily",))
    assert found["renew_websub", ""].description == "Renew subscriptions"


@pytest.mark.requirement("A9")
def test_starting_again_changes_nothing(timed: Duly, clock: TestClock) -> None:
    version(timed, {"cron": "@daily"}, {"key": "off", "cron": "@daily", "enabled": False})
    start(timed)
    before = [job.to_dict() for job in timed.recurring_jobs()]
    assert [each["enabled"] for each in before] == [True, False]
    clock.advance("30d")
    start(timed)
    assert [job.to_dict() for job in timed.recurring_jobs()] == before


def again(timed: Duly, clock: TestClock, *declarations: dict[str, Any]) -> RecurringJob:
    """Start another version of the code on the same database."""
    with opened(timed.settings.url, clock=clock) as app:
        version(app, *declarations)
        start(app)
    return timed.recurring_job("renew")


@pytest.mark.requirement("A9")
def test_what_disappears_from_the_code_is_disabled_and_that_is_said(
    timed: Duly, clock: TestClock, caplog: pytest.LogCaptureFixture
) -> None:
    job = again(timed, clock, {"cron": "@daily"})
    assert job.enabled
    job = again(timed, clock)
    assert (job.enabled, job.disabled_reason) == (False, f"{MODULE} no longer declares it")
    assert f"recurring job renew is disabled: {MODULE} no longer declares it" in caplog.messages
    clock.advance("3d")
    assert drain(timed).runs == ()
    caplog.clear()
    again(timed, clock)
    assert caplog.messages == []
    job = again(timed, clock, {"cron": "@daily"})
    assert (job.enabled, job.disabled_reason) == (True, None)


@pytest.mark.requirement("A9")
@pytest.mark.parametrize("changed", [False, True])
def test_what_an_operator_disabled_stays_disabled(timed: Duly, clock: TestClock, changed: bool) -> None:
    again(timed, clock, {"cron": "@daily"}).disable("for the holidays", by="ada")
    job = again(timed, clock, {"cron": "@weekly" if changed else "@daily"})
    assert (job.enabled, job.disabled_reason) == (False, "for the holidays")
    again(timed, clock)
    job = again(timed, clock, {"cron": "@daily"})
    assert (job.enabled, job.disabled_reason) == (False, "for the holidays")


@pytest.mark.requirement("A1", "A9")
def test_an_operators_edit_stays_until_the_declaration_changes(timed: Duly, clock: TestClock) -> None:
    again(timed, clock, {"cron": "@daily"}).edit(cron="@hourly")
    assert again(timed, clock, {"cron": "@daily"}).schedule.rules == ("@hourly",)
    assert again(timed, clock, {"cron": "@weekly"}).schedule.rules == ("@weekly",)


@pytest.mark.requirement("A9")
def test_other_modules_and_what_was_made_by_hand_are_left_alone(timed: Duly, clock: TestClock) -> None:
    again(timed, clock, {"cron": "@daily"})
    by_hand = version(timed, task="other").recur("mine", cron="@daily")
    with opened(timed.settings.url, clock=clock) as app:

        @app.recurring("@daily")
        def elsewhere() -> None: ...

        start(app)
    assert timed.recurring_job("renew").enabled
    assert by_hand.refresh().enabled
    again(timed, clock)
    assert not timed.recurring_job("renew").enabled
    assert by_hand.refresh().enabled
    assert timed.recurring_job("elsewhere").enabled


@pytest.mark.requirement("A9")
def test_a_tick_of_a_process_that_does_not_stay_declares_too(timed: Duly) -> None:
    ran: list[int] = []

    @timed.recurring(every="1h")
    def renew() -> None:
        ran.append(1)

    assert drain(timed).succeeded == 1
    assert ran == [1]


@pytest.mark.requirement("A9")
def test_declarations_that_cannot_be_are_refused_where_they_stand(jobs: Duly, lite: Duly) -> None:
    wrong: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (ConfigurationError, "belongs to another Duly", lambda: jobs.recurring("@daily")(version(lite))),
        (ValueError, "Did you mean 'timezone'", lambda: jobs.recurring("@daily", timzone="UTC")(version(jobs))),  # type: ignore[call-arg]
        (ValueError, "@dialy", lambda: jobs.recurring("@dialy")(version(jobs))),
    ]
    for kind, words, declare_it in wrong:
        with pytest.raises(kind, match=words):
            declare_it()
    assert jobs.registry.declarations == []


@pytest.mark.requirement("A9")
def test_a_declared_job_that_was_deleted_is_made_again(timed: Duly, clock: TestClock) -> None:
    again(timed, clock, {"every": "1h"}).delete()
    job = again(timed, clock, {"every": "1h"})
    assert job.next_run_at == clock.now()
