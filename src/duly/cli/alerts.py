"""`duly alerts`: what is wrong now, what was, and for what nobody shall be told for a while."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from duly.alerting import MOST_LISTED, AlertRecord
from duly.app import Duly
from duly.cli.apps import open_database
from duly.cli.base import FAILED, OK, CommandGroup, note
from duly.cli.options import DURATION, database_options, include_option, utc_option
from duly.cli.output import answer, moment, table
from duly.cli.text import clean, tail
from duly.domain.alerts import RULES, Silence
from duly.domain.clock import from_us
from duly.domain.errors import AlertNotFound
from duly.domain.ids import is_job_id
from duly.store.ops_alerts import Told, silenced

_RULES = "\b\n" + "\n".join(f"  {rule:15}{text}" for rule, text in RULES.items())
_HELP = f"""Show the alerts that are active.

They start and end by themselves: workers look for them. The rules:

{_RULES}

Thresholds are set in [alerts] of the configuration file: see docs/howto/monitor.md.
"""


@click.group(cls=CommandGroup, help=_HELP)
@database_options
@click.option("--all", "everything", is_flag=True, help="Also those that have ended, the last to end first.")
@click.option(
    "--limit", type=click.IntRange(1, MOST_LISTED), metavar="N", default=50, show_default=True, help="How many ended."
)
@utc_option
@click.pass_context
def alerts(ctx: click.Context, /, everything: bool, limit: int, **where: Any) -> None:
    """Show the alerts that are active."""
    if ctx.invoked_subcommand is None:
        opened = open_database(where["url"], where["schema"], where["app"])
        _show(opened.alerts(all=everything, limit=limit), opened.alerts.silences(), everything=everything)


def _show(found: list[AlertRecord], silences: list[Silence], *, everything: bool = False) -> None:
    if not found:
        answer([], "no alerts" if everything else "no alert is active")
    else:
        now = datetime.now(UTC)
        headers = ["ID", "STATE", "STARTED", "ENDED", "RULE", "WHAT"]
        rows = [
            (
                tail(each.id),
                _state(each),
                moment(each.started_at, now),
                "-" if each.ended_at is None else moment(each.ended_at, now),
                clean(each.rule),
                clean(each.message),
            )
            for each in found
        ]
        if not everything:
            headers, rows = [*headers[:3], *headers[4:]], [(*row[:3], *row[4:]) for row in rows]  # type: ignore[misc]
        answer([each.to_dict() for each in found], table(headers, rows))
    for silence in silences:
        note(f"nobody is told of {silenced(silence.rule, silence.subject)} until {_until(silence.until_at)}")


def _state(alert: AlertRecord) -> str:
    if alert.ended_at is not None:
        return "ended"
    return "silenced" if alert.silenced_until else "seen" if alert.acked_at else "active"


def _until(us: int) -> str:
    return moment(from_us(us), datetime.now(UTC))


@alerts.command("check")
@database_options
@include_option
@utc_option
def check(app: str | None, url: str | None, schema: str | None, include: tuple[str, ...]) -> int:
    """Look now, tell whoever is to be told, and show what is active. Exit code 1 if anything is.

    For cron, where no worker and no `duly web` runs that would. With --app, its own settings and callbacks count.
    """
    opened = open_database(url, schema, app, include=include)
    found = opened.alerts.check()
    _show(found, opened.alerts.silences())
    return FAILED if found else OK


@alerts.command("show")
@database_options
@click.argument("alert_id", metavar="ID")
@utc_option
def show(url: str | None, schema: str | None, app: str | None, alert_id: str) -> None:
    """Show one alert, and who was told of it. ID: all of it or its end."""
    opened = open_database(url, schema, app)
    found = _find(opened, alert_id)
    told = opened.alerts.told(found.id)
    now = datetime.now(UTC)
    lines = [
        f"{clean(found.message)}",
        f"  rule      {found.rule}: {RULES.get(found.rule, '')}",
        f"  about     {clean(found.subject)}",
        f"  value     {found.value:g} (threshold {found.threshold:g})",
        f"  started   {moment(found.started_at, now)}",
        f"  ended     {'-' if found.ended_at is None else moment(found.ended_at, now)}",
        *([f"  seen by   {clean(found.acked_by or '?')}"] if found.acked_at else []),
        *([f"  details   {clean(found.details)}"] if found.details else []),
        *(f"  told      {each.channel}, that it {each.event}: {_told(each)}" for each in told),
    ]
    answer({**found.to_dict(), "told": [each._asdict() for each in told]}, "\n".join(lines))


def _told(told: Told) -> str:
    if told.done_at is None:
        return f"not yet, {told.tries} tries" + (f" ({clean(told.error, 200)})" if told.error else "")
    return clean(told.error, 200) if told.error else _until(told.done_at)


def _find(opened: Duly, alert_id: str) -> AlertRecord:
    wanted = alert_id.strip().lower()
    found = [each for each in opened.alerts(all=True, limit=MOST_LISTED) if each.id.endswith(wanted) and wanted]
    if len(found) != 1:
        problem = "is no alert" if not found else f"is the end of {len(found)} ids: give more of it"
        raise AlertNotFound(f"{clean(alert_id, 100)} {problem}. See: duly alerts --all")
    return found[0]


@alerts.command("ack")
@database_options
@click.argument("alert_id", metavar="ID")
def ack(url: str | None, schema: str | None, app: str | None, alert_id: str) -> None:
    """Say that you look after an alert. ID: all of it or its end."""
    opened = open_database(url, schema, app)
    found_id = alert_id if is_job_id(alert_id) else _find(opened, alert_id).id
    news = opened.alerts.acknowledge(found_id)
    answer({"id": found_id, "news": news}, "noted" if news else "nothing to note: it has ended, or somebody did before")


@alerts.command("silence")
@database_options
@click.option("--rule", type=click.Choice(list(RULES)), metavar="RULE", help="Alerts of this rule.")
@click.option("--subject", metavar="SUBJECT", help='Alerts about this, for example "queue mail".')
@click.option("--for", "duration", type=DURATION, default="1h", show_default=True, help="For how long.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for whoever looks.")
@utc_option
def silence(
    url: str | None,
    schema: str | None,
    app: str | None,
    rule: str | None,
    subject: str | None,
    duration: timedelta,
    reason: str,
) -> None:
    """Tell nobody of some alerts for a while. They are still shown; if one lasts longer, people are told then."""
    opened = open_database(url, schema, app)
    until = opened.alerts.silence(rule, subject, duration=duration, reason=reason)
    about = silenced(rule, subject)
    text = f"nobody is told of {clean(about)} until {moment(until, datetime.now(UTC))}. Undo: duly alerts unsilence"
    answer({"rule": rule, "subject": subject, "until": until}, text)


@alerts.command("unsilence")
@database_options
@click.option("--rule", type=click.Choice(list(RULES)), metavar="RULE", help="Only silences of this rule.")
@click.option("--subject", metavar="SUBJECT", help="Only silences about this.")
def unsilence(url: str | None, schema: str | None, app: str | None, rule: str | None, subject: str | None) -> None:
    """End silences: all, or those of a rule or about a subject."""
    n = open_database(url, schema, app).alerts.unsilence(rule, subject)
    answer({"ended": n}, "there was none" if not n else f"{n} ended" if n > 1 else "it ended")
