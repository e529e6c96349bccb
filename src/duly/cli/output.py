"""How commands answer: one JSON document with `--json`, else text; tables by `rich` in a terminal that has it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from duly.cli.base import wants_json, wants_utc
from duly.cli.text import plain_table, relative, terminal_width, when, width_of

STATE_COLOURS = {
    "scheduled": "blue",
    "queued": "cyan",
    "running": "yellow",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "magenta",
    "crashed": "red",
    "snoozed": "blue",
    "released": "blue",
    "expired": "magenta",
    "disabled": "magenta",
    "gone": "red",
    "alive": "green",
    "enabled": "green",
}


LAST_COLUMN = 5
NARROW = 110


def to_json(value: object) -> str:
    """Return JSON in ASCII, which no terminal obeys and every program reads."""
    return json.dumps(value, default=_plain)


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def answer(data: Mapping[str, Any] | Sequence[Any], text: str) -> None:
    """Print the answer of a command."""
    click.echo(to_json(data) if wants_json() else text)


def coloured(state: str) -> str:
    """Return a state in its colour; click takes the colour out where there is no terminal."""
    return click.style(state, fg=STATE_COLOURS.get(state))


def bold(text: str) -> str:
    """Return text that stands out."""
    return click.style(text, bold=True)


def moment(at: datetime, now: datetime) -> str:
    """Return a time for a table: in a narrow terminal only how long ago it was."""
    if sys.stdout.isatty() and terminal_width() < NARROW:
        return relative(at, now)
    return when(at, now, utc=wants_utc())


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Return a table fit for where it is shown. Its cells must be clean."""
    if not sys.stdout.isatty():
        return plain_table(headers, rows, right=right)
    width = terminal_width()
    return rich_table(headers, rows, right=right, width=width) or plain_table(headers, rows, right=right, width=width)


def rich_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), width: int
) -> str | None:
    """Return the table as `rich` draws it; None where it is not installed, or the terminal is too narrow."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None
    widths = [max(width_of(row[i]) for row in [headers, *rows]) for i in range(len(headers))]
    widths[-1] = min(widths[-1], width - sum(each + 2 for each in widths[:-1]))
    if widths[-1] < LAST_COLUMN:
        return None
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for i, header in enumerate(headers):
        drawn.add_column(
            header, justify="right" if i in right else "left", no_wrap=True, overflow="ellipsis", width=widths[i]
        )
    for row in rows:
        drawn.add_row(*(Text(cell, style=STATE_COLOURS.get(cell, "")) for cell in row))
    console = Console(file=sys.stdout, width=width, highlight=False)
    with console.capture() as captured:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))
