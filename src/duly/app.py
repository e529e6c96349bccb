"""`Duly`: the one object everything hangs off. Tasks are declared on it; jobs are enqueued, seen and run through it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from duly.__about__ import __version__
from duly.alerting import Alerting
from duly.audit import Auditing
from duly.bulk import BulkAdmin
from duly.config import Settings, load_settings
from duly.domain.clock import Clock, SystemClock
from duly.domain.durations import micros, to_timedelta
from duly.domain.errors import ConfigurationError, InvalidOption
from duly.domain.limits import Breaker, Rate
from duly.domain.names import check_queue_name, check_task_name, suggest
from duly.domain.rank import check_priority
from duly.domain.records import Enqueued, NewJob
from duly.domain.retry import DEFAULT, Backoff, check_retry
from duly.domain.signature import Signature
from duly.job import Job
from duly.limiting import Limiting
from duly.recurring_admin import RecurringAdmin
from duly.results import Waiters
from duly.store import ops_enqueue
from duly.store.call import Dialect, Op
from duly.store.caps import spend
from duly.store.database import Hint
from duly.store.fresh import Fresh
from duly.store.opening import open_database
from duly.store.store import Store
from duly.task import AsyncTask, Duration, Task
from duly.task_limits import task_limits
from duly.tokens import Tokens
from duly.usage import Metering
from duly.worker.registry import Home, Kind, Registry, TaskDefinition, is_coroutine_function
from duly.worker.settings import MetricsSettings, WorkerSettings
from duly.worker.slots import QueueShare

if TYPE_CHECKING:
    from duly.embedded import EmbeddedWorker, Ticked

P = ParamSpec("P")
R = TypeVar("R")


class Duly(BulkAdmin, RecurringAdmin, Auditing, Limiting, Metering, Alerting, Tokens):
    """A job queue in a database. Without an address: `$DULY_URL`, the configuration file, or `sqlite:///duly.db`.

    Nothing is opened until it is needed. Safe to use from any thread, and after a fork.
    """

    def __init__(self, url: str | None = None, *, clock: Clock | None = None, **settings: Any) -> None:
        self.settings: Settings = load_settings(url=url, **settings)
        self.clock: Clock = clock or SystemClock()
        self.registry = Registry()
        self.store = Store(
            open_database(
                self.settings.url,
                self.clock,
                schema=self.settings.schema,
                synchronous=self.settings.synchronous,
                allow_network_disk=self.settings.allow_network_disk,
                notify=self.settings.notify,
            ),
            self.registry.mirror_hooks,
        )
        self.waiters = Waiters(lambda: self.store)
        self.default_retry_data = DEFAULT.to_data()
        self.app_path: str | None = None

    def __repr__(self) -> str:
        return f"<Duly {len(self.registry.tasks)} tasks>"

    def migrate(self) -> list[int]:
        """Bring the tables up to this version. Returns the versions applied. SQLite does it by itself."""
        return self.store.migrate()

    def close(self) -> None:
        """Close every connection. It opens again when used again."""
        self.store.close()

    # -- tasks ------------------------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> AsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        retry: Backoff | None = None,
        timeout: Duration | None = None,
        expires: Duration | None = None,
        concurrency: int | None = None,
        rate: str | Rate | None = None,
        burst: int | None = None,
        concurrency_key: Callable[[Any], object] | None = None,
        per_key: int | None = None,
        rate_per_key: str | Rate | None = None,
        burst_per_key: int | None = None,
        key_group: str | None = None,
        breaker: Breaker | None = None,
        isolation: str | None = None,
        on_failure: Callable[[Any, BaseException], object] | None = None,
        mirror: str | None = None,
    ) -> TaskDecorator: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        retry: Backoff | None = None,
        timeout: Duration | None = None,
        expires: Duration | None = None,
        concurrency: int | None = None,
        rate: str | Rate | None = None,
        burst: int | None = None,
        concurrency_key: Callable[[Any], object] | None = None,
        per_key: int | None = None,
        rate_per_key: str | Rate | None = None,
        burst_per_key: int | None = None,
        key_group: str | None = None,
        breaker: Breaker | None = None,
        isolation: str | None = None,
        on_failure: Callable[[Any, BaseException], object] | None = None,
        mirror: str | None = None,
    ) -> Any:
        """Declare a task, with or without parentheses.

        `concurrency`: how many of its jobs may run at once in all processes together; `rate` ("100/s") how many may
        start, of which `burst` at once. `concurrency_key(args)`: jobs with the same key share `per_key` slots (1) and
        `rate_per_key`, each key for itself; `key_group` lets several tasks and tenants share keys. `breaker`: stop a
        key whose runs mostly fail, for a while. `isolation="process"`: each in a child process that can be killed.
        `on_failure(job, error)`: called when a job has failed for good. `mirror`: SQL that runs beside every change of
        when this task's recurring jobs run next or whether they are enabled.
        """
        options = {
            "name": name,
            "queue": queue,
            "priority": priority,
            "retry": retry,
            "timeout": timeout,
            "expires": expires,
            "concurrency": concurrency,
            "rate": rate,
            "burst": burst,
            "concurrency_key": concurrency_key,
            "per_key": per_key,
            "rate_per_key": rate_per_key,
            "burst_per_key": burst_per_key,
            "key_group": key_group,
            "breaker": breaker,
            "isolation": isolation,
            "on_failure": on_failure,
            "mirror": mirror,
        }
        decorator = TaskDecorator(self, options)
        return decorator if function is None else decorator(function)

    def declare(self, function: Callable[..., Any], options: Mapping[str, Any]) -> Task[..., Any]:
        """Register a function as a task; what the decorator does."""
        if not callable(function):
            raise ConfigurationError(
                f"@jobs.task is for functions, not {function!r}. Write @jobs.task or @jobs.task(queue=...)"
            )
        signature = Signature.of(function)
        definition = TaskDefinition(
            name=check_task_name(options.get("name") or _default_name(function)),
            fn=function,
            signature=signature,
            kind=_kind_of(function, options.get("isolation")),
            queue=check_queue_name(options.get("queue", "default")),
            priority=check_priority(options.get("priority", 0)),
            retry=DEFAULT if options.get("retry") is None else check_retry(options["retry"]),
            timeout_us=_positive(options.get("timeout"), "timeout"),
            expires_us=_positive(options.get("expires"), "expires"),
            limits=task_limits(options),
            on_failure=_hook(options.get("on_failure")),
            log_lines=self.settings.log_lines,
            by_keyword=signature.by_keyword,
            mirror=_mirror(options.get("mirror")),
            home=self.home,
        )
        self.registry.add(definition)
        make = AsyncTask if definition.kind is Kind.ASYNC else Task
        return make(self, definition)

    def home(self) -> Home:
        """Where jobs are stored; asked each time, since tests put another database in its place."""
        return Home(self.store, self.settings.max_result)

    def __getitem__(self, name: str) -> Task[..., Any]:
        """The task of that name."""
        return Task(self, self.registry.get(name))

    def on_start(self, function: Callable[[], R]) -> Callable[[], R]:
        """Call a function when a worker starts in this process."""
        self.registry.on_start.append(function)
        return function

    def on_stop(self, function: Callable[[], R]) -> Callable[[], R]:
        """Call a function when a worker stops in this process."""
        self.registry.on_stop.append(function)
        return function

    def on_failure(self, function: Callable[[Any, BaseException], R]) -> Callable[[Any, BaseException], R]:
        """Call a function with (job, error) whenever a job has failed for good."""
        self.registry.on_failure.append(function)
        return function

    def middleware(self, function: Callable[[Any], R]) -> Callable[[Any], R]:
        """Run a function around every run: a generator with one yield, or a context manager factory, given the job."""
        self.registry.add_around(function)
        return function

    # -- enqueue ----------------------------------------------------------------------------------------------

    def enqueue(self, task: str, args: Mapping[str, Any] | None = None, **options: Any) -> Job[Any]:
        """Store a job by the name of its task. Options as in `Task.using`."""
        return self[task].using(**options).enqueue(**(args or {}))

    async def aenqueue(self, task: str, args: Mapping[str, Any] | None = None, **options: Any) -> Job[Any]:
        """The same from a coroutine."""
        return await self[task].using(**options).aenqueue(**(args or {}))

    def submit(self, job: NewJob, connection: object | None) -> Enqueued:
        """Store one job, in the caller's transaction if a connection is given."""
        if connection is None:
            return self.store.enqueue(job)
        from duly.store.foreign import run_on

        spent = self._check(job, 1)
        return run_on(
            connection,
            lambda: self._notifying(ops_enqueue.enqueue(self.store.dialect, job), job, spent=spent),
            database=self.store.database,
        )

    async def asubmit(self, job: NewJob, connection: object) -> Enqueued:
        """Store one job on the caller's async connection."""
        from duly.store.foreign import arun_on

        spent = await self._acheck(job, 1)
        return await arun_on(
            connection,
            lambda: self._notifying(ops_enqueue.enqueue(self.store.dialect, job), job, spent=spent),
            database=self.store.database,
        )

    def submit_many(self, model: NewJob, rows: Sequence[Fresh], connection: object | None) -> list[Enqueued]:
        """Store many jobs, all or none."""
        if connection is None:
            return self.store.enqueue_many(model, rows)
        from duly.store.foreign import run_on

        spent = self._check(model, len(rows))
        return run_on(connection, lambda: self._many(model, rows, spent), database=self.store.database)

    async def asubmit_many(self, model: NewJob, rows: Sequence[Fresh], connection: object) -> list[Enqueued]:
        """Store many jobs on the caller's async connection."""
        from duly.store.foreign import arun_on

        spent = await self._acheck(model, len(rows))
        return await arun_on(connection, lambda: self._many(model, rows, spent), database=self.store.database)

    def _check(self, job: NewJob, n: int) -> int:
        """See whether so much may be enqueued on a caller's connection. Returns how much it takes off quotas there.

        On SQLite, where nobody else can write while the caller does; elsewhere the caller would hold it for long.
        """
        if self.store.dialect is Dialect.POSTGRES:
            self.store.caps.check(job.queue, job.tenant, n)
            return 0
        return n if self.store.caps.check_waiting(job.queue, job.tenant, n) else 0

    async def _acheck(self, job: NewJob, n: int) -> int:
        """The same without blocking the caller's loop."""
        if not self.store.caps.stale:
            return 0
        import asyncio  # here, so that `import duly` stays quick

        return await asyncio.to_thread(self._check, job, n)

    def _many(self, model: NewJob, rows: Sequence[Fresh], spent: int) -> Op[list[Enqueued]]:
        keyed = any(len(row) > 3 for row in rows[:1])
        op = ops_enqueue.enqueue_many(self.store.dialect, model, rows, copy=False)
        return (yield from self._notifying(op, model, keyed=keyed, spent=spent)).answers

    def _notifying(self, op: Op[R], job: NewJob, *, keyed: bool = False, spent: int = 0) -> Op[R]:
        from duly.store.foreign import notifying

        if spent:
            yield from spend(job.tenant, spent)

        later = job.run_at is not None or job.delay_us or keyed or job.limit_key is not None
        hint = Hint("due") if later else Hint("jobs", job.queue, job.tenant, job.task)
        return (yield from notifying(op, hint, database=self.store.database))

    # -- work -------------------------------------------------------------------------------------------------

    def worker_settings(self, queues: object = None, **overrides: Any) -> WorkerSettings:
        """How a worker of this `Duly` behaves, from its settings and what is given here."""
        settings = self.settings
        shares = queue_shares(queues, self.registry)
        fixed = sum(share.slots or 0 for share in shares)  # slots that were promised to queues must exist
        values: dict[str, Any] = {
            "queues": shares,
            "thread_slots": max(settings.thread_slots, fixed),
            "async_slots": max(settings.async_slots, fixed),
            "process_slots": settings.process_slots,
            "lease": settings.stuck_time.total_seconds(),
            "renew_every": settings.renew_interval.total_seconds(),
            "grace": settings.grace.total_seconds(),
            "poll": settings.poll.total_seconds(),
            "crash_limit": settings.crash_limit,
            "maintenance_interval": settings.maintenance_interval.total_seconds(),
            "retention": self.retention,
            "max_result": settings.max_result,
            "alerts": lambda: self.alerts.settings,
            "metrics": self._metrics_settings(),
            "version": __version__,
            "app_path": self.app_path,
        }
        return WorkerSettings(**{**values, **{key: value for key, value in overrides.items() if value is not None}})

    def _metrics_settings(self) -> MetricsSettings | None:
        settings = self.settings
        if settings.metrics_listen is None:
            return None
        host, _, port = settings.metrics_listen.rpartition(":")
        return MetricsSettings(
            host=host.strip("[]"),
            port=int(port),
            tenants=settings.metrics_tenants,
            database=settings.metrics_scope == "all",
        )

    def tick(self, most: int = 10, *, queues: object = None) -> Ticked:
        """Run at most `most` due jobs in this process and return what was done; for serverless and for development."""
        from duly.embedded import tick

        return tick(self, most, queues=queues)

    def worker(self, queues: object = None, **overrides: Any) -> EmbeddedWorker:
        """A worker to run inside this process: `with jobs.worker(): ...` or `async with jobs.worker(): ...`.

        `queues`: names, or {name: slots}; by default every queue that a task is declared for.
        """
        from duly.embedded import EmbeddedWorker

        return EmbeddedWorker(self, self.worker_settings(queues, **overrides))


class TaskDecorator:
    """`@jobs.task(...)` waiting for its function."""

    def __init__(self, app: Duly, options: Mapping[str, Any]) -> None:
        self._app = app
        self._options = options

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]]) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...

    def __call__(self, function: Callable[..., Any]) -> Any:
        """Register the function."""
        return self._app.declare(function, self._options)


def queue_shares(queues: object, registry: Registry) -> list[QueueShare]:
    """Read which queues a worker takes from: None, names, {name: slots}, or shares."""
    if queues is None:
        names = sorted({task.queue for task in registry} | {"default"})
        return [QueueShare(name=name) for name in names]
    if isinstance(queues, str):
        queues = [queues]
    if isinstance(queues, Mapping):
        return [QueueShare(name=check_queue_name(name), slots=_slots(slots)) for name, slots in queues.items()]
    if isinstance(queues, Sequence):
        return [each if isinstance(each, QueueShare) else QueueShare(name=check_queue_name(each)) for each in queues]
    raise InvalidOption(f"queues must be names or {{name: slots}}, not {queues!r}")


def _default_name(function: Callable[..., object]) -> str:
    """The function's own name; a nested one by its last part."""
    return str(getattr(function, "__name__", "task"))


def _kind_of(function: Callable[..., object], isolation: object) -> Kind:
    if isolation == "process":
        return Kind.PROCESS
    if isolation not in (None, "none", "thread"):
        raise InvalidOption(f"isolation must be 'process' or None, not {isolation!r}")
    return Kind.ASYNC if is_coroutine_function(function) else Kind.THREAD


def _hook(value: Any) -> Callable[[Any, BaseException], object] | None:
    if value is not None and not callable(value):
        raise InvalidOption(f"on_failure must be a function of (job, error), not {value!r}")
    return cast("Callable[[Any, BaseException], object] | None", value)


def _mirror(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise InvalidOption(f"mirror must be an SQL statement, not {value!r}")
    from duly.store.ops_mirrors import MIRRORED
    from duly.store.statements import names_in

    for name in names_in(value):
        if name not in MIRRORED:
            raise InvalidOption(
                f"mirror names :{name}, and it is given {', '.join(MIRRORED)}.{suggest(name, MIRRORED)}"
            )
    return value


def _positive(value: Duration | None, what: str) -> int | None:
    if value is None:
        return None
    duration = to_timedelta(value, what)
    if duration <= timedelta(0):
        raise InvalidOption(f"{what} must be longer than nothing, not {value!r}")
    return micros(duration)


def _slots(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidOption(f"a number of slots must be a whole number from 1 on, not {value!r}")
    return value
