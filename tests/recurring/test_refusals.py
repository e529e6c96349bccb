"""What cannot be a recurring job is refused at once, with the reason and the way out."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import ArgumentError, Duly, InvalidOption

AT = datetime(2100, 1, 1, tzinfo=UTC)
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"every": "1h", "start_at": datetime(2100, 1, 1)}, "has no time zone"),  # noqa: DTZ001
    ({"every": "1h", "until": datetime(2100, 1, 1)}, "has no time zone"),  # noqa: DTZ001
    ({"every": 0}, "every must be longer than nothing, not 0"),
    ({"every": -5}, "every must be longer than nothing, not -5"),
    ({"every": timedelta(0)}, "every must be longer than nothing"),
    ({"every": "-1h"}, "every|-1h"),
    ({"every": "soon"}, "soon"),
    ({"every": "1h", "timezone": "Mars/Olympus"}, "Mars/Olympus"),
    ({"cron": "61 * * * *"}, "61"),
    ({"cron": "* * *"}, r"\* \* \*"),
    ({"cron": "@dayly"}, "@dayly"),
    ({"every": "1h", "cron": "@daily"}, r"give every or cron, not both\. Several rules: rule="),
    ({"every": "1h", "cron": "@daily", "rule": "@daily"}, "not all"),
    ({"overlap": "allow"}, r"overlap='allow' makes a job per tick, and without a rule there are none\. Give every="),
    ({"every": "1h", "overlap": "alow"}, "overlap must be one of skip, queue, allow, not 'alow'. Did you mean 'allow'"),
    ({"every": "1h", "misfire": "never"}, "misfire must be one of once, skip, all, not 'never'"),
    ({"every": "1h", "failure": "give up"}, "failure must be one of backoff, advance"),
    ({"every": "1h", "cap": 0}, "cap must be a whole number from 1"),
    ({"every": "1h", "pause_after": 1.5}, r"pause_after must be a whole number from 1 .*not 1\.5"),
    ({"every": "1h", "grace": -1}, "grace"),
    ({"every": "1h", "priority": 101}, "priority"),
    ({"every": "1h", "tenant": "a\x00b"}, "tenant"),
    ({"every": "1h", "name": ""}, "name must not be empty"),
    ({"every": "1h", "name": "x" * 600}, "name"),
    ({"every": "1h", "description": "x" * 3_000}, "description"),
    ({"evry": "1h"}, "a recurring job has no option 'evry'. Did you mean 'every'"),
    ({"every": "1h", "strat_at": AT}, "no option 'strat_at'. Did you mean 'start_at'"),
    (
        {"cron": "@daily", "until": datetime(2001, 1, 1, tzinfo=UTC)},
        "would never run: its schedule is over. Check until=",
    ),
]


@pytest.mark.requirement("C7")
@pytest.mark.parametrize("options, words", WRONG)
def test_refused(lite: Duly, options: dict[str, Any], words: str) -> None:
    @lite.task
    def fetch() -> None: ...

    with pytest.raises(InvalidOption, match=words):
        fetch.recur("f", **options)
    assert lite.recurring_jobs() == []


@pytest.mark.parametrize(
    "option, value",
    [
        ("start_at", datetime(2100, 1, 1)),  # noqa: DTZ001
        ("until", datetime(2001, 1, 1, tzinfo=UTC)),
        ("timezone", "Mars/Olympus"),
        ("exclude", ["christmas"]),
        ("jitter", "soon"),
        ("dst_gap", "perhaps"),
        ("dst_overlap", "thrice"),
        ("rule", "@dayly"),
        ("grace", -1),
        ("cap", 0),
        ("failure", "give up"),
        ("pause_after", 1.5),
        ("priority", 101),
        ("name", ""),
    ],
)
def test_a_refusal_knows_its_option_and_so_does_its_copy(lite: Duly, option: str, value: Any) -> None:
    @lite.task
    def fetch() -> None: ...

    with pytest.raises(InvalidOption) as caught:
        fetch.recur("f", **{"rule": "@daily", option: value})
    copied = copy.copy(caught.value)
    assert (caught.value.option, copied.option, str(copied)) == (option, option, str(caught.value))


@pytest.mark.parametrize(
    "key, words",
    [
        ("x" * 10_000, "key"),
        ("a\x00b", "key"),
        (None, "key must be text, a whole number or a UUID, not None"),
        (1.5, r"not 1\.5"),
        (True, "not True"),
        (("a", 1), "key must be text"),
        (b"a", "key must be text"),
    ],
)
def test_a_key_that_is_none(lite: Duly, key: object, words: str) -> None:
    @lite.task
    def fetch() -> None: ...

    with pytest.raises(InvalidOption, match=words):
        fetch.recur(key, every="1h")


@pytest.mark.parametrize(
    "args, path",
    [
        ({"feed": "x"}, "feed"),
        ({}, "feed"),
        ({"feed": 1, "fed": 2}, "fed"),
        ({"feed": 1, "options": {"deep": [1, object()]}}, "options"),
    ],
)
def test_wrong_arguments_are_named_by_their_path(lite: Duly, args: dict[str, Any], path: str) -> None:
    @lite.task
    def fetch(feed: int, options: dict[str, Any] | None = None) -> None: ...

    with pytest.raises(ArgumentError, match=path) as caught:
        fetch.recur("f", every="1h", args=args)
    assert path in caught.value.path or path in str(caught.value)
    job = fetch.recur("f", every="1h", args={"feed": 1})
    with pytest.raises(ArgumentError, match=path):
        job.edit(args=args)
    assert job.refresh().args == {"feed": 1}


EDITS: list[tuple[dict[str, Any], str]] = [
    ({"evry": "1h"}, r"edit\(\) has no option 'evry'\. Did you mean 'every'"),
    ({"tenant": "acme"}, r"edit\(\) has no option 'tenant'"),
    ({"every": 0}, "every must be longer than nothing"),
    ({"every": "1h", "cron": "@daily"}, "give every or cron"),
    ({"cron": "* *"}, r"\* \*"),
    ({"priority": -1}, "priority"),
    ({"queue": "no spaces"}, "queue"),
    ({"overlap": "sometimes"}, "overlap must be one of"),
    ({"description": "x" * 3_000}, "description"),
    ({"description": 7}, "description"),
    ({"until": datetime(2001, 1, 1, tzinfo=UTC)}, "would never run"),
    ({"rule": None, "overlap": "allow"}, "overlap='allow' makes a job per tick"),
    ({"timezone": "Nowhere"}, "Nowhere"),
]


@pytest.mark.parametrize("changes, words", EDITS)
def test_edits_that_are_refused_change_nothing(lite: Duly, changes: dict[str, Any], words: str) -> None:
    @lite.task
    def fetch() -> None: ...

    job = fetch.recur("f", cron="@hourly")
    before = job.to_dict()
    with pytest.raises(InvalidOption, match=words):
        job.edit(**changes)
    assert job.refresh().to_dict() == before


def test_options_of_one_shot_jobs_are_refused(lite: Duly) -> None:
    @lite.task
    def fetch() -> None: ...

    for using in (fetch.using(delay=5), fetch.using(run_at=AT), fetch.using(unique=True)):
        with pytest.raises(InvalidOption, match="a recurring job has no run_at, delay or unique key"):
            using.recur("f", every="1h")


def test_a_job_without_a_rule_cannot_be_edited_to_make_a_job_per_tick(lite: Duly) -> None:
    @lite.task
    def fetch() -> None: ...

    with pytest.raises(InvalidOption, match="overlap='allow' makes a job per tick"):
        fetch.recur("f").edit(overlap="allow")
    with pytest.raises(InvalidOption, match="overlap='allow' makes a job per tick"):
        fetch.recur("g", every="1h", overlap="allow").edit(rule=None)
