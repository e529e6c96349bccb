"""`duly tokens`: who may use the HTTP API and the dashboard."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from duly.cli.apps import open_database
from duly.cli.base import Command, Group, note
from duly.cli.options import DURATION, database_options, utc_option
from duly.cli.output import answer, moment, table
from duly.cli.text import clean
from duly.domain.clock import from_us
from duly.domain.errors import JobNotFound
from duly.domain.principal import Scope, TokenRecord


class NoSuchToken(JobNotFound):
    """There is no such token."""


@click.group(cls=Group)
def tokens() -> None:
    """Say who may use the HTTP API and the dashboard."""


@tokens.command(cls=Command)
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([str(scope) for scope in Scope]),
    default=("read",),
    show_default=True,
    help="What it may do; may be given again. operate brings read and enqueue along, admin everything.",
)
@click.option("--tenant", metavar="TENANT", help="It may see and touch only this tenant's things.")
@click.option("--expires", type=DURATION, help="How long it holds, e.g. 90d.  [default: until revoked]")
@database_options
def create(
    name: str,
    scopes: tuple[str, ...],
    tenant: str | None,
    expires: timedelta | None,
    url: str | None,
    schema: str | None,
    app: str | None,
) -> None:
    """Make a token for NAME and print it, this once. The database keeps only its hash."""
    made = open_database(url, schema, app).create_token(name, scopes, tenant=tenant, expires=expires)
    answer({**_as_dict(made.record), "token": made.secret}, made.secret)
    note("Keep it: it is not shown again. Send it as  Authorization: Bearer TOKEN")


@tokens.command("list", cls=Command)
@database_options
@utc_option
def list_tokens(url: str | None, schema: str | None, app: str | None) -> None:
    """List the tokens and sessions that hold, newest first."""
    found = open_database(url, schema, app).tokens()
    if not found:
        answer([], "there are no tokens. Make one: duly tokens create NAME")
        return
    now = datetime.now(UTC)
    rows = [_row(each, now) for each in found]
    headers = ["TOKEN", "NAME", "KIND", "SCOPES", "TENANT", "MADE", "BY", "EXPIRES", "LAST USED"]
    answer([_as_dict(each) for each in found], table(headers, rows))


@tokens.command(cls=Command)
@click.argument("token")
@database_options
def revoke(token: str, url: str | None, schema: str | None, app: str | None) -> None:
    """Let TOKEN (its id, as listed) in no more. Servers notice within 2 seconds."""
    token_id = token.strip().lower()
    if not open_database(url, schema, app).revoke_token(token_id):
        raise NoSuchToken(f"there is no token {clean(token, 60)!r}. See them: duly tokens list")
    answer({"id": token_id, "revoked": True}, f"{token_id} is revoked")


@tokens.command("hash-password", cls=Command)
@click.password_option("--password", prompt="Password", help="The password, if nobody is there to be asked.")
def hash_password(password: str) -> None:
    """Print the hash of a password, for web_users in the settings: NAME:SCOPES[@TENANT]:HASH."""
    from duly.domain.passwords import hash_password as hashed

    made = hashed(password)
    answer({"hash": made}, made)


def _row(record: TokenRecord, now: datetime) -> tuple[str, ...]:
    def at(us: int | None, otherwise: str) -> str:
        return otherwise if us is None else moment(from_us(us), now)

    return (
        record.id,
        clean(record.name, 60),
        record.kind,
        record.scopes,
        clean(record.tenant or "", 60),
        at(record.created_at, ""),
        clean(record.created_by or "", 40),
        at(record.expires_at, "never"),
        at(record.last_used_at, "never"),
    )


def _as_dict(record: TokenRecord) -> dict[str, Any]:
    def at(us: int | None) -> str | None:
        return None if us is None else from_us(us).isoformat()

    return {
        **record._asdict(),
        "scopes": record.scopes.split(),
        "created_at": at(record.created_at),
        "expires_at": at(record.expires_at),
        "last_used_at": at(record.last_used_at),
    }
