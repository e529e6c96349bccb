"""`duly queues`: how each queue ages, and whether tenants take turns in it."""

from __future__ import annotations

import click

from duly.cli.apps import open_database
from duly.cli.base import Command
from duly.cli.options import database_options
from duly.cli.output import answer, table
from duly.cli.tenants import ListsByDefault
from duly.cli.text import clean
from duly.domain.durations import human
from duly.domain.errors import InvalidOption
from duly.domain.names import check_queue_name


@click.group(cls=ListsByDefault)
def queues() -> None:
    """Look at queues, and say how jobs share them. Alone: the list."""


@queues.command("list", cls=Command)
@database_options
def list_queues(url: str | None, schema: str | None, app: str | None) -> None:
    """List the queues in which anything waits or of which something was said: whether they are fair, how they age."""
    found = open_database(url, schema, app).queues()
    rows = [
        [clean(each.name), "yes" if each.fair else "no", _aging(each.strict, human(each.horizon))] for each in found
    ]
    data = [
        {
            "queue": each.name,
            "fair": each.fair,
            "aging_seconds": None if each.strict else each.horizon.total_seconds(),
            "strict": each.strict,
        }
        for each in found
    ]
    answer(data, table(["QUEUE", "FAIR", "AGING"], rows) if rows else "no queues yet")


@queues.command(cls=Command)
@click.argument("name")
@click.argument("fair", type=click.Choice(["on", "off"]))
@database_options
def fair(url: str | None, schema: str | None, app: str | None, name: str, fair: str) -> None:
    """Say whether tenants take turns in the queue NAME, as they do unless told otherwise; off: all go by rank alone."""
    _check(name)
    open_database(url, schema, app).set_fair(name, fair == "on")
    how = "take turns" if fair == "on" else "go by rank alone"
    answer({"queue": name, "fair": fair == "on"}, f"tenants {how} in queue {name}")


@queues.command(cls=Command)
@click.argument("name")
@click.argument("horizon", metavar="DURATION|strict|default")
@database_options
def aging(url: str | None, schema: str | None, app: str | None, name: str, horizon: str) -> None:
    """Say how fast the queue NAME ages: after this long a job of priority 0 is level with a new one of priority 100.

    strict: never. default: 1 h 50 min. Applies to jobs that become due from now on.
    """
    _check(name)
    opened = open_database(url, schema, app)
    try:
        opened.set_aging(name, None if horizon in ("strict", "default") else horizon, strict=horizon == "strict")
    except InvalidOption as error:
        raise click.BadParameter(str(error), param_hint="DURATION") from error
    answer({"queue": name, "aging": horizon}, f"queue {name} ages by {_aging(horizon == 'strict', horizon)}")


def _check(name: str) -> None:
    try:
        check_queue_name(name)
    except InvalidOption as error:
        raise click.BadParameter(str(error), param_hint="NAME") from error


def _aging(strict: bool, horizon: str) -> str:
    return "nothing: strict priority" if strict else horizon
