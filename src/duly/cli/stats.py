"""`duly stats`: how many jobs stand where, and who is there to run them."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from typing import Any

import click

from duly.app import Duly
from duly.cli.apps import address_of, open_database
from duly.cli.base import Command, wants_json
from duly.cli.options import database_options
from duly.cli.output import table, to_json
from duly.cli.text import age, clean, plural
from duly.domain.errors import DatabaseUnavailable

EVERY = 2.0


@click.command(cls=Command)
@database_options
@click.option("--tenant", metavar="NAME", help="Only jobs of this tenant.")
@click.option("--watch", is_flag=True, help="Show it again every 2 s until Ctrl-C.")
def stats(url: str | None, schema: str | None, app: str | None, tenant: str | None, watch: bool) -> None:
    """Show the depth of every queue and task, what has ended, and the workers."""
    opened = open_database(url, schema, app)
    if not watch:
        data = collect(opened, tenant)
        click.echo(to_json(data) if wants_json() else as_text(data))
        return
    try:
        _watch(opened, tenant)
    except KeyboardInterrupt:
        click.echo(err=True)


def collect(app: Duly, tenant: str | None = None) -> dict[str, Any]:
    """Return the figures as plain values."""
    scope = app if tenant is None else app.tenant(tenant)
    counts, now = scope.counts(), app.store.now_us()
    rows: dict[tuple[str, str], dict[str, Any]] = defaultdict(
        lambda: {"scheduled": 0, "waiting": 0, "running": 0, "oldest": None}
    )
    for name, group in (("scheduled", counts.scheduled), ("waiting", counts.waiting), ("running", counts.running)):
        for queue, _, task, n, first in group:
            row = rows[queue, task]
            row[name] += n
            if name == "waiting":
                row["oldest"] = max(row["oldest"] or 0.0, (now - first) / 1e6)
    unknown = app.unknown_tasks(counts)
    live = app.live_workers()
    enabled, disabled, failing = scope.store.count_recurring()
    return {
        "database": address_of(app),
        "tenant": tenant,
        "tasks": [{"queue": queue, "task": task, **row} for (queue, task), row in sorted(rows.items())],
        "parked": counts.parked,
        "ended": {state: counts.ended.get(state, 0) for state in ("succeeded", "failed", "cancelled")},
        "recurring": {"enabled": enabled, "disabled": disabled, "failing": failing},
        "workers": {"alive": len(live), "slots": sum(worker.slots for worker in live)},
        "unknown": [{"queue": queue, "task": task} for queue, task in unknown],
    }


def as_text(data: dict[str, Any]) -> str:
    """Return the figures for people."""
    rows = [
        (
            clean(row["queue"]),
            clean(row["task"]),
            f"{row['scheduled']:,}",
            f"{row['waiting']:,}",
            f"{row['running']:,}",
            "-" if row["oldest"] is None else age(int(row["oldest"] * 1e6)),
        )
        for row in data["tasks"]
    ]
    headers = ["QUEUE", "TASK", "SCHEDULED", "WAITING", "RUNNING", "OLDEST"]
    lines = [table(headers, rows, right=[2, 3, 4, 5]) if rows else "nothing waits, is scheduled or runs", ""]
    if any(data["recurring"].values()):
        shown = [f"{n:,} {word}" for word, n in data["recurring"].items() if n or word == "enabled"]
        lines.append("recur    " + ", ".join(shown))
    lines.append("ended    " + ", ".join(f"{n:,} {state}" for state, n in data["ended"].items()))
    if data["parked"]:
        lines.append("parked   " + ", ".join(f"{n:,} ({clean(reason)})" for reason, n in data["parked"].items()))
    workers = data["workers"]
    if not workers["alive"]:
        return "\n".join([*lines, "workers  none alive" + ("; what waits stays until one starts" if rows else "")])
    lines.append(f"workers  {workers['alive']} alive, {plural(workers['slots'], 'slot')}")
    lines += [
        f"no live worker knows task {clean(each['task'])} in queue {clean(each['queue'])}; its jobs stay queued"
        for each in data["unknown"]
    ]
    return "\n".join(lines)


# -- again and again --------------------------------------------------------------------------------------------------


def _watch(app: Duly, tenant: str | None) -> None:
    redraw = sys.stdout.isatty() and not wants_json()
    if redraw:
        click.echo("\x1b[?25l\x1b[2J", nl=False)  # no cursor, a clear screen
    try:
        while True:
            try:
                data = collect(app, tenant)
                shown = to_json(data) if wants_json() else f"{clean(data['database'])}\n\n{as_text(data)}"
            except DatabaseUnavailable as error:
                shown = to_json({"error": str(error)}) if wants_json() else clean(error)
            click.echo(over_the_last(shown) if redraw else shown + ("" if wants_json() else "\n"), nl=not redraw)
            sys.stdout.flush()
            time.sleep(EVERY)
    finally:
        if redraw:
            click.echo("\x1b[?25h", nl=False)


def over_the_last(text: str) -> str:
    """Return what draws text over what stood on the screen, without clearing it first: that would flicker."""
    return "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in text.split("\n")) + "\x1b[J"
