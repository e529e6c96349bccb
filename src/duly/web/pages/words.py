"""How values read on a page: numbers, times, spans, JSON. Everything that becomes markup here is escaped here."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from duly.domain.clock import from_us
from duly.domain.durations import human, micros
from duly.domain.text import human_size

DASH = "–"
MANY = 10_000


def number(value: float | None) -> str:
    """A number with separators: 12,345."""
    return DASH if value is None else f"{value:,.0f}"


def about(value: int | None) -> str:
    """A count that stops at a bound: 10,000+."""
    return DASH if value is None else f"{MANY:,}+" if value > MANY else f"{value:,}"


def span(seconds: float | None) -> str:
    """A length of time in two units at most: 3m20s."""
    if seconds is None:
        return DASH
    whole = timedelta(seconds=max(0.0, seconds))
    if whole < timedelta(milliseconds=1):
        return "<1ms" if whole else "0s"
    digits = 0 if whole < timedelta(seconds=1) else 1
    scale = 1_000 if digits == 0 else 100_000
    return human(timedelta(microseconds=round(micros(whole) / scale) * scale))


def size(count: int | None) -> str:
    """A number of bytes: 84 MB."""
    return DASH if count is None else human_size(count)


def span_ms(milliseconds: float | None) -> str:
    """The same of milliseconds."""
    return span(None if milliseconds is None else milliseconds / 1_000)


def instant(value: str | int | datetime) -> datetime:
    """A moment from what the service gives: ISO 8601 text, or microseconds since the epoch."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return from_us(value) if isinstance(value, int) else datetime.fromisoformat(value).astimezone(UTC)


def exact(value: str | int | datetime) -> str:
    """A moment to the second, in UTC."""
    return instant(value).strftime("%Y-%m-%d %H:%M:%S UTC")


def relative(at: datetime, now: datetime) -> str:
    """How long ago a moment was, or in how long it will be, roughly. The page's script says it in the same words."""
    seconds = (now - at).total_seconds()
    past, seconds = seconds >= 0, abs(seconds)
    for size, word in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            text = f"{int(seconds // size)} {word}"
            return f"{text} ago" if past else f"in {text}"
    return "just now" if past else "now"


def when(value: str | int | datetime | None, now: datetime | None = None) -> Markup:
    """A moment as how long ago, with the exact time on hover."""
    if value is None:
        return Markup('<span class="none">{}</span>').format(DASH)
    at = instant(value)
    text = relative(at, now or datetime.now(UTC))
    return Markup('<time class="rel" datetime="{}" title="{}">{}</time>').format(_machine(at), exact(at), text)


def moment(value: str | int | datetime | None) -> Markup:
    """A moment as the exact time."""
    if value is None:
        return Markup('<span class="none">{}</span>').format(DASH)
    at = instant(value)
    return Markup('<time class="abs" datetime="{}">{}</time>').format(_machine(at), exact(at))


def _machine(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def between(times: tuple[str, str]) -> str:
    """How long it was from one moment to another."""
    first, last = map(instant, times)
    return span((last - first).total_seconds())


def pretty(value: Any) -> str:
    """JSON, indented."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def brief(value: Any, most: int = 90) -> str:
    """Arguments in one line, cut."""
    if isinstance(value, dict):
        text = ", ".join(f"{name}={json.dumps(each, ensure_ascii=False)}" for name, each in value.items())
    else:
        text = json.dumps(value, ensure_ascii=False)
    return cut(text, most)


def cut(text: str | None, most: int = 120) -> str:
    """The first line of a text, cut."""
    line = (text or "").strip().split("\n")[0]
    return line if len(line) <= most else line[: most - 1] + "…"


def tail(job_id: str) -> str:
    """The end of an id, which is what tells jobs apart."""
    return f"…{job_id[-8:]}"


def plural(n: int, word: str) -> str:
    """1 job, 2 jobs."""
    return f"{number(n)} {word}" if n == 1 else f"{number(n)} {word}s"


def query(**values: object) -> str:
    """The query of a link, without what is empty."""
    given = {name: value for name, value in values.items() if value not in (None, "")}
    return f"?{urlencode(given)}" if given else ""


FILTERS = {
    "number": number,
    "about": about,
    "span": span,
    "size": size,
    "span_ms": span_ms,
    "exact": exact,
    "when": when,
    "moment": moment,
    "between": between,
    "pretty": pretty,
    "brief": brief,
    "cut": cut,
    "tail": tail,
}
