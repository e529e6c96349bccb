"""Limits are counted under a lock, and whoever holds several does so in one order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from duly.domain.errors import QuotaExceeded
from duly.domain.limits import Breaker, Rate, Says
from duly.domain.records import Claimed, Lane
from duly.store import caps, ops_claim, ops_keys, ops_limits
from duly.store.call import Call, Dialect, Op, Rows
from tests.clock import us
from tests.guards.racing import BLOCKED, Beside, Pair, held, interrupted, locks_in_order
from tests.limits.keyed import Keyed
from tests.store.factory import LEASE, OTHER_WORKER, WORKER, Factory, crashed, succeeded

PG = Dialect.POSTGRES
ADVISORY = f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid IN ({BLOCKED})"
GATE = "SELECT hashtextextended('{} {}', 'duly.gates'::regclass::oid::bigint)"
BUCKET = "SELECT hashtext('{}') & 1023"
NAMESPACE = 1685416057
HOUR = Rate(3_600, us(3_600), 100)


def rows_of(call: Call) -> Op[Rows]:
    return (yield call)


def claim_under(
    gates: list[tuple[str, str]], n: int = 1, ended: list[tuple[str, int]] | None = None, more: Sequence[Lane] = ()
) -> Op[Any]:
    lanes = [Lane("", "send"), *more]
    return ops_claim.claim(
        PG, queue="default", from_lanes=lanes, n=n, worker_id=WORKER, lease_us=us(LEASE), gates=gates,
        ended=ended or [],
    )  # fmt: skip


# -- gates ----------------------------------------------------------------------------------------------------


def test_two_claims_under_a_limit_wait_for_each_other_and_fill_it_once(pair: Pair) -> None:
    pair.one.store.gates.set_limit("task", "send", Says(slots=1))
    pair.one.many(2)
    second = Beside(pair.raw, lambda: pair.other.claim(1, limited=True))
    op = interrupted(claim_under([("task", "send")]), "claim_gated_lane", second.start)
    assert len(pair.one.store.run(lambda: op)) == 1
    assert second.answer() == []


def test_a_count_after_a_lock_sees_what_was_committed_meanwhile(pair: Pair) -> None:
    pair.one.store.gates.set_limit("task", "send", Says(slots=1))
    pair.raw.rows("UPDATE duly.gates SET stamped = false")
    pair.one.enqueue()
    pair.one.enqueue(tenant="t")
    second = Beside(pair.raw, lambda: claim_in(pair.other, "task"))
    op = interrupted(claim_under([("task", "send")]), "claim_gated_lane", second.must_wait)
    assert len(pair.one.store.run(lambda: op)) == 1
    assert second.answer() == []


def test_the_limits_of_a_claim_are_held_in_one_order_by_all(pair: Pair) -> None:
    gates = [("queue", "default"), ("task", "send")]
    for scope, name in gates:
        pair.one.store.gates.set_limit(scope, name, Says(slots=5))
    pair.one.enqueue()
    lowest = min(pair.raw.one(GATE.format(*gate)) for gate in gates)
    claim = Beside(pair.raw, lambda: pair.other.store.run(lambda: claim_under(gates)))
    with held(pair.raw, f"SELECT pg_advisory_xact_lock({lowest})"):
        claim.must_wait()
        others = pair.raw.one(ADVISORY)
    assert len(claim.answer()) == 1
    assert others == 0, "what all hold last was held before what all hold first"


ONE_GATE = "SELECT name FROM duly.gates WHERE scope = 'task' AND name = 'send' FOR UPDATE"
ONE_KEY = "SELECT name FROM duly.keys WHERE name = 'send/x' FOR UPDATE"
GATES_FIRST: dict[str, Callable[[Keyed], Any]] = {
    "claim of one lane": lambda keyed: keyed.store.run(lambda: claim_under([("task", "send")])),
    "claim": lambda keyed: keyed.store.run(lambda: claim_under([("task", "send")], more=[Lane("", "other")])),
    "refund": lambda keyed: keyed.store.gates.refund([([("task", "send")], "send/x")]),
    "set key limit": lambda keyed: keyed.store.gates.set_key_limit("send/x", Says(rate_n=5, rate_us=us(1), burst=5)),
}


@pytest.mark.parametrize("what", GATES_FIRST)
def test_a_gate_is_held_before_a_key_by_all_who_write_both(pair: Pair, what: str) -> None:
    """Else a claim has the key and waits for the gate, while what is given back has the gate and waits for the key."""
    pair.one.says(slots=None, rate=HOUR)
    pair.one.store.gates.set_limit("task", "send", Says(rate_n=3_600, rate_us=us(3_600), burst=100))
    pair.one.put()
    locks_in_order(pair.raw, ONE_GATE, ONE_KEY, lambda: GATES_FIRST[what](pair.other))


SCOPES = {"task": "send", "queue": "default", "tenant": "t"}


def claim_in(
    make: Factory, scope: str, *, worker: str = WORKER, ended: list[tuple[str, int]] | None = None
) -> list[Claimed]:
    return make.store.claim(
        "default", [Lane("t", "send")], 5, worker_id=worker, lease_us=us(LEASE), gates=[(scope, SCOPES[scope])],
        ended=ended or [],
    )  # fmt: skip


@pytest.mark.parametrize("stamped", [True, False], ids=["old", "new"])
@pytest.mark.parametrize("scope", SCOPES)
def test_what_has_lapsed_holds_no_slot(make: Factory, scope: str, stamped: bool) -> None:
    make.store.gates.set_limit(scope, SCOPES[scope], Says(slots=1))
    make.many(2, tenant="t")
    assert len(claim_in(make, scope)) == 1
    if not stamped:
        make.raw.rows("UPDATE duly.gates SET stamped = false")
    assert claim_in(make, scope, worker=OTHER_WORKER) == []
    make.clock.advance(60)
    assert len(claim_in(make, scope, worker=OTHER_WORKER)) == 1


def test_a_run_that_was_not_counted_is_not_taken_off_the_count(make: Factory) -> None:
    make.store.gates.set_limit("task", "send", Says(slots=1))
    make.many(3, tenant="t")
    (lapsed,) = claim_in(make, "task")
    make.clock.advance(60)
    assert len(claim_in(make, "task", worker=OTHER_WORKER)) == 1
    assert claim_in(make, "task", ended=[(lapsed.id, lapsed.token)]) == []


def test_another_run_of_a_job_is_not_taken_off_the_count(make: Factory) -> None:
    make.store.gates.set_limit("task", "send", Says(slots=1))
    make.many(2, tenant="t")
    (stale,) = claim_in(make, "task")
    make.settle(crashed(stale))
    (good,) = claim_in(make, "task", worker=OTHER_WORKER)
    assert good.id == stale.id
    assert claim_in(make, "task", ended=[(stale.id, stale.token)]) == []


def test_a_claim_under_way_when_a_limit_is_made_is_counted_under_it(pair: Pair) -> None:
    pair.one.many(2)
    limit = lambda: pair.other.store.gates.set_limit("task", "send", Says(slots=1))  # noqa: E731
    op = interrupted(claim_under([]), "claim_lane", limit)
    assert len(pair.one.store.run(lambda: op)) == 1
    assert pair.other.claim(1, limited=True) == []


def test_a_limit_made_anew_while_runs_are_marked_is_not_taken_for_marked(make: Factory) -> None:
    make.store.gates.set_limit("task", "send", Says(slots=1))
    (row,) = make.raw.rows("SELECT limited_at FROM duly.gates")
    make.store.gates.set_limit("task", "send", Says(rate_n=5, rate_us=us(1), burst=5))
    make.clock.advance(1)
    make.enqueue()
    make.store.run(lambda: ops_limits.write("task", "send", Says(slots=1), by_hand=True, declared=None))
    make.store.run(lambda: rows_of(Call("stamped", {"scope": "task", "name": "send", "limited_at": row[0]})))
    assert [limit.stamped for limit in make.store.gates.limits()] == [False]


def test_what_is_set_by_hand_is_not_lost_to_a_declaration_under_way(pair: Pair) -> None:
    wanted = [(("task", "send"), Says(slots=1))]
    pair.one.store.gates.declare(wanted)
    by_hand = Beside(pair.raw, lambda: pair.other.store.gates.set_limit("task", "send", Says(slots=7)))
    changed = [(("task", "send"), Says(slots=2))]
    pair.one.store.run(lambda: interrupted(ops_limits.declare(changed, {}), "lock_gate", by_hand.start))
    by_hand.answer()
    assert [(limit.says.slots, limit.by_hand) for limit in pair.one.store.gates.limits()] == [(7, True)]


def test_runs_are_marked_in_one_order_with_all_who_end_them(pair: Pair) -> None:
    jobs = sorted((pair.one.running(), pair.one.running()), key=lambda job: job.id)
    first, second = (f"SELECT id FROM duly.running WHERE id = '{job.id}' FOR UPDATE" for job in jobs)
    call = Call("stamp_running", {"scope": "task", "name": "send", "bit": 1})
    locks_in_order(pair.raw, first, second, lambda: pair.other.store.run(lambda: rows_of(call)))


# -- keys -----------------------------------------------------------------------------------------------------


def test_two_who_let_jobs_of_a_key_in_wait_for_each_other_and_fill_it_once(pair: Pair) -> None:
    pair.one.says(1)
    for _ in range(2):
        pair.one.enqueue(limit_key="send/x")
    second = Beside(pair.raw, lambda: pair.other.store.run(lambda: ops_keys.arrive(PG, 10)))
    pair.one.store.run(lambda: interrupted(ops_keys.arrive(PG, 1), "admit", second.start))
    second.answer()
    assert pair.raw.count("waiting") == 1


def test_keys_are_held_in_one_order_by_all(pair: Pair) -> None:
    buckets = {name: int(pair.raw.one(BUCKET.format(f"send/{name}"))) for name in "abcdefgh"}
    names = sorted(buckets, key=lambda name: buckets[name])
    first, last = names[0], names[-1]
    lowest = buckets[first]
    for name in (last, first):
        pair.one.enqueue(limit_key=f"send/{name}")
    looking = Beside(pair.raw, lambda: pair.other.store.gates.admit())
    with held(pair.raw, f"SELECT pg_advisory_xact_lock({NAMESPACE}, {lowest})"):
        looking.must_wait()
        others = pair.raw.one(ADVISORY)
    looking.answer()
    assert others == 0, "what all hold last was held before what all hold first"


def key_row(name: str) -> str:
    return f"SELECT name FROM duly.keys WHERE name = 'send/{name}' FOR UPDATE"


def in_order_of_keys(pair: Pair, work: Callable[[], Any]) -> None:
    locks_in_order(pair.raw, key_row("a"), key_row("b"), work)


def test_ends_that_move_breakers_hold_the_rows_of_keys_in_one_order(pair: Pair) -> None:
    pair.one.says(None, HOUR, Breaker(rate=1.0, least=1_000))
    for name in ("b", "a"):
        pair.one.put(name)
    jobs = {job.limit_key: job for job in pair.one.grab(metered=True)}
    some = [jobs["send/b"], jobs["send/a"]]
    in_order_of_keys(pair, lambda: pair.other.end(*some, how="failed", counted=True))


def test_claims_hold_the_rows_of_keys_in_one_order(pair: Pair) -> None:
    pair.one.says(None, HOUR)
    for name in ("b", "a"):
        pair.one.put(name)
    in_order_of_keys(pair, lambda: pair.other.grab(metered=True))


def test_keys_that_open_hold_their_rows_in_one_order(pair: Pair) -> None:
    for name in ("b", "a"):
        pair.one.store.gates.set_key_limit(f"send/{name}", Says(slots=3))
    in_order_of_keys(pair, lambda: pair.other.store.gates.admit())


def test_a_key_closed_while_a_job_is_claimed_leaves_that_job_to_the_claim(pair: Pair) -> None:
    pair.one.says(1)
    job_id = pair.one.put()
    pausing = Beside(pair.raw, pair.other.pause)
    (job,) = pair.one.store.run(lambda: interrupted(claim_under([]), "claim_lane", pausing.must_not_wait))
    pausing.answer()
    assert job.id == job_id
    assert pair.one.place(job_id) == "running"


def test_letting_jobs_in_goes_round_one_that_somebody_moves(pair: Pair) -> None:
    pair.one.says(1)
    first, second = (pair.one.enqueue(limit_key="send/x") for _ in range(2))
    looking = Beside(pair.raw, lambda: pair.other.store.run(lambda: ops_keys.arrive(PG, 10)))
    with held(pair.raw, f"SELECT id FROM duly.parked WHERE id = '{first}' FOR UPDATE"):
        looking.must_not_wait()
    looking.answer()
    assert pair.one.places([first, second]) == ["arrived", "waiting"]


@pytest.mark.parametrize("standing", ["running", "gone"])
def test_letting_jobs_in_goes_round_a_word_that_somebody_leaves(pair: Pair, standing: str) -> None:
    pair.one.says(2)
    pair.one.put()
    (job,) = pair.one.grab()
    pair.raw.rows("UPDATE duly.admitted SET look = true")
    if standing == "gone":
        pair.one.settle(succeeded(job))
    looking = Beside(pair.raw, lambda: pair.other.store.gates.admit())
    with held(pair.raw, f"SELECT key FROM duly.admitted WHERE job_id = '{job.id}' FOR UPDATE"):
        looking.must_not_wait()
    looking.answer()


def test_a_job_that_is_let_in_again_is_noted_as_before(keyed: Keyed) -> None:
    keyed.says(1)
    job_id = keyed.put()
    (job,) = keyed.grab()
    keyed.settle(crashed(job))
    keyed.raw.rows("DELETE FROM duly.waiting")
    params: dict[str, Any] = {"id": job_id, "token": job.token, "attempt": 0, "crashes": 0, "hold": 0, "horizon": 1}
    keyed.store.run(lambda: rows_of(Call("requeue_keyed", params | {"run_at": None})))
    keyed.look()
    assert keyed.place(job_id) == "waiting"
    assert keyed.raw.count("admitted") == 1


def test_two_who_enqueue_under_a_quota_wait_for_each_other(pair: Pair) -> None:
    pair.one.store.gates.set_limit("day", "t", Says(rate_n=1, rate_us=us(86_400), refuses=True))
    second = Beside(pair.raw, lambda: pair.other.store.run(lambda: caps.spend("t", 1)))
    pair.one.store.run(lambda: interrupted(caps.spend("t", 1), "lock_quota", second.start))
    with pytest.raises(QuotaExceeded):
        second.answer()
