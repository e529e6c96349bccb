"""`duly usage`: what ran, added up by tenant, task, queue and period."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import click

from duly.cli.apps import open_database
from duly.cli.base import Command, wants_json
from duly.cli.options import database_options
from duly.cli.output import answer, table
from duly.cli.text import clean
from duly.cli.times import read_since, read_until
from duly.domain.durations import human
from duly.schedule.zones import find_zone
from duly.usage import PERIODS, Usage

COUNTS = ("runs", "succeeded", "failed", "retried", "cancelled", "crashed")
FORMATS = {None: "%Y-%m-%d %H:%M", "hour": "%Y-%m-%d %H:%M", "day": "%Y-%m-%d", "month": "%Y-%m"}


@click.command(cls=Command)
@database_options
@click.option(
    "--since", default="30d", show_default=True, metavar="WHEN", help="How long ago, or a time such as 2030-01-31."
)
@click.option("--until", metavar="WHEN", help="Likewise.  [default: now]")
@click.option(
    "--by", default="tenant,task", show_default=True, metavar="WHAT", help="Any of tenant, task, queue; '' for a sum."
)
@click.option("--period", type=click.Choice(PERIODS), help="Divide it by time.")
@click.option("--tenant", metavar="NAME", help="Only of this tenant.")
@click.option("--task", metavar="NAME", help="Only of this task.")
@click.option(
    "--timezone", default="UTC", show_default=True, metavar="ZONE", help="Whose days and months; whole hours from UTC."
)
@click.option("--csv", "as_csv", is_flag=True, help="Answer in CSV.")
def usage(
    url: str | None,
    schema: str | None,
    app: str | None,
    since: str,
    until: str | None,
    by: str,
    timezone: str,
    as_csv: bool,
    **given: Any,
) -> None:
    """Show what ran, added up by tenant, task, queue and period; also of jobs that were pruned long ago.

    A run counts when it ended. Counts are by whole hours of UTC.

    \b
        duly usage --since 7d --period day
        duly usage --since 2030-01-01 --until 2030-02-01 --by tenant --csv
    """
    if as_csv and wants_json():
        raise click.UsageError("give --json or --csv, not both", click.get_current_context())
    zone = UTC if find_zone(timezone) is None else ZoneInfo(timezone)
    span: dict[str, Any] = {
        "since": read_since(since, "--since", zone),
        "until": read_until(until, datetime.now(UTC), zone),
    }
    found = open_database(url, schema, app).usage(**span, by=by, timezone=timezone, **given)
    if as_csv:
        click.echo(_csv(found), nl=False)
        return
    answer([each.to_dict() for each in found], _text(found, given["period"]) if found else "nothing ran")


def _csv(found: list[Usage]) -> str:
    out = io.StringIO()
    columns = [
        "starts_at", "ends_at", "tenant", "task", "queue", *COUNTS, "ran_seconds", "waited_seconds",
    ]  # fmt: skip
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(each.to_dict() for each in found)
    return out.getvalue()


def _text(found: list[Usage], period: str | None) -> str:
    ways = [way for way in ("tenant", "task", "queue") if getattr(found[0], way) is not None]
    headers = ["SINCE" if period is None else period.upper(), *(way.upper() for way in ways)]
    numbers = [name.upper() for name in COUNTS] + ["RAN", "WAITED"]
    rows = [
        (
            each.starts_at.strftime(FORMATS[period]),
            *(clean(getattr(each, way) or "-", 80) for way in ways),
            *(f"{getattr(each, name):,}" for name in COUNTS),
            human(each.ran),
            human(each.waited),
        )
        for each in found
    ]
    return table([*headers, *numbers], rows, right=range(len(headers), len(headers) + len(numbers)))
