"""Bad input: one clear line on stderr, the documented exit code, no traceback, no password."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from duly.cli import main
from duly.cli.base import Command, Group
from tests.cli.conftest import Project


def commands(group: click.Group = main, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
        else:
            found.append(((*path, name), command))
    return found


def test_every_command_has_json_debug_and_help() -> None:
    assert len(commands()) > 14
    for path, command in commands():
        names = {option for parameter in command.params for option in parameter.opts}
        assert {"--json", "--debug"} <= names, path
        assert command.help, path
        assert isinstance(command, Command)


@pytest.mark.parametrize("path", [path for path, _ in commands()], ids=" ".join)
def test_help_of_every_command_is_shown(bare: Project, path: tuple[str, ...]) -> None:
    assert "--json" in bare.ok(*path, "--help").out
    assert "--json" in bare.ok(*path, "-h").out


def test_the_program_says_its_exit_codes_and_version(bare: Project) -> None:
    assert "3 database unavailable" in " ".join(bare.ok("--help").out.split())
    assert bare.ok("--version").out.startswith("duly")
    assert isinstance(main, Group)


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        ("jobz", 2, "Did you mean 'jobs'?"),
        ("jobs lst", 2, "Did you mean 'list'?"),
        ("jobs list --stat failed", 2, "--state"),
        ("jobs list --state faild", 2, "Did you mean 'failed'?"),
        ("jobs list --limit 0", 2, "--limit"),
        ("jobs list --limit many", 2, "--limit"),
        ("jobs list --url mysql://root:secret@host/db", 2, "not one duly knows"),
        ("jobs list --url sqlite:///", 2, "names no file"),
        ("jobs list --url nonsense", 2, "not one duly knows"),
        ("jobs list --url sqlite:////nowhere/at/all.db", 3, "no database"),
        ("jobs list --url postgresql://me:secret@127.0.0.1:1/none", 3, "cannot connect"),
        ("migrate --url postgresql://me:secret@127.0.0.1:1/none", 3, "cannot connect"),
        ("stats --url postgresql://me:secret@no.such.host.invalid/none", 3, "cannot connect"),
        ("migrate --url sqlite:////nowhere/at/all.db", 3, "/nowhere/at"),
        ("migrate --schema 1-2", 2, "schema"),
        ("jobs show 123", 1, "not the id of a job"),
        ("jobs show 00000000-0000-7000-8000-000000000000", 1, "there is no job"),
        ("jobs show abcdef1234", 1, "no job's id ends in"),
        ("jobs retry", 2, "which jobs?"),
        ("jobs delete --task add", 2, "--state must say"),
        ("jobs retry 00000000-0000-7000-8000-000000000000 --task add", 2, "not both"),
        ("jobs priority 00000000-0000-7000-8000-000000000000 500", 2, "priority"),
        ("jobs boost 00000000-0000-7000-8000-000000000000", 1, "there is no job"),
        ("enqueue", 2, "TASK"),
        ("enqueue x=1", 2, "which task?"),
        ("enqueue app.py add 1 2", 2, "name=value"),
        ("enqueue app.py add x=1 x=2", 2, "given twice"),
        ("enqueue app.py add =2", 2, "has no name"),
        ("enqueue app.py nope", 2, "no task is named 'nope'"),
        ("enqueue app.py ad x=1", 2, "Did you mean 'add'?"),
        ("enqueue app.py add", 2, "add() argument x"),
        ("enqueue app.py add x=one", 2, "expected int"),
        ("enqueue app.py add x=1 z=2", 2, "argument z"),
        ("enqueue app.py add --args [1]", 2, "JSON object"),
        ("enqueue app.py add --args {", 2, "cannot be read as JSON"),
        ("enqueue app.py add x=1 --delay soon", 2, "not a duration"),
        ("enqueue app.py add x=1 --delay -5s", 2, "negative"),
        ("enqueue app.py add x=1 --run-at tomorrow", 2, "no time like"),
        ("enqueue app.py add x=1 --run-at 2030-01-01T00:00:00", 2, "no time zone"),
        ("enqueue app.py add x=1 --run-at 2030-01-01T00:00:00Z --delay 5m", 2, "not both"),
        ("enqueue app.py add x=1 --priority 101", 2, "priority"),
        ("enqueue app.py add x=1 --queue a/b", 2, "queue name"),
        ("enqueue app.py add x=1 --url sqlite:///x.db", 2, "not both"),
        ("enqueue add/it x=1", 2, "task name"),
        ("worker app.py --queue", 2, "--queue"),
        ("worker app.py --queue mail=none", 2, "mail=5 for 5 slots"),
        ("worker app.py --queue mail=0", 2, "mail=5 for 5 slots"),
        ("worker app.py --queue a,a", 2, "named twice"),
        ("worker app.py --queue a/b", 2, "queue name"),
        ("worker app.py --queue ,", 2, "no queue"),
        ("worker app.py --grace never", 2, "not a duration"),
        ("worker app.py --lease 1ms", 2, "200ms"),
        ("worker app.py --processes 0", 2, "--processes"),
        ("worker app.py --threads -1", 2, "--threads"),
        ("worker app.py --max-jobs 0", 2, "--max-jobs"),
        ("tick app.py --max 0", 2, "--max"),
        ("runs --limit 0", 2, "--limit"),
    ],
)
def test_bad_input_is_answered_with_a_line_and_a_code(
    sqlite_project: Project, arguments: str, code: int, words: str
) -> None:
    answer = sqlite_project.duly(*arguments.split(" "))
    assert answer.code == code, answer
    assert words in answer.err
    assert "Traceback" not in answer.err
    assert "secret" not in answer.err
    lines = [line for line in answer.err.splitlines() if line]
    assert lines[-1].startswith("duly: ")
    assert len(lines) == 1


@pytest.mark.requirement("C11")
def test_wrong_settings_in_the_environment_are_named(sqlite_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DULY_LEESE", "5s")
    answer = sqlite_project.duly("stats")
    assert answer.code == 2
    assert "DULY_LEESE" in answer.err
    assert "DULY_LEASE" in answer.err


def test_a_database_that_is_not_there_is_not_made_by_looking(bare: Project, tmp_path: Path) -> None:
    for command in (["stats"], ["jobs", "list"], ["runs"], ["workers"], ["prune"], ["enqueue", "add"]):
        answer = bare.duly(*command)
        assert answer.code == 3
        assert f"there is no database {tmp_path / 'duly.db'}" in answer.err or "database duly.db" in answer.err
    assert not (tmp_path / "duly.db").exists()


def test_a_file_that_is_no_database_is_said_so(bare: Project, tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("these are my notes, not a database " * 100)
    answer = bare.duly("stats", "--url", "sqlite:///notes.db")
    assert answer.code == 3
    assert "not a sound SQLite database" in answer.err


def test_tables_that_are_missing_name_the_command(empty_database_url: str, bare: Project) -> None:
    if empty_database_url.startswith("sqlite"):
        pytest.skip("SQLite makes its tables by itself")
    answer = bare.duly("stats", "--url", empty_database_url)
    assert answer.code == 3
    assert "duly migrate --url" in answer.err


def test_what_was_not_foreseen_is_a_line_too(sqlite_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def fall_over(*_: object) -> None:
        raise ZeroDivisionError("well\x1b[31m")

    monkeypatch.setattr("duly.cli.stats.collect", fall_over)
    answer = sqlite_project.duly("stats")
    assert answer.code == 1
    assert answer.err == "duly: unexpected ZeroDivisionError: well\\x1b[31m. Run it again with --debug to see where\n"
    with pytest.raises(ZeroDivisionError):
        sqlite_project.duly("stats", "--debug")


def test_ctrl_c_ends_with_130(sqlite_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("duly.cli.stats.collect", interrupt)
    answer = sqlite_project.duly("stats")
    assert answer.code == 130
    assert "duly: interrupted" in answer.err
