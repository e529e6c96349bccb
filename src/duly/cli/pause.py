"""`duly pause`, `duly resume` and `duly paused`: close and open a queue, a task, a tenant or a key."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from duly.cli.apps import open_database
from duly.cli.base import Command
from duly.cli.options import all_of, database_options, utc_option
from duly.cli.output import answer, moment, table
from duly.cli.schedules.find import by_option
from duly.cli.text import clean
from duly.domain.clock import from_us
from duly.domain.records import Pause

_what = all_of(
    click.option("--queue", metavar="QUEUE", help="This queue."),
    click.option("--task", metavar="TASK", help="This task, in every queue."),
    click.option("--tenant", metavar="TENANT", help="This tenant's jobs."),
    click.option("--key", metavar="TASK/KEY", help="Jobs with this key."),
)


@click.command(cls=Command)
@database_options
@_what
@click.option("--reason", default="", metavar="TEXT", help="Why, for whoever looks.")
@click.option("--for", "duration", metavar="DURATION", help="How long, for example 1h30m. [default: until resumed]")
@by_option("Who pauses it.")
def pause(
    url: str | None, schema: str | None, app: str | None, reason: str, duration: str | None, by: str, **what: Any
) -> None:
    """Pause a queue, a task, a tenant or a key: nothing of it starts any more. What runs goes on to its end."""
    opened = open_database(url, schema, app)
    opened.pause(**what, reason=reason, by=by, duration=duration)
    scope, name = next((scope, name) for scope, name in what.items() if name is not None)
    found = next(each for each in opened.paused() if (each.scope, each.name) == (scope, name))
    until = "until resumed" if found.until is None else f"until {moment(from_us(found.until), datetime.now(UTC))}"
    answer(_as_dict(found), f"{scope} {clean(name, 200)} is paused {until}. Let it go on: duly resume --{scope} {name}")


@click.command(cls=Command)
@database_options
@_what
def resume(url: str | None, schema: str | None, app: str | None, **what: Any) -> None:
    """Let a queue, a task, a tenant or a key go on that was paused, was asked to wait, or whose breaker is open."""
    opened = open_database(url, schema, app)
    was = opened.resume(**what)
    scope, name = next((scope, name) for scope, name in what.items() if name is not None)
    text = f"{scope} {clean(name, 200)} " + ("goes on" if was else "was not paused")
    answer({"scope": scope, "name": name, "was_paused": was}, text)


@click.command(cls=Command)
@database_options
@utc_option
def paused(url: str | None, schema: str | None, app: str | None) -> None:
    """Show what is paused, since when, until when, by whom and why."""
    found = open_database(url, schema, app).paused()
    if not found:
        answer([], "nothing is paused")
        return
    now = datetime.now(UTC)
    rows = [
        [
            each.scope,
            clean(each.name, 60),
            moment(from_us(each.since), now),
            "resumed" if each.until is None else moment(from_us(each.until), now),
            clean(each.by or "", 40),
            clean(each.reason or "", 200),
        ]
        for each in found
    ]
    answer([_as_dict(each) for each in found], table(["WHAT", "NAME", "SINCE", "UNTIL", "BY", "REASON"], rows))


def _as_dict(pause: Pause) -> dict[str, Any]:
    until = None if pause.until is None else from_us(pause.until).isoformat()
    return {**pause._asdict(), "since": from_us(pause.since).isoformat(), "until": until}
