"""A recurring job as the caller holds it: what recurs, how it stands, and what can be done with it.

`describe_new` turns what people write (`every=`, `cron=`, policies) into what is stored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from duly.domain.audit import Actor, current_actor
from duly.domain.clock import from_us, to_us
from duly.domain.durations import micros, to_timedelta
from duly.domain.errors import InvalidOption, RecurringJobNotFound
from duly.domain.ids import uuid7
from duly.domain.json import decode, encode_args
from duly.domain.names import check_tenant, check_text, suggest
from duly.domain.recurring import ENDLESS, NewRecurring, RecurringRecord
from duly.domain.retry import DEFAULT
from duly.domain.text import clean_text, safe_repr
from duly.schedule.plan import Ticks
from duly.schedule.schedule import Schedule
from duly.store.call import Op

if TYPE_CHECKING:
    from duly.app import Duly
    from duly.domain.records import NewJob
    from duly.job import Run
    from duly.store.ops_recurring import Recurring, Standing
    from duly.task import Task

R = TypeVar("R")
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
            raise InvalidOption(f"every must be longer than nothing, not {safe_repr(every)}")
        rules = f"@every {every}" if isinstance(every, str) else interval
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
        failure=_choice("failure", get("failure") or ("backoff" if _by_interval(schedule) else "advance")),
        pause_after=None if pause is None else _whole("pause_after", pause),
        tags=template.tags,
        created_by=template.enqueued_by if by is None else check_text(by, "created_by", 255),
        declared="",
        declared_in=declared_in,
        enabled=bool(get("enabled", True)),
        max_attempts=template.max_attempts if overlap == "allow" else ENDLESS,
    )
    return new._replace(declared=digest(new))


def digest(new: NewRecurring) -> str:
    """What the code said, in short: the same words have the same digest."""
    left_out = {"id", "declared", "declared_in", "enabled", "created_by"}
    said = {name: value for name, value in new._asdict().items() if name not in left_out}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:32]


def check_key(key: object) -> str:
    """Return the key as text, if it may be one."""
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        text = str(key) if type(key).__name__ == "UUID" else None
        if text is None:
            raise InvalidOption(f"key must be text, a whole number or a UUID, not {safe_repr(key)}")
        key = text
    return check_text(str(key), "key", KEY_BYTES)


def _description(text: str | None) -> str | None:
    return None if text is None else check_text(text, "description", TEXT_BYTES)


def check_name(name: str) -> str:
    """Return a recurring job's name, if it may be one."""
    if name == "":
        raise InvalidOption("name must not be empty. Leave it out if it needs none")
    return check_text(name, "name", KEY_BYTES)


def _by_interval(schedule: Schedule) -> bool:
    """Whether a failure is best followed by backing off: so it is without wall times to keep."""
    return all(rule.startswith("@every") for rule in schedule.rules)


def _choice(what: str, value: str) -> str:
    if value not in _CHOICES[what]:
        hint = suggest(str(value), _CHOICES[what])
        raise InvalidOption(f"{what} must be one of {', '.join(_CHOICES[what])}, not {safe_repr(value)}.{hint}")
    return value


def _overlap(value: str, schedule: Schedule) -> str:
    overlap = _choice("overlap", value)
    if overlap == "allow" and not schedule.rules:
        raise InvalidOption(
            "overlap='allow' makes a job per tick, and without a rule there are none. Give every= or cron="
        )
    return overlap


def _whole(what: str, value: int) -> int:
    if type(value) is not int or not 1 <= value <= 1_000_000:
        raise InvalidOption(f"{what} must be a whole number from 1 to 1,000,000, not {safe_repr(value)}")
    return value


class RecurringJob:
    """A stored recurring job. What it shows is as of the last `refresh()`.

    Every verb takes `connection=`: it is then part of the caller's transaction. From a coroutine, or with an
    asynchronous connection, use the form that begins with `a`.
    """

    def __init__(self, app: Duly, job_id: str, *, created: bool = False, record: RecurringRecord | None = None) -> None:
        self._app = app
        self.id = job_id
        self.created = created
        """Whether the call that returned this made it."""
        self._record = record

    def __repr__(self) -> str:
        known = "" if self._record is None else f" {self._record.task} {self._record.key!r}"
        return f"<RecurringJob {self.id}{known}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecurringJob) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # -- what it shows ----------------------------------------------------------------------------------------

    @property
    def record(self) -> RecurringRecord:
        """Everything stored about it, as of the last refresh."""
        if self._record is None:
            self.refresh()
        assert self._record is not None
        return self._record

    def refresh(self) -> RecurringJob:
        """Read it again."""
        store = self._app.store
        record = store.database.read(lambda: store.recurring.get(self.id))
        if record is None:
            raise RecurringJobNotFound(f"there is no recurring job {self.id}: it was deleted")
        self._record = record
        return self

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.record.task

    @property
    def key(self) -> str:
        """What it is about: one recurring job per tenant, task and key."""
        return self.record.key

    @property
    def tenant(self) -> str:
        """Whose it is; empty if nobody's in particular."""
        return self.record.tenant

    @property
    def name(self) -> str | None:
        """Its name for people, unique per tenant."""
        return self.record.name

    @property
    def description(self) -> str | None:
        """What it is for."""
        return self.record.description

    @property
    def enabled(self) -> bool:
        """Whether it runs."""
        return self.record.enabled

    @property
    def running(self) -> bool:
        """Whether a worker runs it."""
        return self.record.running_since is not None

    @property
    def next_run_at(self) -> datetime | None:
        """When it runs next; of a disabled one, when it would."""
        return _moment(self.record.next_run_at)

    @property
    def last_run_at(self) -> datetime | None:
        """When its last run ended."""
        return _moment(self.record.last_run_at)

    @property
    def last_outcome(self) -> str | None:
        """How its last run ended."""
        return self.record.last_outcome

    @property
    def last_error(self) -> str | None:
        """What its last run raised; None after a success."""
        return self.record.last_error

    @property
    def consecutive_failures(self) -> int:
        """How many runs in a row have failed."""
        return self.record.failures

    @property
    def disabled_reason(self) -> str | None:
        """Why it is disabled."""
        return self.record.disabled_reason

    @property
    def args(self) -> dict[str, Any]:
        """The arguments of its runs, as stored."""
        value = decode(self.record.args)
        assert isinstance(value, dict)
        return value

    @property
    def schedule(self) -> Schedule:
        """When it recurs."""
        return Schedule.from_json(self.record.rule)

    def next_times(self, n: int = 5) -> list[datetime]:
        """The next `n` times by its rule, as things stand."""
        record, found = self.record, []
        ticks, at = Ticks(record), record.now
        if record.next_run_at is not None and record.next_run_at > record.now:
            found.append(from_us(record.next_run_at))
            at = record.next_run_at
        while len(found) < n:
            following = ticks.after(at)
            if following is None:
                break
            found.append(from_us(following))
            at = following
        return found[:n]

    def runs(self) -> list[Run]:
        """Its runs that are kept, first to last."""
        return self._app.get(self.id).runs

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        record = self.record

        def time(us: int | None) -> str | None:
            return None if us is None else from_us(us).isoformat()

        return {
            "id": record.id,
            "tenant": record.tenant,
            "task": record.task,
            "key": record.key,
            "name": record.name,
            "description": record.description,
            "expression": list(self.schedule.rules),
            "timezone": self.schedule.timezone,
            "text": self.schedule.describe(),
            "enabled": record.enabled,
            "priority": record.priority,
            "queue": record.queue,
            "args": self.args,
            "next_run_at": time(record.next_run_at),
            "last_run_at": time(record.last_run_at),
            "last_outcome": record.last_outcome,
            "last_error": record.last_error,
            "consecutive_failures": record.failures,
            "running_since": time(record.running_since),
            "misfire": record.misfire,
            "overlap": record.overlap,
            "failure": record.failure,
            "pause_after": record.pause_after,
            "created_by": record.created_by,
            "created_at": time(record.created_at),
            "disabled_at": time(record.disabled_at),
            "disabled_by": record.disabled_by,
            "disabled_reason": record.disabled_reason,
        }

    # -- what can be done -------------------------------------------------------------------------------------

    def enable(self, *, connection: object | None = None) -> datetime | None:
        """Let it run: when it would have, or at once if that has passed. Returns when."""
        return self._stands(self._do(self._enabling(True, None, None), connection))

    async def aenable(self, *, connection: object | None = None) -> datetime | None:
        """The same from a coroutine."""
        return self._stands(await self._ado(self._enabling(True, None, None), connection))

    def disable(self, reason: str = "disabled", *, by: str | None = None, connection: object | None = None) -> None:
        """Let it run no more. A run under way ends normally. It keeps its next time."""
        self._stands(self._do(self._enabling(False, by, reason), connection))

    async def adisable(
        self, reason: str = "disabled", *, by: str | None = None, connection: object | None = None
    ) -> None:
        """The same from a coroutine."""
        self._stands(await self._ado(self._enabling(False, by, reason), connection))

    def set_enabled(
        self,
        enabled: bool | None = None,
        *,
        sql: str | None = None,
        params: Mapping[str, object] | None = None,
        reason: str = "disabled",
        by: str | None = None,
        connection: object | None = None,
    ) -> bool:
        """Enable or disable it: as told, or as a condition in SQL says. Returns whether it is enabled now.

        The job is held first and the condition evaluated after, so that of two callers at the same moment the later
        sees what the earlier did. On PostgreSQL that takes READ COMMITTED; REPEATABLE READ is refused.
        """
        op = self._setting(enabled, sql, params, by, reason)
        return self._is(self._app.change_recurring(op, connection, actor=_actor_of(sql, by)))

    async def aset_enabled(
        self,
        enabled: bool | None = None,
        *,
        sql: str | None = None,
        params: Mapping[str, object] | None = None,
        reason: str = "disabled",
        by: str | None = None,
        connection: object | None = None,
    ) -> bool:
        """The same from a coroutine."""
        op = self._setting(enabled, sql, params, by, reason)
        return self._is(await self._app.achange_recurring(op, connection, actor=_actor_of(sql, by)))

    def run_now(self, *, connection: object | None = None) -> None:
        """Run it once now, beside its schedule."""
        self._stands(self._do(lambda ops: ops.run_now(self.id), connection))

    async def arun_now(self, *, connection: object | None = None) -> None:
        """The same from a coroutine."""
        self._stands(await self._ado(lambda ops: ops.run_now(self.id), connection))

    def reschedule(self, at: datetime, *, connection: object | None = None) -> None:
        """Let it run next at another time; after that by its rule again."""
        us = to_us(at, "at")
        self._stands(self._do(lambda ops: ops.reschedule(self.id, us), connection))

    async def areschedule(self, at: datetime, *, connection: object | None = None) -> None:
        """The same from a coroutine."""
        us = to_us(at, "at")
        self._stands(await self._ado(lambda ops: ops.reschedule(self.id, us), connection))

    def edit(self, *, connection: object | None = None, **changes: Any) -> RecurringJob:
        """Change its rule (`every`, `cron`, `rule`, `timezone`, ...), `args`, `priority`, `queue`, `name`,
        `description` or policies. What the code declares is taken over only when the code changes."""
        self._stands(self._do(self._editing(changes), connection))
        return self

    async def aedit(self, *, connection: object | None = None, **changes: Any) -> RecurringJob:
        """The same from a coroutine."""
        self._stands(await self._ado(self._editing(changes), connection))
        return self

    def delete(self, *, connection: object | None = None) -> None:
        """Forget it and its history."""
        if not self._do(lambda ops: ops.delete(self.id), connection):
            raise RecurringJobNotFound(f"there is no recurring job {self.id}: it was deleted already")

    async def adelete(self, *, connection: object | None = None) -> None:
        """The same from a coroutine."""
        if not await self._ado(lambda ops: ops.delete(self.id), connection):
            raise RecurringJobNotFound(f"there is no recurring job {self.id}: it was deleted already")

    # -- how --------------------------------------------------------------------------------------------------

    def _enabling(self, enabled: bool, by: str | None, reason: str | None) -> Callable[[Recurring], Op[Standing]]:
        by, reason = _who(by), None if reason is None else clean_text(reason, 1_000)
        return lambda ops: ops.set_enabled(self.id, enabled, by=by, reason=reason)

    def _setting(
        self, enabled: bool | None, sql: str | None, params: Mapping[str, object] | None, by: str | None, reason: str
    ) -> Callable[[Recurring], Op[Standing]]:
        if (enabled is None) == (sql is None):
            raise InvalidOption("give either True or False, or a condition as sql=")
        if sql is None:
            return self._enabling(bool(enabled), by, reason)
        by, text = _who(by), clean_text(reason, 1_000)
        given = dict(params or {})
        return lambda ops: ops.set_enabled_if(self.id, sql, given, by=by, reason=text)

    def _editing(self, changes: Mapping[str, Any]) -> Callable[[Recurring], Op[Standing]]:
        tasks, limit = self._app.registry.tasks, self._app.settings.max_payload

        def change(old: RecurringRecord) -> NewRecurring:
            args = None
            if "args" in changes:
                given = dict(changes["args"] or {})
                task = tasks.get(old.task)  # a process that does not know the task cannot check them
                args = encode_args(given if task is None else task.signature.bind((), given), max_bytes=limit)
            return edited(old, changes, args)

        return lambda ops: ops.edit(self.id, change)

    def _do(self, op: Callable[[Recurring], Op[R]], connection: object | None) -> R:
        return self._app.change_recurring(op, connection, actor=current_actor())

    async def _ado(self, op: Callable[[Recurring], Op[R]], connection: object | None) -> R:
        return await self._app.achange_recurring(op, connection, actor=current_actor())

    def _stands(self, standing: Standing) -> datetime | None:
        self._record = None
        return _moment(standing.next_run_at)

    def _is(self, standing: Standing) -> bool:
        self._record = None
        return standing.enabled


def edited(old: RecurringRecord, changes: Mapping[str, Any], args: str | None = None) -> NewRecurring:
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
    from duly.domain.names import check_queue_name
    from duly.domain.rank import check_priority

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
        tags=None,
        created_by=old.created_by,
        declared=old.declared or "",
        declared_in=old.declared_in,
        max_attempts=attempts,
    )


def _edited_rule(old: Schedule, changes: Mapping[str, Any]) -> Schedule:
    options = {
        "start_at": _moment(old.start_us),
        "until": _moment(old.until_us),
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


def _who(by: str | None) -> str | None:
    return current_actor().who if by is None else check_text(by, "by", 255)


def _actor_of(sql: str | None, by: str | None) -> Actor | None:
    """Whose deed it is. A condition is the application's own, unless it says who, or somebody was said to act."""
    return current_actor() if sql is None or by is not None else None


def _moment(us: int | None) -> datetime | None:
    return None if us is None else from_us(us)


def tenant_of(tenant: str | None) -> str:
    """A tenant as it is stored."""
    return "" if tenant is None else check_tenant(tenant)
