"""`duly limits` and `duly quota`: how many jobs may run, start and wait, and what a tenant may have."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from duly.cli.apps import open_database
from duly.cli.base import Command, Group
from duly.cli.options import all_of, database_options, utc_option
from duly.cli.output import answer, moment, table
from duly.cli.text import clean
from duly.domain.clock import from_us
from duly.domain.limits import Says
from duly.limiting import Quota

_what = all_of(
    click.option("--queue", metavar="QUEUE", help="This queue."),
    click.option("--task", metavar="TASK", help="This task, in every queue."),
    click.option("--tenant", metavar="TENANT", help="This tenant."),
    click.option("--key", metavar="TASK/KEY", help="This one key."),
    click.option("--keys", metavar="TASK", help="Each key of this task, or of this group of keys."),
)


@click.group(cls=Group)
def limits() -> None:
    """Look at how much may run, start and wait, and change it while everything runs.

    \b
        duly limits list
        duly limits set --task fetch --concurrency 20
        duly limits set --queue mail --rate 100/s --burst 10
        duly limits set --key fetch/example.com --concurrency 2
        duly limits unset --task fetch
    """


@limits.command("list", cls=Command)
@database_options
@utc_option
def list_limits(url: str | None, schema: str | None, app: str | None) -> None:
    """Show what is limited, by whom, and how far."""
    found = open_database(url, schema, app).limits()
    if not found:
        answer([], "nothing is limited")
        return
    now = datetime.now(UTC)
    rows = [
        [
            _SCOPES.get(each.scope, each.scope),
            clean(each.name, 60),
            "-" if each.says.slots is None else str(each.says.slots),
            _rate(each.says),
            "-" if each.says.most_waiting is None else str(each.says.most_waiting),
            "by hand" if each.by_hand else "code",
            "-" if each.blocked_until is None else moment(from_us(each.blocked_until), now),
            clean(each.blocked_reason or "-", 60),
        ]
        for each in found
    ]
    headers = ["WHAT", "NAME", "RUN", "START", "WAIT", "SAID BY", "BLOCKED UNTIL", "WHY"]
    answer([each.to_dict() for each in found], table(headers, rows))


_SCOPES = {"keys": "each key of", "minute": "tenant, minute", "day": "tenant, day"}


def _rate(says: Says) -> str:
    rate = says.rate
    if rate is None:
        return "-"
    more = "" if rate.burst is None else f", {rate.burst} at once"
    return f"{rate}{more}" + (" (refused)" if says.refuses else "")


@limits.command("set", cls=Command)
@database_options
@_what
@click.option("--concurrency", type=click.IntRange(0), metavar="N", help="How many may run at once; 0 for none.")
@click.option("--rate", metavar="N/TIME", help="How many may start, for example 100/s, 5/10s or 1000/h.")
@click.option("--burst", type=click.IntRange(1), metavar="N", help="How many of the rate may start at once.")
@click.option("--most-waiting", type=click.IntRange(0), metavar="N", help="More are refused at enqueue.")
def set_limit(url: str | None, schema: str | None, app: str | None, **given: Any) -> None:
    """Limit a queue, a task, a tenant or keys, at once and in all processes. What the code says no longer counts."""
    open_database(url, schema, app).set_limit(**given)
    scope, name = _named(given)
    said = [f"{option.replace('_', '-')} {given[option]}" for option in _WORDS if given[option] is not None]
    data = {"scope": scope, "name": name, **{word: given[word] for word in _WORDS}}
    answer(data, f"{scope} {clean(name, 200)}: {', '.join(said)}")


_WORDS = ("concurrency", "rate", "burst", "most_waiting")


@limits.command("unset", cls=Command)
@database_options
@_what
def unset(url: str | None, schema: str | None, app: str | None, **given: Any) -> None:
    """Take back a limit that was set by hand: what the code says counts again."""
    open_database(url, schema, app).unset_limit(**given)
    scope, name = _named(given)
    answer({"scope": scope, "name": name}, f"{scope} {name}: what the code says counts again")


def _named(given: dict[str, Any]) -> tuple[str, str]:
    scopes = ("queue", "task", "tenant", "key", "keys")
    return next((scope, given[scope]) for scope in scopes if given[scope] is not None)


@click.command(cls=Command)
@database_options
@click.argument("tenant")
@click.option("--waiting", type=click.IntRange(0), metavar="N", help="How many jobs may wait; more are refused.")
@click.option("--running", type=click.IntRange(0), metavar="N", help="How many may run at once; more wait.")
@click.option("--per-minute", type=click.IntRange(1), metavar="N", help="How many in a minute of the clock.")
@click.option("--per-day", type=click.IntRange(1), metavar="N", help="How many in a day, by UTC.")
@click.option("--over", type=click.Choice(["refuse", "wait"]), help="What becomes of more.  [default: refuse]")
@click.option("--none", "nothing", is_flag=True, help="No quota any more.")
def quota(
    url: str | None, schema: str | None, app: str | None, tenant: str, nothing: bool, over: str | None, **given: Any
) -> None:
    """Show or set what a tenant may have. What is not named stays as it is; 'none' takes all of it back.

    \b
        duly quota acme
        duly quota acme --running 5 --per-minute 600 --over wait
        duly quota acme --none
    """
    opened = open_database(url, schema, app)
    now = opened.quota(tenant)
    if nothing:
        now = opened.set_quota(tenant)
    elif over is not None or any(value is not None for value in given.values()):
        wanted = {name: getattr(now, name) if value is None else value for name, value in given.items()}
        now = opened.set_quota(tenant, **wanted, over=over or now.over)
    answer(now.to_dict(), _quota(now))


def _quota(quota: Quota) -> str:
    words = {"waiting": "may wait", "running": "may run", "per_minute": "per minute", "per_day": "per day"}
    said = [f"{getattr(quota, name)} {text}" for name, text in words.items() if getattr(quota, name) is not None]
    if not said:
        return f"tenant {clean(quota.tenant, 200)} has no quota"
    timed = quota.per_minute is not None or quota.per_day is not None
    return f"tenant {clean(quota.tenant, 200)}: {', '.join(said)}" + (f"; over it: {quota.over}" if timed else "")
