"""Many workers at the same keys at once: never more than their slots, no job lost, no deadlock."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from duly.domain.limits import Breaker, Rate, Says
from duly.domain.records import Claimed
from duly.store.opening import open_database
from duly.store.store import Store
from tests.clock import us
from tests.limits.keyed import Keyed
from tests.store import invariants
from tests.store.factory import SETTLES

pytestmark = pytest.mark.requirement("D6", "D7")
KEYS = [f"k{n}" for n in range(6)]


def work(keyed: Keyed, threads: int, body: object) -> None:
    """Run `body(keyed, random)` in several threads, each with connections of its own."""
    ready = threading.Barrier(threads)

    def one(seed: int) -> None:
        store = Store(open_database(keyed.raw.url, keyed.clock, synchronous="off"))
        try:
            ready.wait(20)
            body(Keyed(store, keyed.clock, keyed.raw), random.Random(seed))  # type: ignore[operator]
        finally:
            store.close()

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(one, seed) for seed in range(threads)]:
            future.result(100)


class Tally:
    """Which keys have how many runs at this moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: Counter[str | None] = Counter()
        self.most: Counter[str | None] = Counter()
        self.done = 0

    def begin(self, jobs: list[Claimed]) -> None:
        with self._lock:
            for job in jobs:
                self._now[job.limit_key] += 1
                self.most[job.limit_key] = max(self.most[job.limit_key], self._now[job.limit_key])

    def end(self, jobs: list[Claimed]) -> None:
        """Before they are settled: from then on the next may start."""
        with self._lock:
            self.done += len(jobs)
            self._now.subtract(job.limit_key for job in jobs)


@pytest.mark.parametrize("slots", [1, 2])
def test_no_key_ever_has_more_runs_than_slots(keyed: Keyed, slots: int) -> None:
    keyed.says(slots)
    total = 25 * len(KEYS)
    tally = Tally()

    def body(mine: Keyed, chance: random.Random) -> None:
        for key in chance.sample(KEYS, len(KEYS)):
            for _ in range(5):
                mine.enqueue(limit_key=f"send/{key}", priority=chance.choice([0, 0, 50]))
        for _ in range(400):
            mine.look()
            jobs = mine.grab(chance.randint(1, 4))
            tally.begin(jobs)
            time.sleep(0.002)
            tally.end(jobs)
            if jobs:
                chance.shuffle(jobs)
                mine.end(*jobs)
            if tally.done >= total:
                break

    work(keyed, 5, body)
    assert tally.done == total
    assert max(tally.most.values()) <= slots


def test_everything_at_once_ends_in_sound_tables_and_without_a_deadlock(keyed: Keyed) -> None:
    """Rates, breakers, pauses, limits by hand, cancels and prunes beside claims and settles in any order."""
    keyed.says(2, Rate(1_000, us(1), 100), Breaker(rate=0.9, least=50, cooldown=0.01))
    names = [f"send/{key}" for key in KEYS]

    def body(mine: Keyed, chance: random.Random) -> None:
        mine_ids: list[str] = []
        for _ in range(40):
            match chance.randrange(9):
                case 0 | 1:
                    for key in chance.sample(names, 3):
                        mine_ids.append(mine.enqueue(limit_key=key, max_attempts=50))
                case 2 | 3 | 4:
                    mine.look()
                    jobs = mine.grab(6, metered=True)
                    chance.shuffle(jobs)
                    how = chance.choice(sorted(SETTLES))
                    if jobs:
                        mine.end(*jobs, how=how, counted=True)
                case 5:
                    for job_id in chance.sample(mine_ids, min(2, len(mine_ids))):
                        mine.store.cancel(job_id, "stop")
                        mine.store.set_priority(job_id, 70)
                case 6:
                    key = chance.choice(KEYS)
                    mine.pause(key)
                    mine.resume(key)
                case 7:
                    mine.store.gates.set_key_limit(chance.choice(names), Says(slots=chance.choice([None, 1, 3])))
                    mine.block(chance.choice(KEYS), 0.001)
                case _:
                    mine.store.gates.rearrange("send")
                    mine.store.prune_rest(us(1_000_000))
                    keyed.clock.advance(0.01)

    work(keyed, 4, body)
    keyed.clock.advance(5)
    keyed.look()
    invariants.check(keyed.raw, keyed.clock.now_us())


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("turn", range(10))
def test_everything_at_once_again_and_again(keyed: Keyed, turn: int) -> None:
    test_everything_at_once_ends_in_sound_tables_and_without_a_deadlock(keyed)


def test_claims_that_spend_the_rates_of_keys_and_ends_that_move_their_breakers_never_deadlock(keyed: Keyed) -> None:
    keyed.says(None, Rate(100_000, us(1), 50_000), Breaker(rate=1.0, least=1_000_000))
    names = [f"send/{n:02}" for n in range(30)]

    def body(mine: Keyed, chance: random.Random) -> None:
        for turn in range(40):
            chance.shuffle(names)
            for key in names[:15]:
                mine.enqueue(limit_key=key)
            mine.look()
            jobs = mine.grab(15, metered=True)
            chance.shuffle(jobs)
            if jobs:
                mine.end(*jobs, how=chance.choice(["succeeded", "failed"]), counted=True)
            if turn % 10 == 9:
                mine.store.prune_rest(us(1_000_000))

    work(keyed, 4, body)
