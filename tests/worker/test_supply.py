"""How many jobs a process claims ahead: what its slots would start soon, whether the database is near or far."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from duly import Duly
from duly.store.store import Store
from duly.worker.finisher import spells_of
from duly.worker.registry import Kind
from duly.worker.slots import AHEAD_SECONDS, MOST_AHEAD, JobsEnded, Pool, Slots, Spell
from tests.helpers import eventually
from tests.speed.counting import Handler, noop

MS = 1_000_000
FAR = 0.08
"""Seconds that a claim takes where the database is far away, or has more to do than it can: longer than the supply."""


def turn(pool: Pool, n: int, *, at: int, took: int) -> None:
    """Jobs come at a time, in milliseconds, and the last of them ends so much later."""
    pool.worked(Spell(Kind.ASYNC, n, at * MS, (at + took) * MS))


def test_until_there_is_something_to_go_by_only_slots_are_filled() -> None:
    pool = Pool(8)
    turn(pool, 8, at=1_000, took=1)
    assert pool.target == 8


def test_slots_that_turn_over_fast_get_a_supply_for_a_moment() -> None:
    pool = Pool(8)
    for n in range(100):
        turn(pool, 8, at=1_000 + 2 * n, took=2)
    assert pool.rate == pytest.approx(4_000, rel=0.05)
    assert pool.target == pytest.approx(4_000 * AHEAD_SECONDS, rel=0.05)


def test_time_without_jobs_does_not_count() -> None:
    pool = Pool(8)
    for n in range(100):
        turn(pool, 8, at=1_000 + 200 * n, took=2)
    assert pool.rate == pytest.approx(4_000, rel=0.05)


def test_time_in_which_others_run_counts_once() -> None:
    pool = Pool(8)
    for n in range(100):  # four at a time, which take 40 ms each: 10 ms between one end and the next
        turn(pool, 1, at=1_000 + 10 * n, took=40)
    assert pool.rate == pytest.approx(100, rel=0.15)


def test_there_is_a_most() -> None:
    pool = Pool(8)
    for n in range(20):
        turn(pool, 500, at=1_000 + n, took=1)
    assert pool.target == MOST_AHEAD


def test_slow_jobs_after_a_pause_are_not_taken_for_quick_ones() -> None:
    pool = Pool(8)
    for n in range(20):
        turn(pool, 500, at=1_000 + n, took=1)
    turn(pool, 1, at=60_000, took=500)
    assert pool.target == 8


@pytest.mark.parametrize("handler", ["async def", "def"])
def test_where_claims_take_long_each_brings_many(jobs: Duly, handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    claim, brought = Store.claim, list[int]()

    def from_afar(*args: Any, **kwargs: Any) -> list[Any]:
        time.sleep(FAR)
        found = claim(*args, **kwargs)
        brought.append(len(found))
        return found

    noop(jobs, handler).enqueue_many([{"n": n} for n in range(1_000)])
    monkeypatch.setattr(Store, "claim", from_afar)
    with jobs.worker(async_slots=2, thread_slots=2) as worker:
        eventually(lambda: worker.settled == 1_000, within=30)
    assert len([n for n in brought if n]) < 60, f"claims brought {brought}"


def test_slots_that_got_stuck_get_no_supply(jobs: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick jobs, and then a service that does not answer: what waits is for others to take."""
    claim, brought = Store.claim, list[int]()
    answers = threading.Event()

    def counted(*args: Any, **kwargs: Any) -> list[Any]:
        found = claim(*args, **kwargs)
        brought.append(len(found))
        return found

    @jobs.task
    def call(waits: bool) -> None:
        if waits:
            answers.wait(30)

    monkeypatch.setattr(Store, "claim", counted)
    call.enqueue_many([{"waits": False}] * 2_000)
    call.enqueue_many([{"waits": True}] * 500)
    embedded = jobs.worker(thread_slots=4)
    worker = embedded.start()
    try:
        eventually(lambda: worker.settled == 2_000, within=30)
        eventually(lambda: worker.busy == 4)
        assert worker._slots.pools[Kind.THREAD].target == 4
        before = sum(brought)
        time.sleep(1.5)
        assert sum(brought) == before
        assert len(jobs.list(state="queued", limit=500)) == 496
    finally:
        answers.set()
        embedded.stop()


def ended(came_ns: int, ended_ns: int, kind: Kind = Kind.ASYNC) -> Any:
    """As the finisher gets it."""
    return SimpleNamespace(came_ns=came_ns, definition=SimpleNamespace(kind=kind)), ended_ns, None


def test_who_came_together_and_ended_in_a_row_is_one_spell() -> None:
    batch = [ended(1, 5), ended(1, 6), ended(2, 7), ended(1, 8), ended(1, 9, Kind.THREAD)]
    assert spells_of(batch) == [
        Spell(Kind.ASYNC, 2, 1, 6),
        Spell(Kind.ASYNC, 1, 2, 7),
        Spell(Kind.ASYNC, 1, 1, 8),
        Spell(Kind.THREAD, 1, 1, 9),
    ]


def test_what_was_taken_back_says_nothing_about_the_pace() -> None:
    assert spells_of([ended(0, 5), ended(0, 6)]) == []
    assert spells_of([ended(0, 5), ended(1, 6), ended(0, 7)]) == [Spell(Kind.ASYNC, 1, 1, 6)]


def test_what_has_not_begun_is_taken_back_without_a_time(jobs: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Spell] = []
    noted = Slots.ended

    def note(self: Slots, counts: JobsEnded, spells: Iterable[Spell] = ()) -> None:
        taken.extend(spells)
        noted(self, counts, spells)

    @jobs.task
    def slow() -> None:
        time.sleep(0.5)

    monkeypatch.setattr(Slots, "ended", note)
    monkeypatch.setattr(Pool, "target", 20)
    slow.enqueue_many([{}] * 20)
    embedded = jobs.worker(thread_slots=1)
    worker = embedded.start()
    eventually(lambda: worker.busy == 20)
    embedded.stop()
    assert sum(spell.n for spell in taken) == 1
