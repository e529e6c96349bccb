"""What can be done with recurring jobs, once: mixed into `Duly`; the CLI, the HTTP API and the dashboard call these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from duly.domain.audit import Actor, current_actor
from duly.domain.errors import ConfigurationError, InvalidOption, RecurringJobNotFound
from duly.domain.ids import is_job_id
from duly.domain.names import check_tenant
from duly.store.call import Op
from duly.store.database import Hint
from duly.worker.registry import Declaration, Registry

if TYPE_CHECKING:
    from typing import Unpack

    from duly.app import Duly
    from duly.domain.recurring import Change, NewRecurring
    from duly.planned import Planned
    from duly.recurring import RecurringJob
    from duly.recurring_options import Recurs, Rules
    from duly.registered import Registered
    from duly.store.ops_recurring import Recurring, Standing
    from duly.store.store import Store
    from duly.task import Task

R = TypeVar("R")
MOST_LISTED = 10_000
Hook = Callable[["Change", Callable[[str, Mapping[str, object]], None]], object]


class RecurringAdmin:
    """Recurring jobs: declare, find, list, change; and functions registered at run time."""

    store: Store
    registry: Registry
    _registered: Registered | None = None

    # -- declare ----------------------------------------------------------------------------------------------

    def recurring(
        self,
        rule: Rules = None,
        /,
        *,
        key: object = "",
        **options: Unpack[Recurs],
    ) -> Callable[[Callable[..., Any]], Task[..., Any]]:
        """Declare a task that recurs from start-up on, once, whatever the number of processes.

            @jobs.recurring("@daily")
            def renew_websub() -> None: ...

        May stand above `@jobs.task(...)`, for tasks with options of their own, and more than once with different keys.
        An operator's edit stays until this declaration changes. Without the declaration the job is disabled.
        """
        app = self._duly

        def decorate(function: Callable[..., Any]) -> Task[..., Any]:
            from duly.task import Task

            task = function if isinstance(function, Task) else app.declare(function, {})
            if task.app is not app:
                raise ConfigurationError(f"{task!r} belongs to another Duly: declare it recurring there")
            module = str(getattr(task.definition.fn, "__module__", "") or "?")
            given: Any = dict(options) if rule is None else {"rule": rule, **options}
            new = task.new_recurring(key, declared_in=module, **given)
            self.registry.declarations.append(Declaration(task=task.name, module=module, new=new))
            return task

        return decorate

    def mirror_hook(self, task: Task[..., Any] | str) -> Callable[[Hook], Hook]:
        """Have a function see every change of when a task's recurring jobs run, in the same transaction.

        It is called with the change and with `execute(sql, params)`; statements given to that run in the transaction. A
        process that has not loaded it cannot make such changes: it is told so, until `forget_mirror_hook`.
        """
        name = task if isinstance(task, str) else task.name

        def decorate(function: Hook) -> Hook:
            self.registry.mirror_hooks[name] = function
            return function

        return decorate

    def forget_mirror_hook(self, task: Task[..., Any] | str) -> None:
        """Say that a task's hook is gone from the code, so that nobody is refused for want of it."""
        name = task if isinstance(task, str) else task.name
        self.registry.mirror_hooks.pop(name, None)
        self.store.run(lambda: self.store.recurring.forget_hook(name))

    # -- find -------------------------------------------------------------------------------------------------

    def recurring_job(
        self,
        task: Task[..., Any] | str,
        key: object = "",
        *,
        tenant: str | None = None,
        connection: object | None = None,
    ) -> RecurringJob:
        """Find one recurring job by its task and key, or raise RecurringJobNotFound."""
        from duly.recurring import RecurringJob
        from duly.recurring_options import check_key

        name, text = task if isinstance(task, str) else task.name, check_key(key)
        owner = "" if tenant is None else check_tenant(tenant)
        op = self._finding(name, text, owner)
        found = self._run(op, connection) if connection is not None else self.store.database.read(op)
        if found is None:
            whose = f" of tenant {owner!r}" if owner else ""
            raise RecurringJobNotFound(
                f"there is no recurring job {name} {text!r}{whose}. Make it with recur(key=...), or check task and key"
            )
        return RecurringJob(self._duly, found.id, record=found)

    def _finding(self, task: str, key: str, tenant: str) -> Callable[[], Op[Any]]:
        return lambda: self.store.recurring.find(tenant, task, key)

    def recurring_by_id(self, job_id: str) -> RecurringJob:
        """Find one recurring job by its id."""
        from duly.recurring import RecurringJob

        if not is_job_id(job_id):
            raise RecurringJobNotFound(f"{job_id!r} is not the id of a job")
        return RecurringJob(self._duly, job_id).refresh()

    def recurring_by_name(self, name: str, *, tenant: str | None = None) -> RecurringJob:
        """Find one recurring job by its name."""
        from duly.recurring import RecurringJob

        owner = "" if tenant is None else check_tenant(tenant)
        found = self.store.database.read(lambda: self.store.recurring.find_name(owner, name))
        if found is None:
            raise RecurringJobNotFound(f"no recurring job has the name {name!r}")
        return RecurringJob(self._duly, found.id, record=found)

    def planned(self, hours: int = 24, *, tenant: str | None = None) -> Planned:
        """How many runs the enabled schedules plan for each of the next hours."""
        from duly.planned import planned

        return planned(self._duly, hours, tenant)

    def recurring_jobs(
        self,
        *,
        task: str | None = None,
        tenant: str | None = None,
        enabled: bool | None = None,
        after: RecurringJob | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[RecurringJob]:
        """Recurring jobs by tenant, task and key. `after` is the last one of the page before."""
        from duly.recurring import RecurringJob

        if not 0 < limit <= MOST_LISTED:
            raise InvalidOption(f"limit must be 1 to {MOST_LISTED}, not {limit}")
        if offset < 0:
            raise InvalidOption(f"offset must not be negative, and {offset} is")
        place = ("", "", "") if after is None else (after.tenant, after.task, after.key)
        found = self.store.recurring_jobs(task=task, tenant=tenant, enabled=enabled, after=place, n=limit, skip=offset)
        return [RecurringJob(self._duly, record.id, record=record) for record in found]

    # -- change -----------------------------------------------------------------------------------------------

    def make_recurring(self, new: NewRecurring, connection: object | None) -> RecurringJob:
        """Make or enable a recurring job; what `Task.recur` does."""
        from duly.recurring import RecurringJob

        standing = self.change_recurring(self.making(new), connection)
        return RecurringJob(self._duly, standing.id, created=standing.created)

    async def amake_recurring(self, new: NewRecurring, connection: object | None) -> RecurringJob:
        """The same from a coroutine."""
        from duly.recurring import RecurringJob

        standing = await self.achange_recurring(self.making(new), connection)
        return RecurringJob(self._duly, standing.id, created=standing.created)

    def making(self, new: NewRecurring) -> Callable[[Recurring], Op[Standing]]:
        """How a recurring job is made or enabled, with the mirror of its task."""
        task = self.registry.tasks.get(new.task)
        hook = new.task in self.registry.mirror_hooks

        def op(ops: Recurring) -> Op[Standing]:
            if task is not None:
                yield from ops.set_mirror(new.task, task.mirror, hook)
            return (yield from ops.recur(new))

        return op

    def change_recurring(
        self,
        op: Callable[[Recurring], Op[R]],
        connection: object | None,
        *,
        actor: Actor | None = None,
        tenant: str | None = None,
    ) -> R:
        """Make a change, in the caller's transaction if a connection is given, and have workers look.

        It is kept in the audit as the actor's; without one, only if somebody was said to act here. With a tenant,
        there are no recurring jobs but that tenant's.
        """
        ops = self.store.recurring_by(actor or _told(), tenant=tenant)
        if connection is not None:
            return self._run(lambda: self._noticed(op(ops)), connection)
        result = self.store.run(lambda: op(ops))
        self.store.poke(Hint("due"))
        return result

    async def achange_recurring(
        self,
        op: Callable[[Recurring], Op[R]],
        connection: object | None,
        *,
        actor: Actor | None = None,
        tenant: str | None = None,
    ) -> R:
        """The same from a coroutine."""
        if connection is None:
            import asyncio

            return await asyncio.to_thread(self.change_recurring, op, None, actor=actor, tenant=tenant)
        from duly.store.foreign import arun_on

        ops = self.store.recurring_by(actor or _told(), tenant=tenant)
        return await arun_on(connection, lambda: self._noticed(op(ops)), database=self.store.database)

    def _run(self, op: Callable[[], Op[R]], connection: object) -> R:
        from duly.store.foreign import run_on

        return run_on(connection, op, database=self.store.database)

    def _noticed(self, op: Op[R]) -> Op[R]:
        from duly.store.foreign import notifying

        return notifying(op, Hint("due"), database=self.store.database)

    # -- functions registered at run time ---------------------------------------------------------------------

    def register(
        self,
        tenant: str,
        id: str,
        start_at: datetime,
        repeat_every: timedelta | int | float | str,
        fn: Callable[..., Any],
        **options: Any,
    ) -> RecurringJob:
        """Have `fn` run every `repeat_every` from `start_at` on, as job `id` of `tenant`. The function is not stored.

        An id that the database knows gets this function and this schedule. Twice in one process is an error. Options as
        in `Task.recur`, and `timeout`, after which a run is told to stop.
        """
        return self._functions.register(tenant, id, start_at, repeat_every, fn, **options)

    def unregister(self, tenant: str, id: str) -> None:
        """Remove a registered job everywhere. An error for one that this process never registered."""
        self._functions.unregister(tenant, id)

    def start(self, queues: object = None, **overrides: Any) -> None:
        """Start a worker in this process, in the background. A second start without a stop is an error."""
        self._functions.start(queues, **overrides)

    def stop(self, grace: float | None = None) -> None:
        """Stop what `start` started: no new runs, running ones get `grace` seconds."""
        self._functions.stop(grace)

    @property
    def _functions(self) -> Registered:
        if self._registered is None:
            from duly.registered import Registered

            self._registered = Registered(self._duly)
        return self._registered

    # -- sweeps -----------------------------------------------------------------------------------------------

    def sweep(
        self,
        task: Task[..., Any],
        *,
        stale: str | Callable[[datetime], Iterable[Mapping[str, Any]]],
        older_than: timedelta | int | float | str = timedelta(days=30),
        every: timedelta | int | float | str = "6h",
        key: str = "",
        batch: int = 1_000,
    ) -> Task[..., Any]:
        """Declare a periodic sweep: enqueue `task` for whatever has not been refreshed for so long, each at most once.

        `stale` is SQL that may name `:before` and returns a row of arguments for each target, or a function that is
        given that time and returns mappings of arguments.
        """
        from duly.sweep import declare_sweep

        return declare_sweep(self._duly, task, stale=stale, older_than=older_than, every=every, key=key, batch=batch)

    @property
    def _duly(self) -> Duly:
        from duly.app import Duly

        assert isinstance(self, Duly)
        return self


def _told() -> Actor | None:
    """Who acts, if somebody was said to. The application's own calls are not an operator's."""
    actor = current_actor()
    return actor if actor.told else None
