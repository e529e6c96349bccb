"""A recurring job as the caller holds it: what recurs, how it stands, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from duly.domain.audit import Actor, current_actor
from duly.domain.clock import from_us, to_us
from duly.domain.errors import InvalidOption, RecurringJobNotFound
from duly.domain.json import decode, encode_args
from duly.domain.names import check_text
from duly.domain.recurring import NewRecurring, RecurringRecord
from duly.domain.text import clean_text
from duly.recurring_options import edited, moment
from duly.schedule.plan import Ticks
from duly.schedule.schedule import Schedule
from duly.store.call import Op
from duly.task_limits import key_of

if TYPE_CHECKING:
    from duly.app import Duly
    from duly.job import Run
    from duly.store.ops_recurring import Recurring, Standing
    from duly.tenant import Tenant
    from duly.why.answer import Why

R = TypeVar("R")


class RecurringJob:
    """A stored recurring job. What it shows is as of the last `refresh()`.

    Every verb takes `connection=`: it is then part of the caller's transaction. From a coroutine, or with an
    asynchronous connection, use the form that begins with `a`.
    """

    def __init__(
        self, app: Duly | Tenant, job_id: str, *, created: bool = False, record: RecurringRecord | None = None
    ) -> None:
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
        record = self._app.store.recurring_job(self.id)
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
        return moment(self.record.next_run_at)

    @property
    def last_run_at(self) -> datetime | None:
        """When its last run ended."""
        return moment(self.record.last_run_at)

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

    def why(self) -> Why:
        """Say why it does not run, or when it will: the reason, all that holds it, and what to do next."""
        return self._app.why(self.id)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        record, schedule = self.record, self.schedule

        def time(us: int | None) -> str | None:
            return None if us is None else from_us(us).isoformat()

        return {
            "id": record.id,
            "tenant": record.tenant,
            "task": record.task,
            "key": record.key,
            "name": record.name,
            "description": record.description,
            "expression": list(schedule.rules),
            "timezone": schedule.timezone,
            "start_at": time(schedule.start_us),
            "until": time(schedule.until_us),
            "exclude": list(schedule.exclude),
            "jitter": schedule.jitter_us / 1e6,
            "dst_gap": schedule.gap,
            "dst_overlap": schedule.overlap,
            "text": schedule.describe(),
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
            "grace": record.grace_us / 1e6,
            "cap": record.cap,
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
            if "args" not in changes:
                return edited(old, changes)
            given = dict(changes["args"] or {})
            task = tasks.get(old.task)
            if task is None:  # a process that does not know the task cannot check them
                return edited(old, changes, encode_args(given, max_bytes=limit))
            bound = task.signature.bind((), given)
            return edited(old, changes, encode_args(bound, max_bytes=limit), key_of(task, old.tenant, bound))

        return lambda ops: ops.edit(self.id, change)

    def _do(self, op: Callable[[Recurring], Op[R]], connection: object | None) -> R:
        return self._app.change_recurring(op, connection, actor=current_actor())

    async def _ado(self, op: Callable[[Recurring], Op[R]], connection: object | None) -> R:
        return await self._app.achange_recurring(op, connection, actor=current_actor())

    def _stands(self, standing: Standing) -> datetime | None:
        self._record = None
        return moment(standing.next_run_at)

    def _is(self, standing: Standing) -> bool:
        self._record = None
        return standing.enabled


def _who(by: str | None) -> str | None:
    return current_actor().who if by is None else check_text(by, "by", 255)


def _actor_of(sql: str | None, by: str | None) -> Actor | None:
    """Whose deed it is. A condition is the application's own, unless it says who, or somebody was said to act."""
    return current_actor() if sql is None or by is not None else None
