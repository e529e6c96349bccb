"""The feed reader as its readers use it: feeds that behave and feeds that do not, races, and worker processes."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from duly import Backoff, RecurringJob, RecurringJobNotFound, Task
from duly.domain.clock import from_us
from duly.testing import Drained, TestClock, drain, isolated
from examples.feed_reader import feeds, subscriptions, tasks, web
from examples.feed_reader.database import as_moment, create_tables, jobs, query, transaction
from examples.feed_reader.feed_server import FeedServer, PretendFeed
from examples.feed_reader.subscriptions import subscribe, unsubscribe
from examples.feed_reader.tasks import fetch_feed, renew_websub
from tests.helpers import eventually

ROOT = Path(__file__).parents[2]
MINUTE = timedelta(minutes=1)
ROUNDS = 30


class Standing(NamedTuple):
    """A feed and its job, read in one statement."""

    feed_id: str
    next_fetch_at: datetime | None
    feed_failures: int
    enabled: bool
    next_run_at: datetime | None
    job_failures: int
    readers: int


def standings() -> list[Standing]:
    with transaction() as connection:
        schema = "duly_" if isinstance(connection, sqlite3.Connection) else "duly."
        rows = query(
            connection,
            f"""SELECT f.id, f.next_fetch_at, f.consecutive_failures, r.enabled, r.next_run_at, r.failures,
                       (SELECT count(*) FROM subscriptions x WHERE x.feed_id = f.id AND x.unsubscribed_at IS NULL)
                FROM feeds f JOIN {schema}schedules s ON s.task = 'fetch_feed' AND s.key = f.id
                JOIN {schema}recurring r ON r.id = s.id""",
        )
    return [
        Standing(feed, as_moment(shown), count, bool(enabled), from_us(due), failures, readers)
        for feed, shown, count, enabled, due, failures, readers in rows
    ]


def assert_every_feed_mirrors_its_job() -> None:
    for each in standings():
        assert each.next_fetch_at == (each.next_run_at if each.enabled else None), each
        assert each.feed_failures == each.job_failures, each
        assert each.enabled == (each.readers > 0), each


def feed_at(url: str) -> feeds.Feed:
    with transaction() as connection:
        (found,) = (feed for feed in feeds.everything(connection) if feed.url == url)
    return found


def job_of(url: str) -> RecurringJob:
    return jobs.recurring_job(fetch_feed, feed_at(url).id)


def count_jobs() -> int:
    with transaction() as connection:
        table = "duly_jobs" if isinstance(connection, sqlite3.Connection) else "duly.jobs"
        return int(query(connection, f"SELECT count(*) FROM {table}")[0][0])


def fetch_what_is_due() -> Drained:
    drained = drain(jobs)
    assert_every_feed_mirrors_its_job()
    return drained


def runs_of(task: Task[..., Any], drained: Drained) -> int:
    return sum(run.task == task.name for run in drained.runs)


@pytest.fixture
def server() -> Iterator[FeedServer]:
    with FeedServer() as server:
        yield server


@pytest.fixture
def clock(database_url: str) -> Iterator[TestClock]:
    """The application on a fresh database, going by a clock that the test moves."""
    clock = TestClock()
    with isolated(jobs, database_url, clock=clock):
        create_tables()
        yield clock


@pytest.fixture
def live(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The application on a fresh database and by the real clock, with feeds fetched as often as they like."""
    monkeypatch.setattr(tasks, "SOONEST", timedelta(milliseconds=5))
    monkeypatch.setattr(subscriptions, "fetch_feed", fetch_feed.using(retry=Backoff.fixed("5ms")))
    with isolated(jobs, database_url):
        create_tables()
        yield database_url


# -- one reader, one feed -------------------------------------------------------------------------------------


@pytest.mark.requirement("A1", "A2", "A7", "A11")
def test_a_feed_is_fetched_at_once_and_then_when_its_cache_header_says(clock: TestClock, server: FeedServer) -> None:
    news = server.publish("news", entries=3, max_age=600)
    subscribe("ada", news.url)
    assert feed_at(news.url).next_fetch_at == clock.now()

    assert fetch_what_is_due().succeeded == 1
    feed = feed_at(news.url)
    assert (feed.title, feed.entries, feed.last_fetch_at) == ("news", 3, clock.now())
    assert feed.next_fetch_at == clock.now() + 10 * MINUTE

    clock.advance("9m59s")
    assert not fetch_what_is_due().runs
    clock.advance("1s")
    assert fetch_what_is_due().succeeded == 1
    assert news.answers == [200, 304]

    news.entries = 5
    clock.advance("10m")
    fetch_what_is_due()
    assert news.answers == [200, 304, 200]
    assert feed_at(news.url).entries == 5

    stored = count_jobs()
    for _ in range(20):
        clock.advance("10m")
        assert fetch_what_is_due().succeeded == 1
    assert news.answers[3:] == [304] * 20
    assert count_jobs() == stored, "a run adds no job"


@pytest.mark.requirement("A7")
@pytest.mark.parametrize(
    "max_age, minutes",
    [(None, 60), (0, 1), (59, 1), (61, 61 / 60), (86_400, 1440), (999_999_999, 1440)],
)
def test_the_wait_is_what_the_feed_asks_for_within_reason(
    clock: TestClock, server: FeedServer, max_age: int | None, minutes: float
) -> None:
    subscribe("ada", server.publish("news", max_age=max_age).url)
    fetch_what_is_due()
    assert feed_at(f"{server.url}/news").next_fetch_at == clock.now() + minutes * MINUTE


@pytest.mark.requirement("A6", "A11", "A12")
@pytest.mark.parametrize(
    "trouble, error",
    [
        ("500", "500 Internal Server Error"),
        ("404", "404 Not Found"),
        ("hang", "silent for 0.1 s"),
        ("garbage", "not a feed: "),
        ("cut", "not a feed: "),
    ],
)
def test_a_feed_that_fails_backs_off_and_recovers(
    clock: TestClock, server: FeedServer, monkeypatch: pytest.MonkeyPatch, trouble: str, error: str
) -> None:
    monkeypatch.setattr(web, "SILENCE_SECONDS", 0.1)
    shaky = server.publish("shaky", max_age=300)
    subscribe("ada", shaky.url)
    fetch_what_is_due()
    clock.advance("5m")

    shaky.trouble = trouble
    for failures, minutes in enumerate((1, 2, 4, 8, 16, 32), start=1):
        drained = fetch_what_is_due()
        assert (drained.retried, drained.failed, len(drained.runs)) == (1, 0, 1)
        feed, job = feed_at(shaky.url), job_of(shaky.url)
        assert (feed.consecutive_failures, feed.entries) == (failures, 3)
        assert feed.last_error is not None
        assert feed.last_error.startswith(error)
        assert feed.next_fetch_at == clock.now() + minutes * MINUTE
        assert (job.consecutive_failures, job.last_outcome, job.last_run_at) == (failures, "failed", clock.now())
        clock.advance(minutes * MINUTE)

    shaky.trouble = None
    assert fetch_what_is_due().succeeded == 1
    feed, job = feed_at(shaky.url), job_of(shaky.url)
    assert (feed.consecutive_failures, feed.last_error) == (0, None)
    assert (job.consecutive_failures, job.last_error, job.last_outcome) == (0, None, "succeeded")
    assert feed.next_fetch_at == clock.now() + 5 * MINUTE


@pytest.mark.requirement("A6")
def test_a_feed_that_is_dead_is_asked_once_a_day_for_ever(clock: TestClock, server: FeedServer) -> None:
    dead = server.publish("dead")
    dead.trouble = "500"
    subscribe("ada", dead.url)
    for _ in range(30):
        fetch_what_is_due()
        due = feed_at(dead.url).next_fetch_at
        assert due is not None
        clock.move_to(due)
    assert len(dead.answers) == 30
    fetch_what_is_due()
    assert feed_at(dead.url).next_fetch_at == clock.now() + timedelta(days=1)


# -- readers come and go --------------------------------------------------------------------------------------


@pytest.mark.requirement("A3", "A5", "A11")
def test_a_feed_that_nobody_reads_is_not_fetched(clock: TestClock, server: FeedServer) -> None:
    news = server.publish("news", max_age=600)
    subscribe("ada", news.url)
    subscribe("bob", news.url)
    fetch_what_is_due()
    due = feed_at(news.url).next_fetch_at

    assert unsubscribe("ada", news.url) is True
    assert feed_at(news.url).next_fetch_at == due
    assert unsubscribe("bob", news.url) is False
    assert feed_at(news.url).next_fetch_at is None
    job = job_of(news.url)
    assert (job.enabled, job.next_run_at, job.disabled_reason) == (False, due, "nobody reads it")

    clock.advance("30d")
    assert not runs_of(fetch_feed, fetch_what_is_due())
    assert news.answers == [200]
    with pytest.raises(LookupError, match="bob does not read"):
        unsubscribe("bob", news.url)


@pytest.mark.requirement("A1", "A3", "A11")
def test_who_subscribes_again_before_its_time_waits_for_it_and_after_it_does_not(
    clock: TestClock, server: FeedServer
) -> None:
    news = server.publish("news", max_age=600)
    subscribe("ada", news.url)
    fetch_what_is_due()
    due = clock.now() + 10 * MINUTE

    unsubscribe("ada", news.url)
    clock.advance("4m")
    subscribe("ada", news.url)
    assert feed_at(news.url).next_fetch_at == due
    assert not fetch_what_is_due().runs

    unsubscribe("ada", news.url)
    clock.advance("7m")
    subscribe("bob", news.url)
    assert feed_at(news.url).next_fetch_at == clock.now()
    assert fetch_what_is_due().succeeded == 1
    assert news.answers == [200, 304]
    assert len(jobs.recurring_jobs(task="fetch_feed")) == 1


@pytest.mark.requirement("A4", "A11")
def test_the_last_reader_leaves_while_the_feed_is_fetched(live: str, server: FeedServer) -> None:
    news = server.publish("news", max_age=0)
    news.seconds = 0.4
    with jobs.worker():
        subscribe("ada", news.url)
        eventually(lambda: news.asked_at)
        assert unsubscribe("ada", news.url) is False
        assert feed_at(news.url).entries == 0, "it is still under way"
        assert job_of(news.url).running
        eventually(lambda: not job_of(news.url).running)
        time.sleep(0.1)
    feed, job = feed_at(news.url), job_of(news.url)
    assert (feed.entries, feed.next_fetch_at) == (3, None), "the fetch ended normally"
    assert (job.enabled, job.last_outcome) == (False, "succeeded")
    assert news.answers == [200]


@pytest.mark.requirement("A1", "A11")
def test_a_subscription_that_is_rolled_back_leaves_no_job(clock: TestClock, server: FeedServer) -> None:
    with pytest.raises(ZeroDivisionError), transaction() as connection:  # noqa: PT012
        feed_id = feeds.add(connection, f"{server.url}/news")
        fetch_feed.recur(feed_id, args={"feed_id": feed_id}, connection=connection)
        assert jobs.recurring_job(fetch_feed, feed_id, connection=connection).enabled
        raise ZeroDivisionError
    with pytest.raises(RecurringJobNotFound):
        jobs.recurring_job(fetch_feed, feed_id)
    assert standings() == []


@pytest.mark.requirement("A11")
def test_what_an_operator_does_is_seen_on_the_feed(clock: TestClock, server: FeedServer) -> None:
    news = server.publish("news", max_age=600)
    subscribe("ada", news.url)
    fetch_what_is_due()
    job = job_of(news.url)

    tomorrow = clock.now() + timedelta(days=1)
    job.reschedule(tomorrow)
    assert feed_at(news.url).next_fetch_at == tomorrow
    job.disable("asked to", by="support")
    assert feed_at(news.url).next_fetch_at is None
    assert job.enable() == tomorrow
    assert feed_at(news.url).next_fetch_at == tomorrow
    job.run_now()
    assert fetch_what_is_due().succeeded == 1
    assert news.answers == [200, 304]
    job.delete()
    assert feed_at(news.url).next_fetch_at is None


# -- races ----------------------------------------------------------------------------------------------------


@contextmanager
def watched() -> Iterator[None]:
    """Check all the while that every feed mirrors its job, as others see it."""
    wrong: list[BaseException] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.002):
            try:
                assert_every_feed_mirrors_its_job()
            except BaseException as error:
                wrong.append(error)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if wrong:
        raise wrong[0]


def at_once(*calls: Callable[[], object]) -> list[object]:
    """Make calls in threads, at the same moment as far as can be. Returns what they did, in order."""
    barrier, done = threading.Barrier(len(calls)), [None] * len(calls)
    answers: list[object] = list(done)

    def make(number: int, call: Callable[[], object]) -> None:
        barrier.wait(10)
        try:
            answers[number] = call()
        except BaseException as error:
            answers[number] = error

    threads = [threading.Thread(target=make, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers


@pytest.mark.requirement("A1")
def test_many_first_readers_at_once_make_one_feed_and_one_job(clock: TestClock, server: FeedServer) -> None:
    for number in range(10):
        news = server.publish(f"news-{number}")
        made = at_once(*[lambda reader=f"reader-{n}": subscribe(reader, news.url) for n in range(6)])  # noqa: B023
        assert len(set(made)) == 1
        assert feed_at(news.url).readers == 6
    assert len(jobs.recurring_jobs(task="fetch_feed")) == 10
    assert fetch_what_is_due().succeeded == 10
    assert {tuple(feed.answers) for feed in server.feeds.values()} == {(200,)}


@pytest.mark.requirement("A3", "A5", "A11")
def test_two_last_readers_leave_at_the_same_moment(live: str, server: FeedServer) -> None:
    news = server.publish("news", max_age=0)
    with jobs.worker(), watched():
        for number in range(ROUNDS):
            fetched = len(news.answers)
            at_once(lambda: subscribe("ada", news.url), lambda: subscribe("bob", news.url))
            assert job_of(news.url).enabled
            if number % 5 == 0:  # in some rounds they leave while it is being fetched again and again
                eventually(lambda: len(news.answers) > fetched)  # noqa: B023
            left = at_once(lambda: unsubscribe("ada", news.url), lambda: unsubscribe("bob", news.url))
            assert sorted(left, key=str) == [False, True], "the first leaves another behind, the second nobody"
            assert not job_of(news.url).enabled
            assert feed_at(news.url).next_fetch_at is None


@pytest.mark.requirement("A3", "A5", "A11")
def test_one_reader_leaves_while_another_joins(live: str, server: FeedServer) -> None:
    news = server.publish("news", max_age=0)
    here, there = "ada", "bob"
    subscribe(here, news.url)
    with jobs.worker(), watched():
        for _ in range(ROUNDS):
            at_once(lambda: unsubscribe(here, news.url), lambda: subscribe(there, news.url))  # noqa: B023
            assert job_of(news.url).enabled
            assert feed_at(news.url).next_fetch_at is not None
            here, there = there, here
        fetched = len(news.answers)
        eventually(lambda: len(news.answers) > fetched)  # and it is not only said to be enabled
    assert_every_feed_mirrors_its_job()


@pytest.mark.requirement("A1", "A2", "A3", "A4", "A5", "A11", "A12")
def test_readers_come_and_go_at_random_and_feeds_fail_at_random(live: str, server: FeedServer) -> None:
    published = [server.publish(f"feed-{number}", max_age=0) for number in range(3)]
    over = time.monotonic() + 3

    def come_and_go(reader: str) -> None:
        dice, reads = random.Random(reader), set[str]()
        while time.monotonic() < over:
            feed = dice.choice(published)
            feed.trouble = dice.choice([None, None, "500"])
            if feed.url in reads:
                unsubscribe(reader, feed.url)
            else:
                subscribe(reader, feed.url)
            reads ^= {feed.url}
            time.sleep(dice.random() / 20)

    with jobs.worker(), watched():
        at_once(*[lambda reader=f"reader-{n}": come_and_go(reader) for n in range(4)])
    assert_every_feed_mirrors_its_job()
    assert len(jobs.recurring_jobs()) == count_jobs() == 4, "three feeds and the renewal"
    assert all(feed.answers for feed in published)


# -- WebSub ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A6", "A9")
def test_subscriptions_at_hubs_are_renewed_daily_and_failures_counted_on_the_job(
    clock: TestClock, server: FeedServer
) -> None:
    clock.move_to(datetime.now(UTC))  # the application tells by the real clock when a subscription ends
    for name in ("news", "blog", "unread"):
        subscribe("ada", server.publish(name, hub=name != "blog").url)
    fetch_what_is_due()
    unsubscribe("ada", f"{server.url}/unread")
    job = jobs.recurring_job(renew_websub)
    midnight = job.next_run_at
    assert midnight is not None
    assert midnight.astimezone(UTC).time().isoformat() == "00:00:00"

    server.hub_trouble = True
    clock.move_to(midnight)
    assert runs_of(renew_websub, drain(jobs))
    job.refresh()
    assert (job.consecutive_failures, job.enabled, server.hub_asked) == (1, True, [])
    assert job.last_error is not None
    assert "1 of 1 not renewed" in job.last_error
    assert job.next_run_at is not None
    assert job.next_run_at < midnight + timedelta(hours=1)

    server.hub_trouble = False
    clock.move_to(job.next_run_at)
    assert runs_of(renew_websub, drain(jobs))
    job.refresh()
    assert (job.consecutive_failures, job.last_outcome) == (0, "succeeded")
    assert server.hub_asked == [f"{server.url}/news"]
    assert job.next_run_at == midnight + timedelta(days=1)
    assert feed_at(f"{server.url}/news").websub_until is not None

    clock.move_to(job.next_run_at)
    assert runs_of(renew_websub, drain(jobs))
    assert len(server.hub_asked) == 1, "it lasts for days yet"


# -- processes ------------------------------------------------------------------------------------------------


def environment(url: str) -> dict[str, str]:
    given = os.environ | {
        "DULY_URL": url,
        "FEED_READER_MINUTE": "0.5",
        "NO_PROXY": "127.0.0.1",
        "PYTHONUNBUFFERED": "1",
    }
    return given | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}


@pytest.fixture
def start_workers(database_url: str, tmp_path: Path) -> Iterator[Callable[[int], list[subprocess.Popen[bytes]]]]:
    """Start worker processes as the README says, all at once."""
    started: list[subprocess.Popen[bytes]] = []

    def start(count: int) -> list[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "duly", "worker", "examples.feed_reader.tasks:jobs"]
        with (tmp_path / "workers.log").open("ab") as log:
            new = [
                subprocess.Popen(command, cwd=ROOT, env=environment(database_url), stdout=log, stderr=log)
                for _ in range(count)
            ]
        started.extend(new)
        return new

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
    for process in started:
        process.wait(30)


@pytest.mark.requirement("A1", "A8", "A9")
def test_workers_that_start_at_once_declare_one_renewal_and_a_killed_ones_fetch_is_taken_over(
    live: str, server: FeedServer, start_workers: Callable[[int], list[subprocess.Popen[bytes]]]
) -> None:
    workers = start_workers(3)
    eventually(lambda: len(jobs.workers()) == 3, within=30)
    (renewal,) = jobs.recurring_jobs(task="renew_websub")
    news = server.publish("news", hub=True)
    news.seconds = 3.0
    subscribe("ada", news.url)
    eventually(lambda: news.asked_at, within=10)
    (running,) = jobs.list(state="running")
    (victim,) = [process for process in workers if process.pid == pid_of(running.record.worker_id)]
    victim.send_signal(signal.SIGKILL)
    news.seconds = 0.0
    eventually(lambda: feed_at(news.url).entries == 3, within=20)
    assert news.answers[0] == 200

    renewal.run_now()
    eventually(lambda: server.hub_asked, within=10)
    start_workers(2)
    eventually(lambda: len(jobs.workers()) >= 4, within=30)
    assert jobs.recurring_jobs(task="renew_websub") == [renewal]
    assert server.hub_asked == [news.url]
    assert_every_feed_mirrors_its_job()


def pid_of(worker: str | None) -> int:
    (found,) = [each.process.pid for each in jobs.workers() if each.id == worker]
    return int(found)


def test_the_command_line_is_a_feed_reader(live: str, server: FeedServer) -> None:
    news = server.publish("news", max_age=600)

    def reader(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "examples.feed_reader", *words]
        return subprocess.run(
            command, cwd=ROOT, env=environment(live), capture_output=True, text=True, timeout=30, check=False
        )

    assert reader("subscribe", "ada", news.url).returncode == 0
    drain(jobs)
    listed = reader("feeds").stdout.splitlines()
    assert listed[0].split() == ["feed", "readers", "entries", "fetched", "next", "fetch", "failures", "last", "error"]
    assert listed[1].split()[:3] == ["news", "1", "3"]
    assert reader("unsubscribe", "ada", news.url).returncode == 0
    again = reader("unsubscribe", "ada", news.url)
    assert (again.returncode, again.stderr) == (1, f"error: ada does not read {news.url}\n")
    assert reader("subscribe", "ada", "file:///etc/passwd").returncode == 1
    assert reader("frobnicate").returncode == 2


@pytest.mark.deep
def test_the_show_tells_what_happens(tmp_path: Path) -> None:
    given = environment("")
    del given["DULY_URL"]
    command = [sys.executable, "-m", "examples.feed_reader"]
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "news was asked 0 times" in done.stdout
    assert "news was asked once" in done.stdout
    assert "In all there are 4 jobs" in done.stdout


def test_published_feeds_are_what_the_reader_reads(server: FeedServer) -> None:
    feed: PretendFeed = server.publish("a&b", entries=2)
    fetched = web.fetch(feed.url, etag=None, last_modified=None, stop=lambda: False)
    assert (fetched.title, [entry.title for entry in fetched.entries]) == ("a&b", ["a&b 1", "a&b 2"])
