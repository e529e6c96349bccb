"""Tenants share a queue: a flood of one does not keep others waiting, and an idle one's share is not lost."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from duly import Duly, InvalidOption
from duly.domain.ids import uuid7
from duly.domain.records import Lane
from tests.helpers import eventually


@pytest.mark.requirement("E9")
def test_a_flood_of_one_tenant_does_not_keep_another_waiting(jobs: Duly) -> None:
    waits: list[float] = []
    flooded: list[int] = []

    @jobs.task
    def work(at: float) -> None:
        if at:
            waits.append(time.time() - at)
        else:
            flooded.append(1)
        time.sleep(0.005)

    work.using(tenant="flood").enqueue_many([{"at": 0.0}] * 20_000)
    with jobs.worker(thread_slots=5):
        eventually(lambda: len(flooded) > 300, within=20)  # it is busy now, and nobody tells it of new jobs
        for _ in range(20):
            work.using(tenant="small").enqueue(time.time())
            time.sleep(0.05)
        eventually(lambda: len(waits) == 20)
    waits.sort()
    assert waits[-2] < 0.5, f"behind 20,000 jobs it would have been 20 s: {waits}"


@pytest.mark.requirement("E9")
def test_tenants_share_by_weight_and_what_one_leaves_goes_to_the_others(jobs: Duly) -> None:
    begun: list[str] = []
    ran: list[str] = []
    go = threading.Event()

    @jobs.task
    def work(tenant: str) -> None:
        begun.append(tenant)
        go.wait(10)
        ran.append(tenant)

    jobs.set_weight("heavy", 3)
    assert jobs.weights() == {"heavy": 3.0}
    for tenant, n in (("light", 2_000), ("heavy", 2_000), ("rare", 5)):
        work.using(tenant=tenant).enqueue_many([{"tenant": tenant}] * n)
    with jobs.worker(thread_slots=4):
        eventually(lambda: len(begun) == 4)
        go.set()
        eventually(lambda: len(ran) >= 4_005, within=30)
    first = Counter(ran[100:1_600])
    assert first["rare"] <= 5
    assert 0.65 < first["heavy"] / (first["heavy"] + first["light"]) < 0.85, first


def test_a_queue_that_is_not_fair_goes_by_rank_alone(jobs: Duly) -> None:
    ran: list[str] = []

    @jobs.task
    def work(name: str) -> None:
        ran.append(name)

    jobs.set_fair("default", False)
    for n in range(6):
        work.using(tenant="a").enqueue(f"a{n}")
    for n in range(6):
        work.using(tenant="b").enqueue(f"b{n}")
    with jobs.worker(thread_slots=1):
        eventually(lambda: len(ran) == 12)
    assert ran == sorted(ran)
    ran.clear()
    jobs.set_fair("default", True)
    for name in ("a", "b"):
        work.using(tenant=name).enqueue_many([{"name": f"{name}{n}"} for n in range(6)])
    with jobs.worker(thread_slots=1):
        eventually(lambda: len(ran) == 12)
    assert "b0" in ran[:3], ran
    assert [name for name in ran if name[0] == "a"] == [f"a{n}" for n in range(6)], "by rank within a tenant"


def test_a_claim_takes_of_each_tenant_its_share_lowest_rank_first(jobs: Duly) -> None:
    @jobs.task
    def one() -> None: ...

    @jobs.task
    def two() -> None: ...

    mine = [task.using(tenant="a").enqueue().id for task in (one, two, one, two)]
    others = [one.using(tenant="b").enqueue().id for _ in range(3)]
    lanes = [Lane("a", "one"), Lane("a", "two"), Lane("b", "one")]

    def claim(n: int, shares: dict[str, int]) -> list[str]:
        taken = jobs.store.claim("default", lanes, n, worker_id=uuid7(), lease_us=60_000_000, shares=shares)
        return [job.id for job in taken]

    assert claim(10, {"a": 3, "b": 1}) == [*mine[:3], others[0]]
    assert claim(10, {"a": 5, "b": 0}) == [mine[3]]
    assert claim(10, {"b": 5}) == others[1:]


@pytest.mark.parametrize("tenant, weight", [("", 1), ("a", 0), ("a", -1), ("a", True), ("a", "3"), ("a", 1e9)])
def test_a_weight_that_makes_no_sense_is_refused(jobs: Duly, tenant: str, weight: float) -> None:
    with pytest.raises(InvalidOption, match=r"tenant must not be empty|weight must be a number"):
        jobs.set_weight(tenant, weight)
