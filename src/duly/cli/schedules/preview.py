"""`duly schedules next`: the times that rules name. It needs no database, unless asked about a recurring job."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import click

from duly.cli.apps import open_database
from duly.cli.base import Command
from duly.cli.options import all_of, database_options
from duly.cli.output import answer
from duly.cli.schedules.find import find, label, tenant_option
from duly.cli.schedules.text import meaning, times_as_dicts, times_as_lines
from duly.cli.text import clean
from duly.domain.clock import from_us, to_us
from duly.domain.errors import InvalidSchedule
from duly.schedule import Schedule

MOST = 1_000


def _here() -> click.Context:
    return click.get_current_context()


def read_time(text: str, option: str) -> datetime:
    """Read an ISO 8601 time with a time zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time like 2030-01-31T08:00:00+01:00", param_hint=option) from None
    if at.tzinfo is None:
        raise click.BadParameter(
            f"{text!r} has no time zone. Write for instance {at.isoformat()}Z or {at.isoformat()}+01:00",
            param_hint=option,
        )
    return at


when_options = all_of(
    click.option(
        "--timezone", metavar="ZONE", help="The zone that cron is read in, e.g. Europe/Berlin.  [default: UTC]"
    ),
    click.option("--start-at", metavar="TIME", help="No tick before this: ISO 8601 with a time zone."),
    click.option("--until", metavar="TIME", help="No tick after this."),
    click.option("--exclude", multiple=True, metavar="DATE", help="Not on this day; may be given again."),
    click.option("--dst-gap", type=click.Choice(("next", "skip")), help="A fixed time that the clocks skip."),
    click.option("--dst-overlap", type=click.Choice(("first", "twice")), help="A fixed time that comes twice."),
)


def read_when(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `when_options` that were given. An empty text takes away what there was."""
    read: dict[str, Any] = {name: given[name] for name in ("timezone", "dst_gap", "dst_overlap") if given[name]}
    for name in ("start_at", "until"):
        if given[name] is not None:
            read[name] = read_time(given[name], f"--{name.replace('_', '-')}") if given[name] else None
    if given["exclude"]:
        read["exclude"] = [day for day in given["exclude"] if day]
    return read


@click.command("next", cls=Command)
@click.argument("rules", nargs=-1, metavar="[RULE]...")
@when_options
@click.option(
    "-n", "n", type=click.IntRange(1, MOST), metavar="N", default=5, show_default=True, help="How many times."
)
@click.option("--of", "of", metavar="WHICH", help="The times of this recurring job, instead of RULEs.")
@tenant_option
@database_options
def preview(
    rules: tuple[str, ...],
    n: int,
    of: str | None,
    tenant: str | None,
    url: str | None,
    schema: str | None,
    app: str | None,
    **given: Any,
) -> None:
    """Show the next times that RULEs name, without storing anything. Quote each: '0 9 * * mon-fri' '@every 90m'.

    A rule that cannot be read is refused with the reason and the place.
    """
    now = datetime.now(UTC)
    if of is not None:
        if rules or any(value for value in given.values()):
            raise click.UsageError("give RULEs or --of, not both", _here())
        job = find(open_database(url, schema, app), of, tenant)
        _tell(job.schedule, job.next_times(n), now, title=f"{label(job)}: {meaning(job.schedule)}")
        return
    if not rules:
        raise click.UsageError("which rule? Write for instance: duly schedules next '0 9 * * mon-fri'", _here())
    schedule = _read(rules, read_when(given))
    us = to_us(now, "now")
    _tell(schedule, [from_us(tick) for tick in schedule.ticks(us, n, anchor_us=us)], now, title=meaning(schedule))


def _tell(schedule: Schedule, times: list[datetime], now: datetime, *, title: str) -> None:
    if times:
        shown = "\n".join(times_as_lines(times, schedule.timezone, now))
    else:
        shown = "  no more times" if schedule.rules else "  there is no rule: its handler says when"
    answer(
        {
            "rules": list(schedule.rules),
            "timezone": schedule.timezone,
            "text": schedule.describe(),
            "times": times_as_dicts(times, schedule.timezone),
        },
        f"{clean(title)}\n\n{shown}",
    )


def _read(rules: tuple[str, ...], options: dict[str, Any]) -> Schedule:
    from duly.recurring_options import make_schedule

    try:
        make_schedule(rule=list(rules))
    except InvalidSchedule:
        better = _meant(rules)
        if better is None:
            raise
        raise click.UsageError(better, _here()) from None
    return make_schedule(rule=list(rules), **options)


def _meant(rules: tuple[str, ...]) -> str | None:
    """Return what to write instead of a rule that the shell took apart, or of a bare duration."""
    together = " ".join(rules)
    for text in (together, f"@{together}", f"@every {together}"):
        with suppress(InvalidSchedule):
            Schedule.make(text)
            how = "each rule is one word, so put it in quotes" if len(rules) > 1 else "did you mean"
            return f"{how}: duly schedules next '{text}'"
    if len(rules) > 1 and any(os.path.exists(rule) for rule in rules):
        return "your shell has put file names in place of *, so put the rule in quotes: '0 9 * * mon-fri'."
    return None
