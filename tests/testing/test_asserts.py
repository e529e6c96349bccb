"""Assertions about what is enqueued: what they match, and what they say when they fail."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

import pytest

from duly import ArgumentError, Duly, Task, UnknownTask
from duly.testing import TestClock, assert_enqueued, assert_not_enqueued, drain, enqueued


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Address:
    street: str
    number: int


Send = Task[..., None]


@pytest.fixture
def send(jobs: Duly) -> Send:
    @jobs.task
    def send(email: str, times: int = 1) -> None: ...

    return send


def failure(jobs: Duly, task: Send, **wanted: object) -> list[str]:
    with pytest.raises(AssertionError) as caught:
        assert_enqueued(jobs, task, **wanted)  # type: ignore[arg-type]
    return str(caught.value).splitlines()


# -- what they match ----------------------------------------------------------------------------------------------


def test_enqueued_lists_what_waits_in_the_order_it_was_enqueued(jobs: Duly, send: Send) -> None:
    @jobs.task
    def other() -> None: ...

    done = other.enqueue()
    drain(jobs)
    first, second, third = send.using(delay="1h").enqueue("a"), other.enqueue(), send.enqueue("b")
    assert enqueued(jobs) == [first, second, third]
    assert enqueued(jobs, send) == enqueued(jobs, "send") == [first, third]
    assert done not in enqueued(jobs)


def test_a_job_is_found_by_its_task_or_its_name(jobs: Duly, send: Send) -> None:
    job = send.enqueue("ada")
    assert assert_enqueued(jobs, send) == assert_enqueued(jobs, "send") == [job]


def test_arguments_that_are_named_must_be_equal_and_the_others_may_be_anything(jobs: Duly, send: Send) -> None:
    send.enqueue("ada", 3)
    assert_enqueued(jobs, send, args={"email": "ada"})
    assert_enqueued(jobs, send, args={"email": "ada", "times": 3})
    assert_not_enqueued(jobs, send, args={"email": "ada", "times": 4})


def test_a_default_counts_as_given(jobs: Duly, send: Send) -> None:
    send.enqueue("ada")
    assert_enqueued(jobs, send, args={"times": 1})
    assert_not_enqueued(jobs, send, args={"times": 2})


def test_arguments_are_compared_as_the_types_of_their_hints(jobs: Duly) -> None:
    @jobs.task
    def typed(id: uuid.UUID, size: Size, to: Address, at: datetime, pair: tuple[int, int]) -> None: ...

    given = {
        "id": uuid.uuid4(),
        "size": Size.LARGE,
        "to": Address("Main Street", 1),
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "pair": (1, 2),
    }
    typed.enqueue(**given)  # type: ignore[arg-type]
    assert_enqueued(jobs, typed, args=given)
    assert_not_enqueued(jobs, typed, args=given | {"size": Size.SMALL})
    assert_not_enqueued(jobs, typed, args=given | {"to": Address("Main Street", 2)})
    assert_not_enqueued(jobs, typed, args={"pair": "no pair"})


def test_arguments_without_hints_are_compared_as_json(jobs: Duly) -> None:
    @jobs.task
    def untyped(values, **more) -> None: ...  # type: ignore[no-untyped-def]

    untyped.enqueue([1, 2], colour="red")
    assert_enqueued(jobs, untyped, args={"values": [1, 2]})
    assert_enqueued(jobs, untyped, args={"colour": "red"})
    assert_not_enqueued(jobs, untyped, args={"colour": "blue"})
    assert_not_enqueued(jobs, untyped, args={"shape": "round"})


def test_positional_arguments_have_their_names(jobs: Duly) -> None:
    @jobs.task
    def add(first: int, /, *rest: int) -> None: ...

    add.enqueue(1, 2, 3)
    assert_enqueued(jobs, add, args={"first": 1, "rest": (2, 3)})
    assert_not_enqueued(jobs, add, args={"rest": (2,)})


def test_queue_tenant_and_tag_must_be_the_same_where_given(jobs: Duly, send: Send) -> None:
    send.using(queue="mail", tenant="acme", tags=["new", "vip"]).enqueue("ada")
    assert_enqueued(jobs, send, queue="mail", tenant="acme", tag="vip")
    assert_not_enqueued(jobs, send, queue="default")
    assert_not_enqueued(jobs, send, tenant="")
    assert_not_enqueued(jobs, send, tag="old")
    send.enqueue("bob")
    assert_enqueued(jobs, send, tenant="", args={"email": "bob"})


def test_run_at_is_exact_by_a_clock_that_stands(jobs: Duly, clock: TestClock, send: Send) -> None:
    send.using(delay="1h").enqueue("ada")
    assert_enqueued(jobs, send, run_at=clock.now() + timedelta(hours=1))
    assert_not_enqueued(jobs, send, run_at=clock.now() + timedelta(hours=1, microseconds=1))


def test_run_at_is_within_a_second_by_a_clock_that_runs(database_url: str) -> None:
    jobs = Duly(database_url)

    @jobs.task
    def later() -> None: ...

    later.using(run_at=datetime(2100, 1, 1, tzinfo=UTC)).enqueue()
    assert_enqueued(jobs, later, run_at=datetime(2100, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert_not_enqueued(jobs, later, run_at=datetime(2100, 1, 1, 0, 0, 2, tzinfo=UTC))
    jobs.close()


def test_count_is_exact(jobs: Duly, send: Send) -> None:
    send.enqueue_many([{"email": "ada"}, {"email": "bob"}])
    assert len(assert_enqueued(jobs, send)) == 2
    assert_enqueued(jobs, send, count=2)
    assert_enqueued(jobs, send, args={"email": "eve"}, count=0)
    assert failure(jobs, send, count=1)[0] == "2 jobs enqueued, not 1: send()"
    assert failure(jobs, send, count=3)[0] == "2 jobs enqueued, not 3: send()"


def test_a_wrong_name_is_an_error_and_not_simply_not_enqueued(jobs: Duly, send: Send) -> None:
    with pytest.raises(UnknownTask, match="Did you mean 'send'"):
        assert_not_enqueued(jobs, "sned")
    with pytest.raises(ArgumentError, match="Did you mean 'email'"):
        assert_not_enqueued(jobs, send, args={"emial": "ada"})


# -- what they say ------------------------------------------------------------------------------------------------


def test_failure_lists_what_is_there_nearest_first(jobs: Duly, send: Send) -> None:
    @jobs.task
    def other() -> None: ...

    other.enqueue()
    send.using(queue="mail", tenant="acme", tags=["vip"]).enqueue("bob")
    send.using(delay="1h").enqueue("ada", 2)
    assert failure(jobs, send, args={"email": "ada", "times": 1}, queue="default") == [
        "no job enqueued: send(email='ada', times=1), queue 'default'",
        "These are enqueued:",
        "  send(email='ada', times=2), queue 'default', scheduled for 2100-01-01T01:00:00+00:00  <- times is 2",
        "  send(email='bob'), queue 'mail', tenant 'acme', tags ['vip']  <- email is 'bob'; queue is 'mail'",
        "  other(), queue 'default'  <- task is 'other'",
    ]


def test_failure_says_that_nothing_is_there_and_what_has_run(jobs: Duly, send: Send) -> None:
    assert failure(jobs, send) == ["no job enqueued: send()", "Nothing is enqueued."]
    send.enqueue("ada")
    drain(jobs)
    assert failure(jobs, send)[2] == "No longer waiting, of send: 1 succeeded."


def test_failure_of_not_enqueued_shows_what_matches(jobs: Duly, send: Send) -> None:
    send.enqueue("ada")
    with pytest.raises(AssertionError) as caught:
        assert_not_enqueued(jobs, send, tag=None, args={"email": "ada"})
    assert str(caught.value).splitlines() == [
        "1 job enqueued, not 0: send(email='ada')",
        "These are enqueued:",
        "  send(email='ada'), queue 'default'  <- matches",
    ]


def test_failure_is_short_however_much_is_there(jobs: Duly, send: Send) -> None:
    send.enqueue_many([{"email": "x" * 1000}] * 50)
    lines = failure(jobs, send, args={"email": "ada"})
    assert lines[-1] == "  ... and 40 more"
    assert len(lines) == 13
    assert all(len(line) < 300 for line in lines)


def test_jobs_whose_arguments_no_longer_fit_are_compared_as_stored(
    jobs: Duly, database_url: str, clock: TestClock, send: Send
) -> None:
    older = Duly(database_url, clock=clock)

    @older.task(name="send")
    def send_before(to: str) -> None: ...

    send_before.enqueue("ada")
    assert "<- email is missing" in failure(jobs, send, args={"email": "ada"})[2]
    drain(jobs)
    assert "parked: arguments" in failure(jobs, send, args={"email": "ada"})[2]
    older.close()
