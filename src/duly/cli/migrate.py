"""`duly migrate`: make or update the tables, say what that would do, or print how."""

from __future__ import annotations

import click

from duly.app import Duly
from duly.cli.apps import address_of, open_database
from duly.cli.base import Command, wants_json
from duly.cli.options import database_options
from duly.cli.output import answer, to_json
from duly.domain.errors import DatabaseUnavailable
from duly.store import migrate as schema_of
from duly.store.call import Dialect
from duly.store.migrate import Migration, SchemaVersion
from duly.store.script import script


@click.command(cls=Command)
@database_options
@click.option("--plan", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--sql", is_flag=True, help="Print the statements instead of running them.")
@click.option(
    "--from",
    "present",
    type=click.IntRange(0),
    default=0,
    metavar="VERSION",
    help="With --sql: only those after this version.",
)
def migrate(url: str | None, schema: str | None, app: str | None, plan: bool, sql: bool, present: int) -> None:
    """Bring the tables up to this version of duly. Safe to run again, by many at once, and while workers run."""
    if plan and sql:
        raise click.UsageError("give --plan or --sql, not both")
    opened = open_database(url, schema, app, create=True)
    if sql:
        statements = list(script(opened.store.dialect, schema=opened.settings.schema, present=present))
        click.echo(to_json({"statements": statements}) if wants_json() else ";\n\n".join(statements) + ";")
        return
    if plan:
        _plan(opened)
        return
    applied = opened.migrate()
    where = address_of(opened)
    said = f"applied {', '.join(str(version) for version in applied)}" if applied else "already up to date"
    answer({"database": where, "applied": applied}, f"{where}: {said}")


def _plan(app: Duly) -> None:
    """Say which migrations the tables have not had, how each is carried out, and what code may work on them then."""
    dialect, where = app.store.dialect, address_of(app)
    try:
        found = app.store.database.schema_version()
    except DatabaseUnavailable:
        if dialect is not Dialect.SQLITE:
            raise
        found = None  # a file that is not there yet
    steps = schema_of.pending(found, dialect)
    needs = max((step.needs for step in steps), default=None)
    facts = {
        "database": where,
        "version": None if found is None else found.version,
        "wanted": schema_of.newest(dialect),
        "fits": schema_of.fits(found, dialect),
        "compatible_from": needs,
        "migrations": [{"version": step.version, "name": step.name, "way": str(step.way)} for step in steps],
    }
    answer(facts, "\n".join(_lines(where, found, steps, dialect)))


def _lines(where: str, found: SchemaVersion | None, steps: list[Migration], dialect: Dialect) -> list[str]:
    if found is None:
        return [f"{where} has no tables of duly: all are made in one transaction (version {steps[-1].version})."]
    if not steps and found.version > schema_of.newest(dialect):
        may = "works on" if schema_of.fits(found, dialect) else "is too old for"
        return [f"{where}: version {found.version}, newer than {schema_of.newest(dialect)}; this duly {may} it."]
    if not steps:
        return [f"{where}: version {found.version}, up to date."]
    needs = max(step.needs for step in steps)
    told = [f"{where}: version {found.version}, to {steps[-1].version}:"]
    told += [f"  {step.version:04d} {step.name}: {step.way}" for step in steps]
    if needs <= found.version:
        told.append("Workers and producers of the version before may go on meanwhile and afterwards.")
    else:
        told.append(f"Stop workers and producers first that know no version from {needs} on: duly workers shows them.")
    return told
