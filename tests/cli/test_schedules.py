"""`duly schedules list`, `show`, `enable`, `disable`, `run`, `remove`: and which recurring job a word means."""

from __future__ import annotations

import getpass
import shlex
from datetime import UTC, datetime
from typing import Any

import pytest

from duly import Duly, RecurringJob
from duly.cli.schedules import schedules
from tests.cli.conftest import Project
from tests.helpers import ROOT


def made(project: Project, *words: str) -> dict[str, Any]:
    """Make a recurring job by the command, and return what it answered."""
    answer: dict[str, Any] = project.ok("schedules", "add", "app.py", *words, "--json").json
    return answer


def the(jobs: Duly, task: str, key: str = "", tenant: str = "") -> RecurringJob:
    return jobs.recurring_job(task, key, tenant=tenant)


# -- list -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C7")
def test_the_list_shows_name_rule_times_outcome_and_state(project: Project, jobs: Duly) -> None:
    assert project.ok("schedules", "list").out == "no recurring jobs yet. Make one: duly schedules add\n"
    made(project, "add", "x=1", "--key", "1", "--every", "1h")
    made(project, "send", "to=me", "--cron", "0 9 * * mon-fri", "--timezone", "Europe/Berlin", "--name", "mornings")
    made(project, "pid", "--rule", "@daily")
    project.ok("tick", "app.py")
    project.ok("schedules", "disable", "pid", "--reason", "too noisy", "--by", "ada")
    out = project.ok("schedules", "list").out
    header, first, second, third = out.splitlines()
    assert header.split() == ["JOB", "STATE", "NEXT", "LAST", "SCHEDULE"]
    assert first.startswith("add/1     enabled   ")
    assert "(in 1 h)" in first
    assert "succeeded " in first
    assert first.endswith("@every 1h")
    assert second.startswith("pid       disabled  -")
    assert second.endswith("@daily; by ada: too noisy")
    assert third.startswith("mornings  enabled")
    assert " never " in third
    assert third.endswith("0 9 * * mon-fri: at 09:00 on Monday through Friday, Europe/Berlin")

    as_json = {each["name"] or each["task"]: each for each in project.ok("schedules", "list", "--json").json}
    assert as_json["mornings"]["expression"] == ["0 9 * * mon-fri"]
    assert as_json["mornings"]["created_by"] == getpass.getuser()
    assert as_json["pid"]["disabled_by"] == "ada"
    assert as_json["add"]["last_outcome"] == "succeeded"


def test_the_list_counts_failures_in_a_row_and_names_tenants(project: Project, jobs: Duly) -> None:
    made(project, "send", "to=me", "--every", "1h", "--tenant", "acme", "--failure", "advance")
    for _ in range(2):
        project.ok("schedules", "run", "send")
        project.ok("tick", "app.py")
    out = project.ok("schedules", "list").out
    assert out.splitlines()[0].split() == ["JOB", "TENANT", "STATE", "NEXT", "LAST", "SCHEDULE"]
    assert "send  acme" in out
    assert "failed x2 " in out


def test_the_list_can_be_narrowed_and_paged(project: Project) -> None:
    for key in "abc":
        made(project, "add", "x=1", "--key", key, "--every", "1h")
    made(project, "pid", "--every", "1h", "--tenant", "acme", "--disabled")

    def keys(*options: str) -> list[str]:
        return [f"{each['task']}{each['key']}" for each in project.ok("schedules", "list", *options, "--json").json]

    assert keys() == ["adda", "addb", "addc", "pid"]
    assert keys("--task", "pid") == ["pid"]
    assert keys("--tenant", "acme") == ["pid"]
    assert keys("--disabled") == ["pid"]
    assert keys("--enabled") == ["adda", "addb", "addc"]
    page = project.ok("schedules", "list", "--limit", "2")
    assert "There are more: --limit, or --after '" in page.err
    assert keys("--after", page.err.split("'")[1]) == ["addc", "pid"]
    assert "There are more" not in project.ok("schedules", "list", "--limit", "4").err
    assert project.ok("schedules", "list", "--task", "none").out == "no such recurring jobs\n"


def test_nothing_stored_can_steer_the_terminal(sqlite_project: Project, sqlite_jobs: Duly) -> None:
    @sqlite_jobs.task
    def add(x: int) -> None: ...

    job = add.recur("k", every="1h", args={"x": 1}, description="\u202eevil", created_by="\u200bme")
    job.disable("\x1b[2J bad")
    for command in (["list"], ["show", "add/k"]):
        out = sqlite_project.ok("schedules", *command).out
        assert not {"\x1b", "\u202e", "\u200b"} & set(out)


# -- show -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C7")
def test_show_tells_everything(project: Project, jobs: Duly) -> None:
    made(
        project,
        *("send", "to=me", "--key", "7", "--cron", "0 9 * * *", "--timezone", "America/New_York"),
        *("--name", "greeting", "--description", "Says hello", "--priority", "7", "--pause-after", "5"),
        *("--misfire", "skip", "--grace", "2m", "--by", "ada"),
    )
    project.ok("schedules", "run", "greeting")
    project.ok("tick", "app.py")
    out = project.ok("schedules", "show", "greeting").out
    for text in (
        "send/7",
        "Says hello",
        "0 9 * * *: at 09:00 every day, America/New_York",
        '{"to": "me"}',
        "mail",
        "skip: not run if late by more than 2m",
        "advance: again at the next tick; disabled after 5 failures in a row",
        "by ada",
        "ValueError: no such address: me",
        "1 failure in a row",
        "Next times",
        "Last runs",
    ):
        assert text in out, text
    times = [line for line in out.splitlines() if " 09:00:00  -0" in line]
    assert len(times) == 5
    assert all("13:00:00Z" in line or "14:00:00Z" in line for line in times)
    data = project.ok("schedules", "show", "greeting", "--json").json
    assert len(data["next_times"]) == 5
    assert [run["outcome"] for run in data["runs"]] == ["failed"]
    assert (data["grace"], data["misfire"], data["pause_after"]) == (120.0, "skip", 5)


def test_show_says_that_a_run_was_asked_for_and_that_one_is_overdue(project: Project, jobs: Duly) -> None:
    made(project, "add", "x=1", "--rule", "@yearly")
    project.ok("schedules", "run", "add")
    assert "a run was asked for by hand" in project.ok("schedules", "show", "add").out


def test_one_that_makes_a_job_per_tick_says_where_they_are(project: Project, jobs: Duly) -> None:
    made(project, "add", "x=1", "--every", "1h", "--overlap", "allow")
    assert " never " in project.ok("schedules", "list").out
    project.ok("tick", "app.py")
    assert " enqueued " in project.ok("schedules", "list").out
    assert "; its runs: duly jobs list --task add" in project.ok("schedules", "show", "add").out
    refused = project.duly("schedules", "run", "add")
    assert refused.code == 1
    assert "makes a job per tick" in refused.err


# -- which ------------------------------------------------------------------------------------------------------------


def test_one_is_found_by_name_task_and_key_and_id(project: Project, jobs: Duly) -> None:
    job = made(project, "add", "x=1", "--key", "a/b", "--every", "1h", "--name", "the one")
    bare = made(project, "pid", "--every", "1h")
    for word in ("the one", "add/a/b", job["id"], job["id"][-12:], job["id"].upper()):
        assert project.ok("schedules", "show", word, "--json").json["id"] == job["id"]
    assert project.ok("schedules", "show", "pid", "--json").json["id"] == bare["id"]


def test_without_a_tenant_nobodys_comes_first_then_the_only_one(project: Project) -> None:
    acme = made(project, "add", "x=1", "--every", "1h", "--tenant", "acme")
    assert project.ok("schedules", "show", "add", "--json").json["id"] == acme["id"]
    other = made(project, "add", "x=1", "--every", "1h", "--tenant", "other")
    several = project.duly("schedules", "show", "add")
    assert several.code == 1
    assert f"2 recurring jobs may be meant by 'add': add of acme ({acme['id'][-12:]}), add of other" in several.err
    assert project.ok("schedules", "show", "add", "--tenant", "other", "--json").json["id"] == other["id"]
    nobody = made(project, "add", "x=1", "--every", "1h")
    assert project.ok("schedules", "show", "add", "--json").json["id"] == nobody["id"]


def test_a_name_that_is_also_a_task_is_ambiguous(project: Project) -> None:
    made(project, "add", "x=1", "--every", "1h")
    made(project, "pid", "--every", "1h", "--name", "add")
    assert "2 recurring jobs may be meant by 'add'" in project.duly("schedules", "show", "add").err


def test_what_is_not_there_is_answered_with_what_is(project: Project) -> None:
    assert "there is none at all" in project.duly("schedules", "show", "x").err
    made(project, "add", "x=1", "--key", "42", "--every", "1h", "--name", "cleaning")
    misspelt = project.duly("schedules", "show", "cleening")
    assert misspelt.code == 1
    assert "Did you mean 'cleaning'?" in misspelt.err
    assert "task add recurs only with a key: add/42" in project.duly("schedules", "show", "add").err
    assert "There are: cleaning" in project.duly("schedules", "show", "zzzzzz").err
    assert "of tenant 'acme': there is none" in project.duly("schedules", "show", "cleaning", "--tenant", "acme").err
    once = project.ok("enqueue", "app.py", "add", "x=1", "--json").json["id"]
    assert f"job {once} does not recur" in project.duly("schedules", "show", once).err
    assert "there is no recurring job 0190f3c4" in (
        project.duly("schedules", "show", "0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12").err
    )


# -- enable, disable --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A3")
def test_disabled_it_is_not_run_and_enabled_it_is_when_it_would_have_been(project: Project, jobs: Duly) -> None:
    made(project, "add", "x=1", "--every", "1h")
    assert project.ok("schedules", "disable", "add").out == "add disabled\n"
    job = the(jobs, "add")
    kept = job.next_run_at
    assert (job.enabled, job.record.disabled_by, job.disabled_reason) == (False, getpass.getuser(), "disabled")
    assert project.ok("schedules", "disable", "add").out == "add was disabled already\n"
    assert project.ok("tick", "app.py", "--json").json["claimed"] == 0
    assert job.refresh().next_run_at == kept
    assert project.ok("schedules", "enable", "add").out.startswith("add enabled, runs ")
    assert project.ok("schedules", "enable", "add").out == "add was enabled already\n"
    assert project.ok("tick", "app.py", "--json").json["claimed"] == 1


def test_several_are_changed_at_once_and_all_must_exist(project: Project, jobs: Duly) -> None:
    made(project, "add", "x=1", "--every", "1h")
    made(project, "pid", "--every", "1h")
    wrong = project.duly("schedules", "disable", "add", "pit")
    assert wrong.code == 1
    assert "Did you mean 'pid'?" in wrong.err
    assert the(jobs, "add").enabled
    answer = project.ok("schedules", "disable", "add", "pid", "add", "--json").json
    assert (answer["count"], [each["enabled"] for each in answer["jobs"]]) == (2, [False, False])


def test_one_that_is_refused_does_not_stop_the_others(project: Project, jobs: Duly) -> None:
    made(project, "add", "x=1", "--every", "1h", "--disabled")
    made(project, "pid", "--every", "1h", "--start-at", "2035-01-01T00:00:00Z")
    answer = project.duly("schedules", "run", "add", "pid")
    assert answer.code == 1
    assert "is disabled. Enable it first" in answer.err
    assert "pid runs now" in answer.out
    as_json = project.duly("schedules", "run", "add", "pid", "--json")
    assert as_json.code == 1
    assert [each["why"][:17] for each in as_json.json["refused"]] == ["recurring job add"]


def test_all_of_a_task_or_tenant_are_changed_when_told_so(project: Project, jobs: Duly) -> None:
    for key in "abc":
        made(project, "add", "x=1", "--key", key, "--every", "1h")
    made(project, "pid", "--every", "1h", "--tenant", "acme")
    unsure = project.duly("schedules", "disable", "--task", "add")
    assert unsure.code == 2
    assert "Disable 3 recurring jobs? Say --yes, or see which with --dry-run" in unsure.err
    dry = project.ok("schedules", "disable", "--task", "add", "--dry-run")
    assert dry.out == "would disable 3 recurring jobs\n  add/a\n  add/b\n  add/c\n"
    assert len(jobs.recurring_jobs(enabled=True)) == 4
    assert project.ok("schedules", "disable", "--task", "add", "--yes").out == "3 recurring jobs disabled\n"
    assert project.ok("schedules", "disable", "--task", "add", "--yes").out == "no such recurring jobs\n"
    assert project.ok("schedules", "remove", "--tenant", "acme", "--yes").out == "1 recurring job removed\n"
    assert project.ok("schedules", "enable", "--task", "add", "--yes", "--json").json["count"] == 3
    assert "which? Name them" in project.duly("schedules", "enable").err
    assert "not both" in project.duly("schedules", "enable", "add/a", "--task", "add").err


# -- run, remove ------------------------------------------------------------------------------------------------------


def test_run_runs_it_once_and_its_tick_stays(project: Project, jobs: Duly) -> None:
    made(project, "add", "x=1", "--start-at", "2035-01-01T00:00:00Z", "--every", "1h")
    answer = project.ok("schedules", "run", "add", "--utc")
    assert "add runs now; its next tick stays 2035-01-01 00:00:00Z" in answer.out
    assert "no worker is running" in answer.err
    project.ok("tick", "app.py")
    job = the(jobs, "add")
    assert [run.outcome for run in job.runs()] == ["succeeded"]
    assert job.next_run_at == datetime(2035, 1, 1, tzinfo=UTC)


def test_remove_asks_or_is_told(project: Project, jobs: Duly) -> None:
    made(project, "add", "x=1", "--every", "1h")
    made(project, "pid", "--every", "1h")
    unsure = project.duly("schedules", "remove", "add")
    assert unsure.code == 2
    assert "Remove add and all history? Say --yes" in unsure.err
    assert project.ok("schedules", "remove", "add", "pid", "--yes").out == "add removed\npid removed\n"
    assert jobs.recurring_jobs() == []
    assert jobs.list() == []


DECLARED = """
from duly import Duly
jobs = Duly()

@jobs.recurring("@daily")
def clean() -> None: ...

@jobs.recurring(every="1h", key="a")
@jobs.recurring(every="1h", key="b")
def poll() -> None: ...
"""


def test_one_that_the_code_declares_comes_back_and_remove_says_so(sqlite_project: Project) -> None:
    sqlite_project.write("declared.py", DECLARED)
    sqlite_project.ok("tick", "declared.py")
    answer = sqlite_project.ok("schedules", "remove", "clean", "-y")
    assert "declared declares clean: the next worker that starts makes it again" in answer.err


PAGE = """
from duly import Duly
jobs = Duly()

@jobs.recurring("@daily", name="nightly")
def clean() -> None: ...

@jobs.task
def refresh(feed_id: int) -> None: ...
"""


def test_the_commands_of_the_page_do_what_it_says(sqlite_project: Project) -> None:
    sqlite_project.write("app.py", PAGE)
    sqlite_project.ok("tick", "app.py")
    page = (ROOT / "docs" / "schedules.md").read_text()
    commands = [line[4:].partition("   ")[0] for line in page.splitlines() if line.startswith("    duly schedules ")]
    assert {command.split()[2] for command in commands} == set(schedules.commands)
    for command in commands:
        yes = ["--yes"] if " remove " in command else []
        sqlite_project.ok(*shlex.split(command)[1:], *yes)
    assert [each["name"] for each in sqlite_project.ok("schedules", "list", "--json").json] == ["nightly"]


# -- Python hooks -----------------------------------------------------------------------------------------------------

HOOKED = """
from duly import Duly
jobs = Duly()

@jobs.task
def sync() -> None: ...

@jobs.mirror_hook(sync)
def seen(change, execute):
    print("seen", change.enabled)
"""


def test_a_job_with_a_python_hook_is_changed_only_with_the_app(project: Project, jobs: Duly) -> None:
    project.write("hooked.py", HOOKED)
    assert "seen True" in project.ok("schedules", "add", "hooked.py", "sync", "--every", "1h").out
    for command in (["disable"], ["remove", "-y"], ["edit", "--every", "2h"], ["run"]):
        refused = project.duly("schedules", command[0], "sync", *command[1:])
        assert refused.code == 1, command
        assert "has not loaded it" in refused.err
        assert "--app" in refused.err
    assert the(jobs, "sync").enabled
    assert "seen False" in project.ok("schedules", "disable", "sync", "--app", "hooked.py").out
    project.ok("schedules", "list")


# -- elsewhere --------------------------------------------------------------------------------------------------------


def test_jobs_and_stats_know_recurring_jobs(project: Project, jobs: Duly) -> None:
    enabled = made(project, "add", "x=1", "--every", "1h")
    disabled = made(project, "pid", "--every", "1h", "--disabled")
    out = project.ok("jobs", "list").out
    assert "recurs" in out
    assert "1000000" not in out
    assert [each["id"] for each in project.ok("jobs", "list", "--state", "disabled", "--json").json] == [disabled["id"]]
    assert project.ok("jobs", "list", "--state", "disabled", "--task", "add").out == "no such jobs\n"
    assert f"duly schedules show {enabled['id']}" in project.ok("jobs", "show", enabled["id"]).out
    stats = project.ok("stats", "--json").json
    assert stats["recurring"] == {"enabled": 1, "disabled": 1, "failing": 0}
    assert "recur    1 enabled, 1 disabled" in project.ok("stats").out


def test_a_worker_says_how_many_recurring_jobs_the_code_declares(sqlite_project: Project) -> None:
    sqlite_project.write("declared.py", DECLARED)
    worker = sqlite_project.start("worker", "declared.py", "--max-jobs", "1")
    worker.says("  recurring 3 jobs declared: duly schedules list")
    worker.signal()
    worker.ends()
    plain = sqlite_project.start("worker", "app.py")
    plain.says("Stop it with")
    plain.signal()
    plain.ends()
    assert "recurring" not in plain.output


def test_bytes_that_are_no_text_are_refused(project: Project) -> None:
    project.ok("schedules", "add", "app.py", "add", "x=1", "--every", "1h")
    for words in (["show", "\udcff"], ["list", "--task", "\udcff"]):
        answer = project.duly("schedules", *words)
        assert answer.code == 2
        assert "not text in UTF-8" in answer.err
    answer = project.duly("schedules", "edit", "add", "--description", "\udcff")
    assert answer.code == 2
    assert "description must not contain a lone surrogate" in answer.err


def test_a_group_without_a_command_prints_its_help(bare: Project) -> None:
    answer = bare.duly("schedules")
    assert "Commands:\n" in answer.err + answer.out


def test_what_the_next_hours_bring(sqlite_project: Project) -> None:
    project = sqlite_project
    project.ok("migrate")
    assert project.ok("schedules", "load").out == "no runs in the next 24 hours\n"
    made(project, "add", "x=1", "--key", "1", "--every", "15m", "--start-at", "2020-01-01T00:00:00Z")
    made(project, "add", "x=1", "--key", "2", "--every", "15m", "--disabled")
    found = project.ok("schedules", "load", "--hours", "3", "--json").json
    assert ([each["ticks"] for each in found["hours"]], found["complete"]) == ([4, 4, 4], True)
    out = project.ok("schedules", "load", "--hours", "3").out.splitlines()
    assert [line.split()[-2:] for line in out[1:4]] == [["4", "#" * 40]] * 3
    assert out[-1] == "12 runs in all"
