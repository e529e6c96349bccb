"""`duly schedules next`: the times of rules, without a database."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Project


@pytest.mark.requirement("C6")
@pytest.mark.parametrize(
    "rule, text",
    [
        ("@hourly", "at the start of every hour"),
        ("@every 1h30m", "every 1h30m"),
        ("@yearly", "January"),
        ("0 9 * * mon-fri", "at 09:00 on Monday through Friday"),
        ("*/10 * * * * *", "second"),
    ],
)
def test_any_rule_can_be_looked_at_without_a_database(bare: Project, rule: str, text: str) -> None:
    out = bare.ok("schedules", "next", rule, "-n", "3").out
    assert len([line for line in out.splitlines() if line.startswith("  ") and line[2:5].istitle()]) == 3
    data = bare.ok("schedules", "next", rule, "-n", "3", "--json").json
    assert len(data["times"]) == 3
    assert text in data["text"]
    assert list(bare.folder.iterdir()) == []


@pytest.mark.requirement("C6")
def test_times_are_shown_in_the_zone_and_in_utc(bare: Project) -> None:
    options = ["--timezone", "Asia/Kolkata", "--start-at", "2035-01-01T00:00:00Z", "-n", "1"]
    answer = bare.ok("schedules", "next", "30 9 * * *", *options)
    assert answer.out == (
        "30 9 * * *: at 09:30 every day, Asia/Kolkata; from 2035-01-01 05:30+05:30\n\n"
        "  Asia/Kolkata             OFFSET  UTC\n"
        f"  Mon 2035-01-01 09:30:00  +05:30  Mon 2035-01-01 04:00:00Z  {answer.out.rstrip().rpartition('Z  ')[2]}\n"
    )
    assert bare.ok("schedules", "next", "30 9 * * *", *options, "--json").json["times"] == [
        {"at": "2035-01-01T09:30:00+05:30", "utc": "2035-01-01T04:00:00+00:00"}
    ]


def test_several_rules_and_bounds_make_one_schedule(bare: Project) -> None:
    options = ["--start-at", "2035-03-01T00:00:00Z", "--until", "2035-03-02T23:00:00Z", "--exclude", "2035-03-01"]
    data = bare.ok("schedules", "next", "0 9 * * *", "0 18 * * *", *options, "--json").json
    assert [each["utc"][:16] for each in data["times"]] == ["2035-03-02T09:00", "2035-03-02T18:00"]
    over = bare.ok("schedules", "next", "@daily", "--until", "2020-01-01T00:00:00Z")
    assert "no more times" in over.out


@pytest.mark.requirement("C7")
def test_a_wrong_rule_is_refused_with_the_reason_and_a_caret_under_the_place(bare: Project) -> None:
    answer = bare.duly("schedules", "next", "0 9 * * mon-fry")
    assert answer.code == 2
    message, shown, caret = answer.err.splitlines()
    assert "position 13: weekday 'fry' is not" in message
    assert shown == "  0 9 * * mon-fry"
    assert caret == "              ^"
    impossible = bare.duly("schedules", "next", "@every 90m", "0 0 30 2 *")
    assert impossible.code == 2
    assert "month 2 has no day 30" in impossible.err


@pytest.mark.parametrize(
    "words, meant",
    [
        (["0", "9", "*", "*", "mon-fri"], "'0 9 * * mon-fri'"),
        (["@every", "5m"], "'@every 5m'"),
        (["every", "5m"], "'@every 5m'"),
        (["5m"], "'@every 5m'"),
        (["daily"], "'@daily'"),
    ],
)
def test_what_was_nearly_right_is_answered_with_what_was_meant(bare: Project, words: list[str], meant: str) -> None:
    answer = bare.duly("schedules", "next", *words)
    assert answer.code == 2
    assert f"duly schedules next {meant}" in answer.err


def test_a_star_that_the_shell_replaced_is_noticed(bare: Project) -> None:
    for name in ("a.py", "b.py"):
        bare.write(name, "")
    assert "put the rule in quotes" in bare.duly("schedules", "next", "0", "9", "a.py", "b.py", "mon").err


@pytest.mark.parametrize(
    "words, complaint",
    [
        ([], "which rule?"),
        (["@daily", "-n", "0"], "not in the range"),
        (["@daily", "--timezone", "Europe/Berln"], "did you mean Europe/Berlin"),
        (["@daily", "--until", "soon"], "is no time like"),
        (["@daily", "--until", "2035-01-01"], "has no time zone. Write for instance 2035-01-01T00:00:00Z"),
        (["@daily", "--exclude", "x"], "which is not a date"),
        (["@daily", "--of", "x"], "give RULEs or --of, not both"),
    ],
)
def test_wrong_usage_ends_with_2(bare: Project, words: list[str], complaint: str) -> None:
    answer = bare.duly("schedules", "next", *words)
    assert answer.code == 2
    assert complaint in answer.err


def test_the_times_of_one_that_exists(project: Project) -> None:
    start = "2035-01-01T00:00:00Z"
    project.ok("schedules", "add", "app.py", "add", "x=1", "--every", "1h", "--start-at", start, "--name", "n")
    data = project.ok("schedules", "next", "--of", "n", "-n", "2", "--json").json
    assert [each["utc"] for each in data["times"]] == ["2035-01-01T00:00:00+00:00", "2035-01-01T01:00:00+00:00"]
    assert project.ok("schedules", "next", "--of", "n").out.startswith("n: @every 1h: every 1h; from 2035")
    project.ok("schedules", "edit", "n", "--no-rule")
    assert project.ok("schedules", "next", "--of", "n").code == 0
