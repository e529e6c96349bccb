"""`duly jobs priority`, `boost`, `reschedule`, `state`, `copy`: what else becomes of jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from duly.cli.apps import open_database
from duly.cli.base import Command
from duly.cli.bulk import FILTERS, Act, act_on
from duly.cli.jobs import acting_options, check_state, find_id, within
from duly.cli.options import DURATION, database_options, scope_option
from duly.cli.output import answer, moment
from duly.cli.text import clean
from duly.domain.errors import InvalidOption
from duly.domain.rank import check_priority
from duly.domain.states import State


def _one(ids: tuple[str, ...], given: dict[str, Any]) -> bool:
    """Whether this is about one job that was named."""
    return len(ids) == 1 and not given["dry_run"] and not any(given[name] for name in FILTERS if name != "tenant")


@click.command(cls=Command)
@acting_options
@click.argument("priority", type=int)
def priority(
    url: str | None, schema: str | None, app: str | None, ids: tuple[str, ...], priority: int, **given: Any
) -> int | None:
    """Set the PRIORITY (0 to 100) of jobs that have not started. Name them, or choose them by filter.

    \b
        duly jobs priority 4b6c8d0e12 80
        duly jobs priority 80 --task report --tenant acme
    """
    check_state(given["state"])
    _checked(lambda: check_priority(priority), "PRIORITY")
    opened = open_database(url, schema, app)
    scope = within(opened, given["tenant"])
    found = [find_id(scope, each) for each in ids]
    if _one(ids, given):
        scope.set_priority(found[0], priority)
        answer({"id": found[0], "priority": priority}, f"{found[0]} has priority {priority}")
        return None
    act = Act("set the priority of", "changed", f"has priority {priority}", (State.SCHEDULED, State.QUEUED))
    return act_on(
        opened,
        act,
        found,
        given,
        lambda job_id: scope.set_priority(job_id, priority),
        lambda job_ids: opened.set_priority_many(job_ids, priority),
    )


@click.command(cls=Command)
@click.argument("job")
@click.option("--by", type=click.IntRange(1, 100), metavar="N", default=10, show_default=True, help="By how much.")
@database_options
@scope_option
def boost(url: str | None, schema: str | None, app: str | None, tenant: str | None, job: str, by: int) -> None:
    """Raise the priority of a JOB that has not started, to 100 at most."""
    scope = within(open_database(url, schema, app), tenant)
    job_id = find_id(scope, job)
    now = scope.boost(job_id, by)
    answer({"id": job_id, "priority": now}, f"{job_id} has priority {now}")


@click.command(cls=Command)
@click.argument("job")
@click.option("--delay", type=DURATION, required=True, metavar="DURATION", help="How long from now; 0 for at once.")
@database_options
@scope_option
def reschedule(
    url: str | None, schema: str | None, app: str | None, tenant: str | None, job: str, delay: timedelta
) -> None:
    """Give a JOB that has not started another time; of one that recurs, its next run."""
    scope = within(open_database(url, schema, app), tenant)
    job_id = find_id(scope, job)
    scope.reschedule(job_id, delay=delay)
    found = scope.get(job_id)
    when = "now" if found.run_at is None else moment(found.run_at, datetime.now(UTC))
    answer({"id": job_id, "run_at": found.to_dict()["run_at"]}, f"{job_id} is due {when}")


@click.command(cls=Command)
@acting_options
@click.argument("wanted", metavar="STATE")
def state(
    url: str | None, schema: str | None, app: str | None, ids: tuple[str, ...], wanted: str, **given: Any
) -> int | None:
    """Set the STATE of jobs by hand: queued runs them again; succeeded, failed or cancelled ends those that wait.

    Name them, or choose them by filter; by filter, --state must say in which state they are.
    """
    check_state(given["state"])
    _checked(lambda: State.parse(wanted), "STATE")
    opened = open_database(url, schema, app)
    scope = within(opened, given["tenant"])
    found = [find_id(scope, each) for each in ids]
    if _one(ids, given):
        scope.set_state(found[0], wanted)
        now = str(scope.get(found[0]).state)
        answer({"id": found[0], "state": now}, f"{found[0]} is {now}")
        return None
    act = Act(f"set to {State.parse(wanted)}", "changed", f"is {State.parse(wanted)}", ())
    return act_on(
        opened,
        act,
        found,
        given,
        lambda job_id: scope.set_state(job_id, wanted),
        lambda job_ids: opened.set_state_many(job_ids, wanted),
    )


def _checked(check: Callable[[], object], hint: str) -> None:
    try:
        check()
    except InvalidOption as error:
        raise click.BadParameter(str(error), param_hint=hint) from error


@click.command(cls=Command)
@click.argument("job")
@database_options
@scope_option
def copy(url: str | None, schema: str | None, app: str | None, tenant: str | None, job: str) -> None:
    """Store a new job with the task, arguments, queue, priority and tags of a JOB, due at once.

    With --app its arguments are checked against the task as it is now. Its unique key is not taken.
    """
    opened = open_database(url, schema, app)
    made = opened.copy(find_id(within(opened, tenant), job))
    answer({"id": made.id}, f"enqueued: {clean(made.task)} {made.id} ({made.state})")
