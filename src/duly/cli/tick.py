"""`duly tick`: run some due jobs here and return, for cron, serverless and development."""

from __future__ import annotations

import click

from duly.cli.apps import required_app
from duly.cli.base import Command
from duly.cli.options import app_argument, include_option
from duly.cli.output import answer
from duly.cli.queues import read_queues
from duly.cli.text import plural


@click.command(cls=Command)
@app_argument
@click.option(
    "--max",
    "most",
    type=click.IntRange(1),
    metavar="N",
    default=10,
    show_default=True,
    help="Run at most this many jobs.",
)
@click.option("--queue", "queues", multiple=True, metavar="QUEUES", help="Only from these queues.")
@include_option
def tick(app: str | None, most: int, queues: tuple[str, ...], include: tuple[str, ...]) -> None:
    """Run at most --max due jobs of APP in this process, then return.

    Also puts due jobs in their queues, rescues those of dead workers and prunes: there may be no worker at all.
    """
    done = required_app(app, include).app.tick(most, queues=read_queues(queues))
    answer(
        {"ok": True, "claimed": done.claimed, "settled": done.settled},
        f"{plural(done.claimed, 'job')} claimed, {plural(done.settled, 'run')} ended",
    )
