"""Reads `--since` and `--until`: how long ago ("7d"), or a time by ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

import click

from duly.domain.durations import to_timedelta
from duly.domain.errors import InvalidOption


def read_since(text: str, option: str, zone: tzinfo = UTC) -> datetime | timedelta:
    """Return a time or how long ago; a time without a zone is in `zone`."""
    try:
        return to_timedelta(text, option)
    except InvalidOption:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither how long ago, like 7d, nor a time like 2030-01-31 or 2030-01-31T08:00:00+01:00",
            param_hint=option,
        ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=zone)


def read_until(text: str | None, now: datetime, zone: tzinfo = UTC) -> datetime | None:
    """Return the time at which a span ends."""
    if text is None:
        return None
    found = read_since(text, "--until", zone)
    return found if isinstance(found, datetime) else now - found
