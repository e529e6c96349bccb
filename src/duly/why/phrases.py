"""Parts of sentences: since when, until when, by whom, held by what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from duly.domain.durations import human
from duly.why.answer import Blocker, Holder

Moment = Callable[[datetime], str]
SHOWN = 3
MOST_ERROR = 300


def utc(moment: datetime) -> str:
    """A time as anybody can read it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def span(seconds: float) -> str:
    """A duration, no finer than it helps."""
    return human(timedelta(seconds=round(max(0.0, seconds), 1 if seconds < 10 else None)))


def since(blocker: Blocker, moment: Moment) -> str:
    """Since when it holds."""
    return "" if blocker.since is None else f" since {moment(blocker.since)}"


def until(blocker: Blocker, moment: Moment) -> str:
    """Until when it holds."""
    return "" if blocker.until is None else f" until {moment(blocker.until)}"


def by(blocker: Blocker) -> str:
    """Who did it."""
    return f" by {blocker.by}" if blocker.by else ""


def because(blocker: Blocker) -> str:
    """What they said, on one line."""
    if not blocker.because:
        return ""
    text = " ".join(blocker.because.split())
    return f": {text if len(text) <= MOST_ERROR else text[: MOST_ERROR - 1] + '…'}"


def what(blocker: Blocker) -> str:
    """What it is about."""
    return f"{blocker.scope} {blocker.name!r}"


def number(n: object, word: str, details: Mapping[str, Any]) -> str:
    """So many of something, or more."""
    count = int(str(n))
    text = f"{count:,} {word}" + ("" if count == 1 else "s")
    return f"{text} or more" if details.get("at_least") else text


def holders(blocker: Blocker, moment: Moment, total: int) -> str:
    """Who holds it, the first few by name."""
    named = [holder(each, moment) for each in blocker.holders if each.job_id is not None][:SHOWN]
    rest = total - len(named)
    if not named:
        return f"{rest:,} job{'' if rest == 1 else 's'} of others" if rest else "nobody"
    return ", ".join(named) + (f" and {rest:,} more" if rest > 0 else "")


def holder(holder: Holder, moment: Moment) -> str:
    """One who holds it, and where it runs."""
    text = f"job {holder.job_id}"
    if holder.task is not None:
        text += f" ({holder.task})"
    if holder.place != "running":
        return f"{text}, which is {'in its lane' if holder.place == 'waiting' else holder.place}"
    where = f" on {holder.host} pid {holder.pid}" if holder.host is not None else ""
    since = "" if holder.since is None else f" since {moment(holder.since)}"
    return f"{text}{where}{since}"


def workers(workers: Sequence[Mapping[str, Any]]) -> str:
    """Workers by host and process."""
    shown = [f"{each['host']} pid {each['pid']}" for each in workers[:SHOWN]]
    rest = len(workers) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def at(b: Blocker, m: Moment) -> str:
    """When it came about."""
    return "" if b.since is None else f" at {m(b.since)}"


def at_until(b: Blocker, m: Moment) -> str:
    """When it ends."""
    return "" if b.until is None else f" at {m(b.until)}"


def when(at: datetime | None, m: Moment) -> str:
    """A time, if it is known."""
    return "an unknown time" if at is None else m(at)


def capital(text: str) -> str:
    """The beginning of a sentence."""
    return text[:1].upper() + text[1:]
