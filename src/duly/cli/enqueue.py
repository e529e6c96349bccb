"""`duly enqueue`: store a job from the command line, checked by the app's signature where there is an app."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import click

from duly.app import Duly
from duly.cli.apps import ENVIRONMENT, open_database, required_app
from duly.cli.base import FAILED, Command, note, wants_json
from duly.cli.options import DURATION, include_option, schema_option, url_option
from duly.cli.output import answer, to_json
from duly.cli.text import clean, tail
from duly.domain.clock import to_us
from duly.domain.durations import micros
from duly.domain.errors import ArgumentError, ArgumentsDoNotFit, JobCancelled, JobFailed
from duly.domain.ids import uuid7
from duly.domain.json import Misfit, decode_strict, encode_args
from duly.domain.names import check_queue_name, check_tag, check_task_name, check_tenant
from duly.domain.rank import check_priority
from duly.domain.records import NewJob
from duly.domain.signature import Signature
from duly.domain.unique import Unique
from duly.job import Job


@click.command(cls=Command)
@click.argument("words", nargs=-1, required=True, metavar="[APP] TASK [NAME=VALUE ...]")
@click.option("--args", "json_args", metavar="JSON", help="The arguments as one JSON object.")
@click.option("--delay", type=DURATION, help="Run it this much later, e.g. 5m.")
@click.option(
    "--run-at", metavar="TIME", help="Run it then: ISO 8601 with a time zone, e.g. 2030-01-31T08:00:00+01:00."
)
@click.option("--priority", type=int, metavar="N", help="0 to 100, higher first.")
@click.option("--queue", metavar="NAME", help="The queue, if not the task's own.")
@click.option("--tenant", metavar="NAME", help="Whose job it is.")
@click.option("--unique", metavar="KEY", help="Do nothing if a job with this key waits or runs.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A word to find it by; may be given again.")
@click.option("--wait", is_flag=True, help="Wait for it to end and show its result.")
@click.option("--timeout", type=DURATION, help="With --wait: how long to wait at most.")
@include_option
@url_option
@schema_option
def enqueue(
    words: tuple[str, ...],
    json_args: str | None,
    url: str | None,
    schema: str | None,
    include: tuple[str, ...],
    wait: bool,
    timeout: timedelta | None,
    run_at: str | None,
    **given: Any,
) -> int | None:
    """Store a job.

    NAME=VALUE is read as JSON where it is JSON, else as text. With an APP (or $DULY_APP) the arguments are checked
    against the task; with only a database they are stored as they are.
    """
    spec, name, pairs = read_words(words)
    texts = read_pairs(pairs)
    whole = read_json(json_args)
    options = {key: value for key, value in given.items() if value not in (None, ())}
    if run_at is not None:
        options["run_at"] = _read_time(run_at)
    if url is None and schema is None and (spec := spec or _app_of_environment()):
        app = required_app(spec, include).app
        job = _checked(app, name, texts, whole, options)
    elif spec is not None:
        raise click.UsageError("give an APP or --url, not both", click.get_current_context())
    else:
        app = open_database(url, schema, None, name_app=f"duly enqueue app.py {name}")
        job = _unchecked(app, name, {**whole, **{key: value_of(text) for key, text in texts.items()}}, options)
        note(f"no app was given, so no code checked the arguments of {name}")
    if wait:
        return _wait(app, job, timeout)
    _tell(job)
    _name_the_unknown(app, job, spec)
    return None


# -- reading the command line -----------------------------------------------------------------------------------------


def _app_of_environment() -> str | None:
    import os

    return os.environ.get(ENVIRONMENT) or None


def read_words(words: tuple[str, ...]) -> tuple[str | None, str, list[str]]:
    """Tell [APP] TASK from NAME=VALUE: only the latter has an equals sign."""
    context = click.get_current_context()
    names = [word for word in words if "=" not in word]
    pairs = [word for word in words if "=" in word]
    match names:
        case [task]:
            return None, task, pairs
        case [app, task]:
            return app, task, pairs
        case []:
            raise click.UsageError(f"which task? Write: {context.command_path} [APP] TASK name=value ...", context)
        case _:
            raise click.UsageError(f"{clean(names[2])!r} is no argument: arguments are written name=value", context)


def read_pairs(pairs: list[str]) -> dict[str, str]:
    """Return the texts of NAME=VALUE by name."""
    texts: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals or name in texts:
            fault = "has no name" if not name else "is given twice" if equals else "must be written name=value"
            raise click.UsageError(f"argument {clean(pair)!r} {fault}", click.get_current_context())
        texts[name] = text
    return texts


def read_json(text: str | None) -> dict[str, Any]:
    """Return the object that --args holds."""
    if text is None:
        return {}
    value = decode_strict(text)
    if not isinstance(value, dict):
        raise ArgumentError(f'--args must be a JSON object like {{"user_id": 42}}, not {clean(text, 60)}')
    return value


def _read_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time like 2030-01-31T08:00:00+01:00", param_hint="--run-at") from None


def value_of(text: str) -> Any:
    """Return what a text says: JSON if it is JSON, else text."""
    try:
        return decode_strict(text)
    except ArgumentError:
        return text


# -- storing ----------------------------------------------------------------------------------------------------------


def _checked(app: Duly, name: str, texts: dict[str, str], whole: dict[str, Any], options: dict[str, Any]) -> Job[Any]:
    task = app[name]
    signature = task.definition.signature
    values = {**whole, **{key: fitting(signature, key, text) for key, text in texts.items()}}
    args, kwargs = check_call(signature, values)
    return task.using(enqueued_by="duly enqueue", **options).enqueue(*args, **kwargs)


def fitting(signature: Signature, key: str, text: str) -> Any:
    """Return what was written as JSON or as text, whichever the parameter takes: 42 is text for a `str`."""
    value = value_of(text)
    codec = signature.fields.codecs.get(key)
    if codec is None or isinstance(value, str):
        return value
    try:
        codec.convert(value, False)
    except Misfit:
        try:
            codec.convert(text, False)
        except Misfit:
            return value
        return text
    return value


def check_call(signature: Signature, values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the arguments of the call that stored values make, or raise ArgumentError."""
    try:
        return signature.split(signature.load(values))
    except ArgumentsDoNotFit as misfit:
        raise ArgumentError(f"{misfit.reason} It is called as {signature}", path=misfit.path) from misfit


def _unchecked(app: Duly, name: str, args: dict[str, Any], options: dict[str, Any]) -> Job[Any]:
    """Store a job of a task that this process has no code for."""
    unique = Unique.of(options["unique"]) if "unique" in options else None
    run_at = options.get("run_at")
    if run_at is not None and "delay" in options:
        raise click.UsageError("give --run-at or --delay, not both", click.get_current_context())
    job = NewJob(
        id=uuid7(),
        task=check_task_name(name),
        args=encode_args(args, max_bytes=app.settings.max_payload),
        queue=check_queue_name(options.get("queue", "default")),
        tenant=check_tenant(options.get("tenant", "")),
        priority=check_priority(options.get("priority", 0)),
        run_at=None if run_at is None else to_us(run_at, "run_at"),
        delay_us=micros(options["delay"]) if "delay" in options else 0,
        enqueued_by="duly enqueue",
        tags=json.dumps([check_tag(tag) for tag in options["tags"]]) if "tags" in options else None,
        unique_key=None if unique is None else f"{name}::{unique.key}",
        unique_mode="none" if unique is None else unique.mode,
        unique_scope="none" if unique is None else unique.scope,
    )
    stored = app.store.enqueue(job)
    return Job(app, stored.id, created=stored.created)


# -- answering --------------------------------------------------------------------------------------------------------


def _tell(job: Job[Any]) -> None:
    said = "enqueued" if job.created else "already there"
    answer({**job.to_dict(), "created": job.created}, f"{said}: {clean(job.task)} {job.id} ({job.state})")


def _name_the_unknown(app: Duly, job: Job[Any], spec: str | None) -> None:
    """Say so where nobody is there to run it."""
    knowing = app.live_workers(task=job.task, queue=job.queue)
    if knowing:
        return
    start = f" Start one: duly worker {spec}" if spec else ""
    if not app.live_workers():
        note(f"no worker is running; it stays {job.state}.{start}")
    elif app.live_workers(task=job.task):
        note(f"no live worker takes from queue {job.queue}; it stays {job.state}.{start}")
    else:
        note(f"no live worker knows task {job.task}; it stays {job.state}.{start}")


def _wait(app: Duly, job: Job[Any], timeout: timedelta | None) -> int | None:
    _name_the_unknown(app, job, None)
    try:
        job.wait(timeout)
    except (JobFailed, JobCancelled) as error:
        if not wants_json():
            raise
        click.echo(to_json({**job.to_dict(), "created": job.created, "error": str(error)}))
        return FAILED
    last = app.store.last_run(job.id)
    value = None if last is None or last.result is None else json.loads(last.result)
    answer(
        {**job.to_dict(), "created": job.created, "result": value},
        f"{clean(job.task)} {tail(job.id)} succeeded: {clean(json.dumps(value, ensure_ascii=False))}",
    )
    return None
