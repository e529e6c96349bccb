"""`duly worker`: run jobs until told to stop."""

from __future__ import annotations

import inspect
import json
import logging
import os
import platform
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import click

from duly.__about__ import __version__
from duly.app import Duly
from duly.cli.apps import address_of, required_app
from duly.cli.base import Command, note, wants_json, written_words
from duly.cli.logs import LEVELS, narrate, say, set_up_logging
from duly.cli.options import DURATION, app_argument, include_option
from duly.cli.queues import read_queues
from duly.cli.running import PROGRAM, Plan, Signals, run_worker, start_again, watching_signals
from duly.cli.text import clean, plural
from duly.domain.durations import human
from duly.domain.errors import ConfigurationError
from duly.worker.lifeline import end_with_parent
from duly.worker.recycle import RECYCLE
from duly.worker.registry import Kind
from duly.worker.settings import MetricsSettings, WorkerSettings

MOST_PROCESSES = 512


@click.command(cls=Command)
@app_argument
@click.option(
    "--queue", "queues", multiple=True, metavar="QUEUES", help="mail=5,default=20 (slots) or mail*3,default (weights)."
)
@click.option(
    "--processes",
    type=click.IntRange(1, MOST_PROCESSES),
    metavar="N",
    default=1,
    help="How many worker processes to run and keep alive.",
)
@click.option(
    "--until-empty",
    is_flag=True,
    help="End when nothing waits, is scheduled or runs in its queues; what recurs counts only when due.",
)
@click.option("--threads", type=click.IntRange(0, 10_000), metavar="N", help="Slots for `def` tasks.")
@click.option("--async-slots", type=click.IntRange(0, 100_000), metavar="N", help="Slots for `async def` tasks.")
@click.option(
    "--process-slots", type=click.IntRange(0, 1_000), metavar="N", help="Slots for tasks with isolation='process'."
)
@click.option("--lease", type=DURATION, help="How long a job is held without a sign of life.")
@click.option("--grace", type=DURATION, help="How long running jobs may take to end when it stops.")
@click.option("--max-jobs", type=click.IntRange(1), metavar="N", help="Go on in a fresh process after this many jobs.")
@click.option(
    "--max-memory", type=click.IntRange(1), metavar="MB", help="Go on in a fresh process above this much memory."
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    metavar="N",
    help="Serve /metrics, /healthz and /readyz at this port; with several processes, at it and those after it.",
)
@click.option("--metrics-host", metavar="HOST", help="At this address, instead of to this machine alone.")
@click.option("--log-level", type=click.Choice(LEVELS, case_sensitive=False), default="info", help="What to log.")
@click.option("--verbose", "-v", is_flag=True, help="Log when each run starts and ends.")
@click.option(
    "--child", is_flag=True, hidden=True, help="Started by a supervisor: no banner, exit 75 to be started again."
)
@click.option("--parent", type=int, hidden=True, help="Stop when this process is no longer the parent.")
@click.option("--dev", type=click.Choice(("first", "again")), hidden=True, help="Started by duly dev.")
@click.option("--web", "web_port", type=int, hidden=True, help="With --dev: also serve the dashboard on this port.")
@include_option
def worker(
    app: str | None,
    include: tuple[str, ...],
    queues: tuple[str, ...],
    processes: int,
    log_level: str,
    verbose: bool,
    child: bool,
    parent: int | None,
    dev: str | None,
    web_port: int | None,
    **given: Any,
) -> int:
    """Run the jobs of APP (module:attribute, module, or app.py[:attribute]).

    SIGTERM or Ctrl-C: no new jobs, those that run get the grace to end, the rest is given back unharmed. A second
    signal stops at once.
    """
    shares = read_queues(queues)
    with watching_signals() as signals:
        if parent is not None:
            end_with_parent(parent, signal.SIGTERM)
        if web_port is not None:
            from duly.cli.serving import preload

            preload()
        found = required_app(app, include)
        handler = set_up_logging(json=wants_json(), level=log_level)
        try:
            settings = _settings(found.app, shares, {**given, "child": child})
            if verbose or dev:
                found.app.middleware(narrate)
            if dev:
                found.app.migrate()
            if not child and dev != "again":
                _banner(found.app, settings, processes)
            if processes > 1:
                return _supervise(found.app, settings, processes, until_empty=given["until_empty"])
            with _serving(found.app, web_port, first=dev == "first"):
                return _run_here(found.app, settings, _plan(given), signals, dev=dev, child=child, spec=app or "")
        finally:
            if handler is not None:
                logging.getLogger().removeHandler(handler)


def _settings(app: Duly, shares: object, given: Mapping[str, Any]) -> WorkerSettings:
    def seconds(value: timedelta | None) -> float | None:
        return None if value is None else value.total_seconds()

    if given["lease"] is not None and given["lease"] < timedelta(milliseconds=200):
        raise click.BadParameter("it must be at least 200ms", param_hint="--lease")
    settings = app.worker_settings(
        shares,
        thread_slots=given["threads"],
        async_slots=given["async_slots"],
        process_slots=given["process_slots"],
        lease=seconds(given["lease"]),
        grace=seconds(given["grace"]),
        max_jobs=given["max_jobs"],
    )
    return replace(settings, metrics=_metrics(app, settings.metrics, given))


def _metrics(app: Duly, configured: MetricsSettings | None, given: Mapping[str, Any]) -> MetricsSettings | None:
    """Where metrics are served: as the options say, else as the settings do."""
    port, host = given.get("metrics_port"), given.get("metrics_host")
    if port is None and configured is None:
        if host is not None:
            raise click.UsageError("--metrics-host needs --metrics-port, or the setting metrics_listen")
        return None
    found = configured or MetricsSettings(port=0, tenants=app.settings.metrics_tenants)
    return replace(
        found,
        host=found.host if host is None else host,
        port=found.port if port is None else port,
        ports=MOST_PROCESSES if given.get("child") else 1,
        database=app.settings.metrics_scope == "all",
    )


def _plan(given: dict[str, Any]) -> Plan:
    return Plan(until_empty=given["until_empty"], max_jobs=given["max_jobs"], max_memory=given["max_memory"])


def _run_here(
    app: Duly, settings: WorkerSettings, plan: Plan, signals: Signals, *, dev: str | None, child: bool, spec: str
) -> int:
    if dev == "first":
        _what_next(app, spec)
    code = run_worker(app, settings, plan, signals)
    app.close()
    if code == RECYCLE and not child:
        start_again()
    return code


@contextmanager
def _serving(app: Duly, port: int | None, *, first: bool) -> Iterator[None]:
    """Serve the dashboard beside the worker, and print the link to it unless somebody is signed in already."""
    if port is None:
        yield
        return
    from duly.cli.serving import HOST, Served, listen_near

    try:
        listener = listen_near(HOST, port)
    except ConfigurationError as error:
        say("web", f"no dashboard: {error}", json=wants_json(), error=str(error))
        yield
        return
    with Served(app, listener) as served:
        if first or not served.has_session():
            link = served.link()
            say("web", f"The dashboard (this link lets you in once):\n\n    {link}\n", json=wants_json(), link=link)
        yield


def _supervise(app: Duly, settings: WorkerSettings, processes: int, *, until_empty: bool) -> int:
    """Run several worker processes with this command's own words."""
    from duly.worker.supervisor import run_supervised

    return run_supervised(
        ["worker", *written_words(), "--processes", "1"],
        processes,
        store=app.store,
        crash_limit=settings.crash_limit,
        grace=settings.grace,
        once=until_empty,
        program=PROGRAM,
    )


# -- what is said at the start ----------------------------------------------------------------------------------------

_KINDS = {Kind.THREAD: "thread", Kind.ASYNC: "async", Kind.PROCESS: "process"}


def _banner(app: Duly, settings: WorkerSettings, processes: int) -> None:
    kinds = {task.kind for task in app.registry}
    slots = {
        _KINDS[kind]: n
        for kind, n in (
            (Kind.THREAD, settings.thread_slots),
            (Kind.ASYNC, settings.async_slots),
            (Kind.PROCESS, settings.process_slots),
        )
        if kind in kinds
    }
    queues = [_queue_text(share.name, share.slots, share.weight) for share in settings.queues]
    tasks = sorted(app.registry.tasks)
    several = f", {processes} processes" if processes > 1 else ""
    declared = len(app.registry.declarations)
    text = [
        f"duly {__version__} worker on {clean(platform.node())}, pid {os.getpid()}{several}",
        f"  database  {clean(address_of(app))}",
        f"  queues    {', '.join(queues)}",
        f"  tasks     {_some(tasks)}",
        *([f"  recurring {plural(declared, 'job')} declared: duly schedules list"] if declared else []),
        f"  slots     {', '.join(f'{n} {kind}' for kind, n in slots.items()) or 'none'}",
        *([f"  metrics   {_metrics_text(settings.metrics, processes)}"] if settings.metrics else []),
        f"Stop it with Ctrl-C: running jobs get {human(timedelta(seconds=settings.grace))} to end.",
    ]
    say(
        "started",
        "\n".join(text),
        json=wants_json(),
        version=__version__,
        pid=os.getpid(),
        database=address_of(app),
        queues=[share.name for share in settings.queues],
        tasks=tasks,
        recurring=declared,
        slots=slots,
        processes=processes,
    )
    if not tasks:
        note("this app declares no task, so there is nothing it can run. Is a module missing? See --include")


def _metrics_text(metrics: MetricsSettings, processes: int) -> str:
    host = f"[{metrics.host}]" if ":" in metrics.host else metrics.host
    more = f" and the {processes - 1} ports after it" if processes > 1 else ""
    return f"http://{host}:{metrics.port}/metrics{more}" if metrics.port else "at any free port: see the log"


def _queue_text(name: str, slots: int | None, weight: int) -> str:
    if slots is not None:
        return f"{name} ({plural(slots, 'slot')})"
    return f"{name} (weight {weight})" if weight > 1 else name


def _some(names: list[str], most: int = 12) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _what_next(app: Duly, spec: str) -> None:
    """Tell a newcomer how to give this worker something to do."""
    task = next(iter(app.registry), None)
    if task is None:
        return
    codecs = task.signature.fields.codecs
    needed = [each.name for each in inspect.signature(task.fn).parameters.values() if _is_needed(each)]
    pairs = " ".join(f"{name}={example_of(codecs[name].name)}" for name in needed)
    command = f"duly enqueue {spec} {task.name} {pairs}".rstrip()
    say(
        "hint",
        f"Give it something to do, from another terminal:\n\n    {command}\n",
        json=wants_json(),
        command=command,
    )


def _is_needed(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )


def example_of(kind: str) -> str:
    """Return a value that a parameter of this type might take, as written on the command line."""
    kind = kind.removesuffix(" | None").strip()
    examples = {"int": "1", "float": "1.5", "bool": "true", "str": "hello", "Any": "1", "None": "null"}
    if kind in examples:
        return examples[kind]
    if kind.startswith(("list", "tuple", "set", "Sequence", "frozenset")):
        return "'[]'"
    if kind.startswith(("dict", "Mapping")):
        return "'{}'"
    if kind == "datetime":
        return "2030-01-31T08:00:00Z"
    return json.dumps("...")
