"""A look at the database is shared: one thread takes it, it is kept, and it never becomes the work."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from duly import Duly
from duly.metrics import observe
from duly.metrics.observe import Observer
from duly.store.ops_observe import Standing
from duly.store.store import Store
from tests.helpers import eventually


class Looks:
    """Counts looks, and can make them slow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.go_on = threading.Event()
        self.go_on.set()
        real = observe.take_standing

        def take(store: Store, *, scheduled: bool = True) -> Standing:
            self.count += 1
            assert self.go_on.wait(10)
            return real(store, scheduled=scheduled)

        monkeypatch.setattr(observe, "take_standing", take)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def test_within_some_seconds_there_is_one_look_however_many_ask(lite: Duly, looks: Looks) -> None:
    observer = Observer(lite.store)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: observer.observe(), range(50)))
    assert looks.count == 1
    assert all(each is found[0] for each in found)


def test_those_who_ask_for_a_fresh_one_at_once_share_it(lite: Duly, looks: Looks) -> None:
    observer = Observer(lite.store)
    looks.go_on.clear()
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(observer.observe, fresh=True) for _ in range(8)]
        eventually(lambda: looks.count == 1)
        time.sleep(0.05)
        looks.go_on.set()
        for answer in answers:
            answer.result()
    assert looks.count <= 2  # the one under way, and one for those who asked after it had begun


def test_a_look_that_takes_long_is_kept_long_and_the_next_is_taken_meanwhile(
    lite: Duly, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    observer = Observer(lite.store, keep=0.0)
    first = observer.observe()
    observer._last = first._replace(took=0.2)
    assert observer.observe().taken == first.taken  # for 20 times 0.2 s
    observer._last = first._replace(took=0.2, taken=first.taken - 4.1)
    looks.go_on.clear()
    assert observer.observe().taken == first.taken - 4.1  # nobody waits for the next one
    eventually(lambda: looks.count == 2)
    assert observer.observe().taken == first.taken - 4.1
    looks.go_on.set()
    eventually(lambda: observer._last is not None and observer._last.taken > first.taken)
    assert looks.count == 2


def test_a_look_that_fails_meanwhile_is_told_to_who_asks_next_until_one_works(
    lite: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    observer = Observer(lite.store, keep=0.0)
    first = observer.observe()._replace(took=0.2, taken=0.0)
    observer._last = first
    failed = threading.Event()

    def fail(store: Store, *, scheduled: bool = True) -> Standing:
        failed.set()
        raise ValueError("no")

    real = observe.take_standing
    monkeypatch.setattr(observe, "take_standing", fail)
    assert observer.observe() is first
    assert failed.wait(5)
    eventually(lambda: not observer._looking.locked())
    with pytest.raises(ValueError, match="no"):
        observer.observe()
    eventually(lambda: not observer._looking.locked())
    monkeypatch.setattr(observe, "take_standing", real)
    with pytest.raises(ValueError, match="no"):
        observer.observe()
    eventually(lambda: not observer._looking.locked())
    assert observer.observe().taken > first.taken
