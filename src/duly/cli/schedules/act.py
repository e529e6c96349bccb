"""`duly schedules enable`, `disable`, `run` and `remove`: one or several at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click

from duly.app import Duly
from duly.cli.apps import open_database
from duly.cli.base import FAILED, Command, complain, note, wants_json, wants_utc
from duly.cli.bulk import ask
from duly.cli.options import all_of, utc_option
from duly.cli.output import answer
from duly.cli.schedules.find import by_option, every_one, find, label, which_options
from duly.cli.text import clean, plural, when
from duly.domain.errors import DulyError, RecurringJobNotFound
from duly.recurring import RecurringJob

SHOWN = 10


class Act(NamedTuple):
    """A verb: what it is called, which jobs it is about where none is named, and what is asked before it is done."""

    verb: str
    past: str
    about: bool | None
    asks: str = ""


ENABLE = Act("enable", "enabled", False)
DISABLE = Act("disable", "disabled", True)
RUN = Act("run", "run now", True)
REMOVE = Act("remove", "removed", None, " and all history")

_choosing_options = all_of(
    click.argument("which", nargs=-1, metavar="[WHICH]..."),
    which_options,
    click.option("--task", metavar="NAME", help="All of this task, instead of naming them."),
    click.option("--yes", "-y", is_flag=True, help="Do not ask."),
    click.option("--dry-run", is_flag=True, help="Only say which it would be."),
)


@click.command(cls=Command)
@_choosing_options
@utc_option
def enable(**given: Any) -> int | None:
    """Let recurring jobs run again: when they would have, or at once if that has passed."""

    def one(job: RecurringJob) -> str:
        if job.enabled:
            return "was enabled already"
        at = job.enable()
        return "enabled, runs " + when(at, datetime.now(UTC), utc=wants_utc())

    return _each(ENABLE, one, **given)


@click.command(cls=Command)
@_choosing_options
@click.option("--reason", metavar="TEXT", default="disabled", help="Why, for those who look later.")
@by_option("Who disables it.")
def disable(reason: str, by: str, **given: Any) -> int | None:
    """Let recurring jobs run no more until they are enabled. A run under way ends normally."""

    def one(job: RecurringJob) -> str:
        if not job.enabled:
            return "was disabled already"
        running = job.running
        job.disable(reason, by=by)
        return "disabled; the run under way ends normally" if running else "disabled"

    return _each(DISABLE, one, **given)


@click.command(cls=Command)
@_choosing_options
@utc_option
def run(**given: Any) -> int | None:
    """Run recurring jobs once now, beside their schedule."""

    def one(job: RecurringJob) -> str:
        job.run_now()
        return "runs now; its next tick stays " + when(job.next_run_at, datetime.now(UTC), utc=wants_utc())

    return _each(RUN, one, **given)


@click.command(cls=Command)
@_choosing_options
def remove(**given: Any) -> int | None:
    """Forget recurring jobs and the history of their runs. To stop one for a while, disable it."""

    def one(job: RecurringJob) -> str:
        module = job.record.declared_in
        job.delete()
        if module:
            note(f"{module} declares {label(job)}: the next worker that starts makes it again. Disable it instead")
        return "removed"

    return _each(REMOVE, one, **given)


# -- each -------------------------------------------------------------------------------------------------------------


def _each(
    act: Act,
    one: Callable[[RecurringJob], str],
    *,
    which: tuple[str, ...],
    url: str | None,
    schema: str | None,
    app: str | None,
    include: tuple[str, ...],
    task: str | None,
    tenant: str | None,
    yes: bool,
    dry_run: bool,
) -> int | None:
    """Do it to each one that is named or chosen. All are found first; one that is refused does not stop the others."""
    if which and task is not None:
        raise click.UsageError("name them or give --task, not both", click.get_current_context())
    if not which and task is None and tenant is None:
        raise click.UsageError("which? Name them, or give --task or --tenant", click.get_current_context())
    opened = open_database(url, schema, app, include=include)
    if which:
        found = list(dict.fromkeys(find(opened, word, tenant) for word in which))
    else:
        found = list(every_one(opened, task=task, tenant=tenant, enabled=act.about))
    if dry_run or not found:
        answer({"count": len(found), "ids": [job.id for job in found], "dry_run": dry_run}, _would(act, found))
        return None
    if not yes and (act.asks or not which):
        count = label(found[0]) if len(found) == 1 else plural(len(found), "recurring job")
        ask(f"{act.verb.capitalize()} {count}{act.asks}?")
    code = _do(act, one, found, chosen=not which)
    if act is RUN:
        _name_the_unknown(found[0], opened)
    return code


def _would(act: Act, found: list[RecurringJob]) -> str:
    if not found:
        return "no such recurring jobs"
    shown = "".join(f"\n  {label(job)}" for job in found[:SHOWN])
    more = f"\n  ... and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
    return f"would {act.verb} {plural(len(found), 'recurring job')}{shown}{more}"


def _do(act: Act, one: Callable[[RecurringJob], str], found: list[RecurringJob], *, chosen: bool) -> int | None:
    done: list[dict[str, Any]] = []
    refused: list[dict[str, str]] = []
    for job in found:
        name = label(job)
        try:
            outcome = one(job)
        except DulyError as error:
            if len(found) == 1:
                raise
            refused.append({"id": job.id, "why": str(error)})
            complain(str(error))
            continue
        done.append({**_standing(job), "outcome": outcome} if wants_json() else {})
        if not wants_json() and not chosen:
            click.echo(f"{name} {clean(outcome)}")
    if wants_json() or chosen:
        text = f"{plural(len(done), 'recurring job')} {act.past}"
        answer({"count": len(done), "jobs": done, "refused": refused}, text)
    return FAILED if refused else None


def _standing(job: RecurringJob) -> dict[str, Any]:
    try:
        return job.refresh().to_dict()
    except RecurringJobNotFound:
        return {"id": job.id}


def _name_the_unknown(job: RecurringJob, app: Duly) -> None:
    """Say so where nobody is there to run it."""
    if not app.live_workers():
        note("no worker is running; it waits until one starts")
    elif not app.live_workers(task=job.task, queue=job.record.queue):
        note(f"no live worker knows task {job.task} in queue {job.record.queue}; it waits until one does")
