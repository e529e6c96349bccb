"""Where claims from the start of a lane are slow they begin at a cursor; what stands before it is found too."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

from duly import Backoff, Duly
from duly.domain.records import Claimed, Lane
from duly.store.ops_claim import Found
from duly.store.sqlite_wake import SqliteWaker
from duly.store.store import Store
from duly.worker import lanes as lanes_module
from duly.worker.claimer import LOOK_COST
from duly.worker.lanes import Lanes
from tests.helpers import Ledger, eventually, worker_process
from tests.worker.tasks import declare

pytestmark = pytest.mark.requirement("C1")

KEY = ("", "send")
FAST, SLOW = 0.0001, 1.0


def job(rank: int) -> Claimed:
    empty = dict.fromkeys(Claimed._fields)
    return Claimed(**(empty | {"id": f"id-{rank}", "tenant": "", "task": "send", "rank": rank}))  # type: ignore[arg-type]


def claimed(lanes: Lanes, *ranks: int, asked: int, seconds: float) -> None:
    lanes.claimed(lanes.pick([KEY]), [job(rank) for rank in ranks], seconds, asked=asked, shares=None)


@pytest.fixture
def lanes() -> Lanes:
    """A lane of which a slow claim has taken the first two jobs."""
    lanes = Lanes("default", lambda tenant, task: True)
    lanes.seen([(Lane(*KEY), 10)], [], full=False, seconds=SLOW)
    claimed(lanes, 10, 20, asked=2, seconds=SLOW)
    assert lanes.pick([KEY]) == [Lane(*KEY, 20, "id-20")]
    return lanes


def test_a_quick_claim_needs_no_cursor() -> None:
    lanes = Lanes("default", lambda tenant, task: True)
    lanes.hint("", "send", None)
    claimed(lanes, 10, 20, asked=2, seconds=FAST)
    assert lanes.pick([KEY]) == [Lane(*KEY)]


def test_the_cursor_moves_on_with_every_job_though_fewer_came_than_asked(lanes: Lanes) -> None:
    claimed(lanes, 30, asked=2, seconds=FAST)
    assert KEY not in lanes.heads
    assert lanes.look_due, "only from the cursor on it is empty"
    assert not lanes.look_wanted, "nobody said that there is something"
    lanes.hint("", "send", None)
    assert lanes.pick([KEY]) == [Lane(*KEY, 30, "id-30")]


def test_after_a_slow_walk_over_nothing_the_next_begins_where_the_last_job_was(lanes: Lanes) -> None:
    lanes.seen([], [], full=False, seconds=FAST)
    lanes.hint("", "send", None)
    assert lanes.pick([KEY]) == [Lane(*KEY)], "looks are quick again"
    claimed(lanes, asked=2, seconds=SLOW)
    lanes.hint("", "send", None)
    assert lanes.pick([KEY]) == [Lane(*KEY, 20, "id-20")]


def test_a_hint_of_the_cursors_own_rank_takes_it_back_to_the_first_of_that_rank(lanes: Lanes) -> None:
    lanes.seen([(Lane(*KEY), 20)], [], full=False, seconds=SLOW)
    assert lanes.pick([KEY]) == [Lane(*KEY, 20, "id-20")], "a look finds those that wait there anyhow"
    lanes.hint("", "send", 20)
    assert lanes.pick([KEY]) == [Lane(*KEY, 20)]


def test_a_hint_that_says_its_rank_takes_the_cursor_back_to_it(lanes: Lanes) -> None:
    lanes.hint("", "send", 25)
    assert lanes.pick([KEY])[0].from_rank == 20
    lanes.hint("", "send", 15)
    assert lanes.pick([KEY]) == [Lane(*KEY, 15)]
    assert not lanes.look_wanted


def test_a_hint_that_does_not_asks_for_a_look_and_the_look_takes_the_cursor_back(lanes: Lanes) -> None:
    lanes.hint("", "send", None)
    assert lanes.look_wanted
    lanes.seen([(Lane(*KEY), 5)], [], full=False, seconds=SLOW)
    assert not lanes.look_wanted
    assert lanes.pick([KEY]) == [Lane(*KEY, 5)]


# -- with a worker ----------------------------------------------------------------------------------------------


@pytest.fixture
def everything_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """As beside a transaction that has been open for long: every claim earns a cursor."""
    monkeypatch.setattr(lanes_module, "SLOW_SECONDS", -1.0)


@pytest.mark.usefixtures("everything_is_slow")
def test_urgent_late_and_repeated_jobs_are_found_before_the_cursor(jobs: Duly, database_url: str) -> None:
    ran: dict[str, float] = {}
    failed = threading.Event()

    @jobs.task(retry=Backoff.fixed(0.2, max_attempts=2))
    def send(name: str = "") -> None:
        if name == "flaky" and not failed.is_set():
            failed.set()
            raise ValueError("once")
        if name:
            ran[name] = time.monotonic()

    other = Duly(database_url)

    @other.task(name="send")
    def elsewhere(name: str = "") -> None: ...

    with jobs.worker(thread_slots=4):
        for job in send.enqueue_many([{}] * 50):
            job.wait(10)
        for _ in range(3):  # idle, and then again
            began = time.monotonic()
            failed.clear()
            elsewhere.using(priority=100).enqueue("urgent")
            elsewhere.using(delay=timedelta(milliseconds=300)).enqueue("late")
            elsewhere.enqueue("flaky")
            eventually(lambda: len(ran) == 3, within=8)
            assert ran["urgent"] - began < 2
            assert ran["late"] - began < 2.3
            assert ran["flaky"] - began < 2.2
            ran.clear()
    other.close()


@pytest.mark.usefixtures("everything_is_slow")
def test_the_job_of_a_killed_worker_is_found_before_the_cursor(jobs: Duly, database_url: str, ledger: Ledger) -> None:
    tasks = declare(jobs, ledger)
    with worker_process(database_url, ledger) as doomed:
        stuck = tasks.hold.enqueue("stuck", 3)
        eventually(lambda: ledger.count("start", "stuck"), within=20)
        with jobs.worker(thread_slots=2):
            for job in [tasks.hold.enqueue(f"other {n}", 0) for n in range(20)]:
                job.wait(20)
            doomed.kill()
            stuck.wait(20)
    assert ledger.count("start", "stuck") == 2


@pytest.mark.usefixtures("everything_is_slow")
def test_where_looks_are_slow_a_bulk_that_says_its_rank_asks_for_none(
    jobs: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    look, slow = Store.look, 0.03

    def slow_look(store: Store, queue: str, *, after: Lane | None = None) -> Found:
        looks.append(time.monotonic())
        time.sleep(slow)
        return look(store, queue, after=after)

    @jobs.task
    def send() -> None: ...

    monkeypatch.setattr(Store, "look", slow_look)
    # That SQLite's file has changed says no rank, and an idle worker then looks, rightly. Only enqueues speak here.
    monkeypatch.setattr(SqliteWaker, "_data_version", lambda waker: None)
    with jobs.worker(thread_slots=4):
        send.enqueue_many([{}] * 20)[-1].wait(10)
        began, first = time.monotonic(), len(looks)
        while time.monotonic() < began + 2.5:
            send.enqueue_many([{}] * 20)[-1].wait(10)
        took = time.monotonic() - began
    most = took / (LOOK_COST * slow) + 2
    assert 1 <= len(looks) - first <= most, "looks take more than their share, and claims wait for each"
