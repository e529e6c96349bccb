"""Rates: a bucket that holds a burst and fills evenly; on both databases as `Rate` reckons, and never more."""

from __future__ import annotations

import time
from datetime import timedelta
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duly import InvalidOption
from duly.domain.limits import LATE_US, QUOTAS, Rate, Says
from duly.domain.records import Lane
from tests.clock import us
from tests.limits.keyed import Keyed
from tests.store.factory import WORKER

pytestmark = pytest.mark.requirement("D6")

START = us(4_102_444_800)
rates = st.builds(
    Rate, st.integers(1, 200), st.sampled_from([us(0.1), us(1), us(7), us(60), us(3600)]), st.integers(1, 40)
)
waits = st.lists(st.tuples(st.integers(0, us(3)), st.integers(1, 30)), min_size=1, max_size=25)


class Bucket:
    """What a rate means, in fractions: `at_once` tokens, filled evenly."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.tokens = Fraction(rate.at_once)
        self.at = START

    def take(self, now: int, wanted: int) -> int:
        filled = self.tokens + Fraction((now - self.at) * self.rate.n, self.rate.per_us)
        self.tokens, self.at = min(Fraction(self.rate.at_once), filled), now
        n = min(wanted, max(0, int(self.tokens // 1)))
        self.tokens -= n
        return n


def spend(rate: Rate, spent_until: int, now: int, n: int) -> int:
    return max(spent_until, now) + -(-n * rate.per_us // rate.n)


@given(rate=rates, waits=waits)
def test_a_rate_lets_as_many_start_as_a_bucket_would(rate: Rate, waits: list[tuple[int, int]]) -> None:
    """Up to the microseconds by which each spending is rounded up: never more, and at most one less."""
    bucket, spent_until, now = Bucket(rate), 0, START
    total = allowed = 0
    for wait, wanted in waits:
        now += wait
        n = min(wanted, max(0, rate.room(spent_until, 0, now)))
        if n:
            spent_until = spend(rate, spent_until, now, n)
        total += n
        allowed += bucket.take(now, wanted)
        assert total <= allowed
        assert allowed - total <= 1 + len(waits) * rate.n // rate.per_us


@given(rate=rates, waits=waits)
def test_in_any_stretch_of_time_no_more_start_than_the_burst_and_what_the_time_brings(
    rate: Rate, waits: list[tuple[int, int]]
) -> None:
    spent_until, now = 0, START
    starts: list[tuple[int, int]] = []
    for wait, wanted in waits:
        now += wait
        n = min(wanted, max(0, rate.room(spent_until, 0, now)))
        if n:
            spent_until = spend(rate, spent_until, now, n)
            starts.append((now, n))
    for first in range(len(starts)):
        for last in range(first, len(starts)):
            within = starts[last][0] - starts[first][0]
            n = sum(each for _, each in starts[first : last + 1])
            assert n <= rate.at_once + Fraction(within * rate.n, rate.per_us)


@given(rate=rates, used=st.integers(1, 100))
def test_a_rate_opens_when_it_says_and_not_a_microsecond_before(rate: Rate, used: int) -> None:
    spent_until = spend(rate, 0, START, used)
    opens = rate.opens_at(spent_until, 0, START)
    assert rate.room(spent_until, 0, opens) > 0
    assert opens == START or rate.room(spent_until, 0, opens - 2) <= 0, "two, as it is rounded up"


@given(rate=rates)
def test_of_the_burst_so_much_is_kept_back_as_may_come_between_claim_and_start(rate: Rate) -> None:
    kept = (rate.burst or 0) - rate.at_once
    assert rate.at_once >= 1
    assert rate.at_once == 1 or kept >= Fraction(LATE_US * rate.n, rate.per_us) - Fraction(1, 10)
    assert kept <= Fraction(LATE_US * rate.n, rate.per_us) + 1, "and no more"


def test_of_a_slow_rate_nothing_is_kept_back() -> None:
    assert Rate(1, us(3600), 2).at_once == 2
    assert Rate(100, us(1), 10).at_once == 7


@pytest.mark.parametrize("scope", QUOTAS)
def test_a_window_of_the_clock_begins_anew(scope: str) -> None:
    rate = Rate(3, QUOTAS[scope])
    now = START + us(30)
    window = rate.window(now)
    assert rate.room(window, 2, now) == 1
    assert rate.room(window, 3, now) == 0
    assert rate.opens_at(window, 3, now) == window + rate.per_us
    assert rate.room(window, 3, window + rate.per_us) == 3
    assert rate.room(0, 3, now) == 3


@pytest.mark.parametrize(
    "text, n, per, burst, again",
    [
        ("100/s", 100, 1, 10, "100/s"),
        ("5/10s", 5, 10, 1, "5/10s"),
        ("1000/h", 1000, 3600, 1, "1000/h"),
        (" 1_000 / m ", 1000, 60, 1, "1000/m"),
        ("1/d", 1, 86400, 1, "1/d"),
        ("3/500ms", 3, 0.5, 1, "3/500ms"),
        ((100, timedelta(seconds=1)), 100, 1, 10, "100/s"),
        ((7, "90s"), 7, 90, 1, "7/1m30s"),
        (Rate(5, 1_000_000, 3), 5, 1, 3, "5/s"),
    ],
)
def test_a_rate_is_read_as_people_write_it(text: object, n: int, per: float, burst: int, again: str) -> None:
    rate = Rate.of(text)
    assert rate == Rate(n, us(per), burst)
    assert str(rate) == again
    assert Rate.of(str(rate), burst=burst) == rate


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "100",
            "/s",
            "0/s",
            "-1/s",
            "1.5/s",
            "100/",
            "100/x",
            "100/0s",
            "1/s/s",
            "100/s extra words",
            "1e3/s",
            "١/s",
        ),
        *(f"{10**10}/s", "1/" + "9" * 30 + "d", None, 5, (0, 1), (1, 0), (1, -1), (True, object()), ("1", 2), []),
    ],
)
def test_nonsense_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(InvalidOption, match="rate") as caught:
        Rate.of(text)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize("burst", [0, -1, 1.5, True, "3", 10**10])
def test_a_burst_that_is_none_is_refused(burst: object) -> None:
    with pytest.raises(InvalidOption, match="burst"):
        Rate.of("1/s", burst=burst)  # type: ignore[arg-type]


def same_instant(keyed: Keyed, found: int, expected: int) -> int:
    """An instant as the database has it. PostgreSQL adds the time since the statement began: it may have waited."""
    assert expected <= found <= expected + (us(5) if keyed.raw.is_postgres else 0)
    return found


# -- in the database ----------------------------------------------------------------------------------------------


def starts(keyed: Keyed, n: int, *gates: tuple[str, str]) -> int:
    """How many of n jobs a claim under these gates gets."""
    lanes = [Lane("", "send")]
    return len(keyed.store.claim("default", lanes, n, worker_id=WORKER, lease_us=us(15), gates=gates))


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(rate=rates, waits=st.lists(st.tuples(st.integers(0, us(3)), st.integers(1, 30)), min_size=1, max_size=8))
def test_the_claim_reckons_as_the_bucket_does(keyed: Keyed, rate: Rate, waits: list[tuple[int, int]]) -> None:
    keyed.empty()
    keyed.store.gates.set_limit("task", "send", Says.limits(None, rate))
    keyed.many(sum(wanted for _, wanted in waits) + 5)
    spent_until = 0
    for wait, wanted in waits:
        keyed.clock.advance(timedelta(microseconds=wait))
        now = keyed.clock.now_us()
        began = time.monotonic_ns()
        n = starts(keyed, wanted, ("task", "send"))
        waited = (time.monotonic_ns() - began) // 1_000 if keyed.raw.is_postgres else 0
        least, most = (max(0, rate.room(spent_until, 0, at)) for at in (now, now + waited))
        assert min(wanted, least) <= n <= min(wanted, most)
        if n:
            spent_until = same_instant(
                keyed, keyed.store.gates.limits()[0].spent_until, spend(rate, spent_until, now, n)
            )


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(rate=rates, steps=st.lists(st.integers(2_000, us(2)), min_size=1, max_size=8))
def test_a_key_reckons_as_the_bucket_does(keyed: Keyed, rate: Rate, steps: list[int]) -> None:
    keyed.empty()
    keyed.says(None, rate)
    for _ in range(10):
        keyed.enqueue(limit_key="send/x")
    spent_until, left = 0, 10
    for step in steps:
        keyed.clock.advance(timedelta(microseconds=step))
        now = keyed.clock.now_us()
        n = min(left, max(0, rate.room(spent_until, 0, now)))
        keyed.look()
        jobs = keyed.grab(metered=True)
        assert len(jobs) == n
        keyed.end(*jobs)
        left -= n
        if n:
            found = keyed.raw.one("SELECT spent_until FROM duly.keys")
            spent_until = same_instant(keyed, found, spend(rate, spent_until, now, n))


def test_the_narrower_of_two_rates_counts_and_both_are_spent(keyed: Keyed) -> None:
    keyed.store.gates.set_limit("task", "send", Says.limits(None, Rate(1, us(1), 2)))
    keyed.store.gates.set_limit("queue", "default", Says.limits(None, Rate(1, us(1), 5)))
    keyed.many(20)
    gates = [("task", "send"), ("queue", "default")]
    assert starts(keyed, 20, *gates) == 2
    for limit in keyed.store.gates.limits():
        same_instant(keyed, limit.spent_until, keyed.clock.now_us() + us(2))
    assert starts(keyed, 20, *gates) == 0


def test_a_rate_and_a_number_at_once_hold_together(keyed: Keyed) -> None:
    keyed.store.gates.set_limit("task", "send", Says.limits(2, Rate(100, us(1), 50)))
    keyed.many(20)
    assert starts(keyed, 20, ("task", "send")) == 2
    assert starts(keyed, 20, ("task", "send")) == 0
    assert keyed.store.gates.opens_in_us([("task", "send")]) is None, "not the rate is in the way"


def test_a_higher_rate_counts_at_once(keyed: Keyed) -> None:
    """What was spent of the old one is not a debt at the new one's pace."""
    keyed.store.gates.set_limit("task", "send", Says.limits(None, Rate(1, us(1), 100)))
    keyed.many(300)
    assert starts(keyed, 300, ("task", "send")) == 100
    keyed.store.gates.set_limit("task", "send", Says.limits(None, Rate(100, us(1), 10)))
    assert keyed.store.gates.opens_in_us([("task", "send")]) <= us(0.2)  # type: ignore[operator]
    keyed.clock.advance(1)
    assert starts(keyed, 300, ("task", "send")) == 7


def test_a_lower_rate_counts_at_once(keyed: Keyed) -> None:
    keyed.store.gates.set_limit("task", "send", Says.limits(None, Rate(100, us(1), 20)))
    keyed.many(300)
    assert starts(keyed, 300, ("task", "send")) == 17
    keyed.store.gates.set_limit("task", "send", Says.limits(None, Rate(1, us(60), 1)))
    assert starts(keyed, 300, ("task", "send")) == 0
    keyed.clock.advance(61)
    assert starts(keyed, 300, ("task", "send")) == 1
    keyed.clock.advance(30)
    assert starts(keyed, 300, ("task", "send")) == 0


def test_the_same_rate_said_again_gives_no_new_burst(keyed: Keyed) -> None:
    says = Says.limits(None, Rate(1, us(60), 5))
    keyed.store.gates.set_limit("task", "send", says)
    keyed.many(20)
    assert starts(keyed, 20, ("task", "send")) == 5
    for _ in range(3):
        keyed.store.gates.set_limit("task", "send", says)
        assert starts(keyed, 20, ("task", "send")) == 0


def test_slots_that_change_leave_the_rate_as_it_is(keyed: Keyed) -> None:
    rate = Rate(1, us(60), 5)
    keyed.store.gates.set_limit("task", "send", Says.limits(50, rate))
    keyed.many(20)
    assert starts(keyed, 20, ("task", "send")) == 5
    keyed.store.gates.set_limit("task", "send", Says.limits(10, rate))
    assert starts(keyed, 20, ("task", "send")) == 0


def test_times_between_starts_are_even_once_the_burst_is_used(keyed: Keyed) -> None:
    keyed.store.gates.set_limit("task", "send", Says.limits(None, Rate(10, us(1), 1)))
    keyed.many(20)
    at = []
    for _ in range(50):
        if starts(keyed, 20, ("task", "send")):
            at.append(keyed.clock.now_us())
        keyed.clock.advance(0.02)
    assert all(us(0.1) <= late - early <= us(0.12) for early, late in pairwise(at))
    assert len(at) >= 8
