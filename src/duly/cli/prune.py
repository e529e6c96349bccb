"""`duly prune`: forget finished jobs now. Workers do it by themselves."""

from __future__ import annotations

import click

from duly.cli.apps import open_database
from duly.cli.base import Command
from duly.cli.options import database_options
from duly.cli.output import answer
from duly.cli.text import plural


@click.command(cls=Command)
@database_options
def prune(url: str | None, schema: str | None, app: str | None) -> None:
    """Forget finished jobs that are older than the retention settings say."""
    gone = open_database(url, schema, app).prune()
    answer({"pruned": gone}, f"{plural(gone, 'job')} forgotten")
