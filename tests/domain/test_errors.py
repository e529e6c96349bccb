"""The error tree: what the docstring draws is what there is, and every error can be copied and read."""

from __future__ import annotations

import copy
import inspect
import re
from datetime import timedelta

import pytest

from duly.domain import errors
from duly.domain.errors import (
    ArgumentError,
    ArgumentsDoNotFit,
    Cancel,
    DulyError,
    InvalidOption,
    JobCancelled,
    JobFailed,
    JobNotFound,
    PayloadTooLarge,
    Retry,
    SchemaMissing,
    Snooze,
    Steer,
    UnknownTask,
    WaitTimeout,
)

CLASSES = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if cls.__module__ == "duly.domain.errors"]
ERRORS = [cls for cls in CLASSES if issubclass(cls, DulyError)]


def test_the_docstring_draws_every_class_under_its_base() -> None:
    drawn: dict[str, str] = {}
    above: dict[int, str] = {}
    for line in inspect.cleandoc(errors.__doc__ or "").splitlines():
        found = re.match(r"(?:    )?((?:│   |    )*(?:├── |└── )?)((?:[A-Z]\w+, )*[A-Z]\w+)\b", line)
        if found is None or not line.startswith("    "):
            continue
        depth = len(found[1]) // 4
        for name in found[2].split(", "):
            drawn[name] = above.get(depth - 1, "Exception")
            above[depth] = name
    assert drawn == {cls.__name__: cls.__bases__[0].__name__ for cls in CLASSES}


@pytest.mark.parametrize("cls", ERRORS)
def test_an_error_without_a_message_says_its_docstring(cls: type[DulyError]) -> None:
    assert str(cls()) == inspect.getdoc(cls)
    assert cls.__doc__ != DulyError.__doc__ or cls is DulyError


@pytest.mark.parametrize("cls", ERRORS)
def test_an_error_with_a_message_says_that_message(cls: type[DulyError]) -> None:
    assert str(cls("queue 'mail' is paused")) == "queue 'mail' is paused"


@pytest.mark.parametrize(
    "error",
    [
        ArgumentError("no", path="args.user.tags[3]"),
        PayloadTooLarge("no", size=7, limit=5),
        ArgumentsDoNotFit("no", path="args.x", reason="missing"),
        JobFailed("no", job_id="j1", kind="ValueError", traceback="Traceback ..."),
        JobCancelled("no", job_id="j1", reason="asked"),
        WaitTimeout("no"),
        Snooze(timedelta(minutes=5)),
        Cancel("asked"),
        Retry(timedelta(seconds=3), "later"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_copy_keeps_message_and_attributes(error: Exception) -> None:
    twin = copy.copy(error)  # goes the way that pickling goes, and so the way between processes
    assert type(twin) is type(error)
    assert twin.args == error.args
    assert vars(twin) == vars(error)
    assert str(twin) == str(error)


def test_errors_are_also_the_builtin_kind_that_callers_expect() -> None:
    assert issubclass(ArgumentError, ValueError)
    assert issubclass(InvalidOption, ValueError)
    assert issubclass(UnknownTask, LookupError)
    assert issubclass(JobNotFound, LookupError)
    assert issubclass(WaitTimeout, TimeoutError)


def test_a_missing_schema_names_the_command() -> None:
    assert "duly migrate" in str(SchemaMissing())


def test_steering_is_not_an_error_of_ours() -> None:
    for signal in (Snooze(timedelta(0)), Cancel(), Retry()):
        assert isinstance(signal, Steer)
        assert not isinstance(signal, DulyError)


def test_steering_says_what_it_does() -> None:
    assert str(Snooze(timedelta(minutes=5))) == "snoozed for 0:05:00"
    assert str(Cancel()) == "cancelled"
    assert str(Cancel("user left")) == "cancelled: user left"
    assert str(Retry()) == "retry"
    assert str(Retry(timedelta(seconds=3), "busy")) == "retry after 0:00:03: busy"


@pytest.mark.parametrize("delay", [timedelta(microseconds=-1), 30, "5m", None])
def test_snooze_refuses_what_is_no_delay(delay: timedelta) -> None:
    with pytest.raises(InvalidOption, match=r"Snooze\(delay\) must"):
        Snooze(delay)


@pytest.mark.parametrize("after", [timedelta(seconds=-1), 30])
def test_retry_refuses_what_is_no_delay(after: timedelta) -> None:
    with pytest.raises(InvalidOption, match=r"Retry\(after\) must"):
        Retry(after)
