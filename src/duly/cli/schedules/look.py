"""`duly schedules list` and `show`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from duly.cli.apps import open_database
from duly.cli.base import Command, note, wants_utc
from duly.cli.options import database_options, utc_option
from duly.cli.output import answer, table
from duly.cli.schedules.find import find, path, which_options
from duly.cli.schedules.text import HEADERS, RUNS_SHOWN, as_dict, as_text, row_of
from duly.cli.text import clean


@click.command("list", cls=Command)
@database_options
@click.option("--task", metavar="NAME", help="Only those of this task.")
@click.option("--tenant", metavar="NAME", help="Only this tenant's.")
@click.option("--enabled/--disabled", default=None, help="Only those that are, or are not, enabled.")
@click.option("--limit", type=click.IntRange(1, 10_000), metavar="N", default=50, show_default=True, help="How many.")
@click.option("--after", metavar="WHICH", help="Only those that come after this one: the next page.")
@utc_option
def list_schedules(
    url: str | None, schema: str | None, app: str | None, limit: int, after: str | None, **wanted: Any
) -> None:
    """List recurring jobs by tenant, task and key."""
    opened = open_database(url, schema, app)
    last = None if after is None else find(opened, after, wanted["tenant"])
    found = opened.recurring_jobs(**wanted, after=last, limit=limit + 1)
    more, found = len(found) > limit, found[:limit]
    if not found:
        chosen = after or any(value is not None for value in wanted.values())
        answer([], "no such recurring jobs" if chosen else "no recurring jobs yet. Make one: duly schedules add")
        return
    now = datetime.now(UTC)
    headers, rows = list(HEADERS), [list(row_of(job, now)) for job in found]
    if any(job.tenant for job in found):
        headers.insert(1, "TENANT")
        for job, row in zip(found, rows, strict=True):
            row.insert(1, clean(job.tenant, 60) or "-")
    answer([job.to_dict() for job in found], table(headers, rows))
    if more:
        tenant = f" --tenant '{clean(found[-1].tenant)}'" if wanted["tenant"] else ""
        note(f"There are more: --limit, or{tenant} --after '{clean(found[-1].id if not tenant else path(found[-1]))}'")


@click.command(cls=Command)
@click.argument("which")
@which_options
@utc_option
def show(
    url: str | None, schema: str | None, app: str | None, include: tuple[str, ...], which: str, tenant: str | None
) -> None:
    """Show everything about one: when it runs, its policies, arguments, last error and last runs."""
    opened = open_database(url, schema, app, include=include)
    job = find(opened, which, tenant)
    runs = job.runs()[-RUNS_SHOWN:]
    answer(as_dict(job, runs), as_text(job, runs, datetime.now(UTC), utc=wants_utc()))
