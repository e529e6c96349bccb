"""The rules that people write, from text to something that ticks: `Every` or `Cron`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Final, TypeAlias

from duly.domain.durations import LONGEST, UnreadableDuration, micros, parse_duration
from duly.schedule.cron import Cron
from duly.schedule.cron_text import parse_cron
from duly.schedule.refusal import refusal

LONGEST_TEXT: Final = 500
SHORTEST_US: Final = 1_000
MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_NAMES: Final = (*MACROS, "@every")
_UNITS: Final = (
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
)
_WEEK_US: Final = 7 * 86_400_000_000


@dataclass(frozen=True, slots=True)
class Every:
    """A tick per interval of elapsed time, counted from an anchor."""

    text: str
    interval_us: int

    def next_after(self, after_us: int, anchor_us: int) -> int:
        """Return the first anchor + n * interval, n >= 0, that is after `after_us`."""
        if after_us < anchor_us:
            return anchor_us
        return after_us - (after_us - anchor_us) % self.interval_us + self.interval_us

    def latest_at(self, at_us: int, anchor_us: int) -> int | None:
        """Return the last anchor + n * interval, n >= 0, that is not after `at_us`."""
        return None if at_us < anchor_us else at_us - (at_us - anchor_us) % self.interval_us


Rule: TypeAlias = Every | Cron


@lru_cache(maxsize=1024)
def parse_rule(text: str) -> Rule:
    """Read one rule or refuse it, with the reason and the position. Its `text` is the canonical one."""
    if len(text) > LONGEST_TEXT:
        raise refusal(text, None, f"it has {len(text)} characters, and {LONGEST_TEXT} are allowed")
    lowered = "".join(char.lower() if char.isascii() else char for char in text)
    first = re.search(r"\S+", lowered)
    if first is None:
        raise refusal(text, None, "it is empty: write for instance '@hourly', '@every 1h30m' or '0 9 * * mon-fri'")
    if first[0] == "@every":
        return _every(lowered, text, first.end())
    if first[0].startswith("@"):
        return _macro(first[0], text, first.start(), first.end())
    return parse_cron(lowered, text)


def every(interval: timedelta) -> Every:
    """Return the rule of a timedelta."""
    return _checked_every(interval, repr(interval), None)


def _macro(name: str, shown: str, start: int, end: int) -> Cron:
    meaning = MACROS.get(name)
    if meaning is None:
        from difflib import get_close_matches

        close = get_close_matches(name, _NAMES, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise refusal(shown, start, f"there is no {name}{hint}: use one of {' '.join(_NAMES)}, or a cron expression")
    if shown[end:].strip():
        position = end + len(shown[end:]) - len(shown[end:].lstrip())
        raise refusal(shown, position, f"nothing may follow {name}")
    return parse_cron(meaning, shown, name)


def _every(lowered: str, shown: str, end: int) -> Every:
    if not lowered[end:].strip():
        raise refusal(shown, len(shown.rstrip()), "a duration is missing after @every, such as 1h30m")
    position = end + len(lowered[end:]) - len(lowered[end:].lstrip())
    try:
        interval = parse_duration(lowered[position:])
    except UnreadableDuration as error:
        raise refusal(shown, position + error.position, error.reason) from None
    except OverflowError:
        raise refusal(shown, position, f"the interval is longer than {LONGEST.days} days") from None
    return _checked_every(interval, shown, position)


def _checked_every(interval: timedelta, shown: str, position: int | None) -> Every:
    interval_us = micros(interval)
    if interval_us <= 0:
        raise refusal(shown, position, "the interval must be more than zero")
    if interval_us < SHORTEST_US:
        raise refusal(shown, position, "the interval must be 1ms or longer: no queue starts jobs more often than that")
    if interval > LONGEST:
        raise refusal(shown, position, f"the interval is longer than {LONGEST.days} days")
    return Every(f"@every {duration_text(interval_us)}", interval_us)


def duration_text(total_us: int) -> str:
    """Return an interval exactly and briefly: "1h30m", "2w", "1ms500us"."""
    if total_us % _WEEK_US == 0:
        return f"{total_us // _WEEK_US}w"
    parts = []
    for unit, size in _UNITS:
        amount, total_us = divmod(total_us, size)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts)
