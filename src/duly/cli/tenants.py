"""`duly tenants`: who there is, how each stands, and how much of a shared queue each may have."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from duly.cli.apps import open_database
from duly.cli.base import Command, Group, note
from duly.cli.options import database_options, utc_option
from duly.cli.output import answer, moment, table
from duly.cli.text import clean
from duly.domain.clock import from_us
from duly.domain.errors import InvalidOption
from duly.domain.limits import Limit
from duly.tenant import MOST_COUNTED, Tenant


class ListsByDefault(Group):
    """Commands under one word, which alone, or with options, means to list."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put in the word that was left out."""
        if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help")):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=ListsByDefault)
def tenants() -> None:
    """Look at tenants, and say how they share. Alone: the list."""


@tenants.command("list", cls=Command)
@database_options
@click.option("--limit", type=click.IntRange(1, 10_000), metavar="N", default=100, show_default=True, help="How many.")
@click.option("--after", metavar="NAME", default="", help="Only tenants after this one by name: the next page.")
@utc_option
def list_tenants(url: str | None, schema: str | None, app: str | None, limit: int, after: str) -> None:
    """List tenants by name: their weight, how many jobs wait, run and are parked, and whether they are paused.

    A tenant is there once it has a job, a weight, a limit or a pause. Of waiting and parked jobs 10,000 are counted.
    """
    found = open_database(url, schema, app).tenants(after=after, limit=limit)
    if not found:
        answer([], "no more tenants" if after else "no tenants yet")
        return
    shown = [_as_dict(tenant) for tenant in found]
    now = datetime.now(UTC)
    rows = [
        [
            clean(each["tenant"], 60),
            f"{each['weight']:g}",
            _count(each["waiting"]),
            _count(each["running"]),
            _count(each["parked"]),
            "" if each["paused_at"] is None else f"since {moment(datetime.fromisoformat(each['paused_at']), now)}",
        ]
        for each in shown
    ]
    answer(shown, table(["TENANT", "WEIGHT", "WAITING", "RUNNING", "PARKED", "PAUSED"], rows, right=[1, 2, 3, 4]))
    if len(found) == limit:
        note(f"There may be more: --limit, or --after {found[-1].name}")


@tenants.command(cls=Command)
@click.argument("name")
@database_options
@utc_option
def show(url: str | None, schema: str | None, app: str | None, name: str) -> None:
    """Show how one tenant stands: its share, its limits, its jobs by state."""
    tenant = open_database(url, schema, app).tenant(name)
    data, counts = _as_dict(tenant), tenant.counts()
    data |= {
        "scheduled": sum(row[3] for row in counts.scheduled),
        "waiting": sum(row[3] for row in counts.waiting),
        "parked": sum(counts.parked.values()),
        "ended": counts.ended,
        "limits": [_limit(each) for each in tenant.limits()],
    }
    paused = tenant.paused()
    now = datetime.now(UTC)
    lines = [
        f"weight     {data['weight']:g}",
        f"paused     {'no' if paused is None else _since(paused.since, paused.by, paused.reason, now)}",
        *(f"limit      {_limit_text(each)}" for each in tenant.limits()),
        f"scheduled  {data['scheduled']:,}",
        f"waiting    {data['waiting']:,}",
        f"running    {data['running']:,}",
        f"parked     {data['parked']:,}",
        "ended      " + (", ".join(f"{n:,} {state}" for state, n in sorted(counts.ended.items())) or "0"),
    ]
    answer(data, "\n".join(lines))


@tenants.command(cls=Command)
@click.argument("name")
@click.argument("weight", type=float)
@database_options
def weight(url: str | None, schema: str | None, app: str | None, name: str, weight: float) -> None:
    """Say how much of a shared queue the tenant NAME may have: with WEIGHT 3 thrice as much as one with 1."""
    opened = open_database(url, schema, app)
    try:
        opened.set_weight(name, weight)
    except InvalidOption as error:
        raise click.BadParameter(str(error), param_hint="WEIGHT" if "weight" in str(error) else "NAME") from error
    answer({"tenant": name, "weight": weight}, f"tenant {clean(name, 200)} has weight {weight:g}")


def _as_dict(tenant: Tenant) -> dict[str, Any]:
    standing = tenant.standing()
    paused_at = None if standing.paused_at is None else from_us(standing.paused_at).isoformat()
    return {"tenant": tenant.name, **standing._asdict(), "paused_at": paused_at}


def _count(n: int) -> str:
    return f"{n:,}+" if n >= MOST_COUNTED else f"{n:,}"


def _since(at: int, by: str | None, reason: str | None, now: datetime) -> str:
    who = f" by {clean(by, 60)}" if by else ""
    why = f": {clean(reason, 200)}" if reason else ""
    return f"since {moment(from_us(at), now)}{who}{why}"


def _limit(limit: Limit) -> dict[str, Any]:
    says = limit.says
    return {
        "scope": limit.scope,
        "slots": says.slots,
        "rate": None if says.rate is None else str(says.rate),
        "most_waiting": says.most_waiting,
        "refuses": says.refuses,
    }


def _limit_text(limit: Limit) -> str:
    says = limit.says
    parts = [
        "" if says.slots is None else f"{says.slots:,} at once",
        "" if says.rate is None else f"{says.rate}",
        "" if says.most_waiting is None else f"{says.most_waiting:,} waiting",
    ]
    return ", ".join(part for part in parts if part) or "blocked for a while"
