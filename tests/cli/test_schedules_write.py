"""`duly schedules add` and `edit`."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime, timedelta

import pytest

from duly import Duly, RecurringJob
from tests.cli.conftest import Project


def the(jobs: Duly, task: str = "add", key: str = "", tenant: str = "") -> RecurringJob:
    return jobs.recurring_job(task, key, tenant=tenant)


# -- add --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C7")
def test_every_option_is_stored(project: Project, jobs: Duly) -> None:
    answer = project.ok(
        *("schedules", "add", "app.py", "add", "x=1", "--args", '{"y": 5}', "--key", "k"),
        *("--cron", "0 9 * * *", "--cron", "0 18 * * *", "--timezone", "Europe/Berlin", "--exclude", "2035-12-25"),
        *("--start-at", "2035-01-01T00:00:00Z", "--until", "2036-01-01T00:00:00Z", "--jitter", "5m"),
        *("--dst-gap", "skip", "--dst-overlap", "twice", "--name", "n", "--description", "d", "--tenant", "acme"),
        *("--priority", "70", "--queue", "slow", "--misfire", "all", "--grace", "90s", "--cap", "3"),
        *("--overlap", "skip", "--failure", "backoff", "--pause-after", "4", "--by", "ada"),
    )
    job = the(jobs, "add", "k", "acme")
    assert answer.out.startswith(f"made: n {job.id}\n0 9 * * * | 0 18 * * *: at 09:00 every day")
    assert "next run 2035-01-01" in answer.out
    record, schedule = job.record, job.schedule
    assert job.args == {"x": 1, "y": 5}
    assert schedule.rules == ("0 9 * * *", "0 18 * * *")
    assert (schedule.timezone, schedule.exclude) == ("Europe/Berlin", ("2035-12-25",))
    assert (schedule.gap, schedule.overlap, schedule.jitter_us) == ("skip", "twice", 300_000_000)
    assert schedule.start_us is not None
    assert schedule.until_us is not None
    assert (record.name, record.description, record.created_by) == ("n", "d", "ada")
    assert (record.priority, record.queue, record.misfire, record.cap) == (70, "slow", "all", 3)
    assert (record.overlap, record.failure, record.pause_after) == ("skip", "backoff", 4)
    assert record.grace_us == 90_000_000


@pytest.mark.requirement("C6")
def test_an_interval_runs_at_once_and_a_rule_at_its_next_tick(project: Project, jobs: Duly) -> None:
    project.ok("schedules", "add", "app.py", "add", "x=1", "--every", "5m")
    project.ok("schedules", "add", "app.py", "pid", "--rule", "@yearly")
    project.ok("schedules", "add", "app.py", "nap", "seconds=0", "--no-rule")
    assert project.ok("tick", "app.py", "--json").json["claimed"] == 2
    assert the(jobs, "add").schedule.rules == ("@every 5m",)
    assert the(jobs, "pid").last_run_at is None
    assert the(jobs).record.created_by == getpass.getuser()


def test_made_disabled_it_waits(project: Project, jobs: Duly) -> None:
    answer = project.ok("schedules", "add", "app.py", "add", "x=1", "--every", "5m", "--disabled", "--by", "ada")
    assert answer.out.startswith("made, disabled: add ")
    assert "next run" not in answer.out
    assert (the(jobs).enabled, the(jobs).record.disabled_by) == (False, "ada")
    assert project.ok("tick", "app.py", "--json").json["claimed"] == 0


def test_the_app_may_come_from_an_option_or_the_environment(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.ok("schedules", "add", "pid", "--every", "5m", "--app", "app.py")
    monkeypatch.setenv("DULY_APP", "app.py")
    answer = project.ok("schedules", "add", "pid", "--every", "5m", "--key", "2")
    assert "no live worker knows its task and queue" in answer.err


def test_what_exists_is_not_made_again(project: Project, jobs: Duly) -> None:
    project.ok("schedules", "add", "app.py", "add", "x=1", "--every", "5m", "--name", "n")
    again = project.duly("schedules", "add", "app.py", "add", "x=2", "--every", "9m")
    assert again.code == 1
    assert "there is a recurring job add already. Change it: duly schedules edit 'n'" in again.err
    assert the(jobs).args == {"x": 1}
    taken = project.duly("schedules", "add", "app.py", "pid", "--every", "5m", "--name", "n")
    assert taken.code == 1
    assert "the name 'n' belongs to recurring job" in taken.err


@pytest.mark.parametrize(
    "words, code, complaint",
    [
        (["add", "--every", "5m"], 2, "which app? Name it (duly schedules add app.py)"),
        (["app.py", "add", "x=1"], 2, "when? Give --every, --cron or --rule; or --no-rule"),
        (["app.py", "ad", "--every", "5m"], 2, "Did you mean 'add'?"),
        (["app.py", "add", "--every", "5m"], 2, "argument x: missing. It is called as add(x, y)"),
        (["app.py", "add", "x=one", "--every", "5m"], 2, "argument x: expected int, got str 'one'"),
        (["app.py", "add", "x=1", "z=1", "--every", "5m"], 2, "z"),
        (["app.py", "add", "x=1", "--every", "5x"], 2, "position 2: unknown unit 'x'"),
        (["app.py", "add", "x=1", "--every", "0s"], 2, "every must be longer than nothing"),
        (["app.py", "add", "x=1", "--every", "5m", "--cron", "0 9 * * *"], 2, "give --every or --cron, not both"),
        (["app.py", "add", "x=1", "--every", "5m", "--no-rule"], 2, "give --every or --no-rule, not both"),
        (["app.py", "add", "x=1", "--no-rule", "--overlap", "allow"], 2, "without a rule there are none"),
        (["app.py", "add", "x=1", "--cron", "61 * * * *"], 2, "  61 * * * *\n  ^"),
        (["app.py", "add", "x=1", "--rule", "@dayly"], 2, "did you mean @daily?"),
        (["app.py", "add", "x=1", "--every", "5m", "--priority", "500"], 2, "priority"),
        (["app.py", "add", "x=1", "--every", "5m", "--cap", "0"], 2, "cap must be a whole number"),
        (["app.py", "add", "x=1", "--every", "5m", "--until", "2020-01-01T00:00:00Z"], 2, "would never run"),
        (["app.py", "add", "x=1", "--every", "5m", "--app", "other.py"], 2, "give APP once"),
        (["app.py", "add", "x=1", "--every", "5m", "--args", "[1]"], 2, "--args must be a JSON object"),
        (["app.py", "add", "x=1", "5m"], 2, "'5m' is no argument"),
    ],
)
def test_what_cannot_be_made_is_refused(sqlite_project: Project, words: list[str], code: int, complaint: str) -> None:
    answer = sqlite_project.duly("schedules", "add", *words)
    assert answer.code == code
    assert complaint in answer.err
    assert sqlite_project.duly("schedules", "list", "--json").out in ("[]\n", "")


# -- edit -------------------------------------------------------------------------------------------------------------


def test_an_edit_changes_what_it_names_and_nothing_else(project: Project, jobs: Duly) -> None:
    start = "2035-01-01T00:00:00Z"
    project.ok(
        *("schedules", "add", "app.py", "add", "x=1", "--every", "1h", "--start-at", start, "--name", "n"),
        *("--description", "d", "--pause-after", "3", "--misfire", "skip", "--exclude", "2035-01-02"),
    )
    before = the(jobs).to_dict()
    project.ok("schedules", "edit", "n", "--priority", "9", "--grace", "5s")
    after = the(jobs).to_dict()
    assert {name for name in before if before[name] != after[name]} == {"priority", "grace"}
    assert the(jobs).record.grace_us == 5_000_000
    answer = project.ok("schedules", "edit", "n", "--cron", "0 9 * * *", "--timezone", "Asia/Tokyo", "--utc")
    assert "next run 2035-01-01 00:00:00Z" in answer.out
    assert the(jobs).schedule.exclude == ("2035-01-02",)
    assert the(jobs).schedule.timezone == "Asia/Tokyo"


def test_an_empty_text_takes_away(project: Project, jobs: Duly) -> None:
    project.ok(
        *("schedules", "add", "app.py", "add", "x=1", "--every", "1h", "--name", "n", "--description", "d"),
        *("--pause-after", "3", "--start-at", "2035-01-01T00:00:00Z", "--until", "2036-01-01T00:00:00Z"),
        *("--exclude", "2035-01-02"),
    )
    project.ok(
        *("schedules", "edit", "n", "--name", "", "--description", "", "--pause-after", "0"),
        *("--start-at", "", "--until", "", "--exclude", ""),
    )
    job = the(jobs)
    assert (job.name, job.description, job.record.pause_after) == (None, None, None)
    assert (job.schedule.start_us, job.schedule.until_us, job.schedule.exclude) == (None, None, ())
    assert job.next_run_at is not None
    assert job.next_run_at < datetime.now(UTC) + timedelta(hours=2)


def test_one_argument_is_changed_or_all_are(project: Project, jobs: Duly) -> None:
    project.ok("schedules", "add", "app.py", "add", "x=1", "y=2", "--every", "1h")
    unchecked = project.ok("schedules", "edit", "add", "y=5")
    assert "no code checked the arguments of add" in unchecked.err
    assert the(jobs).args == {"x": 1, "y": 5}
    checked = project.ok("schedules", "edit", "add", "y=6", "--app", "app.py")
    assert checked.err == ""
    assert the(jobs).args == {"x": 1, "y": 6}
    wrong = project.duly("schedules", "edit", "add", "x=one", "--app", "app.py")
    assert wrong.code == 2
    assert "argument x: expected int" in wrong.err
    project.ok("schedules", "edit", "add", "--args", '{"x": 9}', "--app", "app.py")
    assert the(jobs).args == {"x": 9}


def test_an_edit_that_says_nothing_or_nonsense_is_refused(project: Project, jobs: Duly) -> None:
    project.ok("schedules", "add", "app.py", "add", "x=1", "--every", "1h")
    for words, complaint in (
        ([], "what should change?"),
        (["blah"], "must be written name=value"),
        (["--cron", "61 * * * *"], "  61 * * * *\n  ^"),
        (["--misfire", "al"], "is not one of"),
        (["--priority", "101"], "priority"),
        (["--every", "1h", "--rule", "@daily"], "give --every or --rule, not both"),
        (["--until", "2020-01-01T00:00:00Z"], "would never run"),
    ):
        answer = project.duly("schedules", "edit", "add", *words)
        assert answer.code == 2, words
        assert complaint in answer.err
    assert the(jobs).schedule.rules == ("@every 1h",)
