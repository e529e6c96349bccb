"""What people write about a recurring job (`every=`, `cron=`, policies), checked and in the form that is stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from duly.domain.clock import from_us
from duly.domain.durations import micros, to_timedelta
from duly.domain.errors import InvalidOption, InvalidSchedule
from duly.domain.ids import uuid7
from duly.domain.json import encode_args
from duly.domain.names import check_queue_name, check_text, suggest
from duly.domain.rank import check_priority
from duly.domain.recurring import ENDLESS, NewRecurring, RecurringRecord
from duly.domain.retry import DEFAULT
from duly.domain.text import safe_repr
from duly.schedule.schedule import Schedule
from duly.task_limits import key_of

if TYPE_CHECKING:
    from duly.domain.records import NewJob
    from duly.task import Task

Duration = timedelta | int | float | str
Rules = str | timedelta | Schedule | Iterable[str | timedelta] | None
KEY_BYTES = 512
TEXT_BYTES = 2_000
GRACE = timedelta(seconds=60)
CAP = 100
_CHOICES = {
    "misfire": ("once", "skip", "all"),
    "overlap": ("skip", "queue", "allow"),
    "failure": ("backoff", "advance"),
}


class When(TypedDict, total=False):
    """When something recurs."""

    every: Duration | None
    cron: str | Iterable[str] | None
    rule: Rules
    start_at: datetime | None
    until: datetime | None
    timezone: str | None
    exclude: Iterable[date | str]
    jitter: Duration
    dst_gap: str
    dst_overlap: str


class Recurs(When, total=False):
    """The options of a recurring job.

    `misfire`: what to do with ticks that were missed: "once" (one late run), "skip" (none if later than `grace`), "all"
    (at most `cap`). `overlap`: what to do with ticks that come while one runs: "skip", "queue" (one more run), "allow"
    (a job per tick). `failure`: "backoff", or "advance" to the next tick. `pause_after`: disabled after so many
    failures in a row.
    """

    args: Mapping[str, Any] | None
    name: str | None
    description: str | None
    tenant: str
    priority: int
    enabled: bool
    misfire: str
    grace: Duration
    cap: int
    overlap: str | None
    failure: str | None
    pause_after: int | None
    created_by: str | None


_WHEN = frozenset(When.__annotations__)
_CALLED = {"rules": "rule", "start": "start_at", "gap": "dst_gap", "overlap": "dst_overlap"}
"""What options of a `Schedule` are called here."""


def make_schedule(
    *,
    every: Duration | None = None,
    cron: str | Iterable[str] | None = None,
    rule: Rules = None,
    start_at: datetime | None = None,
    until: datetime | None = None,
    timezone: str | None = None,
    exclude: Iterable[date | str] = (),
    jitter: Duration = 0,
    dst_gap: str = "next",
    dst_overlap: str = "first",
) -> Schedule:
    """Read when something recurs: an interval, cron text, any rules, or none (the handler decides)."""
    given = [name for name, value in (("every", every), ("cron", cron), ("rule", rule)) if value is not None]
    if len(given) > 1:
        raise InvalidOption(
            f"give {' or '.join(given)}, not {'both' if len(given) == 2 else 'all'}. Several rules: rule=[...]"
        )
    if isinstance(rule, Schedule):
        return rule
    rules: Any = rule if cron is None else cron
    if every is not None:
        interval = to_timedelta(every, "every", allow_negative=True)
        if interval <= timedelta(0):
            raise InvalidOption(f"every must be longer than nothing, not {safe_repr(every)}", option="every")
        rules = f"@every {every}" if isinstance(every, str) else interval
    try:
        return Schedule.make(
            rules,
            timezone="UTC" if timezone is None else timezone,
            start=start_at,
            until=until,
            exclude=exclude,
            jitter=jitter,
            gap=dst_gap,  # type: ignore[arg-type]
            overlap=dst_overlap,  # type: ignore[arg-type]
        )
    except InvalidSchedule as error:
        error.option = _CALLED.get(error.option or "", error.option)
        raise


def describe_new(
    task: Task[..., Any], template: NewJob, key: object, options: Recurs, *, declared_in: str | None
) -> NewRecurring:
    """Check everything and put it into the form in which it is stored."""
    known = _WHEN | Recurs.__annotations__.keys()
    for option in options:
        if option not in known:
            raise InvalidOption(f"a recurring job has no option {option!r}.{suggest(option, known)}")
    schedule = make_schedule(**{name: options[name] for name in _WHEN if name in options})  # type: ignore[literal-required]
    get: Any = options.get
    misfire = _choice("misfire", get("misfire", "once"))
    overlap = _overlap(get("overlap") or ("queue" if misfire == "all" else "skip"), schedule)
    bound = task.definition.signature.bind((), dict(get("args") or {}))
    name, description, by, pause = get("name"), get("description"), get("created_by"), get("pause_after")
    new = NewRecurring(
        id=uuid7(),
        tenant=template.tenant,
        task=template.task,
        key=check_key(key),
        rule=schedule.to_json(),
        queue=template.queue,
        args=encode_args(bound, max_bytes=task.app.settings.max_payload),
        priority=template.priority,
        retry=template.retry,
        timeout_us=template.timeout_us,
        name=None if name is None else check_name(name),
        description=_description(description),
        misfire=misfire,
        grace_us=micros(to_timedelta(get("grace", GRACE), "grace")),
        cap=_whole("cap", get("cap", CAP)),
        overlap=overlap,
        failure=_choice("failure", get("failure") or usual_failure(schedule)),
        pause_after=None if pause is None else _whole("pause_after", pause),
        tags=template.tags,
        created_by=template.enqueued_by if by is None else check_text(by, "created_by", 255),
        declared="",
        declared_in=declared_in,
        enabled=bool(get("enabled", True)),
        max_attempts=template.max_attempts if overlap == "allow" else ENDLESS,
        limit_key=key_of(task.definition, template.tenant, bound),
    )
    return new._replace(declared=digest(new))


def digest(new: NewRecurring) -> str:
    """What the code said, in short: the same words have the same digest."""
    left_out = {"id", "declared", "declared_in", "enabled", "created_by"}
    said = {name: value for name, value in new._asdict().items() if name not in left_out}
    if new.limit_key is None:
        del said["limit_key"]  # as it was before there were any
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:32]


def check_key(key: object) -> str:
    """Return the key as text, if it may be one."""
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        text = str(key) if type(key).__name__ == "UUID" else None
        if text is None:
            raise InvalidOption(f"key must be text, a whole number or a UUID, not {safe_repr(key)}", option="key")
        key = text
    return check_text(str(key), "key", KEY_BYTES)


def _description(text: str | None) -> str | None:
    return None if text is None else check_text(text, "description", TEXT_BYTES)


def check_name(name: str) -> str:
    """Return a recurring job's name, if it may be one."""
    if name == "":
        raise InvalidOption("name must not be empty. Leave it out if it needs none", option="name")
    return check_text(name, "name", KEY_BYTES)


def usual_failure(schedule: Schedule) -> str:
    """What follows a failure unless somebody says otherwise: backing off, where there are no wall times to keep."""
    return "backoff" if all(rule.startswith("@every") for rule in schedule.rules) else "advance"


def _choice(what: str, value: str) -> str:
    if value not in _CHOICES[what]:
        hint = suggest(str(value), _CHOICES[what])
        raise InvalidOption(
            f"{what} must be one of {', '.join(_CHOICES[what])}, not {safe_repr(value)}.{hint}", option=what
        )
    return value


def _overlap(value: str, schedule: Schedule) -> str:
    overlap = _choice("overlap", value)
    if overlap == "allow" and not schedule.rules:
        raise InvalidOption(
            "overlap='allow' makes a job per tick, and without a rule there are none. Give every= or cron=",
            option="overlap",
        )
    return overlap


def _whole(what: str, value: int) -> int:
    if type(value) is not int or not 1 <= value <= 1_000_000:
        raise InvalidOption(f"{what} must be a whole number from 1 to 1,000,000, not {safe_repr(value)}", option=what)
    return value


def edited(
    old: RecurringRecord, changes: Mapping[str, Any], args: str | None = None, limit_key: str | None = ""
) -> NewRecurring:
    """What a recurring job becomes by an operator's edit."""
    known = {
        "every", "cron", "rule", "start_at", "until", "timezone", "exclude", "jitter", "dst_gap", "dst_overlap", "args",
        "priority", "queue", "name", "description", "misfire", "grace", "cap", "overlap", "failure", "pause_after",
    }  # fmt: skip
    for name in changes:
        if name not in known:
            raise InvalidOption(
                f"edit() has no option {name!r}.{suggest(name, known)} It has: {', '.join(sorted(known))}"
            )
    get = changes.get
    schedule = _edited_rule(Schedule.from_json(old.rule), changes)
    overlap = _overlap(get("overlap", old.overlap), schedule)
    description = get("description", old.description)
    attempts = None if overlap == old.overlap else DEFAULT.max_attempts if overlap == "allow" else ENDLESS
    return NewRecurring(
        id=old.id,
        tenant=old.tenant,
        task=old.task,
        key=old.key,
        rule=schedule.to_json(),
        queue=check_queue_name(get("queue", old.queue)),
        args=old.args if args is None else args,
        priority=check_priority(get("priority", old.priority)),
        retry=old.retry,
        timeout_us=old.timeout_us,
        name=check_name(changes["name"]) if get("name") is not None else (old.name if "name" not in changes else None),
        description=_description(description),
        misfire=_choice("misfire", get("misfire", old.misfire)),
        grace_us=micros(to_timedelta(changes["grace"], "grace")) if "grace" in changes else old.grace_us,
        cap=_whole("cap", get("cap", old.cap)),
        overlap=overlap,
        failure=_choice("failure", get("failure", old.failure)),
        pause_after=_whole("pause_after", changes["pause_after"])
        if get("pause_after") is not None
        else (old.pause_after if "pause_after" not in changes else None),
        tags="",
        created_by=old.created_by,
        declared=old.declared or "",
        declared_in=old.declared_in,
        max_attempts=attempts,
        limit_key=limit_key,
    )


def _edited_rule(old: Schedule, changes: Mapping[str, Any]) -> Schedule:
    options = {
        "start_at": moment(old.start_us),
        "until": moment(old.until_us),
        "timezone": old.timezone,
        "exclude": old.exclude,
        "jitter": timedelta(microseconds=old.jitter_us),
        "dst_gap": old.gap,
        "dst_overlap": old.overlap,
    }
    rules = {name: changes[name] for name in ("every", "cron", "rule") if name in changes}
    if not rules:
        rules = {"rule": list(old.rules) or None}
    return make_schedule(**rules, **{name: changes.get(name, value) for name, value in options.items()})


def moment(us: int | None) -> datetime | None:
    """A time as people use it; None stays None."""
    return None if us is None else from_us(us)
