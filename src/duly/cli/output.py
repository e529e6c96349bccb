"""How commands answer: one JSON document with `--json`, else text; tables by `rich` in a terminal that has it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from duly.cli.base import wants_json
from duly.cli.text import plain_table, terminal_width

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
    "gone": "red",
    "alive": "green",
}


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


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Return a table fit for where it is shown. Its cells must be clean."""
    if sys.stdout.isatty():
        drawn = rich_table(headers, rows, right=right)
        if drawn is not None:
            return drawn
        return plain_table(headers, rows, right=right, width=terminal_width())
    return plain_table(headers, rows, right=right)


def rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str | None:
    """Return the table as `rich` draws it, or None where it is not installed."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    last = len(headers) - 1
    for i, header in enumerate(headers):
        justify = "right" if i in right else "left"
        drawn.add_column(
            header,
            justify=justify,  # type: ignore[arg-type]
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if i == last else None,
        )
    for row in rows:
        drawn.add_row(*(Text(cell, style=STATE_COLOURS.get(cell, "")) for cell in row))
    console = Console(file=sys.stdout, width=terminal_width(), highlight=False)
    with console.capture() as captured:
        console.print(drawn)
    return captured.get().rstrip("\n")
