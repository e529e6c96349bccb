"""What the form of a schedule holds, as text: from a schedule, and to what the verbs take. They do the checking."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

from duly.domain.durations import micros
from duly.recurring_options import CAP, GRACE, make_schedule, usual_failure
from duly.schedule.rules import duration_text
from duly.schedule.zones import find_zone
from duly.web.errors import invalid
from duly.web.pages.filled import arguments

Values = dict[str, str]

FRONT: Final = (
    "name", "description", "rules", "timezone", "priority", "queue", "args", "misfire", "overlap", "pause_after",
)  # fmt: skip
MORE: Final = (
    "start_at", "until", "exclude", "jitter", "dst_gap", "dst_overlap", "no_rule", "grace", "cap", "failure",
)  # fmt: skip
"""What is folded away until one of them is set."""
OF_NEW: Final = ("task", "key", "tenant", "enabled")
FIELDS: Final = (*FRONT, *MORE)
TICKS: Final = ("enabled", "no_rule")
"""Boxes: one that is not ticked is not posted at all."""
EMPTY: Final[Values] = {name: "" for name in (*FIELDS, *OF_NEW)} | {
    "timezone": "UTC",
    "priority": "0",
    "args": "{}",
    "misfire": "once",
    "overlap": "skip",
    "dst_gap": "next",
    "dst_overlap": "first",
    "enabled": "yes",
}
LABELS: Final = {
    "task": "Task",
    "key": "Key",
    "tenant": "Tenant",
    "name": "Name",
    "description": "What it is for",
    "rules": "Rule, one per line",
    "timezone": "Time zone",
    "priority": "Priority",
    "queue": "Queue",
    "args": "Arguments",
    "misfire": "Missed runs",
    "overlap": "While one runs",
    "start_at": "Not before",
    "until": "Not after",
    "exclude": "Not on these days, one per line",
    "jitter": "Spread over",
    "dst_gap": "At a time that the clocks skip",
    "dst_overlap": "At a time that comes twice",
    "no_rule": "No rule: its code says when it runs next",
    "grace": "Left out when later than",
    "cap": "Made up for at most",
    "failure": "After a failure",
    "pause_after": "Disable after so many failures in a row",
}
EXAMPLES: Final = {
    "rules": "@every 15m, @daily or 0 7 * * mon-fri",
    "start_at": "2030-01-31 08:00",
    "until": "2030-12-31 18:30",
    "exclude": "2030-12-25",
    "jitter": "10m",
    "grace": "2h",
    "cap": "100",
    "pause_after": "5",
}


def values_of(schedule: dict[str, Any]) -> Values:
    """What the form holds of a schedule. What is as usual is left empty."""
    held = {name: str(schedule[name] or "") for name in ("name", "description", "timezone", "queue")}
    same = {name: str(schedule[name]) for name in ("priority", "misfire", "overlap", "dst_gap", "dst_overlap")}
    usual = usual_failure(make_schedule(rule=schedule["rules"]))
    grace, jitter = timedelta(seconds=schedule["grace"]), timedelta(seconds=schedule["jitter"])
    return (
        EMPTY
        | held
        | same
        | {
            "rules": "\n".join(schedule["rules"]),
            "no_rule": "" if schedule["rules"] else "yes",
            "args": json.dumps(schedule["args"], indent=2, ensure_ascii=False),
            "start_at": _reading(schedule["start_at"], schedule["timezone"]),
            "until": _reading(schedule["until"], schedule["timezone"]),
            "exclude": "\n".join(schedule["exclude"]),
            "jitter": _length(jitter) if jitter else "",
            "grace": "" if grace == GRACE else _length(grace),
            "cap": "" if schedule["cap"] == CAP else str(schedule["cap"]),
            "failure": "" if schedule["failure"] == usual else schedule["failure"],
            "pause_after": str(schedule["pause_after"] or ""),
        }
    )


def is_more(values: Values) -> bool:
    """Whether an option is set that is folded away otherwise."""
    return any(values[name] != EMPTY[name] for name in MORE)


def _reading(at: str | None, timezone: str) -> str:
    """A time as clocks of the schedule's zone show it; with its offset where they show it a second time."""
    if at is None:
        return ""
    moment = datetime.fromisoformat(at).astimezone(_zone(timezone))
    shown = moment if moment.fold else moment.replace(tzinfo=None)
    return shown.isoformat(" ", "auto" if moment.second or moment.microsecond else "minutes")


def _zone(timezone: str) -> tzinfo:
    return UTC if timezone == "UTC" else ZoneInfo(timezone)


def _length(duration: timedelta) -> str:
    return duration_text(micros(duration)) if duration else "0s"


# -- to the verbs -----------------------------------------------------------------------------------------------------


def lines(text: str) -> list[str]:
    """What stands on each line that is not empty."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def rules_of(values: Values) -> list[str]:
    """The rules; none only if that is what they want."""
    rules = lines(values["rules"])
    if rules and values["no_rule"]:
        raise invalid("there is a rule, and “No rule” is ticked. Take one of them away", option="rules")
    if not rules and not values["no_rule"]:
        raise invalid("when? Write a rule", option="rules")
    return rules


def when_of(values: Values) -> dict[str, Any]:
    """When it recurs, except by which rules."""
    timezone = values["timezone"] or "UTC"
    find_zone(timezone)
    return {
        "timezone": timezone,
        "start_at": _instant("start_at", values, timezone),
        "until": _instant("until", values, timezone),
        "exclude": [day for line in lines(values["exclude"]) for day in line.replace(",", " ").split()],
        "jitter": values["jitter"] or "0",
        "dst_gap": values["dst_gap"],
        "dst_overlap": values["dst_overlap"],
    }


def options_of(values: Values) -> dict[str, Any]:
    """Everything that the form says, as the verbs take it. What is left empty is taken away, or as usual."""
    rules = rules_of(values)
    given = when_of(values) | {
        "rules": rules,
        "name": values["name"] or None,
        "description": values["description"] or None,
        "priority": _number(values["priority"] or "0"),
        "misfire": values["misfire"],
        "overlap": values["overlap"],
        "args": arguments(values["args"]),
        "grace": values["grace"] or GRACE,
        "cap": _number(values["cap"]) if values["cap"] else CAP,
        "failure": values["failure"] or usual_failure(make_schedule(rule=rules)),
        "pause_after": _number(values["pause_after"]) if values["pause_after"] else None,
    }
    return given | ({"queue": values["queue"]} if values["queue"] else {})


def new_of(values: Values) -> dict[str, Any]:
    """What a new schedule is made of."""
    if not values["task"]:
        raise invalid("which task shall run? Name one", option="task")
    given = options_of(values) | {"task": values["task"], "enabled": values["enabled"] == "yes"}
    return given | {name: values[name] for name in ("key", "tenant") if values[name]}


def changes_of(values: Values, before: Values) -> dict[str, Any]:
    """What was changed in the form: its next run moves only if the schedule does."""
    changed = {name for name in FIELDS if values[name].strip() != before[name].strip()}
    if "timezone" in changed:
        changed |= {name for name in ("start_at", "until") if values[name]}  # they are read in it
    if "no_rule" in changed:
        changed.add("rules")
    if "rules" in changed and not values["failure"]:
        changed.add("failure")  # what is usual depends on the rules
    return {name: each for name, each in options_of(values).items() if name in changed}


def whose_of(values: Mapping[str, str]) -> dict[str, str]:
    """Which job a new one will be, which decides how jitter shifts it."""
    return {"task": values["task"], "key": values["key"] or values["name"], "tenant": values["tenant"]}


def _number(text: str) -> int | str:
    """A number; what is none is left for the verb to refuse."""
    try:
        return int(text)
    except ValueError:
        return text


def _instant(name: str, values: Values, timezone: str) -> str | None:
    """A time as people write it, in the schedule's zone unless it has its own."""
    if not values[name]:
        return None
    try:
        at = datetime.fromisoformat(values[name])
    except ValueError:
        raise invalid(f"{name} must be a time, not {values[name][:100]!r}", option=name) from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=_zone(timezone))).isoformat()
