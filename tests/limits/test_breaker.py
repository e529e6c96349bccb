"""Circuit breakers: open at an error rate, try one job, close or stay open for twice as long; visible meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.breaker import LONGEST_US, BreakerState, after_run
from duly.domain.limits import Breaker
from tests.clock import us
from tests.limits.keyed import Keyed

NOW = us(4_102_444_800)
DATA = Breaker(rate=0.5, least=4, window=60, cooldown=10).to_data()


def run(state: BreakerState, *ends: bool, now: int = NOW) -> BreakerState:
    """How it stands after runs that failed (True) or not."""
    for failed in ends:
        state = after_run(DATA, state, failed=failed, now=now)
    return state


def test_it_opens_when_of_enough_runs_enough_failed() -> None:
    state = run(BreakerState(), True, True, True)
    assert state.state is None, "three are not enough to tell"
    state = run(state, True)
    assert (state.state, state.until) == ("open", NOW + us(10))
    assert state.reason == "circuit breaker: 4 of 4 runs failed"


def test_it_stays_closed_while_fewer_fail() -> None:
    assert run(BreakerState(), *[False, False, True] * 10).state is None


def test_exactly_the_rate_is_enough() -> None:
    assert run(BreakerState(), True, False, True, False).state == "open"


def test_runs_of_an_earlier_window_do_not_count() -> None:
    state = run(BreakerState(), True, True, True)
    state = run(state, True, now=NOW + us(61))
    assert (state.state, state.tries, state.failures) == (None, 1, 1)


def test_runs_from_before_it_opened_change_nothing() -> None:
    state = run(BreakerState(), *[True] * 4)
    assert run(state, False, True, False) == state


def test_one_that_is_tried_and_succeeds_closes_it() -> None:
    state = run(BreakerState(), *[True] * 4)._replace(state="probing", until=None)
    assert run(state, False) == BreakerState()


def test_each_trial_that_fails_doubles_the_pause_up_to_an_hour() -> None:
    state = run(BreakerState(), *[True] * 4)
    pauses = []
    for _ in range(12):
        state = run(state._replace(state="probing"), True)
        assert state.until is not None
        pauses.append(state.until - NOW)
    assert pauses[:4] == [us(20), us(40), us(80), us(160)]
    assert pauses[-1] == LONGEST_US
    assert state.reason == "circuit breaker: the job that was tried failed"


def test_a_first_pause_of_more_than_an_hour_is_kept() -> None:
    data = Breaker(rate=1, least=1, cooldown="3h").to_data()
    state = after_run(data, BreakerState(), failed=True, now=NOW)
    assert state.until == NOW + us(3 * 3600)
    again = after_run(data, state._replace(state="probing"), failed=True, now=NOW)
    assert again.until == NOW + us(3 * 3600)


@given(ends=st.lists(st.booleans(), max_size=60))
def test_a_closed_breaker_never_holds_counts_that_should_have_opened_it(ends: list[bool]) -> None:
    state = run(BreakerState(), *ends)
    if state.state is None and state.tries >= 4:
        assert state.failures < 0.5 * state.tries


# -- in the store --------------------------------------------------------------------------------------------------


@pytest.fixture
def broken(keyed: Keyed) -> Keyed:
    """Four runs of key x have failed."""
    keyed.says(4, breaker=Breaker(rate=0.5, least=4, window=60, cooldown=10))
    for _ in range(8):
        keyed.put()
    keyed.put("other")
    jobs = [job for job in keyed.grab() if job.limit_key == "send/x"]
    keyed.end(*jobs, how="failed", counted=True)
    return keyed


def state_of(keyed: Keyed, key: str = "x") -> tuple[object, ...]:
    rows = keyed.raw.rows(
        f"SELECT breaker_state, opened, blocked_until, blocked_reason FROM duly.keys WHERE name = 'send/{key}'"
    )
    return rows[0] if rows else (None, 0, None, None)


def test_an_open_breaker_lets_nothing_of_its_key_start(broken: Keyed) -> None:
    assert state_of(broken)[0] == "open"
    assert "4 of 4 runs failed" in str(state_of(broken)[3])
    assert broken.grab() == []
    broken.clock.advance(9)
    broken.look()
    assert broken.grab() == []
    broken.put("third")
    assert [job.limit_key for job in broken.grab()] == ["send/third"], "other keys go on"


def test_a_run_is_counted_once_however_often_its_end_is_told(keyed: Keyed) -> None:
    """A repetition after a lost reply, or a rescuer that comes too late, is no second failure."""
    keyed.says(4, breaker=Breaker(rate=0.5, least=4, window=60, cooldown=10))
    keyed.put()
    [job] = keyed.grab()
    for _ in range(5):
        keyed.end(job, how="failed", counted=True)
    assert state_of(keyed)[0] is None
    assert keyed.raw.rows("SELECT tries, failures FROM duly.keys WHERE name = 'send/x'") == [(1, 1)]


def test_after_the_pause_exactly_one_is_tried(broken: Keyed) -> None:
    broken.clock.advance(10)
    broken.look()
    [tried] = broken.grab()
    assert state_of(broken)[0] == "probing"
    broken.put()
    broken.look()
    assert broken.grab() == []
    broken.end(tried, counted=True)
    assert state_of(broken)[0] is None
    assert len(broken.grab()) == 4


def test_a_trial_that_fails_opens_it_for_twice_as_long(broken: Keyed) -> None:
    for pause in (10, 20, 40):
        broken.clock.advance(pause - 1)
        broken.look()
        assert broken.grab() == []
        broken.clock.advance(1)
        broken.look()
        [tried] = broken.grab()
        broken.end(tried, how="retried", counted=True)
        assert state_of(broken)[0] == "open"


@pytest.mark.parametrize("how", ["snoozed", "cancelled", "released"])
def test_a_trial_that_tells_nothing_is_followed_by_another(broken: Keyed, how: str) -> None:
    broken.clock.advance(10)
    broken.look()
    [tried] = broken.grab()
    broken.end(tried, how=how, counted=True)
    broken.look()
    assert state_of(broken)[0] == "probing"
    assert len(broken.grab()) == 1


def test_a_trial_whose_worker_dies_opens_it_again(broken: Keyed) -> None:
    broken.clock.advance(10)
    broken.look()
    [tried] = broken.grab()
    broken.clock.advance(20)
    broken.end(tried, how="crashed", counted=True, only_expired=True)
    assert state_of(broken)[0] == "open"
    assert broken.grab() == []
    assert broken.place(tried.id) == "key"


def test_a_trial_that_is_taken_away_by_hand_is_followed_by_another(broken: Keyed) -> None:
    broken.clock.advance(10)
    broken.look()
    [waiting] = [str(row[0]) for row in broken.raw.rows("SELECT id FROM duly.waiting")]
    broken.store.cancel(waiting, "stop")
    broken.look()
    assert len(broken.grab()) == 1


def test_it_is_seen_how_a_breaker_stands(broken: Keyed) -> None:
    def shown() -> list[tuple[object, ...]]:
        found = broken.store.gates.special_keys()
        return [(each.scope, each.name, each.blocked_until, each.blocked_reason) for each in found]

    until = broken.clock.now_us() + us(10)
    assert shown() == [("key", "send/x", until, "circuit breaker: 4 of 4 runs failed")]
    broken.clock.advance(10)
    broken.look()
    assert shown() == [("key", "send/x", None, "circuit breaker: one job is tried")]
    broken.end(*broken.grab(), counted=True)
    assert shown() == []


def test_old_counts_are_forgotten(keyed: Keyed) -> None:
    keyed.says(1, breaker=Breaker(least=4))
    keyed.put()
    keyed.end(*keyed.grab(), how="failed", counted=True)
    assert keyed.raw.count("keys") == 1
    keyed.clock.advance(2 * 3600)
    keyed.store.prune_rest(us(1_000_000))
    assert keyed.raw.count("keys") == 0
