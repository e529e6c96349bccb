"""`duly schedules load`: how many runs the next hours bring."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from duly.cli.apps import open_database
from duly.cli.base import Command, note
from duly.cli.options import database_options, utc_option
from duly.cli.output import answer, moment, table
from duly.cli.text import plural
from duly.planned import MOST_HOURS, Planned

WIDTH = 40


@click.command(cls=Command)
@click.option(
    "--hours", type=click.IntRange(1, MOST_HOURS), metavar="N", default=24, show_default=True, help="How many hours."
)
@click.option("--tenant", metavar="NAME", help="Only this tenant's.")
@database_options
@utc_option
def load(url: str | None, schema: str | None, app: str | None, hours: int, tenant: str | None) -> None:
    """Show how many runs the enabled schedules plan for each of the next hours."""
    found = open_database(url, schema, app).planned(hours, tenant=tenant)
    answer(found.to_dict(), _text(found))
    if not found.complete:
        note("There are more schedules or runs than could be counted")


def _text(found: Planned) -> str:
    total, most = sum(n for _, n in found.hours), max(n for _, n in found.hours)
    if not total:
        return f"no runs in the next {plural(len(found.hours), 'hour')}"
    now = datetime.now(UTC)
    rows = [(moment(at, now), f"{n:,}", "#" * -(-n * WIDTH // most)) for at, n in found.hours]
    return table(["FROM", "RUNS", ""], rows, right=[1]) + f"\n{plural(total, 'run')} in all"
