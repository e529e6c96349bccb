"""`duly schedules enable`, `disable`, `run` and `remove`: one or several at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from duly.app import Duly
from duly.cli.apps import open_database
from duly.cli.base import FAILED, Command, complain, note, wants_json, wants_utc
from duly.cli.bulk import ask
from duly.cli.options import utc_option
from duly.cli.output import answer
from duly.cli.schedules.find import by_option, find, label, which_options
from duly.cli.text import clean, plural, when
from duly.domain.errors import DulyError, RecurringJobNotFound
from duly.recurring import RecurringJob

_WHICH = click.argument("which", nargs=-1, required=True)


@click.command(cls=Command)
@_WHICH
@which_options
@utc_option
def enable(which: tuple[str, ...], **given: Any) -> int | None:
    """Let recurring jobs run again: when they would have, or at once if that has passed."""

    def one(job: RecurringJob) -> str:
        if job.enabled:
            return "was enabled already"
        at = job.enable()
        return "enabled, runs " + when(at, datetime.now(UTC), utc=wants_utc())

    return _each(which, one, **given)


@click.command(cls=Command)
@_WHICH
@which_options
@click.option("--reason", metavar="TEXT", default="disabled", help="Why, for those who look later.")
@by_option("Who disables it.")
def disable(which: tuple[str, ...], reason: str, by: str, **given: Any) -> int | None:
    """Let recurring jobs run no more until they are enabled. A run under way ends normally."""

    def one(job: RecurringJob) -> str:
        if not job.enabled:
            return "was disabled already"
        running = job.running
        job.disable(reason, by=by)
        return "disabled; the run under way ends normally" if running else "disabled"

    return _each(which, one, **given)


@click.command(cls=Command)
@_WHICH
@which_options
@utc_option
def run(which: tuple[str, ...], **given: Any) -> int | None:
    """Run recurring jobs once now, beside their schedule."""
    asked: list[RecurringJob] = []

    def one(job: RecurringJob) -> str:
        job.run_now()
        asked.append(job)
        return "runs now; its next tick stays " + when(job.next_run_at, datetime.now(UTC), utc=wants_utc())

    code = _each(which, one, **given)
    for job in asked:
        _name_the_unknown(job)
    return code


@click.command(cls=Command)
@_WHICH
@which_options
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def remove(which: tuple[str, ...], yes: bool, **given: Any) -> int | None:
    """Forget recurring jobs and the history of their runs. To stop one for a while, disable it."""

    def one(job: RecurringJob) -> str:
        module = job.record.declared_in
        job.delete()
        if module:
            note(f"{module} declares {label(job)}: the next worker that starts makes it again. Disable it instead")
        return "removed"

    def check(found: list[RecurringJob]) -> None:
        names = label(found[0]) if len(found) == 1 else plural(len(found), "recurring job")
        if not yes:
            ask(f"Remove {names} with its history?", dry_run=False)

    return _each(which, one, check=check, **given)


# -- each -------------------------------------------------------------------------------------------------------------


def _each(
    which: tuple[str, ...],
    one: Callable[[RecurringJob], str],
    *,
    url: str | None,
    schema: str | None,
    app: str | None,
    include: tuple[str, ...],
    tenant: str | None,
    check: Callable[[list[RecurringJob]], None] | None = None,
) -> int | None:
    """Do it to each one that is named: all are found first, and one that is refused does not stop the others."""
    opened = open_database(url, schema, app, include=include)
    found = list(dict.fromkeys(_found(opened, which, tenant)))
    if check is not None:
        check(found)
    done: list[dict[str, Any]] = []
    refused: list[dict[str, str]] = []
    for job in found:
        name = label(job)
        try:
            said = one(job)
        except DulyError as error:
            if len(found) == 1:
                raise
            refused.append({"id": job.id, "why": str(error)})
            complain(str(error))
            continue
        done.append({**_standing(job), "said": said})
        if not wants_json():
            click.echo(f"{name} {clean(said)}")
    if wants_json():
        answer({"count": len(done), "jobs": done, "refused": refused}, "")
    return FAILED if refused else None


def _found(app: Duly, which: tuple[str, ...], tenant: str | None) -> list[RecurringJob]:
    """Find all before anything is done to one."""
    return [find(app, word, tenant) for word in which]


def _standing(job: RecurringJob) -> dict[str, Any]:
    try:
        return job.refresh().to_dict()
    except RecurringJobNotFound:
        return {"id": job.id}


def _name_the_unknown(job: RecurringJob) -> None:
    """Say so where nobody is there to run it."""
    app = job._app
    if not app.live_workers():
        note("no worker is running; it waits until one starts")
    elif not app.live_workers(task=job.task, queue=job.record.queue):
        note(f"no live worker knows task {job.task} in queue {job.record.queue}; it waits until one does")
