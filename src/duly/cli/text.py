"""Text for people: times, durations and tables, with nothing in it that could steer a terminal.

What a job carries (names, errors, log lines, results) was written by others: it goes through `clean` or `clean_lines`
before it is printed.
"""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from duly.domain.durations import human
from duly.domain.text import human_size

# Controls (C0, DEL, C1), lone surrogates, and marks that reorder or hide text.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_PASSWORD = re.compile(r"(\b[\w+.-]+://[^\s/:@]*):[^\s]*@")
_PASSWORD_WORD = re.compile(r"(?i)(\bpassword=)[^\s&'\"]+")
TAIL = 12


def clean(text: object, most: int | None = None) -> str:
    """Return one line without control characters, cut to `most` characters."""
    shown = str(text)
    if most is not None:
        shown = shown[: most + 1]  # not more than is needed: it may be megabytes
    shown = _UNSAFE.sub(_visible, shown.replace("\r\n", " ").replace("\n", " ").replace("\t", " "))
    if most is not None and len(shown) > most:
        shown = shown[: max(0, most - 1)] + "…"
    return shown


def clean_lines(text: object) -> str:
    """Return text without control characters; its lines stay lines."""
    return "\n".join(_UNSAFE.sub(_visible, line.replace("\t", "    ")) for line in str(text).splitlines())


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def without_password(text: str) -> str:
    """Return text with the password of any address in it blanked out."""
    return _PASSWORD_WORD.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text))


def tail(job_id: str) -> str:
    """Return the end of an id, which tells jobs apart; the beginning is only their time."""
    return clean(job_id[-TAIL:])


# -- times ------------------------------------------------------------------------------------------------------------


def local(moment: datetime, *, utc: bool = False, now: datetime | None = None) -> str:
    """Return a time on this machine's clock, without the date if it is today's."""
    zone = UTC if utc else None
    shown = moment.astimezone(zone)
    today = (now or datetime.now(UTC)).astimezone(zone).date()
    text = shown.strftime("%H:%M:%S" if shown.date() == today else "%Y-%m-%d %H:%M:%S")
    return f"{text}Z" if utc else text


def relative(moment: datetime, now: datetime) -> str:
    """Return how long ago or in how long: "3 min ago", "in 2 h", "now"."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    amount = _rough(abs(seconds))
    return f"{amount} ago" if seconds > 0 else f"in {amount}"


def _rough(seconds: float) -> str:
    for size, limit, unit in ((1, 60, "s"), (60, 60, "min"), (3600, 24, "h")):
        if round(seconds / size) < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def when(moment: datetime | None, now: datetime, *, utc: bool = False) -> str:
    """Return a time with how long ago it was."""
    if moment is None:
        return "-"
    return f"{local(moment, utc=utc, now=now)} ({relative(moment, now)})"


def age(us: int) -> str:
    """Return a number of microseconds as a short duration; never negative."""
    return human(timedelta(microseconds=max(0, us) // 1_000 * 1_000 if us < 60_000_000 else us))


def size(count: int | None) -> str:
    """Return a number of bytes as people say it: 84 MB."""
    return "-" if count is None else human_size(count)


def plural(n: int, word: str, many: str | None = None) -> str:
    """Return "1 job", "2 jobs"."""
    return f"{n:,} {word if n == 1 else many or word + 's'}"


# -- tables -----------------------------------------------------------------------------------------------------------


def width_of(text: str) -> int:
    """Return how many columns a terminal needs for text."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else not unicodedata.combining(each) for each in text)


def plain_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), width: int | None = None
) -> str:
    """Return aligned columns; the last one is cut at `width`."""
    widths = [max(width_of(row[column]) for row in [headers, *rows]) for column in range(len(headers))]
    lines = []
    for row in [headers, *rows]:
        cells = [
            " " * (widths[i] - width_of(cell)) + cell if i in right else cell + " " * (widths[i] - width_of(cell))
            for i, cell in enumerate(row)
        ]
        line = "  ".join(cells).rstrip()
        lines.append(line if width is None or len(line) <= width else line[: width - 1] + "…")
    return "\n".join(lines)


def terminal_width() -> int:
    """Return the columns of this terminal."""
    return shutil.get_terminal_size((100, 24)).columns
