"""What a run leaves behind: bookkeeping after success and failure, and the next run, by rule or by what is returned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import Backoff, Cancel, Duly, Retry, Snooze, State, current_job
from duly.testing import TestClock, drain
from tests.helpers import eventually, opened
from tests.recurring import process_tasks
from tests.store.raw import Raw

HOUR = timedelta(hours=1)


@pytest.mark.requirement("A6")
def test_after_a_success(timed: Duly, clock: TestClock) -> None:
    bad: list[bool] = [True]

    @timed.task(retry=Backoff.fixed(60))
    def fetch() -> str:
        if bad:
            bad.pop()
            raise ValueError("oops")
        return "ok"

    job = fetch.recur("f", every="1h")
    first = clock.now()
    drain(timed)
    clock.advance("60s")
    drain(timed)
    job.refresh()
    assert (job.running, job.enabled, job.last_outcome, job.last_error) == (False, True, "succeeded", None)
    assert (job.consecutive_failures, job.last_run_at) == (0, first + timedelta(seconds=60))
    assert job.next_run_at == first + HOUR  # the rule goes by its ticks, whatever a failure delayed
    assert [(run.outcome, run.attempt) for run in job.runs()] == [("failed", 1), ("succeeded", 2)]


@pytest.mark.requirement("A6")
def test_after_a_failure_it_backs_off(timed: Duly, clock: TestClock, raw: Raw) -> None:
    @timed.task(retry=Backoff.exponential(base=10, cap=40, jitter=0))
    def fetch() -> None:
        raise ValueError("the feed is down")

    job = fetch.recur("f", every="1h")
    waited = []
    for n in range(1, 9):
        failed_at = clock.now()
        assert drain(timed).runs[0].outcome == "retried"
        job.refresh()
        assert (job.running, job.enabled, job.last_run_at) == (False, True, failed_at)
        assert (job.consecutive_failures, job.last_outcome) == (n, "failed")
        assert job.last_error == "ValueError: the feed is down"
        assert job.next_run_at is not None
        waited.append((job.next_run_at - failed_at).total_seconds())
        clock.move_to(job.next_run_at)
    assert waited == [10, 20, 40, 40, 40, 40, 40, 40]  # on and on: it never ends as failed
    assert raw.count("ended") == 0
    assert timed.get(job.id).state is State.SCHEDULED


@pytest.mark.requirement("A6")
def test_after_a_failure_it_advances_to_the_next_tick(timed: Duly, clock: TestClock) -> None:
    failures: list[str] = []

    @timed.task(retry=Backoff.none())
    def fetch() -> None:
        raise ValueError("oops")

    timed.on_failure(lambda job, error: failures.append(str(error)))
    job = fetch.recur("f", cron="@hourly")
    for n in range(1, 9):
        clock.advance("1h")
        drain(timed)
        job.refresh()
        assert (job.consecutive_failures, job.next_run_at) == (n, clock.now() + HOUR)
        assert (job.last_error, job.enabled) == ("ValueError: oops", True)
    assert failures == ["oops"] * 8


@pytest.mark.requirement("A6")
def test_what_follows_a_failure_by_default(timed: Duly) -> None:
    @timed.task
    def fetch() -> None: ...

    assert fetch.recur("every", every="1h").record.failure == "backoff"
    assert fetch.recur("none").record.failure == "backoff"
    assert fetch.recur("cron", cron="@hourly").record.failure == "advance"
    assert fetch.recur("chosen", cron="@hourly", failure="backoff").record.failure == "backoff"
    job = timed.register("acme", "job", datetime(2100, 1, 1, tzinfo=UTC), 60, lambda: None)
    assert job.record.failure == "advance"


@pytest.mark.requirement("A6")
def test_attempts_that_are_used_up_end_no_recurring_job(timed: Duly, clock: TestClock) -> None:
    @timed.task(retry=Backoff.fixed(60, max_attempts=2))
    def fetch() -> None:
        raise ValueError("oops")

    job = fetch.recur("f", every="1h")
    for n in range(1, 6):
        assert len(drain(timed).runs) == 1
        job.refresh()
        assert (job.enabled, job.consecutive_failures) == (True, n)
        assert job.next_run_at is not None
        assert job.next_run_at > clock.now()
        clock.move_to(job.next_run_at)


@pytest.mark.requirement("A7")
@pytest.mark.parametrize("rule", [{"every": "1h"}, {"cron": "@daily"}, {}])
def test_the_handler_decides_by_what_it_returns(timed: Duly, clock: TestClock, raw: Raw, rule: dict[str, Any]) -> None:
    answers: list[object] = [
        timedelta(minutes=40),
        clock.now() + timedelta(hours=7),
        datetime(2100, 1, 1, 12, tzinfo=UTC),
        timedelta(0),
        timedelta(minutes=5),
        datetime(2001, 1, 1, tzinfo=UTC),  # in the past: at once
        timedelta(minutes=1),
    ]

    @timed.task
    def fetch() -> Any:
        return answers.pop(0)

    job = fetch.recur("f", **rule)
    if "cron" in rule:
        job.run_now()
    start = clock.now()
    drain(timed)
    assert job.refresh().next_run_at == start + timedelta(minutes=40)
    clock.advance("40m")
    drain(timed)
    assert job.refresh().next_run_at == start + timedelta(hours=7)
    clock.move_to(start + timedelta(hours=7))
    drain(timed)
    assert job.refresh().next_run_at == start + timedelta(hours=12)
    clock.move_to(start + timedelta(hours=12))
    drain(timed)  # twice: the first says at once
    assert len(answers) == 2
    assert job.refresh().next_run_at == clock.now() + timedelta(minutes=5)
    clock.advance("5m")
    drain(timed)
    assert answers == []
    assert job.refresh().next_run_at == clock.now() + timedelta(minutes=1)
    assert (job.consecutive_failures, job.last_error) == (0, None)
    assert raw.rows("SELECT result FROM duly.runs WHERE result IS NOT NULL") == []


@pytest.mark.requirement("A7")
@pytest.mark.parametrize(
    "answer, words",
    [
        (datetime(2100, 1, 1, 13), "the next run that the handler returned"),  # noqa: DTZ001
        (timedelta(seconds=-1), "negative"),
    ],
)
def test_an_answer_that_names_no_moment_is_a_failed_run(
    timed: Duly, clock: TestClock, answer: object, words: str
) -> None:
    @timed.task(retry=Backoff.fixed(60))
    def fetch() -> Any:
        return answer

    job = fetch.recur("f", every="1h")
    drain(timed)
    job.refresh()
    assert job.last_outcome == "failed"
    assert job.last_error is not None
    assert "InvalidOption: " in job.last_error
    assert words in job.last_error
    assert (job.enabled, job.next_run_at) == (True, clock.now() + timedelta(seconds=60))


@pytest.mark.requirement("A7")
def test_without_a_rule_a_handler_that_says_nothing_ends_it_and_that_is_said(timed: Duly, clock: TestClock) -> None:
    answers: list[object] = [timedelta(minutes=1), None]

    @timed.task
    def fetch() -> Any:
        return answers.pop(0)

    job = fetch.recur("f")
    drain(timed)
    clock.advance("1m")
    drain(timed)
    job.refresh()
    assert (job.enabled, job.next_run_at, job.last_outcome) == (False, None, "succeeded")
    assert job.disabled_reason == "its handler named no next run, and it has no rule"
    answers.append(timedelta(minutes=3))
    assert job.enable() == clock.now()
    drain(timed)
    assert job.refresh().next_run_at == clock.now() + timedelta(minutes=3)


@pytest.mark.requirement("A6")
def test_without_a_rule_a_failure_backs_off(timed: Duly, clock: TestClock) -> None:
    @timed.task(retry=Backoff.fixed(90))
    def fetch() -> None:
        raise ValueError("oops")

    job = fetch.recur("f", failure="advance")
    drain(timed)
    assert job.refresh().next_run_at == clock.now() + timedelta(seconds=90)
    assert job.enabled


@pytest.mark.requirement("A7")
def test_a_plain_job_that_returns_a_duration_has_it_as_its_result(timed: Duly) -> None:
    @timed.task
    def measure() -> timedelta:
        return timedelta(minutes=5)

    job = measure.enqueue()
    drain(timed)
    assert timed.get(job.id).state is State.SUCCEEDED
    assert job.result() == timedelta(minutes=5)


@pytest.mark.requirement("A7")
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_the_tick_is_known_to_the_handler(timed: Duly, clock: TestClock, kind: str) -> None:
    seen: list[tuple[datetime | None, datetime]] = []

    def note() -> None:
        seen.append((current_job().tick, current_job().run_at))
        assert current_job().recurring

    @timed.task
    def plain() -> None:
        note()

    @timed.task
    async def coroutine() -> None:
        note()

    task = plain if kind == "def" else coroutine
    job = task.recur("f", cron="@hourly")
    clock.advance("1h")
    drain(timed)
    clock.advance("3h10m")  # three ticks late: one run, for the last of them
    drain(timed)
    job.run_now()
    drain(timed)
    start = datetime(2100, 1, 1, tzinfo=UTC)
    assert [tick for tick, _ in seen] == [start + HOUR, start + 4 * HOUR, clock.now()]
    assert job.refresh().next_run_at == start + 5 * HOUR


@pytest.fixture
def app(database_url: str, raw: Raw) -> Iterator[Duly]:
    """A `Duly` that knows the tasks of `process_tasks`, which children find there."""
    with opened(database_url) as jobs:
        for task in process_tasks.jobs.registry:
            jobs.registry.add(task)
        yield jobs


@pytest.mark.requirement("A7")
def test_in_a_child_process_too(app: Duly, raw: Raw) -> None:
    start = datetime.now(UTC) - timedelta(days=1)
    decides = app["decides"].recur("a", args={"minutes": 40})
    ticks = app["tells_tick"].recur("b", every="1s", start_at=start)
    naive = app["naive"].recur("c")
    with app.worker(process_slots=2):
        eventually(lambda: decides.refresh().last_outcome and naive.refresh().last_outcome, 20)
        eventually(lambda: ticks.refresh().last_outcome, 20)
        ticks.disable()
    at, last = decides.next_run_at, decides.last_run_at
    assert at is not None
    assert last is not None
    assert timedelta(minutes=39) < at - last <= timedelta(minutes=40, seconds=1)
    told = json.loads(raw.one(f"SELECT result FROM duly.runs WHERE job_id = '{ticks.id}' ORDER BY token"))
    assert (datetime.fromisoformat(told) - start) % timedelta(seconds=1) == timedelta(0)
    assert naive.last_outcome == "failed"
    assert "the next run that the handler returned" in str(naive.last_error)


@pytest.mark.requirement("A6")
def test_snooze_keeps_the_tick(timed: Duly, clock: TestClock) -> None:
    seen: list[datetime | None] = []

    @timed.task
    def fetch() -> None:
        seen.append(current_job().tick)
        if len(seen) < 3:
            raise Snooze(timedelta(minutes=2))

    job = fetch.recur("f", cron="@hourly")
    clock.advance("1h")
    tick = clock.now()
    for n in range(3):
        drain(timed)
        job.refresh()
        assert job.consecutive_failures == 0
        assert job.next_run_at == (clock.now() + timedelta(minutes=2) if n < 2 else tick + HOUR)
        clock.advance("2m")
    assert seen == [tick, tick, tick]
    assert [run.attempt for run in job.runs()] == [1, 1, 1]
    assert [run.outcome for run in job.runs()] == ["snoozed", "snoozed", "succeeded"]


def test_a_handler_that_raises_cancel_disables_it_with_the_reason(timed: Duly, clock: TestClock) -> None:
    @timed.task
    def fetch() -> None:
        raise Cancel("410 Gone")

    job = fetch.recur("f", every="1h")
    drain(timed)
    job.refresh()
    assert (job.enabled, job.last_outcome, job.consecutive_failures) == (False, "cancelled", 0)
    assert job.disabled_reason == "its handler cancelled it: 410 Gone"
    assert (job.record.disabled_by, job.record.disabled_at) == ("duly", clock.now_us())


@pytest.mark.requirement("A6")
def test_a_handler_that_asks_for_a_retry_says_when(timed: Duly, clock: TestClock) -> None:
    @timed.task
    def fetch() -> None:
        raise Retry(after=timedelta(minutes=7), reason="429")

    job = fetch.recur("f", every="1h")
    drain(timed)
    job.refresh()
    assert (job.consecutive_failures, job.next_run_at) == (1, clock.now() + timedelta(minutes=7))


@pytest.mark.requirement("E6")
def test_it_does_not_drift_however_long_its_runs_take(timed: Duly, clock: TestClock) -> None:
    started: list[datetime] = []

    @timed.task
    def fetch() -> None:
        started.append(clock.now())
        clock.advance("7m13s")

    job = fetch.recur("f", every="10m", start_at=clock.now() + timedelta(minutes=3))
    for _ in range(5):
        at = job.refresh().next_run_at
        assert at is not None
        clock.move_to(at)
        drain(timed)
    start = datetime(2100, 1, 1, 0, 3, tzinfo=UTC)
    assert started == [start + n * timedelta(minutes=10) for n in range(5)]


@pytest.mark.requirement("A6")
def test_pause_after_disables_and_announces(timed: Duly, clock: TestClock, caplog: pytest.LogCaptureFixture) -> None:
    @timed.task(retry=Backoff.fixed(60))
    def fetch() -> None:
        raise ValueError("oops")

    job = fetch.recur("f", every="1h", pause_after=3)
    for n in range(1, 4):
        assert job.enabled
        drain(timed)
        job.refresh()
        assert job.consecutive_failures == n
        clock.advance("60s")
    assert not job.enabled
    assert job.disabled_reason == "3 failures in a row; the last: ValueError: oops"
    assert any(f"recurring job {job.id} (fetch) is disabled from now on" in text for text in caplog.messages)
    clock.advance("1d")
    assert drain(timed).runs == ()
    job.enable()
    assert job.consecutive_failures == 0
    drain(timed)
    assert (job.refresh().enabled, job.consecutive_failures) == (True, 1)
