"""Limits of tasks, queues and tenants in the claim: never exceeded, by whomever, and no crash leaks a slot."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from duly.domain.limits import Gate, Rate, Says
from duly.domain.records import Claimed, Lane
from duly.store.call import Dialect
from duly.store.opening import open_database
from duly.store.store import Store
from tests.clock import us
from tests.store.factory import LEASE, OTHER_WORKER, WORKER, Factory, crashed, succeeded

pytestmark = pytest.mark.requirement("D6")

GATES: list[Gate] = [("task", "send"), ("queue", "default"), ("tenant", "acme")]
ALL = tuple(GATES)
LANE = Lane("acme", "send")


def claim(
    make: Factory, n: int, *gates: Gate, lane: Lane = LANE, worker: str = WORKER, queue: str = "default"
) -> list[Claimed]:
    return make.store.claim(queue, [lane], n, worker_id=worker, lease_us=us(LEASE), gates=gates)


def limit(make: Factory, gate: Gate, slots: int | None) -> None:
    make.store.gates.set_limit(*gate, Says(slots=slots))


@pytest.fixture
def full(make: Factory) -> Factory:
    """Twenty jobs of tenant acme."""
    make.many(20, tenant="acme")
    return make


@pytest.mark.parametrize("gate", GATES)
def test_no_more_run_than_the_limit_says(full: Factory, gate: Gate) -> None:
    limit(full, gate, 3)
    first = claim(full, 2, gate)
    assert len(first) == 2
    second = claim(full, 10, gate, worker=OTHER_WORKER)
    assert len(second) == 1
    assert claim(full, 10, gate) == []
    full.settle(succeeded(first[0]))
    assert len(claim(full, 10, gate)) == 1


def test_of_several_limits_the_narrowest_counts(full: Factory) -> None:
    for gate, slots in zip(ALL, (5, 4, 3), strict=True):
        limit(full, gate, slots)
    assert len(claim(full, 10, *ALL)) == 3
    limit(full, ALL[2], 10)
    assert len(claim(full, 10, *ALL)) == 1
    limit(full, ALL[1], 10)
    assert len(claim(full, 10, *ALL)) == 1
    assert claim(full, 10, *ALL) == []


def test_a_limit_is_shared_by_the_lanes_that_it_binds(make: Factory) -> None:
    make.many(5, tenant="a")
    make.many(5, tenant="b")
    make.many(5, tenant="a", queue="other")
    limit(make, ("task", "send"), 4)
    assert len(claim(make, 2, ("task", "send"), lane=Lane("a", "send"))) == 2
    assert len(claim(make, 5, ("task", "send"), lane=Lane("a", "send"), queue="other")) == 2
    assert claim(make, 5, ("task", "send"), lane=Lane("b", "send")) == []


@pytest.mark.parametrize("gate", GATES)
def test_a_claim_that_does_not_know_of_a_limit_gets_nothing(full: Factory, gate: Gate) -> None:
    limit(full, gate, 3)
    assert claim(full, 10) == []
    others = [each for each in GATES if each != gate]
    assert claim(full, 10, *others) == []
    assert len(claim(full, 10, *GATES)) == 3, "who names more than there are limits gets what they leave"


@pytest.mark.parametrize("gate", GATES)
def test_none_at_all_may_run_with_a_limit_of_nothing(full: Factory, gate: Gate) -> None:
    limit(full, gate, 0)
    assert claim(full, 10, gate) == []
    limit(full, gate, 1)
    assert len(claim(full, 10, gate)) == 1


@pytest.mark.parametrize("gate", GATES)
def test_a_lower_limit_waits_for_what_runs(full: Factory, gate: Gate) -> None:
    limit(full, gate, 5)
    running = claim(full, 5, gate)
    limit(full, gate, 2)
    for job in running[:3]:
        assert claim(full, 10, gate) == []
        full.settle(succeeded(job))
    assert claim(full, 10, gate) == []
    full.settle(succeeded(running[3]))
    assert len(claim(full, 10, gate)) == 1


def unstamp(full: Factory) -> None:
    """As if a claim had been under way for long when the limit was made."""
    full.raw.rows("UPDATE duly.gates SET stamped = false")
    full.raw.rows("UPDATE duly.running SET limited = 0")


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("stamped", [False, True])
def test_what_ran_before_there_was_a_limit_counts(full: Factory, gate: Gate, stamped: bool) -> None:
    before = claim(full, 2)
    limit(full, gate, 3)
    if not stamped:
        unstamp(full)
    assert len(claim(full, 10, gate)) == 1
    assert full.store.gates.stamp() == (0 if stamped else 1)
    assert claim(full, 10, gate) == []
    full.settle(*map(succeeded, before))
    assert len(claim(full, 10, gate)) == 2


@pytest.mark.parametrize("gate", GATES)
def test_a_limit_is_marked_at_once_and_a_changed_number_is_no_new_limit(full: Factory, gate: Gate) -> None:
    limit(full, gate, 3)
    assert all(each.stamped for each in full.store.gates.limits())
    limit(full, gate, 4)
    assert full.store.gates.stamp() == 0
    assert all(each.stamped for each in full.store.gates.limits())


def test_a_limit_is_not_marked_while_a_claim_is_under_way_that_may_not_know_it(
    full: Factory, database_url: str
) -> None:
    """Every claim reads the gates; one that began before the limit may still leave a run without its mark."""
    if full.store.dialect is Dialect.SQLITE:
        pytest.skip("SQLite has one writer at a time")
    gate = ("task", "send")
    before = claim(full, 2)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT count(*) FROM duly.gates")
        limit(full, gate, 3)
        assert not any(each.stamped for each in full.store.gates.limits())
        assert len(claim(full, 10, gate)) == 1, "and counts by what runs are meanwhile"
    assert full.store.gates.stamp() == 1
    assert claim(full, 10, gate) == []
    full.settle(*map(succeeded, before))
    assert len(claim(full, 10, gate)) == 2


@pytest.mark.parametrize("gate", GATES)
def test_a_limit_that_was_removed_and_comes_back_counts_what_ran_meanwhile(full: Factory, gate: Gate) -> None:
    limit(full, gate, 3)
    full.store.gates.unset_limit(*gate)
    assert full.store.gates.limits() == []
    assert len(claim(full, 5)) == 5
    limit(full, gate, 3)
    assert claim(full, 10, gate) == []


def test_a_rate_with_a_number_that_comes_later_counts_what_ran_before(full: Factory) -> None:
    gate = ("task", "send")
    full.store.gates.set_limit(*gate, Says.limits(None, Rate(100, us(1), 50)))
    assert len(claim(full, 5, gate)) == 5
    full.store.gates.set_limit(*gate, Says.limits(6, Rate(100, us(1), 50)))
    assert len(claim(full, 5, gate)) == 1


@pytest.mark.requirement("D7")
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("stamped", [False, True])
def test_a_lapsed_lease_holds_no_slot_and_cannot_be_renewed_over_the_limit(
    full: Factory, gate: Gate, stamped: bool
) -> None:
    limit(full, gate, 2)
    if not stamped:
        unstamp(full)
    old = claim(full, 2, gate)
    full.clock.advance(LEASE)
    assert len(claim(full, 5, gate, worker=OTHER_WORKER)) == 2
    assert full.store.renew([(job.id, job.token) for job in old], us(LEASE)) == {}
    assert full.settle(*[crashed(job) for job in old], only_expired=True) == {job.id for job in old}
    assert claim(full, 5, gate) == []


@pytest.mark.requirement("D7")
@pytest.mark.parametrize("gate", GATES)
def test_suspects_are_bound_by_limits_too(full: Factory, gate: Gate) -> None:
    limit(full, gate, 1)
    [job] = claim(full, 1, gate)
    full.settle(crashed(job, crashes=2))
    [normal] = claim(full, 1, gate)
    lanes = [LANE]
    options = {"worker_id": WORKER, "lease_us": us(LEASE), "suspect": True}
    assert full.store.claim("default", lanes, 1, gates=[gate], **options) == []  # type: ignore[arg-type]
    full.settle(succeeded(normal))
    assert full.store.claim("default", lanes, 1, **options) == []  # type: ignore[arg-type]
    assert len(full.store.claim("default", lanes, 1, gates=[gate], **options)) == 1  # type: ignore[arg-type]
    assert claim(full, 1, gate) == []


@pytest.mark.requirement("E9")
def test_tenants_share_what_a_limit_leaves(make: Factory) -> None:
    """The flood of one takes not all of the few slots."""
    make.many(50, tenant="a")
    make.many(50, tenant="b")
    limit(make, ("task", "send"), 6)
    shares = {"a": 3, "b": 3}
    lanes = [Lane("a", "send"), Lane("b", "send")]
    jobs = make.store.claim(
        "default", lanes, 6, worker_id=WORKER, lease_us=us(LEASE), gates=[("task", "send")], shares=shares
    )
    assert Counter(job.tenant for job in jobs) == {"a": 3, "b": 3}


@pytest.mark.requirement("E9")
def test_no_more_are_claimed_than_asked_for_however_large_the_shares(make: Factory) -> None:
    make.many(6, tenant="a")
    make.many(6, tenant="b")
    lanes = [Lane("a", "send"), Lane("b", "send")]
    shares = {"a": 3, "b": 3}
    jobs = make.store.claim("default", lanes, 2, worker_id=WORKER, lease_us=us(LEASE), shares=shares)
    assert Counter(job.tenant for job in jobs) == {"a": 1, "b": 1}


def test_a_limit_too_narrow_for_all_shares_is_divided(make: Factory) -> None:
    make.many(50, tenant="a")
    make.many(50, tenant="b")
    limit(make, ("task", "send"), 4)
    lanes = [Lane("a", "send"), Lane("b", "send")]
    jobs = make.store.claim(
        "default", lanes, 20, worker_id=WORKER, lease_us=us(LEASE), gates=[("task", "send")], shares={"a": 15, "b": 5}
    )
    assert Counter(job.tenant for job in jobs) == {"a": 3, "b": 1}


# -- what the code declares, what is said by hand ------------------------------------------------------------------


def slots_of(make: Factory) -> tuple[int | None, bool] | None:
    found = {each.gate: each for each in make.store.gates.limits()}
    each = found.get(("task", "send"))
    return None if each is None else (each.says.slots, each.by_hand)


def declared(make: Factory, slots: int | None) -> None:
    make.store.gates.declare([(("task", "send"), Says(slots=slots))])


def test_the_newest_deployment_says_how_many(make: Factory) -> None:
    declared(make, 3)
    assert slots_of(make) == (3, False)
    declared(make, 5)
    assert slots_of(make) == (5, False)
    declared(make, None)
    assert slots_of(make) is None
    assert make.raw.count("gates") == 0, "nothing is left behind"


def test_what_is_said_by_hand_stays_through_deployments_until_it_is_taken_back(make: Factory) -> None:
    declared(make, 3)
    limit(make, ("task", "send"), 1)
    for slots in (3, 7, None, 9):
        declared(make, slots)
        assert slots_of(make) == (1, True)
    make.store.gates.unset_limit("task", "send")
    assert slots_of(make) == (9, False)
    declared(make, None)
    assert slots_of(make) is None


def test_by_hand_without_a_word_in_code_and_taken_back(make: Factory) -> None:
    limit(make, ("task", "send"), 1)
    declared(make, None)
    assert slots_of(make) == (1, True)
    make.store.gates.unset_limit("task", "send")
    assert slots_of(make) is None
    assert make.raw.count("gates") == 0


def test_a_pause_outlives_the_limit_and_the_other_way_round(make: Factory) -> None:
    make.many(3)
    limit(make, ("task", "send"), 2)
    make.store.gates.pause("task", "send", by=None, reason=None, until=None, for_us=None)
    make.store.gates.unset_limit("task", "send")
    assert make.claim(5) == []
    make.store.gates.resume("task", "send")
    assert len(make.claim(1)) == 1
    limit(make, ("task", "send"), 2)
    make.store.gates.pause("task", "send", by=None, reason=None, until=None, for_us=None)
    assert make.claim(5, limited=True) == []
    make.store.gates.resume("task", "send")
    assert len(make.claim(5, limited=True)) == 1


# -- many at once --------------------------------------------------------------------------------------------------


def race(make: Factory, url: str, n: int, work: Callable[[Store], None]) -> None:
    """Do something in several threads, each with connections of its own, all at once."""
    ready = threading.Barrier(n)

    def one() -> None:
        store = Store(open_database(url, make.clock, synchronous="off"))
        try:
            ready.wait(20)
            work(store)
        finally:
            store.close()

    with ThreadPoolExecutor(n) as pool:
        for future in [pool.submit(one) for _ in range(n)]:
            future.result(60)


def test_however_many_claim_at_once_the_limit_holds_at_every_moment(make: Factory, database_url: str) -> None:
    make.many(120, tenant="acme")
    for gate, slots in zip(ALL, (3, 4, 5), strict=True):
        limit(make, gate, slots)
    lock, live, most, done = threading.Lock(), 0, 0, 0

    def work(store: Store) -> None:
        nonlocal live, most, done
        while done < 120:
            jobs = store.claim("default", [LANE], 2, worker_id=WORKER, lease_us=us(LEASE), gates=ALL)
            with lock:
                live += len(jobs)
                most = max(most, live)
            with lock:
                live -= len(jobs)
            if jobs:
                store.settle([succeeded(job) for job in jobs])
                with lock:
                    done += len(jobs)

    race(make, database_url, 6, work)
    assert done == 120
    assert most <= 3


def test_two_claims_of_different_limits_that_overlap_never_deadlock(make: Factory, database_url: str) -> None:
    make.many(60, tenant="acme")
    make.many(60, tenant="acme", task="other")
    for gate in (*ALL, ("task", "other")):
        limit(make, gate, 2)
    done = Counter[str]()

    def work(store: Store) -> None:
        for turn in range(400):
            task = ("send", "other")[turn % 2]
            gates = [("tenant", "acme"), ("task", task), ("queue", "default")]
            lanes = [Lane("acme", task)]
            jobs = store.claim("default", lanes, 2, worker_id=WORKER, lease_us=us(LEASE), gates=gates)
            store.settle([succeeded(job) for job in jobs])
            done.update(job.task for job in jobs)
            if done.total() >= 120:
                break

    race(make, database_url, 4, work)
    assert done == {"send": 60, "other": 60}


def test_a_rate_holds_however_many_claim_at_once(make: Factory, database_url: str) -> None:
    make.many(100)
    rate = Rate(1, us(3600), 11)
    make.store.gates.set_limit("task", "send", Says.limits(None, rate))
    got: list[Claimed] = []

    def work(store: Store) -> None:
        for _ in range(10):
            got.extend(
                store.claim(
                    "default", [Lane("", "send")], 3, worker_id=WORKER, lease_us=us(LEASE), gates=[("task", "send")]
                )
            )

    race(make, database_url, 6, work)
    assert len(got) == rate.at_once
