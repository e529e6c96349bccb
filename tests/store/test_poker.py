"""Hints that come in a burst are told together: one for all that are alike."""

from __future__ import annotations

import threading

import pytest

from duly.store.database import Hint
from duly.store.poker import MOST, Poker


def burst(hints: list[Hint]) -> list[Hint]:
    """What is told of these, where the thread that tells is still busy with something else."""
    told: list[Hint] = []
    go_on = threading.Event()

    def send(hint: Hint) -> None:
        told.append(hint)
        if threading.current_thread().name == "duly-poker":
            assert go_on.wait(10)

    poker = Poker(send)
    while len(poker._pending) < 1 or len(told) < 2:  # one went at once, the thread is at one, and one waits for it
        poker.poke(Hint("workers"))
    for hint in hints:
        poker.poke(hint)
    go_on.set()
    poker.close()
    return [hint for hint in told if hint.kind != "workers"]


def test_bulk_enqueues_into_one_lane_are_told_once_with_the_lowest_rank() -> None:
    """Each has a rank of its own. A look, which all workers take, is for many lanes."""
    ranks = [*range(300, 100, -1), *range(101, 400)]
    assert burst([Hint("jobs", "default", "", "send", rank) for rank in ranks]) == [
        Hint("jobs", "default", "", "send", 101)
    ]


@pytest.mark.parametrize("first", [None, 5])
def test_where_one_of_them_has_no_rank_none_is_told(first: int | None) -> None:
    second = 5 if first is None else None
    told = burst([Hint("jobs", "default", "", "send", rank) for rank in (first, second)])
    assert told == [Hint("jobs", "default", "", "send", None)]


def test_lanes_and_senders_are_told_apart() -> None:
    hints = [Hint("jobs", "default", "", task, 1, sender=sender) for task in "ab" for sender in ("", "x")]
    assert burst(hints) == hints


def test_too_many_lanes_are_told_as_a_look() -> None:
    assert burst([Hint("jobs", "default", "", str(n), n) for n in range(MOST + 1)]) == [Hint("look")]
