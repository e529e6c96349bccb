"""States, and the words of other systems for them."""

from __future__ import annotations

import pytest

from duly.domain.errors import InvalidOption
from duly.domain.states import TERMINAL, State


def test_the_states_in_the_order_of_a_job_s_life_and_that_of_a_recurring_one_that_rests() -> None:
    assert list(State) == ["scheduled", "queued", "running", "succeeded", "failed", "cancelled", "disabled"]


@pytest.mark.parametrize(
    "word, state",
    [
        ("queued", State.QUEUED),
        ("pending", State.QUEUED),
        ("crawling", State.RUNNING),
        ("processing", State.RUNNING),
        ("success", State.SUCCEEDED),
        ("completed", State.SUCCEEDED),
        ("canceled", State.CANCELLED),
        (" Failed ", State.FAILED),
    ],
)
@pytest.mark.requirement("B1")
def test_other_systems_words_are_understood(word: str, state: State) -> None:
    assert State.parse(word) is state


def test_every_state_reads_back() -> None:
    assert [State.parse(str(state)) for state in State] == list(State)


def test_an_unknown_word_gets_the_nearest_and_the_list() -> None:
    with pytest.raises(InvalidOption, match=r"'suceeded'\. Did you mean 'succeeded'\?.*scheduled, queued"):
        State.parse("suceeded")


@pytest.mark.parametrize("word", ["", "zzz", "x" * 100_000, None, 3])
def test_nonsense_is_refused_in_short(word: object) -> None:
    with pytest.raises(InvalidOption) as caught:
        State.parse(word)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 300


def test_three_states_are_terminal() -> None:
    assert sorted(TERMINAL) == ["cancelled", "failed", "succeeded"]
    assert [state for state in State if state.terminal] == [State.SUCCEEDED, State.FAILED, State.CANCELLED]
