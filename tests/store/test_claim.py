"""A claim takes what is due, in order, from the lanes that it names; no job is given to two, no limit is passed."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest

from duly.domain.limits import Says
from duly.domain.rank import DEFAULT_HORIZON_US, STRICT_HORIZON_US
from duly.domain.records import Claimed, Lane
from duly.store import ops_claim
from duly.store.store import Store
from duly.testing import TestClock
from tests.clock import us
from tests.store.factory import LEASE, OTHER_WORKER, WORKER, Factory, crashed, succeeded
from tests.store.raw import Raw

pytestmark = pytest.mark.everywhere


@pytest.mark.requirement("B6", "C8")
def test_claimed_job_says_all_that_a_worker_needs(make: Factory, clock: TestClock) -> None:
    options = {"retry": "{}", "timeout_us": 7, "expires_us": us(60), "headers": "{}"}
    job_id = make.enqueue("t", '{"n": 1}', queue="q", tenant="acme", priority=30, **options)
    clock.advance(2)
    job = make.take(task="t", tenant="acme", queue="q")
    assert job == Claimed(
        id=job_id,
        token=1,
        attempt=1,
        crashes=0,
        queue="q",
        tenant="acme",
        task="t",
        priority=30,
        run_at=clock.now_us() - us(2),
        hold=0,
        args='{"n": 1}',
        max_attempts=5,
        retry="{}",
        timeout_us=7,
        expires_at=clock.now_us() + us(58),
        created_at=clock.now_us() - us(2),
        headers="{}",
        claimed_at=clock.now_us(),
        limit_key=None,
        rank=clock.now_us() - us(2) - 30 * (DEFAULT_HORIZON_US // 100),
    )


def test_claimed_job_is_running_in_the_name_of_its_worker(make: Factory, clock: TestClock) -> None:
    job = make.running()
    found = make.get(job.id)
    assert (found.state.value, found.worker_id, found.claimed_at) == ("running", WORKER, clock.now_us())


def test_lease_and_deadline_are_noted(make: Factory, raw: Raw, clock: TestClock) -> None:
    make.running(timeout_us=us(5))
    lease, deadline = raw.rows("SELECT leased_until, deadline_at FROM duly.running")[0]
    assert (lease, deadline) == (clock.lease_us() + us(LEASE), clock.now_us() + us(5) + us(LEASE))


def test_nothing_is_claimed_from_nothing(make: Factory) -> None:
    make.enqueue()
    assert make.claim(5, task="other") == []
    assert make.claim(5, lanes=[]) == []
    assert make.claim(5, lanes=[], limited=True) == []
    assert make.claim(0) == []


# -- order --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C1")
def test_oldest_goes_first_among_equals(make: Factory, clock: TestClock) -> None:
    made = []
    for _ in range(5):
        made.append(make.enqueue())
        clock.advance(0.001)
    assert [job.id for job in make.claim(3)] + [job.id for job in make.claim(3)] == made


@pytest.mark.requirement("C1")
def test_higher_priority_goes_first(make: Factory, clock: TestClock) -> None:
    made = {}
    for priority in (0, 50, 100, 1, 99):
        made[priority] = make.enqueue(priority=priority)
        clock.advance(0.001)
    assert [job.id for job in make.claim(5)] == [made[priority] for priority in (100, 99, 50, 1, 0)]


@pytest.mark.requirement("C2")
def test_a_job_that_has_waited_the_horizon_goes_before_the_highest_priority(make: Factory, clock: TestClock) -> None:
    early = make.enqueue(priority=0)
    clock.advance(timedelta(minutes=110) - timedelta(seconds=1))
    before = make.enqueue(priority=100)
    clock.advance(2)
    after = make.enqueue(priority=100)
    assert [job.id for job in make.claim(3)] == [before, early, after]


@pytest.mark.requirement("C2")
def test_low_priority_does_not_starve_under_a_flood_of_high_priority(make: Factory, clock: TestClock) -> None:
    """Every minute a job of priority 100 comes and one job can run: the one of priority 0 has its turn in the end."""
    patient = make.enqueue(priority=0)
    minutes = 0
    make.enqueue(priority=100)
    while make.take().id != patient:
        minutes += 1
        clock.advance(60)
        make.enqueue(priority=100)
    assert minutes == 110


@pytest.mark.requirement("C2")
def test_strict_priority_never_lets_age_decide(make: Factory, store: Store, clock: TestClock) -> None:
    store.set_horizon("default", STRICT_HORIZON_US)
    old = make.enqueue(priority=99)
    clock.advance(timedelta(days=365))
    young = make.enqueue(priority=100)
    assert [job.id for job in make.claim(2)] == [young, old]


def test_horizon_of_a_queue_counts_for_what_becomes_due_from_then_on(
    make: Factory, store: Store, raw: Raw, clock: TestClock
) -> None:
    store.set_horizon("default", us(100))
    single = make.enqueue(priority=10)
    (bulk,) = make.many(1, priority=10)
    later = make.enqueue(priority=10, delay_us=1)
    clock.advance(1)
    store.promote()
    ranks = dict(raw.rows("SELECT id, rank FROM duly.waiting"))
    assert ranks[single] == ranks[bulk] == clock.now_us() - us(1) - us(10)
    assert ranks[later] == ranks[single] + 1
    store.set_horizon("default", None)
    default = make.enqueue(priority=10)
    assert raw.one(f"SELECT rank FROM duly.waiting WHERE id = '{default}'") == clock.now_us() - 10 * (
        DEFAULT_HORIZON_US // 100
    )


# -- lanes --------------------------------------------------------------------------------------------------------


def test_lanes_name_what_waits_and_the_rank_at_the_head(make: Factory, store: Store, clock: TestClock) -> None:
    assert store.lanes("default") == []
    make.enqueue("b")
    make.enqueue("a", priority=10)
    make.enqueue("a")
    make.enqueue("a", tenant="acme")
    make.enqueue("c", queue="other")
    make.enqueue("d", delay_us=1)
    assert store.lanes("default") == [
        (Lane("", "a"), clock.now_us() - 10 * (DEFAULT_HORIZON_US // 100)),
        (Lane("", "b"), clock.now_us()),
        (Lane("acme", "a"), clock.now_us()),
    ]


def test_lanes_end_when_their_last_job_is_claimed(make: Factory, store: Store) -> None:
    make.enqueue("a")
    make.enqueue("b")
    make.take(task="a")
    assert [lane for lane, _ in store.lanes("default")] == [Lane("", "b")]


@pytest.mark.requirement("C1")
def test_lanes_merge_by_rank(make: Factory, clock: TestClock) -> None:
    made = []
    for task, tenant in [("a", ""), ("b", "acme"), ("a", "acme"), ("a", ""), ("b", "acme")] * 3:
        made.append(make.enqueue(task, tenant=tenant))
        clock.advance(0.001)
    lanes = [Lane("", "a"), Lane("acme", "a"), Lane("acme", "b")]
    assert [job.id for job in make.claim(8, lanes=lanes)] == made[:8]
    assert [job.id for job in make.claim(20, lanes=lanes)] == made[8:]


def test_lanes_not_named_are_not_touched(make: Factory, raw: Raw) -> None:
    for task, tenant, queue in [("known", "", "default"), ("known", "acme", "default"), ("known", "", "other")]:
        make.enqueue(task, tenant=tenant, queue=queue)
    make.many(100, "unknown")
    assert [(job.task, job.tenant, job.queue) for job in make.claim(10, task="known")] == [("known", "", "default")]
    assert raw.count("waiting") == 102


def test_jobs_of_an_unknown_lane_in_front_do_not_slow_a_claim(make: Factory, raw: Raw, clock: TestClock) -> None:
    """The same rows are read whether 20 or 20,000 jobs that nobody here knows are in front."""
    make.many(20_000, "unknown", priority=100)
    clock.advance(1)
    wanted = make.many(3, "known")
    if raw.is_postgres:
        raw.rows("ANALYZE duly.waiting")
        walked = "SELECT idx_tup_read FROM pg_stat_all_indexes WHERE indexrelname = 'waiting_lane'"
        raw.rows("SELECT pg_stat_force_next_flush()")
        before = raw.one(walked)
        assert [job.id for job in make.claim(10, task="known")] == wanted
        make.store.close()  # its statistics are told when its connections end
        assert raw.one(walked) - before < 100
    else:
        plan = raw.rows(
            "EXPLAIN QUERY PLAN SELECT rank, id FROM duly.waiting WHERE queue = 'q' AND suspect = 0 AND tenant = ''"
            " AND task = 't' AND (rank, id) >= (0, '') ORDER BY rank, id LIMIT 5"
        )
        assert "SEARCH" in plan[0][3]
        assert "task=?" in plan[0][3]
        assert len(plan) == 1
        assert [job.id for job in make.claim(10, task="known")] == wanted


def test_a_claim_may_start_behind_what_it_took_before(make: Factory) -> None:
    ids = make.many(10)
    last = make.claim(4)[-1]
    rest = make.claim(3, lanes=[Lane("", "send", last.rank, last.id)])
    assert [job.id for job in rest] == ids[4:7]


def test_a_claim_that_starts_further_on_leaves_what_is_before(make: Factory, clock: TestClock) -> None:
    early = make.enqueue()
    clock.advance(1)
    late = make.enqueue()
    lane = Lane("", "send", clock.now_us())
    assert [job.id for job in make.claim(5, lanes=[lane])] == [late]
    assert make.claim(5, lanes=[lane]) == []
    assert make.take().id == early


@pytest.mark.requirement("C5", "B7")
def test_a_job_not_yet_due_cannot_be_claimed(make: Factory, store: Store, clock: TestClock) -> None:
    make.enqueue(delay_us=us(10))
    store.promote()
    assert make.claim() == []
    clock.advance(9.999999)
    store.promote()
    assert make.claim() == []
    clock.advance(0.000001)
    store.promote()
    assert len(make.claim()) == 1


@pytest.mark.requirement("C5")
def test_a_retry_cannot_be_claimed_before_its_time(make: Factory, store: Store, clock: TestClock) -> None:
    make.retry_later(make.running(), 60)
    clock.advance(59)
    store.promote()
    assert make.claim() == []
    clock.advance(1)
    store.promote()
    assert make.take().attempt == 2


# -- suspects -----------------------------------------------------------------------------------------------------


def test_a_job_that_took_two_workers_with_it_waits_in_a_lane_of_its_own(make: Factory, store: Store) -> None:
    make.enqueue()
    make.settle(crashed(make.take()))
    make.settle(crashed(make.take()))
    healthy = make.enqueue()
    assert [job.id for job in make.claim(5)] == [healthy]
    assert store.lanes("default") == []
    assert [lane for lane, _ in store.lanes("default", suspect=True)] == [Lane("", "send")]
    assert [[lane for lane, _ in lanes] for lanes in store.look("default")] == [[], [Lane("", "send")]]
    assert make.take(suspect=True).crashes == 2


def test_a_suspect_that_comes_back_by_the_schedule_is_still_one(make: Factory, store: Store, clock: TestClock) -> None:
    make.enqueue()
    make.settle(crashed(make.take()))
    make.settle(crashed(make.take())._replace(state="scheduled"))
    clock.advance(1)
    store.promote()
    assert make.claim() == []
    assert len(make.claim(suspect=True)) == 1


# -- several claimers ---------------------------------------------------------------------------------------------


def test_two_claimers_never_share_a_job(make: Factory, store: Store) -> None:
    make.many(400)
    workers = [str(uuid4()) for _ in range(8)]
    barrier = threading.Barrier(8)

    def claim_all(worker: str) -> list[str]:
        barrier.wait()
        taken: list[str] = []
        while jobs := make.claim(7, worker=worker):
            taken += [job.id for job in jobs]
        return taken

    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(claim_all, workers))
    counts = Counter(job_id for each in taken for job_id in each)
    assert len(counts) == 400
    assert set(counts.values()) == {1}
    for worker, ids in zip(workers, taken, strict=True):
        assert {job_id for job_id, _ in store.held_by(worker)} == set(ids)


def test_what_a_worker_holds_is_known(make: Factory, store: Store) -> None:
    make.many(3)
    mine = make.claim(2)
    make.claim(1, worker=OTHER_WORKER)
    assert sorted(store.held_by(WORKER)) == sorted((job.id, job.token) for job in mine)


# -- limits -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("D6")
def test_no_more_are_claimed_than_the_limit_has_room_for(make: Factory, store: Store) -> None:
    store.gates.set_limit("task", "send", Says(slots=3))
    make.many(10)
    first = make.claim(2, limited=True)
    second = make.claim(5, limited=True)
    assert (len(first), len(second)) == (2, 1)
    assert make.claim(5, limited=True) == []
    make.settle(succeeded(first[0]))
    assert len(make.claim(5, limited=True)) == 1


@pytest.mark.requirement("D6")
def test_a_limit_counts_all_tenants_and_queues_together(make: Factory, store: Store) -> None:
    store.gates.set_limit("task", "send", Says(slots=2))
    make.enqueue(tenant="a")
    make.enqueue(tenant="b", queue="other")
    make.enqueue(tenant="c")
    assert len(make.claim(5, lanes=[Lane("a", "send")], limited=True)) == 1
    assert len(make.claim(5, lanes=[Lane("b", "send")], queue="other", limited=True)) == 1
    assert make.claim(5, lanes=[Lane("c", "send")], limited=True) == []


def test_a_limit_can_be_changed(make: Factory, store: Store) -> None:
    store.gates.set_limit("task", "send", Says(slots=1))
    make.many(5)
    make.claim(5, limited=True)
    store.gates.set_limit("task", "send", Says(slots=3))
    assert len(make.claim(5, limited=True)) == 2
    store.gates.set_limit("task", "send", Says(slots=1))
    assert make.claim(5, limited=True) == []


def test_a_limit_that_is_gone_binds_nobody(make: Factory) -> None:
    make.enqueue()
    assert len(make.claim(limited=True)) == 1


def test_a_claim_that_does_not_hold_a_limit_gets_nothing(make: Factory, store: Store) -> None:
    """A worker that has not heard of a limit cannot exceed it."""
    make.many(2)
    store.gates.set_limit("task", "send", Says(slots=5))
    assert make.claim(2) == []
    assert make.claim(2, lanes=[Lane("", "send"), Lane("", "other")]) == []
    assert len(make.claim(2, limited=True)) == 2


@pytest.mark.requirement("D6", "D7")
def test_a_job_whose_lease_lapsed_does_not_hold_its_slot(make: Factory, store: Store, clock: TestClock) -> None:
    store.gates.set_limit("task", "send", Says(slots=1))
    make.many(2)
    stuck = make.take(limited=True)
    clock.advance(LEASE)
    assert len(make.claim(limited=True)) == 1
    assert store.renew([(stuck.id, stuck.token)], us(LEASE)) == {}, "a late renewal would make it two"


@pytest.mark.requirement("D7")
def test_a_stuck_job_is_reclaimed_although_the_limit_looks_full(make: Factory, store: Store, clock: TestClock) -> None:
    store.gates.set_limit("task", "send", Says(slots=1))
    make.enqueue()
    stuck = make.take(limited=True)
    clock.advance(LEASE)
    (lapsed,) = store.lapsed(us(LEASE))
    assert lapsed.id == stuck.id
    assert make.settle(crashed(stuck), only_expired=True) == {stuck.id}
    again = make.take(limited=True, worker=OTHER_WORKER)
    assert (again.id, again.token) == (stuck.id, stuck.token + 1)


@pytest.mark.requirement("D6")
def test_limit_is_exact_under_eight_threads(make: Factory, store: Store, raw: Raw) -> None:
    limit, total = 3, 150
    store.gates.set_limit("task", "send", Says(slots=limit))
    make.many(total)
    running, most, done = Counter[str](), [0], [0]
    lock = threading.Lock()

    def work(number: int) -> None:
        held: list[Claimed] = []
        while held or raw.count("waiting"):
            jobs = make.claim(2, worker=str(uuid4()), limited=True)
            with lock:
                running.update(job.id for job in jobs)
                most[0] = max(most[0], running.total())
                running.subtract(job.id for job in held)
                done[0] += len(held)
            make.settle(*[succeeded(job) for job in held])
            held = jobs

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert done[0] == total
    assert most[0] == limit


def test_limit_is_exact_where_the_server_says_repeatable_read(make: Factory, store: Store, raw: Raw) -> None:
    """In one snapshot a second claimer would not see what the first has taken."""
    if not raw.is_postgres:
        pytest.skip("SQLite has one way of isolation")
    name = raw.one("SELECT current_database()")
    raw.rows(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    try:
        test_limit_is_exact_under_eight_threads(make, store, raw)
    finally:
        raw.rows(f"ALTER DATABASE {name} RESET default_transaction_isolation")


def test_a_look_tells_jobs_that_run_alone_also_where_there_are_more_lanes_than_it_names(
    make: Factory, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops_claim, "MAX_LANES", 2)
    make.enqueue("sick")
    for _ in range(2):
        make.settle(crashed(make.take(task="sick")))
    for task in "abc":
        make.enqueue(task)
    found = store.look("default")
    assert [lane.task for lane, _ in found.lanes] == ["a", "b"]
    assert [lane.task for lane, _ in found.suspects] == ["sick"]
    rest = store.look("default", after=found.lanes[-1][0])
    assert [[lane.task for lane, _ in lanes] for lanes in rest] == [["c"], ["sick"]]
