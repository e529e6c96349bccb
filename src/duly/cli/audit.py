"""`duly audit`: what operators did."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click

from duly.audit import ACTIONS, MOST_LISTED, AuditRecord
from duly.cli.apps import open_database
from duly.cli.base import Command, note
from duly.cli.jobs import find_id
from duly.cli.options import database_options, utc_option
from duly.cli.output import answer, moment, table
from duly.cli.text import clean, tail
from duly.cli.times import read_since, read_until
from duly.domain.clock import from_us
from duly.domain.ids import is_job_id


@click.command(cls=Command)
@database_options
@click.option("--job", metavar="ID", help="Only what was done to this job.")
@click.option("--by", metavar="WHO", help="Only what they did.")
@click.option("--action", type=click.Choice(ACTIONS), metavar="ACTION", help=f"Only one of: {', '.join(ACTIONS)}.")
@click.option("--tenant", metavar="NAME", help="Only what was done to jobs of this tenant.")
@click.option("--since", metavar="WHEN", help="How long ago, or a time such as 2030-01-31.")
@click.option("--until", metavar="WHEN", help="Likewise.")
@click.option("--before", type=int, metavar="NUMBER", help="Only what is older than this record: the next page.")
@click.option(
    "--limit", type=click.IntRange(1, MOST_LISTED), metavar="N", default=20, show_default=True, help="How many."
)
@utc_option
def audit(
    url: str | None,
    schema: str | None,
    app: str | None,
    job: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    **given: Any,
) -> None:
    """Show what operators did, newest first: who, when, from where, to what, and what it changed."""
    now = datetime.now(UTC)
    span: dict[str, Any] = {
        "since": None if since is None else read_since(since, "--since"),
        "until": read_until(until, now),
    }
    opened = open_database(url, schema, app)
    if job is not None:  # of a job that is gone only the whole id is known
        job = job.strip().lower() if is_job_id(job.strip().lower()) else find_id(opened, job)
    found = opened.audit(job=job, limit=limit, **span, **given)
    if not found:
        answer([], "nothing was done" if any([job, since, until, *given.values()]) else "nothing was done yet")
        return
    headers = ["NUMBER", "WHEN", "WHO", "VIA", "ACTION", "WHAT", "CHANGE"]
    answer([each.to_dict() for each in found], table(headers, [_row(each, now) for each in found], right=[0]))
    if len(found) == limit:
        note(f"There may be more: --limit, or --before {found[-1].id}")


def _row(record: AuditRecord, now: datetime) -> tuple[str, ...]:
    what = record.subject or record.task or ""
    return (
        str(record.id),
        moment(record.at, now),
        clean(record.who or "-", 60),
        record.via,
        record.action,
        clean(f"{what} {tail(record.job_id)}" if record.job_id else what, 100),
        clean(_change(record), 300),
    )


def _change(record: AuditRecord) -> str:
    """Return what it changed, in short."""
    before, after = record.before or {}, record.after
    if record.before is None or after is None:
        shown = "" if after is None or record.action == "add" else ", ".join(_pairs(after))
    else:
        names = ((name, _value(name, before.get(name)), _value(name, after.get(name))) for name in after)
        shown = ", ".join(f"{name} {old} -> {new}" for name, old, new in names if name != "reason")
    return f"{shown}  ({record.reason})" if record.reason else shown


def _pairs(values: dict[str, Any]) -> list[str]:
    return [f"{name} {_value(name, value)}" for name, value in values.items()]


def _value(name: str, value: object) -> str:
    if isinstance(value, int) and name.endswith("_at"):
        return from_us(value).strftime("%Y-%m-%dT%H:%M:%SZ")
    return str(value) if isinstance(value, str) else json.dumps(value)
