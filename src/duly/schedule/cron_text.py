"""Cron expressions, from text to `Cron`: five fields, or six with seconds first.

A field is a list of terms: `*`, `*/2`, `5`, `5/10` (from 5 on), `1-5`, `1-10/3`; months and weekdays also by name. The
day field also has `L` (the last day) and `LW` (the last Monday-to-Friday), the weekday field `5L` (the last Friday)
and `fri#2` (the second). As in Debian's cron a day must match both the day and the weekday field if one of them
starts with `*`, and otherwise either.

The canonical text has single blanks, lower-case names and plain numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NoReturn

from duly.schedule.cron import Cron, Days
from duly.schedule.refusal import refusal

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True)
class _Kind:
    """What one of the six fields may hold."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_SECOND: Final = _Kind("second", 0, 59)
_MINUTE: Final = _Kind("minute", 0, 59)
_HOUR: Final = _Kind("hour", 0, 23)
_DAY: Final = _Kind("day", 1, 31)
_MONTH: Final = _Kind("month", 1, 12, _MONTHS)
_WEEKDAY: Final = _Kind("weekday", 0, 7, WEEKDAYS)
_KINDS: Final = (_SECOND, _MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)


def parse_cron(text: str, shown: str, name: str = "") -> Cron:
    """Compile `text` or refuse it; it is `shown` in lower case, of the same length, or what `name` stands for."""
    found = list(re.finditer(r"\S+", text))
    if len(found) not in (5, 6):
        position = found[6].start() if len(found) > 6 else len(text.rstrip())
        raise refusal(
            shown,
            position,
            f"cron has 5 fields (minute hour day month weekday) or 6 (second first), and this has {len(found)}",
        )
    fields = [
        _Field(kind, shown, match[0], match.start()) for kind, match in zip(_KINDS[-len(found) :], found, strict=True)
    ]
    *_, minute, hour, day, month, weekday = fields
    cron = Cron(
        name or " ".join(one.canonical for one in fields),
        seconds=fields[0].values if len(fields) == 6 else (0,),
        minutes=minute.values,
        hours=hour.values,
        days=Days(
            days=frozenset(day.values),
            last="L" in day.specials,
            last_workday="LW" in day.specials,
            weekdays=frozenset(value % 7 for value in weekday.values),
            nth=frozenset(weekday.nth),
            both=day.text.startswith("*") or weekday.text.startswith("*"),
        ),
        months=month.values,
        fixed=not minute.text.startswith("*") and not hour.text.startswith("*"),
    )
    if not cron.ever_comes():
        raise refusal(shown, day.start, f"there is no such date: {_never(day, month, weekday)}")
    return cron


def _never(day: _Field, month: _Field, weekday: _Field) -> str:
    if month.text == "*":
        return f"no day {day.canonical} is also a weekday {weekday.canonical}"
    reason = f"month {month.canonical} has no day {day.canonical}"
    return reason if weekday.text == "*" else f"{reason} that is also a weekday {weekday.canonical}"


@dataclass(slots=True)
class _Field:
    """One field being read: what it matches, its canonical text, and where in the whole text it starts."""

    kind: _Kind
    shown: str
    text: str
    start: int
    values: set[int] = field(default_factory=set)
    specials: set[str] = field(default_factory=set)
    nth: set[tuple[int, int]] = field(default_factory=set)
    canonical: str = ""

    def __post_init__(self) -> None:
        terms = []
        position = self.start
        for term in self.text.split(","):
            terms.append(self._term(term, position))
            position += len(term) + 1
        self.canonical = ",".join(terms)

    def _term(self, term: str, position: int) -> str:
        """Read one term, add what it matches, and return it in canonical form."""
        special = self._special(term, position)
        if special is not None:
            return special
        whole, slash, step_text = term.partition("/")
        step = self._step(step_text, position + len(whole) + 1) if slash else 1
        low, high, canonical = self._range(whole, position, open_end=bool(slash))
        self.values.update(range(low, high + 1, step))
        return f"{canonical}/{step}" if slash else canonical

    def _range(self, text: str, position: int, *, open_end: bool) -> tuple[int, int, str]:
        if text == "*":
            # 0 and 7 are both Sunday: counted in steps, the week is 0 to 6
            return self.kind.low, 6 if self.kind is _WEEKDAY else self.kind.high, "*"
        low_text, dash, high_text = text.partition("-")
        low, canonical = self._value(low_text, position)
        if not dash:
            return low, self.kind.high if open_end else low, canonical
        high, high_canonical = self._value(high_text, position + len(low_text) + 1)
        if self.kind is _WEEKDAY and high_canonical == "sun" and low > 0:
            high = 7
        if high < low:
            self._refuse(position, f"the range {text} runs backwards: {self._as_two(canonical, high_canonical)}")
        return low, high, f"{canonical}-{high_canonical}"

    def _as_two(self, low: str, high: str) -> str:
        kind = self.kind
        top = kind.names[-1] if low in kind.names else str(6 if kind is _WEEKDAY else kind.high)
        bottom = kind.names[0] if high in kind.names else str(kind.low)
        return f"write it as two, {low}-{top},{bottom}-{high}"

    def _value(self, text: str, position: int) -> tuple[int, str]:
        """Return one number or name as its value and its canonical text."""
        kind = self.kind
        if text in kind.names:
            return kind.names.index(text) + kind.low, text
        if not text:
            self._refuse(position, f"the {kind.name} is missing")
        if not (text.isascii() and text.isdigit()):
            self._refuse_word(text, position)
        value = int(text)
        if not kind.low <= value <= kind.high:
            self._refuse(position, f"{kind.name} {value} is outside {kind.low}-{kind.high}")
        return value, str(value)

    def _step(self, text: str, position: int) -> int:
        kind = self.kind
        if not text:
            self._refuse(position, "a step is missing after /")
        if not (text.isascii() and text.isdigit()):
            self._refuse(position, f"the step {text!r} is not a number")
        step = int(text)
        if not 1 <= step <= kind.high:
            hint = ": for a longer interval use @every" if kind.high < step else ""
            self._refuse(position, f"the step {step} is outside 1-{kind.high}{hint}")
        return step

    def _special(self, term: str, position: int) -> str | None:
        """Read L and LW of the day field, 5L and fri#2 of the weekday field; None if the term is none of these."""
        if self.kind is _DAY and term in ("l", "lw"):
            self.specials.add(term.upper())
            return term.upper()
        if self.kind is not _WEEKDAY:
            return None
        if term[-1:] == "l" and len(term) > 1:
            weekday, canonical = self._value(term[:-1], position)
            self.nth.add((weekday % 7, 0))
            return f"{canonical}L"
        weekday_text, sharp, nth = term.partition("#")
        if not sharp:
            return None
        weekday, canonical = self._value(weekday_text, position)
        if nth not in ("1", "2", "3", "4", "5"):
            self._refuse(position + len(weekday_text) + 1, "after # goes a number from 1 to 5")
        self.nth.add((weekday % 7, int(nth)))
        return f"{canonical}#{nth}"

    def _refuse_word(self, text: str, position: int) -> NoReturn:
        kind = self.kind
        word = self.shown[position : position + len(text)]
        names = f" or one of {' '.join(kind.names)}" if kind.names else ""
        reason = f"{kind.name} {word!r} is not a number from {kind.low} to {kind.high}{names}"
        if text == "?":
            reason += ": write * for any"
        elif text[:3] in kind.names:
            reason += f": write {text[:3]}"
        elif text in ("l", "lw"):
            reason += ": L and LW stand alone in the day field, and 5L in the weekday field is the last Friday"
        elif kind is _DAY and text[-1] == "w":
            reason += ": of the workday forms there is only LW, the last of the month"
        self._refuse(position, reason)

    def _refuse(self, position: int, reason: str) -> NoReturn:
        raise refusal(self.shown, position, reason)
