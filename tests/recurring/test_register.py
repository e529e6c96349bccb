"""Functions registered at run time, for one tenant's job each; starting and stopping what runs them."""

from __future__ import annotations

import functools
import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from duly import AlreadyRegistered, Duly, InvalidOption, NotRegistered, RecurringJobNotFound, WorkerError, current_job
from duly.testing import TestClock, drain
from tests.helpers import eventually, never, opened
from tests.store.raw import Raw

PAST = datetime(2020, 1, 1, tzinfo=UTC)
YEARLY = timedelta(days=365)


def soon(seconds: float = 1.0) -> datetime:
    """Not so soon that it has passed before the database hears of it: the first run would be an interval later."""
    return datetime.now(UTC) + timedelta(seconds=seconds)


@pytest.mark.requirement("E1")
def test_a_registered_function_runs_at_its_times(timed: Duly, clock: TestClock) -> None:
    ran: list[datetime] = []
    start = clock.now() + timedelta(minutes=5)
    job = timed.register("acme", "sync", start, timedelta(minutes=10), lambda: ran.append(clock.now()))
    assert (job.tenant, job.key, job.next_run_at) == ("acme", "sync", start)
    for _ in range(7):
        clock.advance("5m")
        drain(timed)
    assert ran == [start, start + timedelta(minutes=10), start + timedelta(minutes=20), start + timedelta(minutes=30)]


@pytest.mark.requirement("E1")
@pytest.mark.parametrize("every", [600, 600.0, "10m", timedelta(minutes=10)])
def test_an_interval_may_be_written_in_many_ways(timed: Duly, clock: TestClock, every: Any) -> None:
    job = timed.register("acme", "sync", clock.now() - timedelta(minutes=4), every, lambda: None)
    assert job.next_run_at == clock.now() + timedelta(minutes=6)


@pytest.mark.requirement("E1")
def test_twice_in_one_process_is_an_error_and_so_is_unregistering_what_is_unknown(timed: Duly) -> None:
    timed.register("acme", "sync", PAST, 60, lambda: None)
    with pytest.raises(AlreadyRegistered, match="job 'sync' of tenant 'acme' is registered in this process already"):
        timed.register("acme", "sync", PAST, 60, lambda: None)
    with pytest.raises(NotRegistered, match="has not registered job 'sync' of tenant 'zenith'"):
        timed.unregister("zenith", "sync")
    timed.unregister("acme", "sync")
    with pytest.raises(NotRegistered):
        timed.unregister("acme", "sync")
    timed.register("acme", "sync", PAST, 60, lambda: None)


@pytest.mark.requirement("E1")
def test_what_the_database_knows_gets_the_function_and_the_schedule(timed: Duly, clock: TestClock, raw: Raw) -> None:
    ran: list[str] = []
    timed.register("acme", "sync", PAST, 3600, lambda: ran.append("first"))
    with opened(timed.settings.url, clock=clock) as other:
        job = other.register("acme", "sync", PAST, 1800, lambda: ran.append("second"))
        assert raw.count("schedules") == 1
        assert job.next_run_at == clock.now() + timedelta(minutes=30)
        clock.advance("30m")
        drain(other)
        clock.advance("30m")
        drain(timed)
    assert ran == ["second", "first"]


@pytest.mark.requirement("E1")
def test_a_registration_that_fails_leaves_nothing(timed: Duly, raw: Raw) -> None:
    with pytest.raises(InvalidOption):
        timed.register("acme", "sync", PAST, -1, lambda: None)
    with pytest.raises(InvalidOption):
        timed.register("acme", "sync", PAST, 60, lambda: None, misfyre="once")
    assert raw.count("schedules") == 0
    timed.register("acme", "sync", PAST, 60, lambda: None)


@pytest.mark.requirement("E2")
def test_unregistered_is_gone_everywhere(timed: Duly, clock: TestClock, raw: Raw) -> None:
    ran: list[str] = []
    timed.register("acme", "sync", PAST, 60, lambda: ran.append("one"))
    with opened(timed.settings.url, clock=clock) as other:
        other.register("acme", "sync", PAST, 60, lambda: ran.append("two"))
        timed.unregister("acme", "sync")
        clock.advance("1h")
        drain(other)
        drain(timed)
        assert (ran, raw.count("schedules"), raw.count("jobs")) == ([], 0, 0)
        other.unregister("acme", "sync")  # it had registered it, so this is no error
        with pytest.raises(RecurringJobNotFound):
            other.recurring_job("registered:sync", "sync", tenant="acme")


@pytest.mark.requirement("E2")
def test_start_and_stop(jobs: Duly) -> None:
    ran: list[int] = []
    with pytest.raises(WorkerError, match=r"stop\(\) was called without start\(\)"):
        jobs.stop()
    jobs.register("acme", "sync", soon(), 0.05, lambda: ran.append(1))
    for _ in range(2):
        before = len(ran)
        jobs.start()
        with pytest.raises(WorkerError, match=r"start\(\) was called before, and not stop\(\)"):
            jobs.start()
        eventually(lambda before=before: len(ran) > before)  # type: ignore[misc]
        jobs.stop()
        after = len(ran)
        never(lambda after=after: len(ran) > after, 0.2)  # type: ignore[misc]
    with pytest.raises(WorkerError):
        jobs.stop()


@pytest.mark.requirement("E2")
def test_a_start_that_failed_may_be_tried_again(jobs: Duly) -> None:
    def refuse() -> None:
        raise ConnectionError("not yet")

    jobs.on_start(refuse)
    with pytest.raises(ConnectionError):
        jobs.start()
    with pytest.raises(WorkerError):
        jobs.stop()
    jobs.registry.on_start.clear()
    jobs.start()
    jobs.stop()


@pytest.mark.requirement("E3")
def test_registering_wakes_a_running_worker_at_once(jobs: Duly) -> None:
    jobs.start(poll=30.0)
    try:
        eventually(lambda: any(worker.idle for worker in jobs.workers()))
        ran = threading.Event()
        asked = time.monotonic()
        jobs.register("acme", "sync", soon(), YEARLY, ran.set)
        assert ran.wait(5)
        assert time.monotonic() - asked < 5
    finally:
        jobs.stop()


@pytest.mark.requirement("E3")
def test_another_process_learns_of_it_at_once(jobs: Duly) -> None:
    """It has the function, registered for later; somebody else says sooner."""
    ran = threading.Event()
    jobs.register("acme", "sync", soon(3600), YEARLY, ran.set)
    jobs.start(poll=30.0)
    try:
        never(ran.is_set, 0.3)
        with opened(jobs.settings.url) as other:
            other.register("acme", "sync", soon(), YEARLY, lambda: None)
        assert ran.wait(5)
    finally:
        jobs.stop()


@pytest.mark.requirement("E4")
def test_a_process_without_the_function_never_runs_fails_or_discards_it(jobs: Duly) -> None:
    ran: list[int] = []
    with opened(jobs.settings.url) as other:
        job = other.register("acme", "sync", soon(), YEARLY, lambda: ran.append(1))
        job.reschedule(datetime.now(UTC))
        with jobs.worker(poll=0.05):
            time.sleep(0.5)
        job.refresh()
        assert (job.enabled, job.last_outcome, job.runs(), ran) == (True, None, [], [])
        assert [each.key for each in jobs.recurring_jobs(tenant="acme")] == ["sync"]
        with other.worker():
            eventually(lambda: ran)


@pytest.mark.requirement("E9", "E10")
def test_the_same_id_in_two_tenants_is_two_jobs(timed: Duly, clock: TestClock) -> None:
    ran: list[str] = []
    one = timed.register("acme", "sync", clock.now() + timedelta(minutes=1), 60, lambda: ran.append("acme"))
    two = timed.register("zenith", "sync", clock.now() + timedelta(minutes=2), 60, lambda: ran.append("zenith"))
    assert one.id != two.id
    clock.advance("1m")
    drain(timed)
    assert ran == ["acme"]
    timed.unregister("acme", "sync")
    clock.advance("1m")
    drain(timed)
    assert ran == ["acme", "zenith"]
    assert timed.recurring_jobs(tenant="acme") == []


@pytest.mark.requirement("E1")
@pytest.mark.parametrize(
    "id", ["a b", "ä/ö?#%", "'; DROP TABLE jobs; --", "x" * 500, "\U0001f600", "a:b", "A" * 128, "%s :x ::y"]
)
def test_ids_with_odd_characters(timed: Duly, clock: TestClock, id: str) -> None:
    ran: list[str] = []
    job = timed.register("acme", id, clock.now() + timedelta(minutes=1), 60, lambda: ran.append(id))
    assert job.key == id
    clock.advance("1m")
    drain(timed)
    assert ran == [id]
    timed.unregister("acme", id)
    assert timed.recurring_jobs() == []


@pytest.mark.requirement("E1")
def test_what_a_registered_function_may_be(timed: Duly, clock: TestClock) -> None:
    ran: dict[str, Any] = {}

    class Callable:
        def __call__(self) -> None:
            ran["object"] = True

        def method(self, job: Any) -> None:
            ran["method"] = job.tenant

    async def coroutine() -> None:
        ran["async"] = current_job().tenant

    async def coroutine_of(job: Any) -> None:
        ran["async job"] = job.tick

    def with_default(n: int = 3) -> None:
        ran["default"] = n

    def two(a: int, b: int) -> None:
        ran["partial"] = (a, b)

    at = clock.now() + timedelta(minutes=1)
    functions: dict[str, Any] = {
        "lambda": lambda job: ran.update({"lambda": job.id}),
        "object": Callable(),
        "method": Callable().method,
        "async": coroutine,
        "async job": coroutine_of,
        "default": with_default,
        "partial": functools.partial(two, 1, b=2),
        "anything": lambda *args, **kwargs: ran.update({"anything": (args, kwargs)}),
    }
    ids = {name: timed.register("acme", name, at, 3600, function).id for name, function in functions.items()}
    clock.advance("1m")
    drained = drain(timed)
    assert drained.succeeded == len(functions)
    assert ran == {
        "lambda": ids["lambda"], "object": True, "method": "acme", "async": "acme", "async job": at, "default": 3,
        "partial": (1, 2), "anything": ((), {}),
    }  # fmt: skip
    with pytest.raises(InvalidOption, match=r"takes nothing, or the job: .* needs a, b"):
        timed.register("acme", "two", at, 60, two)
    with pytest.raises(InvalidOption, match="needs a function, not 'text'"):
        timed.register("acme", "text", at, 60, "text")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="must not be empty"):
        timed.register("acme", "", at, 60, lambda: None)


@pytest.mark.requirement("A7", "E6")
def test_a_registered_function_may_say_when_it_runs_again_and_failures_advance(timed: Duly, clock: TestClock) -> None:
    answers: list[Any] = [timedelta(minutes=7), ValueError("oops")]

    def sync() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    start = clock.now() + timedelta(minutes=1)
    job = timed.register("acme", "sync", start, "1h", sync)
    clock.advance("1m")
    drain(timed)
    assert job.refresh().next_run_at == clock.now() + timedelta(minutes=7)
    clock.advance("7m")
    drain(timed)
    job.refresh()
    assert (job.enabled, job.next_run_at, job.consecutive_failures) == (True, start + timedelta(hours=1), 1)


@pytest.mark.requirement("E7")
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("oops"), RecursionError()])
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_nothing_that_a_handler_raises_ends_the_loop(lite: Duly, error: BaseException, kind: str) -> None:
    ran: list[int] = []

    def bad() -> None:
        raise error

    async def abad() -> None:
        raise error

    job = lite.register("acme", "bad", soon(), YEARLY, bad if kind == "def" else abad)
    job.run_now()
    lite.start()
    try:
        eventually(lambda: job.refresh().last_outcome)
        lite.register("acme", "good", soon(), 0.05, lambda: ran.append(1))
        eventually(lambda: len(ran) > 1)
        lite.unregister("acme", "good")
    finally:
        lite.stop()
    assert (job.enabled, job.last_outcome, job.consecutive_failures) == (True, "failed", 1)


@pytest.mark.requirement("E10")
def test_due_jobs_run_in_parallel_and_may_have_a_timeout(jobs: Duly) -> None:
    barrier = threading.Barrier(4)
    done: list[int] = []

    def meet() -> None:
        barrier.wait(20)
        done.append(1)

    at = soon()
    for n in range(4):
        jobs.register(f"tenant{n}", "meet", at, YEARLY, meet)
    with jobs.worker():
        eventually(lambda: len(done) == 4)


@pytest.mark.requirement("E10")
def test_one_registration_that_waits_keeps_no_other_waiting(pg_url: str, raw: Raw) -> None:
    """No lock of the whole process is held while the database is asked."""
    with opened(pg_url) as other, opened(pg_url) as jobs, closing(psycopg.connect(pg_url)) as caller:
        held = other.register("acme", "held", PAST, 60, lambda: None)
        held.disable(connection=caller)
        waiting = threading.Thread(target=jobs.register, args=("acme", "held", PAST, 60, lambda: None))
        waiting.start()
        blocked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        eventually(lambda: raw.rows(blocked))
        asked = time.monotonic()
        jobs.register("acme", "free", PAST, 60, lambda: None)
        jobs.unregister("acme", "free")
        with pytest.raises(AlreadyRegistered):
            jobs.register("acme", "held", PAST, 60, lambda: None)
        jobs.start()
        jobs.stop()
        assert time.monotonic() - asked < 10
        assert waiting.is_alive()
        caller.rollback()
        waiting.join(10)
        jobs.unregister("acme", "held")


@pytest.mark.requirement("E2")
def test_an_unregistration_that_failed_may_be_tried_again(timed: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    from duly import DatabaseUnavailable

    timed.register("acme", "sync", PAST, 60, lambda: None)

    def down(*_: object) -> None:
        raise DatabaseUnavailable("down")

    with monkeypatch.context() as patch:
        patch.setattr(timed, "change_recurring", down)
        with pytest.raises(DatabaseUnavailable):
            timed.unregister("acme", "sync")
    timed.unregister("acme", "sync")
    assert timed.recurring_jobs() == []


@pytest.mark.requirement("E1")
def test_ten_thousand_registered_functions_do_not_slow_the_claim(lite: Duly) -> None:
    """What a step of the claimer takes goes by the lanes that have jobs, not by what the process knows."""
    from duly.registered import _definition

    def took(app: Duly) -> float:
        best = 1e9
        for _ in range(5):
            with app.worker(poll=5.0) as worker:
                claimer = worker._claimer
                eventually(lambda claimer=claimer: claimer.empty)  # type: ignore[misc]
                asked = time.perf_counter()
                for _ in range(20):
                    claimer._look = True
                    claimer._claim_all()
                best = min(best, time.perf_counter() - asked)
        return best

    few = took(lite)
    for n in range(10_000):
        lite.registry.register("acme", _definition(f"job{n}", lambda: None, log_lines=10))
    many = took(lite)
    assert many < 5 * few + 0.02


@pytest.mark.requirement("E1")
def test_a_start_that_has_just_passed_was_meant_to_be_now(jobs: Duly) -> None:
    ran = threading.Event()
    job = jobs.register("acme", "yearly", datetime.now(UTC), "365d", ran.set)
    other = jobs.register("acme", "old", datetime.now(UTC) - timedelta(days=1), "365d", ran.clear)
    with jobs.worker():
        assert ran.wait(5)
        eventually(lambda: job.refresh().last_outcome == "succeeded")
    assert job.next_run_at is not None
    assert job.next_run_at > datetime.now(UTC) + timedelta(days=300)
    assert other.last_run_at is None, "a start long past makes no run"
