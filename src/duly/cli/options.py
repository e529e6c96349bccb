"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from duly.cli.apps import ENVIRONMENT
from duly.cli.base import _UTC, _remember
from duly.domain.durations import to_timedelta
from duly.domain.errors import InvalidOption

F = TypeVar("F", bound=Callable[..., Any])


if TYPE_CHECKING:
    ParamType = click.ParamType[timedelta]
else:
    ParamType = click.ParamType  # generic only in newer versions of click


class Duration(ParamType):
    """A duration: "90s", "1h30m", or a bare number of seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read it."""
        if isinstance(value, timedelta):
            return value
        text = str(value)
        try:
            return to_timedelta(float(text) if _is_number(text) else text, param.name or "value" if param else "value")
        except InvalidOption as error:
            self.fail(str(error), param, ctx)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


DURATION = Duration()


def all_of(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator that does what these do, the first one outermost."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


app_argument = click.argument("app", required=False, envvar=ENVIRONMENT, metavar="[APP]")
include_option = click.option(
    "--include", multiple=True, metavar="MODULE", help="A module that declares more tasks; may be given again."
)
url_option = click.option("--url", metavar="URL", help="The database, e.g. sqlite:///duly.db or postgresql://host/db.")
schema_option = click.option("--schema", metavar="NAME", help="The schema of duly's tables in PostgreSQL.")
utc_option = click.option(
    "--utc", is_flag=True, expose_value=False, callback=_remember(_UTC), help="Show times in UTC, not local."
)
database_options = all_of(
    url_option,
    schema_option,
    click.option(
        "--app", "app", envvar=ENVIRONMENT, metavar="APP", help="Take the database of this app (or of $DULY_APP)."
    ),
)
scope_option = click.option("--tenant", metavar="NAME", help="Only if it is this tenant's; others are not there.")
filter_options = all_of(
    click.option("--state", metavar="STATE", help="Only jobs in this state (also: pending, success, ...)."),
    click.option("--task", metavar="NAME", help="Only jobs of this task."),
    click.option("--queue", metavar="NAME", help="Only jobs of this queue."),
    click.option("--tenant", metavar="NAME", help="Only jobs of this tenant."),
    click.option("--tag", metavar="TAG", help="Only jobs with this tag."),
    click.option("--text", metavar="TEXT", help="Only jobs whose arguments contain this."),
)
