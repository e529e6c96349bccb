"""Dividing room by weight: nobody gets more than its due for long, nothing is left over that somebody wants."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.worker.shares import Shares


@given(st.integers(0, 50), st.dictionaries(st.text(max_size=3), st.floats(0.01, 100), max_size=20))
def test_all_of_the_room_is_given_and_no_more(room: int, weights: dict[str, float]) -> None:
    shares: Shares[str] = Shares()
    for _ in range(5):
        parts = shares.divide(room, weights)
        assert sum(parts.values()) == (room if weights else 0)
        assert all(n > 0 for n in parts.values())
        for place, (key, n) in enumerate(parts.items()):
            if place % 2 == 0:  # the others found nothing after all, and are still owed it
                shares.took(key, n, wanted_more=True)


@pytest.mark.parametrize("room", [1, 2, 7, 100])
def test_over_time_each_gets_its_weight(room: int) -> None:
    shares: Shares[str] = Shares()
    got: Counter[str] = Counter()
    for _ in range(2_000):
        for key, n in shares.divide(room, {"a": 1, "b": 3, "c": 0.5}).items():
            got[key] += n
            shares.took(key, n, wanted_more=True)
    total = got.total()
    assert abs(got["a"] / total - 1 / 4.5) < 0.01
    assert abs(got["b"] / total - 3 / 4.5) < 0.01
    assert abs(got["c"] / total - 0.5 / 4.5) < 0.01


def test_many_with_little_room_all_have_their_turn() -> None:
    shares: Shares[int] = Shares()
    got: Counter[int] = Counter()
    for _ in range(100):
        for key, n in shares.divide(10, dict.fromkeys(range(100), 1)).items():
            got[key] += n
            shares.took(key, n, wanted_more=True)
    assert set(got.values()) <= {9, 10, 11}
    assert len(got) == 100


def test_who_had_no_more_to_give_saves_nothing_up() -> None:
    shares: Shares[str] = Shares()
    for _ in range(50):
        parts = shares.divide(10, {"busy": 1, "idle": 1})
        shares.took("busy", parts["busy"], wanted_more=True)
        shares.took("idle", 0, wanted_more=False)
    for _ in range(50):
        shares.took("busy", shares.divide(10, {"busy": 1})["busy"], wanted_more=True)
    assert shares.divide(10, {"busy": 1, "idle": 1}) == {"busy": 5, "idle": 5}
