"""`duly migrate`: make or update the tables, or print how."""

from __future__ import annotations

import click

from duly.cli.apps import address_of, open_database
from duly.cli.base import Command, wants_json
from duly.cli.options import database_options
from duly.cli.output import answer, to_json
from duly.store.script import script


@click.command(cls=Command)
@database_options
@click.option("--sql", is_flag=True, help="Print the statements instead of running them.")
@click.option(
    "--from",
    "present",
    type=click.IntRange(0),
    default=0,
    metavar="VERSION",
    help="With --sql: only those after this version.",
)
def migrate(url: str | None, schema: str | None, app: str | None, sql: bool, present: int) -> None:
    """Bring the tables up to this version of duly. Safe to run again, and by many at once."""
    opened = open_database(url, schema, app, create=True)
    if sql:
        statements = list(script(opened.store.dialect, schema=opened.settings.schema, present=present))
        click.echo(to_json({"statements": statements}) if wants_json() else ";\n\n".join(statements) + ";")
        return
    applied = opened.migrate()
    where = address_of(opened)
    said = f"applied {', '.join(str(version) for version in applied)}" if applied else "already up to date"
    answer({"database": where, "applied": applied}, f"{where}: {said}")
