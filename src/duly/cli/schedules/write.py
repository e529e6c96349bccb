"""`duly schedules add` and `edit`: make a task recur, change what recurs."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import click

from duly.app import Duly
from duly.cli.apps import ENVIRONMENT, act, open_database, required_app
from duly.cli.base import Command, note, wants_utc
from duly.cli.enqueue import check_call, fitting, read_json, read_pairs, read_words, value_of
from duly.cli.options import DURATION, all_of, include_option, utc_option
from duly.cli.output import answer
from duly.cli.schedules.find import by_option, find, label, path, which_options
from duly.cli.schedules.preview import read_when, when_options
from duly.cli.schedules.text import meaning
from duly.cli.text import clean, when
from duly.domain.errors import Conflict, RecurringJobNotFound
from duly.recurring import RecurringJob

_RULES = ("every", "cron", "rule")
_PLAIN = ("name", "description", "priority", "queue", "misfire", "grace", "cap", "overlap", "failure", "jitter")

what_options = all_of(
    click.option("--every", metavar="DURATION", help="Per interval of elapsed time, e.g. 5m or 1h30m."),
    click.option(
        "--cron", multiple=True, metavar="RULE", help="At wall times, e.g. '0 9 * * mon-fri'; may be given again."
    ),
    click.option("--rule", multiple=True, metavar="RULE", help="Any rule, e.g. @daily; may be given again."),
    click.option("--no-rule", is_flag=True, help="No rule: the handler says when it runs next."),
    when_options,
    click.option("--jitter", type=DURATION, help="Shift the ticks of each key by a part of this."),
    click.option("--args", "json_args", metavar="JSON", help="The arguments as one JSON object."),
    click.option("--name", metavar="NAME", help="A name for people, unique per tenant."),
    click.option("--description", metavar="TEXT", help="What it is for."),
    click.option("--priority", type=int, metavar="N", help="0 to 100, higher first."),
    click.option("--queue", metavar="NAME", help="The queue, if not the task's own."),
    click.option(
        "--misfire",
        type=click.Choice(("once", "skip", "all")),
        help="Ticks that were missed: one late run, none if later than --grace, all up to --cap.",
    ),
    click.option("--grace", type=DURATION, help="With --misfire skip: how late a run may be.  [default: 1m]"),
    click.option("--cap", type=int, metavar="N", help="With --misfire all: how many at most.  [default: 100]"),
    click.option(
        "--overlap",
        type=click.Choice(("skip", "queue", "allow")),
        help="Ticks that come while it runs: left out, one more run, a job for each.",
    ),
    click.option(
        "--failure", type=click.Choice(("backoff", "advance")), help="After a failure: again soon, or at the next tick."
    ),
    click.option("--pause-after", type=click.IntRange(0), metavar="N", help="Disable it after N failures in a row."),
)


@click.command(cls=Command)
@click.argument("words", nargs=-1, required=True, metavar="[APP] TASK [NAME=VALUE ...]")
@click.option("--key", default="", metavar="KEY", help="What it is about: one recurring job per tenant, task and key.")
@what_options
@click.option("--tenant", metavar="NAME", help="Whose it is.")
@click.option("--disabled", is_flag=True, help="Make it, but do not let it run yet.")
@by_option("Who makes it.")
@click.option("--app", "spec", metavar="APP", help="The app, if not written before TASK (or $DULY_APP).")
@include_option
@utc_option
def add(
    words: tuple[str, ...],
    key: str,
    tenant: str | None,
    disabled: bool,
    by: str,
    spec: str | None,
    include: tuple[str, ...],
    json_args: str | None,
    **given: Any,
) -> None:
    """Make TASK recur. Its arguments are checked against the task, so the APP is needed.

    NAME=VALUE is read as JSON where it is JSON, else as text.

    \b
        duly schedules add app.py sync user_id=42 --key 42 --every 5m
        duly schedules add app.py report --cron '0 9 * * mon-fri' --timezone Europe/Berlin --name weekdays
    """
    named, task_name, pairs = read_words(words)
    if named and spec and named != spec:
        raise click.UsageError("give APP once, before TASK or as --app", click.get_current_context())
    options = _read_options(given)
    if not _said_when(given):
        raise click.UsageError(
            "when? Give --every, --cron or --rule; or --no-rule if its handler says when", click.get_current_context()
        )
    app = required_app(named or spec or os.environ.get(ENVIRONMENT) or None, include).app
    act(app, by)
    task = app[task_name].using(queue=options.pop("queue", None))
    args = _checked(app, task_name, read_pairs(pairs), read_json(json_args))
    _refuse_another(app, task_name, key, tenant)
    if tenant is not None:
        options["tenant"] = tenant
    job = task.recur(key, args=args, enabled=not disabled, created_by=by, **options)
    _tell(job, "made" if not disabled else "made, disabled")
    if not disabled and not app.live_workers(task=task_name, queue=job.record.queue):
        start = named or spec
        note("no live worker knows its task and queue." + (f" Start one: duly worker {start}" if start else ""))


@click.command(cls=Command)
@click.argument("which")
@click.argument("pairs", nargs=-1, metavar="[NAME=VALUE ...]")
@what_options
@which_options
@utc_option
def edit(
    which: str,
    pairs: tuple[str, ...],
    url: str | None,
    schema: str | None,
    app: str | None,
    include: tuple[str, ...],
    tenant: str | None,
    json_args: str | None,
    **given: Any,
) -> None:
    """Change a recurring job: what is not named stays. Its next run moves only if the schedule does.

    NAME=VALUE changes one argument, --args replaces all. An empty text takes a name, description, bound or exclusion
    away, and --pause-after 0 the limit. The edit of one that code declares stands until that code changes.
    """
    changes = _read_options(given)
    if given["no_rule"]:
        changes["rule"] = None
    texts, whole = read_pairs(list(pairs)), read_json(json_args)
    if not changes and not texts and json_args is None:
        raise click.UsageError("what should change? Give options or NAME=VALUE", click.get_current_context())
    opened = open_database(url, schema, app, include=include)
    job = find(opened, which, tenant)
    if texts or json_args is not None:
        base = job.args if json_args is None else whole
        changes["args"] = _edited_args(opened, job, texts, base)
    job.edit(**changes)
    _tell(job, "changed")


# -- reading the command line -----------------------------------------------------------------------------------------


def _said_when(given: dict[str, Any]) -> bool:
    return bool(given["no_rule"] or any(given[name] for name in _RULES))


def _read_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return what was given, as `recur` and `edit` take it."""
    rules = [name for name in (*_RULES, "no_rule") if given[name]]
    if len(rules) > 1:
        names = " or ".join(f"--{name.replace('_', '-')}" for name in rules)
        raise click.UsageError(
            f"give {names}, not both. Several rules: --rule '@every 1h' --rule '0 9 * * *'", click.get_current_context()
        )
    options = read_when(given)
    options |= {name: given[name] for name in _PLAIN if given[name] is not None}
    if given["every"]:
        options["every"] = given["every"]
    for name in ("cron", "rule"):
        if given[name]:
            options[name] = list(given[name])
    for name in ("name", "description"):
        if options.get(name) == "":
            options[name] = None
    if given["pause_after"] is not None:
        options["pause_after"] = given["pause_after"] or None
    return options


def _checked(app: Duly, task: str, texts: dict[str, str], whole: dict[str, Any]) -> dict[str, Any]:
    signature = app[task].definition.signature
    values = {**whole, **{key: fitting(signature, key, text) for key, text in texts.items()}}
    check_call(signature, values)
    return values


def _edited_args(app: Duly, job: RecurringJob, texts: dict[str, str], base: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments after an edit: checked where the task is known."""
    if job.task in app.registry.tasks:
        return _checked(app, job.task, texts, base)
    note(f"no app was given, so no code checked the arguments of {job.task}")
    return {**base, **{key: value_of(text) for key, text in texts.items()}}


def _refuse_another(app: Duly, task: str, key: str, tenant: str | None) -> None:
    try:
        job = app.recurring_job(task, key, tenant=tenant)
    except RecurringJobNotFound:
        return
    hint = "" if key else ", or give another --key"
    raise Conflict(f"there is a recurring job {path(job)} already. Change it: duly schedules edit '{label(job)}'{hint}")


# -- answering --------------------------------------------------------------------------------------------------------


def _tell(job: RecurringJob, said: str) -> None:
    job.refresh()
    now = datetime.now(UTC)
    following = f"; next run {when(job.next_run_at, now, utc=wants_utc())}" if job.enabled else ""
    answer(job.to_dict(), f"{said}: {label(job)} {job.id}\n{clean(meaning(job.schedule))}{following}")
