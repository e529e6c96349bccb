"""How long a database has been in reach: an error now and then is no outage."""

from __future__ import annotations

import pytest

from duly.store.contact import KEPT, Contact

SECOND = 1_000_000


class Story:
    """A contact on a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.contact = Contact()
        self.contact.clock = lambda: self.now

    def after(self, seconds: float, *, failed: bool = False) -> None:
        self.now += seconds
        if failed:
            self.contact.failed()
        else:
            self.contact.answered()


@pytest.fixture
def story() -> Story:
    return Story()


def test_there_is_none_before_the_first_answer_and_while_nothing_answers(story: Story) -> None:
    assert story.contact.unbroken_us(SECOND) == 0
    story.after(0)
    story.after(5, failed=True)
    assert story.contact.unbroken_us(SECOND) == 0


def test_it_counts_from_the_first_answer_after_a_break(story: Story) -> None:
    story.after(0)
    story.after(10)
    assert story.contact.unbroken_us(0) == 10 * SECOND
    story.after(1, failed=True)
    story.after(1)
    story.now += 3
    assert story.contact.unbroken_us(0) == 3 * SECOND


@pytest.mark.requirement("D1")
@pytest.mark.parametrize("tolerated, unbroken", [(1.9, 3.0), (2.1, 15.0)])
def test_a_connection_that_was_replaced_at_once_is_no_break(story: Story, tolerated: float, unbroken: float) -> None:
    """Counted from the last answer: what was down meanwhile, nobody knows."""
    story.after(0)
    story.after(10)
    story.after(1.5, failed=True)
    story.after(0.5)
    story.now += 3
    assert story.contact.unbroken_us(int(tolerated * SECOND)) == unbroken * SECOND


def test_a_long_break_counts_however_many_short_ones_came_after_it(story: Story) -> None:
    story.after(0)
    story.after(60, failed=True)
    story.after(1)
    for _ in range(20):
        story.after(0.1, failed=True)
        story.after(0.1)
    assert story.contact.unbroken_us(SECOND) == pytest.approx(4 * SECOND)


def test_more_breaks_than_are_remembered_make_it_shorter_never_longer(story: Story) -> None:
    story.after(0)
    story.after(60, failed=True)
    story.after(1)
    for _ in range(2 * KEPT):
        story.after(0.5, failed=True)
        story.after(0.5)
    assert story.contact.unbroken_us(SECOND) == (KEPT - 1) * SECOND
