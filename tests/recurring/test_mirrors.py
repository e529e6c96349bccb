"""What the application keeps of its own beside a recurring job changes in the same transaction, whoever changes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from duly import Backoff, Cancel, Duly, InvalidOption, MirrorFailed, MirrorHookMissing, RecurringJob
from duly.domain.recurring import Change
from duly.testing import TestClock, drain
from tests.foreign.conftest import by_hand, connect
from tests.helpers import ROOT, eventually, never, opened
from tests.recurring.killed import kill_a_run
from tests.store import invariants
from tests.store.raw import Raw

MIRROR = """
    UPDATE feeds SET next_fetch_at = :next_run_at, enabled = :enabled, failures = :failures, outcome = :outcome,
        error = :error, last_fetch_at = :last_run_at, changes = changes + 1
    WHERE id = :key
"""
HOUR = timedelta(hours=1)
Feed = tuple[Any, ...]


def make_feeds(url: str, n: int = 1) -> None:
    moment = "timestamptz" if url.startswith("postgres") else "text"
    by_hand(
        url,
        f"CREATE TABLE feeds (id text PRIMARY KEY, next_fetch_at {moment}, enabled boolean, failures integer, "
        f"outcome text, error text, last_fetch_at {moment}, changes integer NOT NULL DEFAULT 0 CHECK (changes < 1000))",
        *(f"INSERT INTO feeds (id) VALUES ('{number}')" for number in range(1, n + 1)),
    )


def feed(jobs: Duly, key: str = "1") -> dict[str, Any]:
    """The application's row, its times as datetimes."""
    names = ("next_fetch_at", "enabled", "failures", "outcome", "error", "last_fetch_at", "changes")
    with closing(connect(jobs.settings.url)) as connection:
        row = connection.execute(f"SELECT {', '.join(names)} FROM feeds WHERE id = '{key}'").fetchone()
    assert row is not None
    found = dict(zip(names, row, strict=True))
    for name in ("next_fetch_at", "last_fetch_at"):
        if isinstance(found[name], str):
            found[name] = datetime.fromisoformat(found[name])
    found["enabled"] = None if found["enabled"] is None else bool(found["enabled"])
    return found


def assert_mirrored(jobs: Duly, job: RecurringJob) -> dict[str, Any]:
    """The application's row says what the job says."""
    job.refresh()
    found = feed(jobs, job.key)
    assert found["next_fetch_at"] == (job.next_run_at if job.enabled else None)
    assert found["enabled"] == job.enabled
    assert found["failures"] == job.consecutive_failures
    return found


# -- every way --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A11", "A12")
def test_every_change_is_mirrored(timed: Duly, clock: TestClock) -> None:
    make_feeds(timed.settings.url)
    answers: list[Callable[[], object]] = []

    @timed.task(mirror=MIRROR, retry=Backoff.fixed(600))
    def fetch() -> Any:
        return answers.pop(0)() if answers else None

    def fail() -> None:
        raise ValueError("it's \\ 'down' at 100 %")

    def give_up() -> None:
        raise Cancel("410 Gone")

    job = fetch.recur(1, every="1h")
    assert assert_mirrored(timed, job)["outcome"] is None
    drain(timed)
    assert assert_mirrored(timed, job)["outcome"] == "succeeded"
    assert feed(timed)["last_fetch_at"] == clock.now()
    job.disable()
    assert assert_mirrored(timed, job)["next_fetch_at"] is None
    job.enable()
    assert assert_mirrored(timed, job)["next_fetch_at"] == clock.now() + HOUR
    job.set_enabled(sql="1 = 0")
    assert not assert_mirrored(timed, job)["enabled"]
    job.set_enabled(True)
    assert_mirrored(timed, job)
    answers += [fail, fail, lambda: timedelta(minutes=40), give_up]
    for failures in (1, 2):
        at = job.refresh().next_run_at
        assert at is not None
        clock.move_to(at)
        drain(timed)
        found = assert_mirrored(timed, job)
        assert (found["failures"], found["outcome"]) == (failures, "failed")
        assert found["error"] == "it's \\ 'down' at 100 %"
        assert found["next_fetch_at"] == clock.now() + timedelta(seconds=600)
    clock.advance(600)
    drain(timed)
    found = assert_mirrored(timed, job)
    assert (found["failures"], found["outcome"], found["error"]) == (0, "succeeded", None)
    assert found["next_fetch_at"] == clock.now() + timedelta(minutes=40)
    job.reschedule(clock.now() + timedelta(minutes=5))
    assert assert_mirrored(timed, job)["next_fetch_at"] == clock.now() + timedelta(minutes=5)
    job.edit(every="2h")
    assert_mirrored(timed, job)
    fetch.recur(1, every="3h")
    assert_mirrored(timed, job)
    job.run_now()
    drain(timed)
    assert not assert_mirrored(timed, job)["enabled"]
    fetch.recur(1, every="3h")
    assert_mirrored(timed, job)
    job.delete()
    assert (feed(timed)["next_fetch_at"], feed(timed)["enabled"]) == (None, False)


@pytest.mark.requirement("A11")
def test_a_schedule_that_makes_a_job_per_tick_is_mirrored(timed: Duly, clock: TestClock) -> None:
    make_feeds(timed.settings.url)

    @timed.task(mirror=MIRROR)
    def fetch() -> None: ...

    job = fetch.recur(1, cron="@hourly", overlap="allow", until=clock.now() + timedelta(hours=2))
    assert_mirrored(timed, job)
    clock.advance("1h")
    drain(timed)
    assert assert_mirrored(timed, job)["next_fetch_at"] == clock.now() + HOUR
    clock.advance("2h")
    drain(timed)
    assert not assert_mirrored(timed, job)["enabled"]


@pytest.mark.requirement("A11")
def test_a_failing_mirror_keeps_no_tick_from_its_job(timed: Duly, clock: TestClock, raw: Raw) -> None:
    make_feeds(timed.settings.url, 2)

    @timed.task(mirror=MIRROR)
    def fetch() -> None: ...

    good, bad = (fetch.recur(key, cron="@hourly", overlap="allow") for key in (1, 2))
    by_hand(timed.settings.url, "UPDATE feeds SET changes = 999 WHERE id = '2'")
    clock.advance("1h")
    assert drain(timed).succeeded == 2
    assert_mirrored(timed, good)
    bad.refresh()
    assert (bad.next_run_at, bad.enabled) == (clock.now() + HOUR, True)
    assert bad.last_error is not None
    assert bad.last_error.startswith("MirrorFailed: ")
    by_hand(timed.settings.url, "UPDATE feeds SET changes = 0 WHERE id = '2'")
    clock.advance("1h")
    assert drain(timed).succeeded == 2
    assert assert_mirrored(timed, bad)["changes"] == 1
    assert bad.last_error is None


@pytest.mark.requirement("A11")
def test_a_killed_run_that_was_rescued_is_mirrored(timed: Duly, clock: TestClock) -> None:
    make_feeds(timed.settings.url)

    @timed.task(mirror=MIRROR)
    def fetch() -> None: ...

    job = fetch.recur(1, every="1h")
    found: dict[str, Any] = {}
    for crash in (1, 2, 3):
        kill_a_run(timed, clock, "fetch")
        found = assert_mirrored(timed, job)
        assert (found["outcome"], found["failures"]) == ("crashed", crash)
        clock.advance("1h")
    assert (job.enabled, found["enabled"], found["next_fetch_at"]) == (False, False, None)


@pytest.mark.requirement("A11")
def test_a_process_without_the_tasks_code_mirrors_too(timed: Duly, clock: TestClock) -> None:
    make_feeds(timed.settings.url)

    @timed.task(mirror=MIRROR)
    def fetch() -> None: ...

    job = fetch.recur(1, every="1h")
    with opened(timed.settings.url, clock=clock) as other:
        found = other.recurring_job("fetch", 1)
        found.disable()
        assert_mirrored(timed, job)
        found.enable()
        assert_mirrored(timed, job)
        found.reschedule(clock.now() + HOUR)
        assert_mirrored(timed, job)
        clock.advance("1h")
        kill_a_run(other, clock, "fetch")
        assert assert_mirrored(timed, job)["outcome"] == "crashed"
        found.delete()
    assert feed(timed)["next_fetch_at"] is None


@pytest.mark.requirement("A11")
def test_a_declaration_that_comes_and_goes_is_mirrored(timed: Duly, clock: TestClock) -> None:
    make_feeds(timed.settings.url)

    def declaring(app: Duly, *, declared: bool) -> None:
        @app.task(mirror=MIRROR)
        def fetch() -> None: ...

        if declared:
            app.recurring(key=1, cron="@hourly")(fetch)
        drain(app)

    with opened(timed.settings.url, clock=clock) as one, opened(timed.settings.url, clock=clock) as two:
        declaring(one, declared=True)
        job = timed.recurring_job("fetch", 1)
        assert assert_mirrored(timed, job)["enabled"]
        declaring(two, declared=False)
        assert not assert_mirrored(timed, job)["enabled"]


@pytest.mark.requirement("A11")
def test_the_mirror_is_in_the_same_transaction(jobs: Duly) -> None:
    make_feeds(jobs.settings.url)

    @jobs.task(mirror=MIRROR)
    def fetch() -> None: ...

    with closing(connect(jobs.settings.url)) as connection:
        fetch.recur(1, cron="@daily", connection=connection)
        connection.rollback()
        assert feed(jobs)["changes"] == 0
        job = fetch.recur(1, cron="@daily", connection=connection)
        connection.commit()
        assert_mirrored(jobs, job)
        job.disable(connection=connection)
        assert feed(jobs)["enabled"]
        connection.commit()
        assert_mirrored(jobs, job)
        connection.execute("DELETE FROM feeds")
        assert not job.set_enabled(sql="EXISTS (SELECT 1 FROM feeds)", connection=connection)
        assert job.set_enabled(sql="NOT EXISTS (SELECT 1 FROM feeds)", connection=connection)
        connection.rollback()
    assert_mirrored(jobs, job)


# -- failing ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A11")
def test_a_verb_whose_mirror_fails_changes_nothing(timed: Duly, clock: TestClock, raw: Raw) -> None:
    make_feeds(timed.settings.url)

    @timed.task(mirror=MIRROR)
    def fetch(n: int = 0) -> None: ...

    job = fetch.recur(1, cron="@hourly")
    by_hand(timed.settings.url, "UPDATE feeds SET changes = 999")
    before = job.refresh().to_dict()
    verbs: list[Callable[[], object]] = [
        lambda: job.disable(),
        lambda: job.set_enabled(sql="1 = 0"),
        lambda: job.edit(every="2h"),
        lambda: job.reschedule(clock.now()),
        lambda: job.run_now(),
        lambda: job.delete(),
        lambda: fetch.recur(1, cron="@daily"),
        lambda: fetch.recur(1, cron="@hourly", enabled=False),
    ]
    for verb in verbs:
        with pytest.raises(MirrorFailed, match=r"the mirror of task 'fetch' failed for key '1': .*(?i:check)"):
            verb()
        assert job.refresh().to_dict() == before
    by_hand(timed.settings.url, "INSERT INTO feeds (id, changes) VALUES ('2', 999)")
    with pytest.raises(MirrorFailed):
        fetch.recur(2, cron="@hourly")
    assert raw.count("schedules") == 1


@pytest.mark.requirement("A11")
def test_a_mirror_that_fails_in_the_callers_transaction_leaves_it_usable(jobs: Duly) -> None:
    make_feeds(jobs.settings.url, 2)

    @jobs.task(mirror=MIRROR)
    def fetch() -> None: ...

    by_hand(jobs.settings.url, "UPDATE feeds SET changes = 999 WHERE id = '2'")
    with closing(connect(jobs.settings.url)) as connection:
        connection.execute("UPDATE feeds SET error = 'mine' WHERE id = '2'")
        first = fetch.recur(1, cron="@daily", connection=connection)
        with pytest.raises(MirrorFailed):
            fetch.recur(2, cron="@daily", connection=connection)
        connection.commit()
    assert_mirrored(jobs, first)
    assert feed(jobs, "2")["error"] == "mine"
    assert [job.key for job in jobs.recurring_jobs()] == ["1"]


@pytest.mark.requirement("A11")
def test_one_failing_mirror_does_not_take_other_runs_back(jobs: Duly, raw: Raw) -> None:
    make_feeds(jobs.settings.url, 5)
    barrier = threading.Barrier(6)

    @jobs.task(mirror=MIRROR)
    def fetch() -> None:
        barrier.wait(20)

    @jobs.task
    def plain() -> None:
        barrier.wait(20)

    all_of_them = [fetch.recur(key, cron="@yearly") for key in range(1, 6)]
    by_hand(jobs.settings.url, "UPDATE feeds SET changes = 998 WHERE id = '3'")
    other = plain.recur("p", cron="@yearly")
    for job in (*all_of_them, other):
        job.run_now()
    with jobs.worker():
        for job in (*all_of_them, other):
            eventually(lambda job=job: job.refresh().last_outcome, 20)  # type: ignore[misc]
    for job in all_of_them:
        if job.key != "3":
            assert assert_mirrored(jobs, job)["outcome"] == "succeeded"
    bad = all_of_them[2].refresh()
    assert (bad.enabled, bad.last_outcome, bad.consecutive_failures) == (True, "failed", 1)
    assert bad.last_error is not None
    assert bad.last_error.startswith("MirrorFailed: its mirror failed: ")
    assert "check" in bad.last_error.lower()
    assert bad.next_run_at is not None
    assert bad.next_run_at > datetime.now(UTC)
    assert len(bad.runs()) == 1


@pytest.mark.requirement("A11")
def test_a_failing_mirror_is_tried_three_times(jobs: Duly, caplog: pytest.LogCaptureFixture) -> None:
    make_feeds(jobs.settings.url)

    @jobs.task(mirror=MIRROR)
    def fetch() -> None: ...

    job = fetch.recur(1, cron="@yearly")
    by_hand(jobs.settings.url, "UPDATE feeds SET changes = 998")
    job.run_now()
    with jobs.worker():
        eventually(lambda: job.refresh().last_outcome, 20)
    tries = [text for text in caplog.messages if "its mirror failed" in text]
    assert [text[-7:] for text in tries if "(try" in text] == ["(try 1)", "(try 2)", "(try 3)"]


@pytest.mark.requirement("A11")
def test_a_mirror_that_works_again_at_the_second_try_is_no_failure(jobs: Duly) -> None:
    make_feeds(jobs.settings.url)

    @jobs.task(mirror=MIRROR)
    def fetch() -> None: ...

    calls: list[Change] = []

    @jobs.mirror_hook(fetch)
    def watch(change: Change, execute: Callable[[str, Mapping[str, object]], None]) -> None:
        calls.append(change)
        if change.outcome is not None and len(calls) < 5:
            raise ConnectionError("try again")

    job = fetch.recur(1, cron="@yearly")
    job.run_now()
    with jobs.worker():
        eventually(lambda: job.refresh().last_outcome, 20)
    assert (job.last_outcome, job.consecutive_failures, len(calls)) == ("succeeded", 0, 5)
    assert_mirrored(jobs, job)


@pytest.mark.requirement("A11")
def test_a_dead_run_is_rescued_although_its_mirror_fails(timed: Duly, clock: TestClock) -> None:
    """Else it would hold its job for good."""
    make_feeds(timed.settings.url)

    @timed.task(mirror=MIRROR)
    def fetch() -> None: ...

    job = fetch.recur(1, every="1h")
    by_hand(timed.settings.url, "UPDATE feeds SET changes = 999")
    kill_a_run(timed, clock, "fetch")
    job.refresh()
    assert (job.running, job.enabled, job.last_outcome) == (False, True, "crashed")
    assert job.last_error is not None
    assert "its mirror failed" in job.last_error


@pytest.mark.requirement("A11")
def test_a_mirror_that_names_what_it_is_not_given_is_refused_at_once(jobs: Duly) -> None:
    with pytest.raises(InvalidOption, match=r"mirror names :nxt_run_at.*Did you mean 'next_run_at'"):

        @jobs.task(mirror="UPDATE feeds SET x = :nxt_run_at, y = ':no', z = a::text WHERE id = :key")
        def fetch() -> None: ...

    with pytest.raises(InvalidOption, match="mirror must be an SQL statement"):
        jobs.task(name="fetch", mirror="  ")(lambda: None)


# -- waiting ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A11")
def test_a_mirror_that_waits_for_a_callers_lock_is_no_failure_and_delays_nobody(pg_url: str, raw: Raw) -> None:
    make_feeds(pg_url, 3)
    with opened(pg_url) as jobs, psycopg.connect(pg_url) as caller:

        @jobs.task(mirror=MIRROR)
        def fetch() -> None: ...

        @jobs.task
        def plain() -> None: ...

        all_of_them = [fetch.recur(key, cron="@yearly") for key in (1, 2, 3)]
        for job in all_of_them:
            job.run_now()
        caller.execute("SELECT * FROM feeds WHERE id = '2' FOR UPDATE")
        with jobs.worker(lease=1.0, renew_every=0.2):
            for job in (all_of_them[0], all_of_them[2]):
                eventually(lambda job=job: job.refresh().last_outcome, 5)  # type: ignore[misc]
            one_shot = plain.enqueue()
            one_shot.wait(5)
            held = all_of_them[1]
            never(lambda: held.refresh().last_outcome, 2.0)  # longer than a lease: it is renewed
            assert held.running
            caller.commit()
            eventually(lambda: held.refresh().last_outcome, 5)
        assert (held.last_outcome, held.consecutive_failures, len(held.runs())) == ("succeeded", 0, 1)
        assert_mirrored(jobs, held)


# -- Python hooks -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A11", "A12")
def test_a_python_hook_sees_the_change_and_writes_in_the_same_transaction(timed: Duly, clock: TestClock) -> None:
    make_feeds(timed.settings.url)
    changes: list[Change] = []
    bad: list[bool] = []

    @timed.task(retry=Backoff.fixed(60))
    def fetch() -> None:
        if bad:
            raise ValueError("oops")

    @timed.mirror_hook(fetch)
    def keep(change: Change, execute: Callable[[str, Mapping[str, object]], None]) -> None:
        changes.append(change)
        execute(
            "UPDATE feeds SET failures = :n, error = :error, enabled = :enabled, changes = changes + 1 WHERE id = :id",
            {"n": change.failures, "error": change.error, "enabled": change.enabled, "id": change.key},
        )

    job = fetch.recur(1, every="1h", tenant="acme")
    assert changes == [Change(job.id, "acme", "fetch", "1", True, clock.now_us(), None, None, 0, None)]
    bad.append(True)
    drain(timed)
    assert changes[-1][5:] == (clock.now_us() + 60_000_000, "failed", "oops", 1, clock.now_us())
    assert (feed(timed)["failures"], feed(timed)["error"]) == (1, "oops")
    with closing(connect(timed.settings.url)) as connection:
        job.disable(connection=connection)
        connection.rollback()
        assert feed(timed)["enabled"]
        job.disable(connection=connection)
        connection.commit()
    assert not feed(timed)["enabled"]
    by_hand(timed.settings.url, "UPDATE feeds SET changes = 999")
    with pytest.raises(MirrorFailed, match=r"(?i)check"):
        job.enable()
    assert not job.refresh().enabled


@pytest.mark.requirement("A11")
def test_a_hook_that_raises_keeps_the_change_from_being_made(timed: Duly) -> None:
    @timed.task
    def fetch() -> None: ...

    @timed.mirror_hook("fetch")
    def refuse(change: Change, execute: object) -> None:
        raise PermissionError("not on Sundays")

    with pytest.raises(MirrorFailed, match="PermissionError: not on Sundays"):
        fetch.recur(1, every="1h")
    assert timed.recurring_jobs() == []


@pytest.mark.requirement("A11")
def test_a_process_without_the_hook_is_refused(timed: Duly, clock: TestClock, raw: Raw) -> None:
    @timed.task
    def fetch() -> None: ...

    seen: list[Change] = []
    timed.mirror_hook(fetch)(lambda change, execute: seen.append(change))
    job = fetch.recur(1, every="1h")
    with opened(timed.settings.url, clock=clock) as other:
        found = other.recurring_job("fetch", 1)
        for verb in (found.disable, found.delete, lambda: found.edit(every="2h"), found.run_now):
            with pytest.raises(MirrorHookMissing, match="task 'fetch' has a Python hook"):
                verb()
        kill_a_run(other, clock, "fetch")  # left to those who have it
        assert job.refresh().running
    invariants.check(raw)
    kill_a_run(timed, clock, None)
    assert not job.refresh().running
    assert seen[-1].outcome == "crashed"


@pytest.mark.requirement("A11")
def test_knowing_the_task_is_not_knowing_its_hook(timed: Duly, clock: TestClock) -> None:
    make_feeds(timed.settings.url)

    @timed.task(mirror=MIRROR)
    def fetch() -> None: ...

    seen: list[Change] = []
    timed.mirror_hook(fetch)(lambda change, execute: seen.append(change))
    job = fetch.recur(1, cron="@hourly")
    with opened(timed.settings.url, clock=clock) as other:

        @other.task(name="fetch", mirror=MIRROR)
        def without() -> None: ...

        @other.recurring("@daily")
        def elsewhere() -> None: ...

        drain(other)  # what it declares says nothing about the hook
        with pytest.raises(MirrorHookMissing, match=r"jobs\.forget_mirror_hook\('fetch'\)"):
            without.recur(1, cron="@daily")
        with pytest.raises(MirrorHookMissing):
            without.recur(2, cron="@daily")
        assert (len(seen), job.refresh().schedule.rules) == (1, ("@hourly",))
        other.forget_mirror_hook("fetch")
        without.recur(1, cron="@daily")
        assert_mirrored(timed, job)
        assert len(seen) == 1


@pytest.mark.requirement("A11")
def test_a_worker_without_the_hook_records_the_run_as_failed_and_goes_on(timed: Duly, clock: TestClock) -> None:
    """It can run the task and has not loaded the hook: one job's mistake keeps no other from being settled."""

    @timed.task
    def fetch() -> None: ...

    timed.mirror_hook(fetch)(lambda change, execute: None)
    job = fetch.recur(1, every="1h")
    with opened(timed.settings.url, clock=clock) as other:

        @other.task(name="fetch")
        def without() -> None: ...

        @other.task
        def keyed() -> None: ...

        unique = keyed.using(unique=True).enqueue()
        drain(other, limit=10)
        assert other.get(unique.id).state == "succeeded"
    job.refresh()
    assert (job.running, job.last_outcome) == (False, "failed")
    assert job.last_error is not None
    assert "has a Python hook" in job.last_error


# -- a mirror in words of any kind --------------------------------------------------------------------------------


@pytest.mark.requirement("A11")
def test_a_mirror_may_hold_casts_quotes_and_percent_signs(timed: Duly, raw: Raw) -> None:
    make_feeds(timed.settings.url)
    cast = "::text" if raw.is_postgres else ""

    @timed.task(
        mirror=f"""UPDATE feeds SET error = ':key 100 % of "it''s"' || :task{cast}, outcome = :tenant -- ':x
                   WHERE id = :key /* :y */"""
    )
    def fetch() -> None: ...

    fetch.recur(1, every="1h", tenant="acme")
    assert (feed(timed)["error"], feed(timed)["outcome"]) == (""":key 100 % of "it's\"fetch""", "acme")


@pytest.mark.requirement("A11")
def test_a_mirror_that_is_taken_out_of_the_code_is_called_no_more(timed: Duly, clock: TestClock) -> None:
    make_feeds(timed.settings.url)

    def declare(app: Duly, mirror: str | None) -> RecurringJob:
        @app.task(mirror=mirror)
        def fetch() -> None: ...

        return fetch.recur(1, every="1h")

    declare(timed, MIRROR)
    changes = feed(timed)["changes"]
    with opened(timed.settings.url, clock=clock) as other:
        job = declare(other, None)
        job.disable()
    assert feed(timed)["changes"] == changes


def test_the_program_of_another_process_mirrors(jobs: Duly) -> None:
    """A process that has imported nothing of the application."""
    make_feeds(jobs.settings.url)

    @jobs.task(mirror=MIRROR)
    def fetch() -> None: ...

    job = fetch.recur(1, every="1h")
    program = (
        "import sys; from duly import Duly; j = Duly(sys.argv[1]); j.recurring_job('fetch', 1).disable(); j.close()"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", program, jobs.settings.url], env=env, check=True, timeout=60)
    assert not assert_mirrored(jobs, job)["enabled"]
    assert json.dumps(job.to_dict())


@pytest.mark.requirement("A11")
def test_an_application_on_a_database_of_its_tests_own_has_its_hooks(lite: Duly) -> None:
    from duly.testing import isolated

    @lite.task
    def fetch() -> None: ...

    seen: list[Change] = []
    lite.mirror_hook(fetch)(lambda change, execute: seen.append(change))
    with isolated(lite):
        fetch.recur(1, every="1h")
        drain(lite)
    assert [change.outcome for change in seen] == [None, "succeeded"]
