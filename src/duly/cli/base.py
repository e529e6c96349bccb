"""What all commands share: `--json`, `--debug`, errors as one line, exit codes.

0    done
1    it could not be done: no such job, its state does not allow it, the job that was waited for failed
2    wrong usage or configuration: options, arguments, the app, settings
3    the database cannot be used: unreachable, read-only, not migrated
75   a worker that asks its supervisor for a fresh process (only with the internal option --child)
130  interrupted

`duly doctor` answers by its code: 0 all is well, 1 there are warnings, 2 there are errors (a database that cannot be
used is one).
"""

from __future__ import annotations

import getpass
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import click

from duly.cli.text import clean, clean_lines, without_password
from duly.domain.errors import (
    ArgumentError,
    ConfigurationError,
    DatabaseError,
    DulyError,
    InvalidOption,
    InvalidSchedule,
    UnknownTask,
)
from duly.domain.names import suggest

OK, FAILED, USAGE, NO_DATABASE, INTERRUPTED = 0, 1, 2, 3, 130
_JSON, _UTC, _WORDS = "duly.json", "duly.utc", "duly.words"


def exit_code_of(error: BaseException) -> int:
    """Return the exit code that an error leads to."""
    match error:
        case DatabaseError():
            return NO_DATABASE
        case ConfigurationError() | InvalidOption() | ArgumentError() | UnknownTask() | click.UsageError():
            return USAGE
        case _:
            return FAILED


def print_anything() -> None:
    """Have what this terminal cannot show replaced, instead of failing for it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def complain(message: str, *, lines: bool = False) -> None:
    """Print one line about what went wrong; several, where they point at a place."""
    text = without_password(message.strip().rstrip("."))
    click.echo(f"duly: {clean_lines(text) if lines else clean(text)}", err=True)


def note(message: str) -> None:
    """Print one line that helps, where it disturbs no pipe."""
    click.echo(click.style(clean(without_password(message)), dim=True), err=True)


def wants_json() -> bool:
    """Whether this command was given --json."""
    return bool(click.get_current_context().meta.get(_JSON))


def wants_utc() -> bool:
    """Whether times are shown in UTC."""
    return bool(click.get_current_context().meta.get(_UTC))


def this_user() -> str:
    """Return who runs this command, as the system says."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        return f"uid {os.getuid()}"


def written_words() -> list[str]:
    """What was written after the command's name."""
    return list(click.get_current_context().meta[_WORDS])


def _remember(key: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def callback(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta[key] = True

    return callback


def _shared_options() -> list[click.Parameter]:
    return [
        click.Option(["--json"], is_flag=True, expose_value=False, callback=_remember(_JSON), help="Answer in JSON."),
        click.Option(["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an error."),
    ]


class Command(click.Command):
    """A command: every one has --json and --debug."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])
        self.params += _shared_options()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note what was written, for a command that starts others like itself."""
        ctx.meta[_WORDS] = list(args)
        return super().parse_args(ctx, args)


class Group(click.Group):
    """Commands under one word; a misspelt one is answered with the nearest."""

    command_class = Command
    group_class = type

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which people need them."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one may be meant."""
        word = args[0]
        if word not in self.commands and not word.startswith("-"):
            known = ", ".join(self.commands)
            raise click.UsageError(f"no command {word!r}.{suggest(word, self.commands)} Commands: {known}", ctx)
        return super().resolve_command(ctx, args)


class CommandGroup(Group):
    """Commands under one word that is a command itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"invoke_without_command": True, **kwargs})
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])
        self.params += _shared_options()


class Main(Group):
    """The program: runs a command and turns what it raises into a line and an exit code."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> int:
        """Run, and exit with the code unless told not to."""
        argv = list(sys.argv[1:] if args is None else args)
        print_anything()
        standalone = extra.pop("standalone_mode", True)
        code = self._run(argv, debug="--debug" in argv, **extra)
        if standalone:
            sys.exit(code)
        return code

    def _run(self, argv: list[str], *, debug: bool, **extra: Any) -> int:
        try:
            answer = super().main(argv, "duly", standalone_mode=False, **extra)
            sys.stdout.flush()
            return answer if isinstance(answer, int) else OK
        except (click.Abort, KeyboardInterrupt):
            complain("interrupted")
            return INTERRUPTED
        except BrokenPipeError:  # whoever read this has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK
        except (click.ClickException, DulyError) as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # click before 8.2 has none, and answers by itself
                click.echo(str(error), err=True)
                return USAGE
            if debug:
                click.echo(clean_lines("".join(traceback.format_exception(error))), err=True)
            complain(_line_about(error), lines=isinstance(error, InvalidSchedule))
            return exit_code_of(error)
        except Exception as error:
            if debug:
                raise
            if isinstance(error, UnicodeEncodeError) and any(not _is_text(word) for word in argv):
                complain("the command line has bytes in it that are not text in UTF-8")
                return USAGE
            complain(f"unexpected {type(error).__name__}: {error}. Run it again with --debug to see where")
            return FAILED


def _is_text(word: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in word)


def _line_about(error: click.ClickException | DulyError) -> str:
    if not isinstance(error, click.ClickException):
        return str(error)
    message = error.format_message().strip()
    context = getattr(error, "ctx", None)
    if isinstance(error, click.UsageError) and context is not None:
        return f"{message.rstrip('.')}. See: {context.command_path} --help"
    return message
