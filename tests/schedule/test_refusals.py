"""Refusals: every kind of bad input, with the exact reason and the position in the text."""

from __future__ import annotations

import copy
import zoneinfo
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from duly.domain.errors import InvalidOption, InvalidSchedule
from duly.schedule import Schedule
from duly.schedule.zones import find_zone

FIELDS = "cron has 5 fields (minute hour day month weekday) or 6 (second first), and this has "
USE = "use one of @yearly @annually @monthly @weekly @daily @midnight @hourly @every, or a cron expression."
LAST = ": L and LW stand alone in the day field, and 5L in the weekday field is the last Friday."
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "text, position, reason",
    [
        ("", None, "it is empty: write for instance '@hourly', '@every 1h30m' or '0 9 * * mon-fri'."),
        ("   ", None, "it is empty: write for instance '@hourly', '@every 1h30m' or '0 9 * * mon-fri'."),
        ("@", 0, f"there is no @: {USE}"),
        ("@reboot", 0, f"there is no @reboot: {USE}"),
        ("@dialy", 0, f"there is no @dialy (did you mean @daily?): {USE}"),
        ("@daily 5", 7, "nothing may follow @daily."),
        ("@every", 6, "a duration is missing after @every, such as 1h30m."),
        ("@every ", 6, "a duration is missing after @every, such as 1h30m."),
        ("@every 5", 8, "a unit is missing (one of ns us ms s m h d w)."),
        ("@every 1h30", 11, "a unit is missing (one of ns us ms s m h d w)."),
        ("@every 5x", 8, "unknown unit 'x' (known: ns us ms s m h d w)."),
        ("@every h", 7, "a number is expected."),
        ("@every 0s", 7, "the interval must be more than zero."),
        ("@every -1h", 7, "the interval must be more than zero."),
        ("@every 1ns", 7, "the interval must be 1ms or longer: no queue starts jobs more often than that."),
        ("@every 999us", 7, "the interval must be 1ms or longer: no queue starts jobs more often than that."),
        ("@every 400000d", 7, "the interval is longer than 365000 days."),
        ("@every 99999999999999d", 7, "the interval is longer than 365000 days."),
        ("* * * *", 7, f"{FIELDS}4."),
        ("* * * * * * *", 12, f"{FIELDS}7."),
        ("5", 1, f"{FIELDS}1."),
        ("60 * * * *", 0, "minute 60 is outside 0-59."),
        ("* 24 * * *", 2, "hour 24 is outside 0-23."),
        ("* * 0 * *", 4, "day 0 is outside 1-31."),
        ("* * 32 * *", 4, "day 32 is outside 1-31."),
        ("* * * 13 *", 6, "month 13 is outside 1-12."),
        ("* * * 0 *", 6, "month 0 is outside 1-12."),
        ("* * * * 8", 8, "weekday 8 is outside 0-7."),
        ("60 0 0 * * *", 0, "second 60 is outside 0-59."),
        (
            "0 9 * * monday",
            8,
            "weekday 'monday' is not a number from 0 to 7 or one of sun mon tue wed thu fri sat: write mon.",
        ),
        (
            "0 9 * foo *",
            6,
            "month 'foo' is not a number from 1 to 12 or one of jan feb mar apr may jun jul aug sep oct nov dec.",
        ),
        ("x * * * *", 0, "minute 'x' is not a number from 0 to 59."),
        ("-1 * * * *", 0, "the minute is missing."),
        ("5- * * * *", 2, "the minute is missing."),
        ("1,,2 * * * *", 2, "the minute is missing."),
        (", * * * *", 0, "the minute is missing."),
        ("1, * * * *", 2, "the minute is missing."),
        ("1.5 * * * *", 0, "minute '1.5' is not a number from 0 to 59."),
        ("*/0 * * * *", 2, "the step 0 is outside 1-59."),
        ("*/60 * * * *", 2, "the step 60 is outside 1-59: for a longer interval use @every."),
        ("0 */24 * * *", 4, "the step 24 is outside 1-23: for a longer interval use @every."),
        ("*/ * * * *", 2, "a step is missing after /."),
        ("*/x * * * *", 2, "the step 'x' is not a number."),
        ("*/2/3 * * * *", 2, "the step '2/3' is not a number."),
        ("1-2-3 * * * *", 2, "minute '2-3' is not a number from 0 to 59."),
        ("** * * * *", 0, "minute '**' is not a number from 0 to 59."),
        ("50-10 * * * *", 0, "the range 50-10 runs backwards: write it as two, 50-59,0-10."),
        ("0 22-2 * * *", 2, "the range 22-2 runs backwards: write it as two, 22-23,0-2."),
        ("0 0 * * fri-mon", 8, "the range fri-mon runs backwards: write it as two, fri-sat,sun-mon."),
        ("0 0 * nov-feb *", 6, "the range nov-feb runs backwards: write it as two, nov-dec,jan-feb."),
        ("0 0 ? * *", 4, "day '?' is not a number from 1 to 31: write * for any."),
        (
            "0 0 15W * *",
            4,
            "day '15W' is not a number from 1 to 31: of the workday forms there is only LW, the last of the month.",
        ),
        (
            "0 0 * L *",
            6,
            f"month 'L' is not a number from 1 to 12 or one of jan feb mar apr may jun jul aug sep oct nov dec{LAST}",
        ),
        ("0 0 * * L", 8, f"weekday 'L' is not a number from 0 to 7 or one of sun mon tue wed thu fri sat{LAST}"),
        ("0 0 * * fri#6", 12, "after # goes a number from 1 to 5."),
        ("0 0 * * fri#", 12, "after # goes a number from 1 to 5."),
        ("0 0 * * #2", 8, "the weekday is missing."),
        (
            "0 0 * * mon-fri#2",
            8,
            "weekday 'mon-fri' is not a number from 0 to 7 or one of sun mon tue wed thu fri sat: write mon.",
        ),
        ("0 0 L-3 * *", 4, f"day 'L' is not a number from 1 to 31{LAST}"),
        ("L * * * *", 0, f"minute 'L' is not a number from 0 to 59{LAST}"),
        ("0 0 30 2 *", 4, "there is no such date: month 2 has no day 30."),
        ("0 0 31 4,6 *", 4, "there is no such date: month 4,6 has no day 31."),
        ("0 0 31 feb,apr *", 4, "there is no such date: month feb,apr has no day 31."),
        ("0 0 30 2 */2", 4, "there is no such date: month 2 has no day 30 that is also a weekday */2."),
        ("0 0 1-7 * */7#2", 10, "weekday '*/7' is not a number from 0 to 7 or one of sun mon tue wed thu fri sat."),
        ("٣ * * * *", 0, "minute '٣' is not a number from 0 to 59."),
        ("0\n9 * * moon", 8, "weekday 'moon' is not a number from 0 to 7 or one of sun mon tue wed thu fri sat."),
    ],
)
@pytest.mark.requirement("C7")
def test_a_bad_rule_is_refused_with_reason_and_position(text: str, position: int | None, reason: str) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        Schedule.make(text)
    first, *rest = str(caught.value).split("\n")
    where = "" if position is None else f", position {position + 1}"
    assert first == f"The schedule {text!r} is not valid{where}: {reason}"
    assert caught.value.text == text
    assert caught.value.position == position
    if position is None:
        assert rest == []
    else:
        assert rest == [f"  {text}".replace("\n", " "), f"  {' ' * position}^"]


@pytest.mark.requirement("C7")
def test_the_message_shows_the_place_with_a_caret() -> None:
    with pytest.raises(InvalidSchedule) as caught:
        Schedule.make("0 9 * * mon-fry")
    assert str(caught.value) == (
        "The schedule '0 9 * * mon-fry' is not valid, position 13: "
        "weekday 'fry' is not a number from 0 to 7 or one of sun mon tue wed thu fri sat.\n"
        "  0 9 * * mon-fry\n"
        "              ^"
    )


@pytest.mark.parametrize(
    "rules, message",
    [
        (5, "A rule must be text such as '@hourly', or a timedelta, not 5."),
        (b"@daily", "A rule must be text such as '@hourly', or a timedelta, not b'@daily'."),
        (["@daily", None], "A rule must be text such as '@hourly', or a timedelta, not None."),
        (["@daily"] * 101, "rules has 101 entries, and 100 are allowed."),
        (timedelta(0), "The schedule 'datetime.timedelta(0)' is not valid: the interval must be more than zero."),
        (
            timedelta(microseconds=5),
            "The schedule 'datetime.timedelta(microseconds=5)' is not valid: "
            "the interval must be 1ms or longer: no queue starts jobs more often than that.",
        ),
    ],
)
@pytest.mark.requirement("C7")
def test_what_is_not_a_rule_is_refused(rules: Any, message: str) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        Schedule.make(rules)
    assert str(caught.value) == message


@pytest.mark.requirement("C7")
def test_a_long_text_is_refused_without_being_repeated() -> None:
    with pytest.raises(InvalidSchedule, match=r"is not valid: it has 501 characters, and 500 are allowed\.$") as caught:
        Schedule.make("1" * 501)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "options, message",
    [
        ({"timezone": "europe/berlin"}, "There is no time zone 'europe/berlin': did you mean Europe/Berlin?"),
        ({"timezone": "Berlin"}, "There is no time zone 'Berlin': did you mean Europe/Berlin?"),
        ({"timezone": "new york"}, "There is no time zone 'new york': did you mean America/New_York?"),
        ({"timezone": "utc"}, "There is no time zone 'utc': did you mean UTC?"),
        ({"timezone": ""}, "There is no time zone '': write it as in Europe/Berlin."),
        ({"timezone": "../../etc/passwd"}, "There is no time zone '../../etc/passwd': write it as in Europe/Berlin."),
        ({"timezone": "zone.tab"}, "There is no time zone 'zone.tab': write it as in Europe/Berlin."),
        ({"timezone": None}, "timezone must be a name such as 'Europe/Berlin', not None."),
        (
            {"start": datetime(2026, 1, 1)},  # noqa: DTZ001
            "start 2026-01-01T00:00:00 has no time zone. Use an aware datetime, e.g. datetime.now(timezone.utc)",
        ),
        ({"until": "tomorrow"}, "until must be a datetime with a time zone, not 'tomorrow'."),
        (
            {"start": NEW_YEAR, "until": NEW_YEAR},
            "until must be later than start, "
            "and 2026-01-01 00:00:00+00:00 is not later than 2026-01-01 00:00:00+00:00.",
        ),
        ({"until": datetime.max.replace(tzinfo=UTC)}, "until must be between the years 1 and 9999."),
        ({"exclude": ["2026-13-01"]}, "exclude has '2026-13-01', which is not a date such as '2026-12-25'."),
        ({"exclude": "20261225"}, "exclude has '20261225', which is not a date such as '2026-12-25'."),
        ({"exclude": [5]}, "exclude takes dates or texts such as '2026-12-25', not 5."),
        (
            {"exclude": [NEW_YEAR]},
            "exclude takes dates or texts such as '2026-12-25', "
            "not datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc).",
        ),
        (
            {"exclude": [date.fromordinal(700_000 + n) for n in range(1_001)]},
            "exclude has 1001 entries, and 1000 are allowed.",
        ),
        ({"jitter": -1}, "jitter must not be negative, and -1 is."),
        (
            {"jitter": "5x"},
            "jitter is not a duration: '5x', position 2: unknown unit 'x' (known: ns us ms s m h d w).",
        ),
        ({"gap": "both"}, "gap must be 'next' or 'skip', not 'both'."),
        ({"overlap": None}, "overlap must be 'first' or 'twice', not None."),
    ],
)
@pytest.mark.requirement("C7")
def test_a_bad_option_is_refused_with_what_to_do(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSchedule) as caught:
        Schedule.make("@daily", **options)
    assert str(caught.value) == message
    assert isinstance(caught.value, InvalidOption)


@pytest.mark.parametrize("name", ["right/UTC", "posix/Europe/Berlin", "localtime", "America", "a\0b", "\udc80"])
def test_what_only_some_machines_call_a_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidSchedule, match="There is no time zone"):
        Schedule.make("@daily", timezone=name)


def test_without_a_time_zone_database_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", missing)
    monkeypatch.setattr(zoneinfo, "available_timezones", lambda: set[str]())
    find_zone.cache_clear()
    with pytest.raises(InvalidSchedule, match=r"no time zone database.*pip install tzdata"):
        Schedule.make("@daily", timezone="Europe/Berlin")
    assert Schedule.make("@daily").next_after(0, anchor_us=0) == 86_400_000_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "5",
        "@daily",
        '{"rule":"@daily"}',
        '{"rules":"@daily"}',
        '{"rules":[5]}',
        '{"rules":["@nope"]}',
        '{"rules":["@daily"],"start_us":"now"}',
        '{"rules":["@daily"],"start_us":true}',
        '{"rules":["@daily"],"jitter_us":null}',
        '{"rules":["@daily"],"jitter_us":-1}',
        '{"rules":["@daily"],"jitter_us":1e9}',
        '{"rules":["@daily"],"timezone":5}',
        '{"rules":["@daily"],"exclude":["tomorrow"]}',
        '{"rules":["@daily"],"gap":["next"]}',
    ],
)
def test_a_text_that_was_not_stored_by_a_schedule_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchedule):
        Schedule.from_json(text)


def test_the_error_survives_being_copied_between_processes() -> None:
    with pytest.raises(InvalidSchedule) as caught:
        Schedule.make("61 * * * *")
    twin = copy.copy(caught.value)
    assert str(twin) == str(caught.value)
    assert (twin.text, twin.position) == ("61 * * * *", 0)
