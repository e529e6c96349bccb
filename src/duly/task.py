"""A task: a registered function that can be enqueued. `task.using(...)` sets options for the next enqueue."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

from duly.domain.clock import to_us
from duly.domain.durations import micros, to_timedelta
from duly.domain.errors import ArgumentError, InvalidOption
from duly.domain.ids import uuid7, uuid7_many
from duly.domain.json import encode_args
from duly.domain.names import check_queue_name, check_tag, check_tenant, check_text
from duly.domain.rank import check_priority
from duly.domain.records import NewJob
from duly.domain.retry import Backoff, check_retry
from duly.domain.unique import Unique, dedupe_key
from duly.job import Job
from duly.store.fresh import Fresh
from duly.task_limits import key_of
from duly.worker.registry import Registry, TaskDefinition

if TYPE_CHECKING:
    from typing import Unpack

    from duly.app import Duly
    from duly.domain.recurring import NewRecurring
    from duly.recurring import RecurringJob
    from duly.recurring_options import Recurs
    from duly.tenant import Tenant

P = ParamSpec("P")
R = TypeVar("R")
Duration = timedelta | int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How one job is enqueued. None leaves it to the task."""

    queue: str | None = None
    priority: int | None = None
    tenant: str | None = None
    run_at: datetime | None = None
    delay: Duration | None = None
    expires: datetime | Duration | None = None
    unique: str | bool | Unique | None = None
    retry: Backoff | None = None
    max_attempts: int | None = None
    timeout: Duration | None = None
    tags: tuple[str, ...] = ()
    enqueued_by: str | None = None
    connection: object | None = None


class Task(Generic[P, R]):
    """A function that workers run. Calling it runs it here and now; `enqueue` stores a job for it."""

    def __init__(self, app: Duly | Tenant, definition: TaskDefinition, options: Options | None = None) -> None:
        self._app = app
        self.definition = definition
        self._options = options or Options()
        self._model: NewJob | None = None
        update_wrapper(self, definition.fn)

    @property
    def name(self) -> str:
        """Its name in the registry."""
        return self.definition.name

    @property
    def app(self) -> Duly:
        """What it was declared on."""
        return self._app._duly

    @property
    def registry(self) -> Registry:
        """Where it is registered, with the hooks and middleware of its application."""
        return self._app.registry

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def held_by(self, tenant: Tenant) -> Self:
        """The same task for one tenant: what is enqueued through it is that tenant's."""
        return type(self)(tenant, self.definition, replace(self._options, tenant=tenant.name))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it in place, as the plain function it is."""
        return self.definition.fn(*args, **kwargs)  # type: ignore[no-any-return]

    def using(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        tenant: str | None = None,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        expires: datetime | Duration | None = None,
        unique: str | bool | Unique | None = None,
        retry: Backoff | None = None,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        tags: Iterable[str] | None = None,
        enqueued_by: str | None = None,
        connection: object | None = None,
    ) -> Self:
        """The same task with options for what is enqueued through it. Given twice, the later wins."""
        given = {
            "queue": queue,
            "priority": priority,
            "tenant": tenant,
            "run_at": run_at,
            "delay": delay,
            "expires": expires,
            "unique": unique,
            "retry": retry,
            "max_attempts": max_attempts,
            "timeout": timeout,
            "tags": None if tags is None else _tags(tags),
            "enqueued_by": enqueued_by,
            "connection": connection,
        }
        changed = {name: value for name, value in given.items() if value is not None}
        return type(self)(self._app, self.definition, replace(self._options, **changed))  # type: ignore[arg-type]

    # -- enqueue ----------------------------------------------------------------------------------------------

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Store a job that runs this task with these arguments. Wakes a worker."""
        job = self._new_job(self.definition.signature.bind(args, kwargs))
        answer = self._app.submit(job, self._options.connection)
        return Job(self._app, answer.id, created=answer.created)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """The same from a coroutine, without blocking its loop; on the caller's async connection if one is given."""
        import asyncio  # here, so that `import duly` stays quick

        job = self._new_job(self.definition.signature.bind(args, kwargs))
        if self._options.connection is None:
            answer = await asyncio.to_thread(self._app.submit, job, None)
        else:
            answer = await self._app.asubmit(job, self._options.connection)
        return Job(self._app, answer.id, created=answer.created)

    def enqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Job[R]]:
        """Store many jobs at once, all or none: one mapping of arguments each."""
        model, rows = self._new_jobs(calls)
        answers = self._app.submit_many(model, rows, self._options.connection) if rows else []
        app = self._app
        return [Job(app, answer.id, created=answer.created) for answer in answers]

    async def aenqueue_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Job[R]]:
        """The same from a coroutine."""
        import asyncio  # here, so that `import duly` stays quick

        model, rows = self._new_jobs(calls)
        if not rows:
            return []
        if self._options.connection is None:
            answers = await asyncio.to_thread(self._app.submit_many, model, rows, None)
        else:
            answers = await self._app.asubmit_many(model, rows, self._options.connection)
        return [Job(self._app, answer.id, created=answer.created) for answer in answers]

    # -- recur ------------------------------------------------------------------------------------------------

    def recur(self, key: object = "", *, connection: object | None = None, **options: Unpack[Recurs]) -> RecurringJob:
        """Make this task recur, once per (tenant, task, key), or enable the recurring job that there is.

        `every` an interval, `cron` an expression or several, `rule` any of them (`"@daily"`); with none of them the
        handler decides, by returning when to run next. First run: an interval at once, a wall time at its next tick,
        `start_at` then. Called again with the same words it changes nothing but to enable it.
        """
        new = self.new_recurring(key, **options)
        return self._app.make_recurring(new, connection if connection is not None else self._options.connection)

    async def arecur(
        self, key: object = "", *, connection: object | None = None, **options: Unpack[Recurs]
    ) -> RecurringJob:
        """The same from a coroutine."""
        new = self.new_recurring(key, **options)
        return await self._app.amake_recurring(new, connection if connection is not None else self._options.connection)

    def new_recurring(
        self, key: object = "", *, declared_in: str | None = None, **options: Unpack[Recurs]
    ) -> NewRecurring:
        """What `recur` would store, checked."""
        from duly.recurring_options import describe_new

        using = self.using(tenant=options.get("tenant"), priority=options.get("priority"))
        if using._options.run_at is not None or using._options.delay is not None or using._options.unique is not None:
            raise InvalidOption(
                "a recurring job has no run_at, delay or unique key. Give recur() a start_at, and a key"
            )
        return describe_new(self, using._template(), key, options, declared_in=declared_in)

    def _new_jobs(self, calls: Iterable[Mapping[str, Any]]) -> tuple[NewJob, list[Fresh]]:
        model = self._template()
        keyed = self.definition.limits.keyed
        limit_keys: list[str | None] = []
        bind, limit = self.definition.signature.bind, self._app.settings.max_payload
        texts: list[str] = []
        keys: list[str | None] = []
        unique = self._unique()
        for position, call in enumerate(calls):
            try:
                bound = bind((), _arguments(call))
                texts.append(encode_args(bound, max_bytes=limit))
            except ArgumentError as error:
                error.args = (f"call {position}: {error.args[0]}",)
                raise
            keys.append(None if unique is None else self._key(unique, bound))
            if keyed:
                limit_keys.append(key_of(self.definition, model.tenant, bound))
        ids = uuid7_many(len(texts))
        if not any(limit_keys):
            return model, list(zip(ids, texts, keys, strict=True))
        return model, list(zip(ids, texts, keys, limit_keys, strict=True))

    def _new_job(self, bound: Mapping[str, Any]) -> NewJob:
        unique = self._unique()
        template = self._template()
        return template._replace(
            id=uuid7(),
            args=encode_args(bound, max_bytes=self._app.settings.max_payload),
            unique_key=None if unique is None else self._key(unique, bound),
            limit_key=key_of(self.definition, template.tenant, bound),
        )

    # -- options ----------------------------------------------------------------------------------------------

    def _unique(self) -> Unique | None:
        if self._options.unique is None:
            return None
        unique = Unique.of(self._options.unique)
        return None if unique.mode == "none" else unique

    def _key(self, unique: Unique, bound: Mapping[str, Any]) -> str:
        if unique.key is not None:
            return f"{self.name}::{unique.key}"
        return dedupe_key(self.name, self._options.tenant, bound)

    def _template(self) -> NewJob:
        """Everything but id, arguments and key: checked once per `using`."""
        if self._model is None:
            self._model = self._build_template()
        return self._model

    def _build_template(self) -> NewJob:
        options, task = self._options, self.definition
        if options.run_at is not None and options.delay is not None:
            raise InvalidOption("give run_at or delay, not both")
        retry = task.retry if options.retry is None else check_retry(options.retry)
        attempts = retry.max_attempts if options.max_attempts is None else options.max_attempts
        if type(attempts) is not int or attempts < 1:
            raise InvalidOption(f"max_attempts must be a whole number from 1 on, not {attempts!r}")
        unique = self._unique()
        expires_at, expires_us = self._expiry()
        data = retry.to_data()
        return NewJob(
            id="",
            task=task.name,
            args="",
            queue=task.queue if options.queue is None else check_queue_name(options.queue),
            tenant="" if options.tenant is None else check_tenant(options.tenant),
            priority=task.priority if options.priority is None else check_priority(options.priority),
            max_attempts=attempts,
            retry=None if data == self._app.default_retry_data else data,
            timeout_us=task.timeout_us if options.timeout is None else self._timeout(options.timeout),
            run_at=None if options.run_at is None else to_us(options.run_at, "run_at"),
            delay_us=0 if options.delay is None else micros(to_timedelta(options.delay, "delay")),
            expires_at=expires_at,
            expires_us=task.expires_us if options.expires is None else expires_us,
            enqueued_by=None if options.enqueued_by is None else check_text(options.enqueued_by, "enqueued_by", 255),
            tags=json.dumps([check_tag(tag) for tag in options.tags], ensure_ascii=False) if options.tags else None,
            unique_mode="none" if unique is None else unique.mode,
            unique_scope="none" if unique is None else unique.scope,
            unique_window_us=None if unique is None or unique.window is None else micros(unique.window),
        )

    def _timeout(self, value: Duration) -> int:
        timeout = micros(to_timedelta(value, "timeout"))
        if timeout <= 0:
            raise InvalidOption(f"timeout must be longer than nothing, not {value!r}")
        return timeout

    def _expiry(self) -> tuple[int | None, int | None]:
        expires = self._options.expires
        if expires is None:
            return None, None
        if isinstance(expires, datetime):
            return to_us(expires, "expires"), None
        return None, micros(to_timedelta(expires, "expires"))


class AsyncTask(Task[P, R]):
    """A task whose function is `async def`: calling it gives a coroutine."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:  # type: ignore[override]
        """Run it in place: await what this returns."""
        return self.definition.fn(*args, **kwargs)  # type: ignore[no-any-return]


def _tags(tags: Iterable[str]) -> tuple[str, ...]:
    if isinstance(tags, str):
        raise InvalidOption(f"tags must be a list of texts, not the text {tags!r}")
    return tuple(tags)


def _arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise ArgumentError(f"expected a mapping of arguments, got {type(call).__name__}")
    return dict(call)
