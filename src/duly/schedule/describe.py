"""Schedules in plain English. The words for cron are cronsim's."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from duly.domain.clock import from_us
from duly.domain.durations import human
from duly.schedule.cron_text import WEEKDAYS
from duly.schedule.rules import MACROS

if TYPE_CHECKING:
    from duly.schedule.schedule import Schedule

_SHOWN_DAYS = 3
_WEEKDAY = re.compile(rf"(?P<dash>-?)(?P<day>{'|'.join(WEEKDAYS)})")


def describe(schedule: Schedule) -> str:
    """Return one line: the rules, the zone they are read in, and what else bounds or moves the ticks."""
    if not schedule.rules:
        return "when the handler decides"
    text = _joined([_rule(rule) for rule in schedule.rules])
    if schedule.exclude or not all(rule.startswith("@every") for rule in schedule.rules):
        text += f", {schedule.timezone}"
    return "; ".join([text, *_details(schedule)])


def _rule(text: str) -> str:
    if text.startswith("@every "):
        return text[1:]
    from cronsim import CronSim

    words = CronSim(_WEEKDAY.sub(_weekday_number, MACROS.get(text, text)), from_us(0)).explain()
    return words[0].lower() + words[1:]


def _weekday_number(name: re.Match[str]) -> str:
    """Return the number of a weekday: cronsim knows neither sat-sun nor friL."""
    return "-7" if name[0] == "-sun" else f"{name['dash']}{WEEKDAYS.index(name['day'])}"


def _joined(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _details(schedule: Schedule) -> list[str]:
    details = []
    if schedule.start_us is not None:
        details.append(f"from {_moment(schedule.start_us, schedule.timezone)}")
    if schedule.until_us is not None:
        details.append(f"until {_moment(schedule.until_us, schedule.timezone)}")
    if schedule.exclude:
        days = list(schedule.exclude[:_SHOWN_DAYS])
        more = len(schedule.exclude) - len(days)
        details.append(f"not on {_joined([*days, f'{more} more days'] if more else days)}")
    if schedule.jitter_us:
        details.append(f"each key shifted by up to {human(timedelta(microseconds=schedule.jitter_us))}")
    if schedule.gap == "skip":
        details.append("left out when clocks skip the time")
    if schedule.overlap == "twice":
        details.append("twice when clocks repeat the time")
    return details


def _moment(instant_us: int, timezone: str) -> str:
    moment = from_us(instant_us)
    if timezone != "UTC":
        from zoneinfo import ZoneInfo

        moment = moment.astimezone(ZoneInfo(timezone))
    return moment.isoformat(" ", "minutes" if moment.second == moment.microsecond == 0 else "auto")
