"""`duly why`: why a job does not run; and, by queue, what holds all that waits."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from duly.cli.apps import open_database
from duly.cli.base import Command, wants_utc
from duly.cli.jobs import find_id
from duly.cli.options import database_options, utc_option
from duly.cli.output import answer, bold, coloured
from duly.cli.text import clean, plural, when
from duly.why.answer import Blocker, Group, Why
from duly.why.phrases import Moment
from duly.why.words import of_many, sentence

ALL = "*"


@click.command(cls=Command)
@click.argument("job", required=False)
@database_options
@click.option(
    "--queue", is_flag=False, flag_value=ALL, metavar="[NAME]", help="All that waits in this queue, or in every one."
)
@click.option("--tenant", metavar="NAME", help="As this tenant may see it.")
@utc_option
def why(
    url: str | None, schema: str | None, app: str | None, job: str | None, queue: str | None, tenant: str | None
) -> None:
    """Say why a JOB does not run, what holds it, and what to do; without one, what holds all that waits."""
    if job is not None and queue is not None:
        raise click.UsageError("give a JOB or --queue, not both", click.get_current_context())
    opened = open_database(url, schema, app)
    if job is not None:
        found = opened.why(find_id(opened, job), tenant=tenant)
        answer(found.to_dict(), as_text(found))
        return
    groups = opened.why_waiting(queue=None if queue in (None, ALL) else queue, tenant=tenant)
    answer([group.to_dict() for group in groups], groups_as_text(groups, queue))


def _moment(now: datetime) -> Moment:
    utc = wants_utc()
    return lambda at: when(at, now, utc=utc)


def as_text(found: Why) -> str:
    """Return it for people: what decides, then what else holds it, each with the next command."""
    moment = _moment(found.at)
    whose = "" if found.tenant is None else f" for {clean(found.tenant, 60)}"
    lines = [
        f"{bold(clean(found.task))}  {found.job_id}  {coloured(found.state)} in {clean(found.queue)}{whose}",
        "",
        *_lines(found.answer, moment),
    ]
    others = found.blockers[1:] if found.blockers else ()
    if others:
        lines += ["", bold("And then" if len(others) == 1 else "And then, in this order")]
        for blocker in others:
            lines += _lines(blocker, moment)
    return "\n".join(lines)


def _lines(blocker: Blocker, moment: Moment) -> list[str]:
    lines = [f"  {clean(sentence(blocker, moment))}"]
    if blocker.next is not None:
        lines.append(f"    -> {clean(blocker.next)}")
    return lines


def groups_as_text(groups: list[Group], queue: str | None) -> str:
    """Return the groups for people, queue by queue."""
    if not groups:
        return "nothing waits" + ("" if queue in (None, ALL) else f" in queue {clean(queue, 60)}")
    moment = _moment(datetime.now(UTC))
    lines: list[str] = []
    last = None
    for group in groups:
        if group.queue != last:
            lines += ["", bold(clean(group.queue))] if lines else [bold(clean(group.queue))]
            last = group.queue
        count = plural(group.jobs, "job") + (" or more" if group.at_least else "")
        names = f" ({', '.join(clean(task, 60) for task in group.tasks)})" if group.tasks else ""
        lines.append(f"  {click.style(str(group.reason), fg='yellow')}  {count}{names}")
        lines.append(f"    {clean(of_many(group.blocker, moment))}")
        if group.next is not None:
            lines.append(f"    -> {clean(group.next)}")
        if group.example is not None:
            lines.append(f"    for example: duly why {group.example}")
    return "\n".join(lines)
