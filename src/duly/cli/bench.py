"""`duly bench`: how fast duly is on this database, and which part of that is the database's. Decision 0026."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from duly.app import Duly
from duly.cli.apps import address_of, open_database
from duly.cli.base import FAILED, Command, complain, note, wants_json
from duly.cli.bulk import can_ask
from duly.cli.options import DURATION, database_options
from duly.cli.output import bold, to_json
from duly.cli.text import clean, plural, width_of

if TYPE_CHECKING:
    from duly.bench.measure import Measured, Plan
    from duly.store.probe import Facts
    from duly.store.scratch import Scratch

_NAME, _RATE = 32, 14


@click.command(cls=Command)
@database_options
@click.option("--jobs", type=click.IntRange(10, 1_000_000), default=10_000, metavar="N", help="Jobs for each drain.")
@click.option("--processes", type=click.IntRange(1, 64), default=1, metavar="N", help="Worker processes of a drain.")
@click.option("--seconds", type=DURATION, default="3s", metavar="SECONDS", help="How long each of six parts may take.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def bench(
    url: str | None, schema: str | None, app: str | None, jobs: int, processes: int, seconds: timedelta, yes: bool
) -> None:
    """Measure duly on this database: enqueue, drain, pick-up, beside what the bare driver does.

    In a schema of its own, or beside an SQLite file in a folder of its own, which goes away: your jobs, queues and
    workers are not touched. Says what it will do, and asks. Takes about twenty seconds.
    """
    from duly.bench.measure import Plan
    from duly.store.scratch import scratch_beside

    if not timedelta(seconds=0.1) <= seconds <= timedelta(hours=1):
        raise click.BadParameter("it must be from 0.1 s to an hour", param_hint="--seconds")
    opened = open_database(url, schema, app, create=True)
    plan = Plan(jobs, processes, seconds.total_seconds())
    scratch = scratch_beside(opened.store.database, opened.settings.url)
    left = scratch.left_behind()
    if not wants_json():
        click.echo(_intent(opened, scratch, plan))
    for command in left:
        note(f"an earlier run was killed, or another is under way. If none is: {command}")
    if not yes:
        _ask()
    with _ending_in_order(), _made(scratch):
        _run(opened, scratch, plan)
    if not wants_json():
        click.echo("\nAll that was made is gone again.")


def _intent(app: Duly, scratch: Scratch, plan: Plan) -> str:
    """What will happen, before it does."""
    return (
        f"This measures duly on {clean(address_of(app))}, for at most {plan.about_seconds} s or so.\n"
        f"It makes {clean(scratch.words)}, stores up to {plural(plan.most_jobs, 'job')} there, runs them\n"
        f"(up to {plan.most_rows:,} rows written), and removes it. Your jobs, queues and workers are not touched;\n"
        "the database is busy meanwhile."
    )


def _ask() -> None:
    if not can_ask():
        raise click.UsageError("nobody is there to be asked. Say --yes", click.get_current_context())
    if not click.confirm("Go on?", err=True):
        raise click.exceptions.Exit(FAILED)


# -- coming and going -------------------------------------------------------------------------------------------------


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Have SIGTERM and SIGHUP do what Ctrl-C does: end, and clean up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _made(scratch: Scratch) -> Iterator[None]:
    """Make the place and remove it, however this ends; a second Ctrl-C does not keep it from going."""
    try:
        scratch.make()
        yield
    finally:
        with _deaf():
            try:
                scratch.remove()
            except Exception as error:
                complain(f"{scratch.words} could not be removed: {error}. Do it by hand: {scratch.by_hand}")


@contextmanager
def _deaf() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


# -- what is shown ----------------------------------------------------------------------------------------------------


def _run(app: Duly, scratch: Scratch, plan: Plan) -> None:
    from duly.bench.measure import measure

    if wants_json():
        found = measure(app, scratch, plan, met=_nothing, begins=_nothing, done=_nothing)
        click.echo(to_json(as_dict(app, plan, found.facts, found.measured)))
        return
    shown = Shown()
    try:
        measure(app, scratch, plan, met=shown.met, begins=shown.begins, done=shown.done)
    finally:
        shown.wipe()


def _nothing(_: object) -> None: ...


class Shown:
    """The table, line by line as it comes; in a terminal also what is under way."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._under_way = False

    def met(self, facts: Facts) -> None:
        """Say which database it is."""
        trip = "" if facts.round_trip_us is None else f"round trip {_milliseconds(facts.round_trip_us / 1e3)}"
        settings = ", ".join(f"{name}={value}" for name, value in facts.settings.items())
        click.echo(f"\n{clean(facts.name)}; {clean(settings)}" + (f"; {trip}" if trip else "") + "\n")

    def begins(self, name: str) -> None:
        """Say what is under way."""
        if self._live:
            click.echo(click.style(f"{name} ...", dim=True), nl=False)
            self._under_way = True

    def wipe(self) -> None:
        """Take that away."""
        if self._under_way:
            click.echo("\r\x1b[K", nl=False)
            self._under_way = False

    def done(self, each: Measured) -> None:
        """Add a line."""
        self.wipe()
        figure = _figure(each)
        text = f"{each.name:<{_NAME}}{' ' * max(1, _RATE - width_of(figure))}{bold(figure)}"
        remark = _remark(each)
        click.echo(f"{text}   {click.style(remark, dim=True)}" if remark else text)


def _figure(each: Measured) -> str:
    if each.p50_ms is not None:
        return _milliseconds(each.p50_ms)
    return "-" if each.per_second is None else f"{each.per_second:,.0f}/s"


def _remark(each: Measured) -> str:
    remarks: list[str] = []
    if each.p99_ms is not None:
        remarks.append(f"p50; p99 {_milliseconds(each.p99_ms)}, of {plural(each.jobs or 0, 'job')}")
    elif each.of_bare is not None:
        remarks.append(f"{each.of_bare:.0%} of the bare driver")
    elif each.jobs is not None:
        remarks.append(plural(each.jobs, "job") + (", each ran once" if each.name.startswith("drain") else ""))
    if each.repeated:
        remarks = [plural(each.jobs or 0, "job"), f"{plural(each.repeated, 'run')} too many"]
    if each.cut:
        remarks.append("the time was up before the last")
    return "; ".join(remarks)


def _milliseconds(value: float) -> str:
    return f"{value:.2f} ms" if value < 100 else f"{value:,.0f} ms"


def as_dict(app: Duly, plan: Plan, facts: Facts, measured: list[Measured]) -> dict[str, Any]:
    """Return all of it as plain values; what was not measured is null."""
    return {
        "database": address_of(app),
        "version": facts.name,
        "settings": facts.settings,
        "round_trip_ms": None if facts.round_trip_us is None else round(facts.round_trip_us / 1e3, 4),
        "jobs": plan.jobs,
        "processes": plan.processes,
        "seconds": plan.seconds,
        "measured": [{name: _rounded(value) for name, value in each._asdict().items()} for each in measured],
    }


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
