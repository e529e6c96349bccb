"""`duly jobs`: list, show, retry, cancel, delete, priority, boost, reschedule, state."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from duly.app import Duly
from duly.cli.apps import open_database
from duly.cli.base import Command, Group, note, wants_utc
from duly.cli.bulk import Act, act_on
from duly.cli.options import all_of, database_options, filter_options, scope_option, utc_option
from duly.cli.output import answer, moment, table
from duly.cli.show import as_dict, as_text
from duly.cli.text import clean, tail
from duly.domain.errors import InvalidOption, JobNotFound
from duly.domain.ids import is_job_id
from duly.domain.recurring import ENDLESS
from duly.domain.states import State
from duly.job import Job
from duly.tenant import Tenant

SHORTEST_TAIL = 6
NEWEST = 10_000
ERRORS_LOOKED_UP = 200


def find_id(app: Duly | Tenant, text: str) -> str:
    """Return the id that `text` is or ends: the newest jobs are searched, and only one may match."""
    word = text.strip().lower()
    if is_job_id(word):
        return word
    if len(word) < SHORTEST_TAIL or not all(each in "0123456789abcdef-" for each in word):
        raise JobNotFound(
            f"{clean(text, 60)!r} is not the id of a job. Give it whole, or its last {SHORTEST_TAIL} or more characters"
        )
    found = [job.id for job in app.list(limit=NEWEST) if job.id.endswith(word)]
    match found:
        case [job_id]:
            return job_id
        case []:
            raise JobNotFound(f"no job's id ends in {word}. Jobs older than the newest {NEWEST:,} need their whole id")
        case _:
            raise JobNotFound(f"{len(found)} ids end in {word}: {', '.join(found[:3])}... Give more of it")


@click.group(cls=Group)
def jobs() -> None:
    """Look at jobs, and change what becomes of them."""


# -- look -------------------------------------------------------------------------------------------------------------


@jobs.command("list", cls=Command)
@database_options
@filter_options
@click.option("--limit", type=click.IntRange(1, NEWEST), metavar="N", default=20, show_default=True, help="How many.")
@click.option("--before", metavar="ID", help="Only jobs older than this one: the next page.")
@utc_option
def list_jobs(
    url: str | None, schema: str | None, app: str | None, limit: int, before: str | None, **wanted: Any
) -> None:
    """List jobs, newest first."""
    check_state(wanted["state"])
    opened = open_database(url, schema, app)
    before_id = None if before is None else find_id(opened, before)
    found = opened.list(**wanted, before=before_id, limit=limit)
    if not found:
        answer([], "no such jobs" if any(wanted.values()) or before else "no jobs yet")
        return
    now = datetime.now(UTC)
    rows = [_row(opened, job, now, with_error=i < ERRORS_LOOKED_UP) for i, job in enumerate(found)]
    answer(
        [job.to_dict() for job in found],
        table(["JOB", "TASK", "STATE", "QUEUE", "TRIES", "ENQUEUED", "DETAIL"], rows, right=[4]),
    )
    if len(found) == limit:
        note(f"There may be more: --limit, or --before {tail(found[-1].id)}")


def check_state(text: str | None) -> None:
    """Refuse a state that there is not, before any database is opened."""
    if text is not None:
        try:
            State.parse(text)
        except InvalidOption as error:
            raise click.BadParameter(str(error), param_hint="--state") from error


def _row(app: Duly, job: Job[Any], now: datetime, *, with_error: bool) -> tuple[str, ...]:
    return (
        tail(job.id),
        clean(job.task),
        str(job.state),
        clean(job.queue),
        tries(job),
        moment(job.created_at, now),
        clean(_detail(app, job, now, with_error=with_error), 300),
    )


def tries(job: Job[Any]) -> str:
    """Return how many runs it has had, of how many; a recurring job is never out of them."""
    return "recurs" if job.max_attempts >= ENDLESS else f"{job.attempts}/{job.max_attempts}"


def _detail(app: Duly, job: Job[Any], now: datetime, *, with_error: bool) -> str:
    """Return what is most worth knowing about a job in its state."""
    match job.state:
        case State.RUNNING if job.progress is not None or job.progress_text:
            share = "" if job.progress is None else f"{job.progress:.0%} "
            return f"{share}{job.progress_text or ''}"
        case State.SCHEDULED:
            return f"due {moment(job.run_at or now, now)}  {job.record.args}"
        case State.FAILED if with_error:
            last = app.store.last_run(job.id)
            return job.reason or "" if last is None or last.error is None else f"{last.error_kind}: {last.error}"
        case _:
            return job.reason or job.record.args


def within(app: Duly, tenant: str | None) -> Duly | Tenant:
    """Where jobs are looked for: among all, or among a tenant's."""
    return app if tenant is None else app.tenant(tenant)


@jobs.command(cls=Command)
@click.argument("job")
@database_options
@scope_option
@utc_option
def show(url: str | None, schema: str | None, app: str | None, tenant: str | None, job: str) -> None:
    """Show everything about one JOB: its times, every run with its error, traceback and log."""
    opened = open_database(url, schema, app)
    scope = within(opened, tenant)
    found = scope.get(find_id(scope, job))
    answer(as_dict(opened, found), as_text(opened, found, utc=wants_utc()))


# -- act --------------------------------------------------------------------------------------------------------------

acting_options = all_of(
    click.argument("ids", nargs=-1, metavar="[JOB]..."),
    database_options,
    filter_options,
    click.option("--yes", "-y", is_flag=True, help="Do not ask."),
    click.option("--dry-run", is_flag=True, help="Only say which jobs it would be."),
)

RETRY = Act("retry", "retried", "queued again", (State.FAILED,))
CANCEL = Act("cancel", "cancelled", "cancelled", (State.SCHEDULED, State.QUEUED, State.RUNNING))
DELETE = Act("delete", "deleted", "deleted", ())


@jobs.command(cls=Command)
@acting_options
def retry(url: str | None, schema: str | None, app: str | None, ids: tuple[str, ...], **given: Any) -> int | None:
    """Run jobs again now, their attempts at 0.

    Name them, or choose them by filter; by filter alone it is the failed ones.
    """
    check_state(given["state"])
    opened = open_database(url, schema, app)
    scope = within(opened, given["tenant"])
    return act_on(opened, RETRY, [find_id(scope, each) for each in ids], given, scope.retry, scope.retry_many)


@jobs.command(cls=Command)
@acting_options
def cancel(url: str | None, schema: str | None, app: str | None, ids: tuple[str, ...], **given: Any) -> int | None:
    """Cancel jobs that wait; ask the workers of those that run to stop them."""
    check_state(given["state"])
    opened = open_database(url, schema, app)
    scope = within(opened, given["tenant"])
    return act_on(opened, CANCEL, [find_id(scope, each) for each in ids], given, scope.cancel, scope.cancel_many)


@jobs.command(cls=Command)
@acting_options
def delete(url: str | None, schema: str | None, app: str | None, ids: tuple[str, ...], **given: Any) -> int | None:
    """Forget jobs and their history. By filter, --state must say which."""
    check_state(given["state"])
    opened = open_database(url, schema, app)
    scope = within(opened, given["tenant"])
    return act_on(opened, DELETE, [find_id(scope, each) for each in ids], given, scope.delete, scope.delete_many)
