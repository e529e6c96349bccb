"""Retry policies: their delays and bounds, what is stored of them, and the decision after a failed run."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.durations import LONGEST
from duly.domain.errors import DulyError, InvalidOption
from duly.domain.retry import DEFAULT, Backoff, Decision, after_failure, can_retry
from duly.domain.states import State

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)

attempts = st.integers(-1, 10_000)
draws = st.floats(0, 1, exclude_max=True)


def middle() -> float:
    """Draw the random number that leaves a delay as it is."""
    return 0.5


def seconds(policy: Backoff, runs: range) -> list[float]:
    return [policy.delay(run, middle).total_seconds() for run in runs]


@pytest.mark.requirement("B2")
def test_exponential_is_1_s_for_0_and_1_attempts_then_doubles_up_to_60_s() -> None:
    assert seconds(Backoff.exponential(), range(9)) == [1, 1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.requirement("B2")
@given(attempts, draws)
def test_exponential_without_jitter_is_within_base_and_cap_and_never_falls(attempt: int, draw: float) -> None:
    policy = Backoff.exponential("1s", cap="60s")
    assert SECOND <= policy.delay(attempt, lambda: draw) <= MINUTE
    assert policy.delay(attempt, lambda: draw) <= policy.delay(attempt + 1, lambda: draw)


@pytest.mark.requirement("C4")
@pytest.mark.parametrize(
    "retry, low, high",
    [
        (1, timedelta(seconds=48), timedelta(seconds=72)),
        (2, timedelta(seconds=96), timedelta(seconds=144)),
        (3, timedelta(seconds=192), timedelta(seconds=288)),
        (4, timedelta(seconds=384), timedelta(seconds=576)),
        (5, timedelta(seconds=768), timedelta(seconds=1152)),
        (20, timedelta(hours=19.2), timedelta(hours=28.8)),
        (10_000, timedelta(hours=19.2), timedelta(hours=28.8)),
    ],
)
def test_patient_spreads_by_20_percent_after_the_cap(retry: int, low: timedelta, high: timedelta) -> None:
    policy = Backoff.patient()
    assert policy.delay(retry, lambda: 0.0) == low
    assert policy.delay(retry, lambda: 1.0) == high


@pytest.mark.requirement("C4")
@given(attempts, draws)
def test_patient_is_always_within_its_bounds(attempt: int, draw: float) -> None:
    bare = min(60.0 * 2 ** min(max(attempt, 1) - 1, 20), 86_400.0)
    delay = Backoff.patient().delay(attempt, lambda: draw).total_seconds()
    assert bare * 0.8 - 1e-6 <= delay <= bare * 1.2 + 1e-6


@pytest.mark.requirement("C4")
def test_patient_retries_three_times_unless_told() -> None:
    assert Backoff.patient().max_attempts == 4
    assert Backoff.patient(max_retries=7).max_attempts == 8


def test_fixed_waits_the_same_every_time() -> None:
    assert seconds(Backoff.fixed("5s"), range(4)) == [5, 5, 5, 5]
    assert Backoff.fixed(5).max_attempts == 5


def test_linear_grows_by_its_step_up_to_the_cap() -> None:
    assert seconds(Backoff.linear("10s", cap="25s"), range(5)) == [10, 10, 20, 25, 25]
    assert Backoff.linear("10s").delay(1000, middle) == timedelta(seconds=10_000)


def test_a_list_is_followed_and_its_last_delay_repeats() -> None:
    policy = Backoff.delays(["1s", 5, MINUTE])
    assert seconds(policy, range(6)) == [1, 1, 5, 60, 60, 60]
    assert policy.max_attempts == 4
    assert Backoff.delays([1], max_attempts=10).max_attempts == 10


def test_none_runs_once() -> None:
    decision = after_failure(Backoff.none(), attempt=1, exc=ValueError(), random=middle)
    assert decision == Decision(delay=None, reason="attempts used up (1 of 1)")


@given(
    policy=st.one_of(
        st.builds(
            Backoff.exponential,
            st.timedeltas(timedelta(0), LONGEST),
            factor=st.floats(0.001, 1000),
            cap=st.none() | st.timedeltas(timedelta(0), LONGEST),
            jitter=st.floats(0, 1),
        ),
        st.builds(
            Backoff.linear,
            st.timedeltas(timedelta(0), LONGEST),
            cap=st.none() | st.timedeltas(timedelta(0), LONGEST),
            jitter=st.floats(0, 1),
        ),
        st.builds(
            Backoff.delays,
            st.lists(st.timedeltas(timedelta(0), LONGEST), min_size=1, max_size=5),
            jitter=st.floats(0, 1),
        ),
    ),
    attempt=attempts,
    draw=draws,
)
def test_any_policy_gives_a_delay_for_any_attempt_and_reads_back_the_same(
    policy: Backoff, attempt: int, draw: float
) -> None:
    delay = policy.delay(attempt, lambda: draw)
    assert timedelta(0) <= delay <= 2 * LONGEST
    stored = Backoff.from_data(policy.to_data(), policy.max_attempts)
    assert stored == policy
    assert stored.delay(attempt, lambda: draw) == delay


def test_max_attempts_counts_runs_and_max_retries_one_less() -> None:
    assert Backoff.exponential().max_attempts == 5
    assert Backoff.exponential(max_retries=4).max_attempts == 5
    assert Backoff.fixed(1, max_retries=0).max_attempts == 1
    with pytest.raises(InvalidOption, match="max_attempts=3 or max_retries=2, not both"):
        Backoff.exponential(max_attempts=3, max_retries=2)


@pytest.mark.parametrize(
    "options, fault",
    [
        ({"max_attempts": 0}, "max_attempts must be a whole number from 1"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": 2.5}, "max_attempts"),
        ({"max_attempts": 2**64}, "max_attempts"),
        ({"max_retries": -1}, "max_retries must be a whole number from 0"),
        ({"base": "1x"}, "base is not a duration: '1x', position 2"),
        ({"base": -1}, "base must not be negative"),
        ({"cap": "-1s"}, "cap must not be negative"),
        ({"factor": 0}, "factor must be a number from"),
        ({"factor": float("nan")}, "factor must be a number from"),
        ({"jitter": 1.5}, "jitter must be a number from 0.0 to 1.0, not 1.5"),
        ({"jitter": "10%"}, "jitter"),
        ({"retry_on": (ValueError, 3)}, "retry_on must hold exception classes, and 3 is none"),
        ({"give_up_on": "ValueError"}, "give_up_on must hold exception classes"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], fault: str) -> None:
    with pytest.raises(InvalidOption, match=fault):
        Backoff.exponential(**options)  # type: ignore[arg-type]


def test_a_bad_list_of_delays_is_refused_with_its_index() -> None:
    with pytest.raises(InvalidOption, match=r"delays\[1\] must not be negative"):
        Backoff.delays([1, -1])
    with pytest.raises(InvalidOption, match="at least one"):
        Backoff.delays([])
    with pytest.raises(InvalidOption, match="not the text"):
        Backoff.delays("1s")


# What is stored


def test_the_stored_text_is_short_json_without_code_or_run_count() -> None:
    policy = Backoff.exponential(jitter=0.1, max_attempts=9, give_up_on=ValueError)
    assert json.loads(policy.to_data()) == {
        "kind": "exponential",
        "us": [1_000_000],
        "factor": 2.0,
        "cap_us": 60_000_000,
        "jitter": 0.1,
    }
    assert " " not in policy.to_data()
    assert Backoff.from_data(policy.to_data(), 9) == Backoff.exponential(jitter=0.1, max_attempts=9)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "nonsense",
        "null",
        "[]",
        "3",
        "{}",
        "[" * 100_000,
        '{"kind":"future","us":[1]}',
        '{"kind":"linear","us":[]}',
        '{"kind":"linear","us":7}',
        '{"kind":"linear","us":["1s"]}',
        '{"kind":"linear","us":[-1]}',
        '{"kind":"linear","us":[1e400]}',
        '{"kind":"linear","us":[' + "9" * 40 + "]}",
        '{"kind":"exponential","us":[1],"factor":"2"}',
        '{"kind":"exponential","us":[1],"factor":NaN}',
        '{"kind":"exponential","us":[1],"jitter":7}',
        '{"kind":"exponential","us":[1],"cap_us":null}',
    ],
    ids=lambda text: str(text)[:40],
)
def test_data_that_cannot_be_read_becomes_the_default_policy(text: str | None) -> None:
    assert Backoff.from_data(text, 7) == DEFAULT.with_max_attempts(7)


@given(st.text() | st.binary().map(lambda data: data.decode("latin1")), st.integers())
def test_reading_stored_data_never_raises(text: str, max_attempts: int) -> None:
    assert Backoff.from_data(text, max_attempts).max_attempts >= 1


# The decision


@pytest.mark.requirement("B3")
@pytest.mark.parametrize("state", list(State))
@given(attempts=st.integers(0, 20), max_attempts=st.integers(1, 20))
def test_retry_is_possible_unless_succeeded_or_running_and_only_below_max_attempts(
    state: State, attempts: int, max_attempts: int
) -> None:
    ended_or_busy = state in (State.SUCCEEDED, State.RUNNING)
    assert can_retry(state, attempts, max_attempts) == (not ended_or_busy and attempts < max_attempts)


@pytest.mark.requirement("B3")
def test_five_attempts_by_default_mean_five_runs() -> None:
    runs = 1
    while after_failure(DEFAULT, attempt=runs, exc=ValueError(), random=middle).retry:
        runs += 1
    assert runs == 5
    assert [can_retry(State.FAILED, run) for run in (4, 5)] == [True, False]


@pytest.mark.requirement("B4")
def test_a_failure_with_retries_left_waits_and_the_last_one_gives_up_with_the_reason() -> None:
    policy = Backoff.exponential(max_attempts=3)
    decisions = [after_failure(policy, attempt=n, exc=OSError(), random=middle) for n in (1, 2, 3)]
    assert decisions == [
        Decision(delay=SECOND),
        Decision(delay=2 * SECOND),
        Decision(delay=None, reason="attempts used up (3 of 3)"),
    ]


def test_give_up_on_ends_the_job_at_once_also_for_subclasses() -> None:
    policy = Backoff.exponential(give_up_on=[ValueError])
    decision = after_failure(policy, attempt=1, exc=UnicodeError(), random=middle)
    assert decision == Decision(delay=None, reason="UnicodeError is in give_up_on")
    assert after_failure(policy, attempt=1, exc=KeyError(), random=middle).retry


def test_retry_on_ends_the_job_on_everything_else() -> None:
    policy = Backoff.exponential(retry_on=(OSError, DulyError), give_up_on=FileNotFoundError)
    assert after_failure(policy, attempt=1, exc=TimeoutError(), random=middle).retry
    assert not after_failure(policy, attempt=1, exc=FileNotFoundError(), random=middle).retry
    decision = after_failure(policy, attempt=1, exc=KeyError(), random=middle)
    assert decision.reason == "KeyError is not in retry_on"


def test_a_crash_without_an_exception_is_retried_whatever_the_classes() -> None:
    policy = Backoff.exponential(retry_on=OSError, give_up_on=BaseException)
    assert after_failure(policy, attempt=1, exc=None, random=middle) == Decision(delay=SECOND)


def test_a_custom_policy_is_asked_with_the_attempt_and_the_exception() -> None:
    def by_kind(attempts: int, exc: BaseException | None) -> timedelta | float | None:
        return 7.5 * attempts if isinstance(exc, OSError) else None

    policy = Backoff.custom(by_kind, max_attempts=10)
    retried = after_failure(policy, attempt=2, exc=OSError(), random=middle)
    assert retried == Decision(delay=timedelta(seconds=15))
    given_up = after_failure(policy, attempt=2, exc=KeyError(), random=middle)
    assert given_up == Decision(delay=None, reason="policy gave up")
    used_up = after_failure(policy, attempt=10, exc=OSError(), random=middle)
    assert used_up.reason == "attempts used up (10 of 10)"


@pytest.mark.parametrize("answer", [-1.0, float("nan"), "soon", object()])
def test_a_custom_policy_that_answers_nonsense_falls_back(answer: float) -> None:
    policy = Backoff.custom(lambda attempts, exc: answer, fallback=Backoff.fixed(3))
    decision = after_failure(policy, attempt=1, exc=OSError(), random=middle)
    assert decision == Decision(delay=3 * SECOND, reason="policy raised InvalidOption, fallback used")


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_a_custom_policy_that_raises_falls_back(error: type[BaseException]) -> None:
    def broken(attempts: int, exc: BaseException | None) -> float:
        raise error

    policy = Backoff.custom(broken, fallback=Backoff.fixed(3, max_attempts=2))
    decision = after_failure(policy, attempt=1, exc=OSError(), random=middle)
    assert decision == Decision(delay=3 * SECOND, reason=f"policy raised {error.__name__}, fallback used")
    assert not after_failure(policy, attempt=2, exc=OSError(), random=middle).retry


def test_of_a_custom_policy_the_fallback_is_stored() -> None:
    fallback = Backoff.linear("10s", max_attempts=8)
    policy = Backoff.custom(lambda attempts, exc: None, fallback=fallback)
    assert Backoff.from_data(policy.to_data(), policy.max_attempts) == fallback
    plain = Backoff.custom(lambda attempts, exc: None)
    assert Backoff.from_data(plain.to_data(), plain.max_attempts) == DEFAULT
    with pytest.raises(InvalidOption, match="custom needs a function, not int"):
        Backoff.custom(3)  # type: ignore[arg-type]


def test_the_default_spreads_a_second_by_a_tenth() -> None:
    assert DEFAULT.delay(1, lambda: 0.0) == timedelta(milliseconds=900)
    assert DEFAULT.delay(1, lambda: 1.0) == timedelta(milliseconds=1100)
    assert DEFAULT.max_attempts == 5
