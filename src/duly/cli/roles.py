"""`duly roles`: which roles there can be on PostgreSQL, and the SQL that makes them."""

from __future__ import annotations

import click

from duly.app import Duly
from duly.cli.apps import find_app
from duly.cli.base import Command, wants_json
from duly.cli.options import database_options
from duly.cli.output import answer, table, to_json
from duly.domain.errors import InvalidOption
from duly.store.roles import ROLES, TABLES, role_name, roles_sql


@click.command(cls=Command)
@database_options
@click.option("--sql", is_flag=True, help="Print the statements that make them; run those as the owner of the tables.")
@click.option(
    "--tenant",
    "pairs",
    multiple=True,
    metavar="TENANT=ROLE",
    help="With --sql: also a role that can log in and is this tenant; may be given again.",
)
def roles(url: str | None, schema: str | None, app: str | None, sql: bool, pairs: tuple[str, ...]) -> None:
    """Show the roles that may do what they must and no more, for PostgreSQL; with --sql the statements that make them.

    \b
    duly roles --sql --tenant acme=acme_app | psql postgresql://owner@host/db

    They can be run again at any time. No database is opened.
    """
    settings = find_app(app).app.settings if app and schema is None else Duly(url, schema=schema).settings
    if sql:
        try:
            statements = list(roles_sql(settings.schema, dict(_pair(each) for each in pairs)))
        except InvalidOption as error:
            raise click.BadParameter(str(error), param_hint="--tenant") from error
        click.echo(to_json({"statements": statements}) if wants_json() else ";\n\n".join(statements) + ";")
        return
    if pairs:
        raise click.UsageError("--tenant is for --sql", click.get_current_context())
    data = [
        {
            "role": role_name(role, settings.schema),
            "does": does,
            "tables": {table: grants[role] for table, grants in TABLES.items() if role in grants},
        }
        for role, does in ROLES.items()
    ]
    answer(data, table(["ROLE", "WHAT IT DOES"], [[str(each["role"]), str(each["does"])] for each in data]))


def _pair(text: str) -> tuple[str, str]:
    tenant, found, role = text.rpartition("=")
    if not found or not tenant or not role:
        raise click.BadParameter(f"{text!r}: write TENANT=ROLE, for example acme=acme_app", param_hint="--tenant")
    return tenant, role
