"""One tenant's recurring jobs: make, find, list, and functions registered at run time. Mixed into `Tenant`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from duly.domain.audit import Actor
from duly.domain.errors import InvalidOption, RecurringJobNotFound
from duly.domain.ids import is_job_id
from duly.recurring import RecurringJob
from duly.store.call import Op

if TYPE_CHECKING:
    from typing import Unpack

    from duly.app import Duly
    from duly.domain.recurring import NewRecurring
    from duly.recurring_options import Recurs
    from duly.store.ops_recurring import Recurring
    from duly.task import Task
    from duly.tenant import Tenant

R = TypeVar("R")


class TenantRecurring:
    """Recurring jobs of one tenant. The same task and key in another tenant are another job."""

    name: str
    _duly: Duly

    def recur(
        self,
        task: Task[..., Any] | str,
        key: object = "",
        *,
        connection: object | None = None,
        **options: Unpack[Recurs],
    ) -> RecurringJob:
        """Make a task recur for this tenant, or enable the recurring job that there is. Options as in `Task.recur`."""
        return self._tenant[task].recur(key, connection=connection, **options)

    async def arecur(
        self,
        task: Task[..., Any] | str,
        key: object = "",
        *,
        connection: object | None = None,
        **options: Unpack[Recurs],
    ) -> RecurringJob:
        """The same from a coroutine."""
        return await self._tenant[task].arecur(key, connection=connection, **options)

    # -- find -------------------------------------------------------------------------------------------------

    def recurring_job(
        self, task: Task[..., Any] | str, key: object = "", *, connection: object | None = None
    ) -> RecurringJob:
        """Find one recurring job by its task and key, or raise RecurringJobNotFound."""
        return self._held(self._duly.recurring_job(task, key, tenant=self.name, connection=connection))

    def recurring_by_id(self, job_id: str) -> RecurringJob:
        """Find one recurring job by its id."""
        if not is_job_id(job_id):
            raise RecurringJobNotFound(f"{job_id!r} is not the id of a job")
        return RecurringJob(self._tenant, job_id).refresh()

    def recurring_by_name(self, name: str) -> RecurringJob:
        """Find one recurring job by its name."""
        return self._held(self._duly.recurring_by_name(name, tenant=self.name))

    def recurring_jobs(
        self,
        *,
        task: str | None = None,
        enabled: bool | None = None,
        after: RecurringJob | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[RecurringJob]:
        """Recurring jobs by task and key. `after` is the last one of the page before."""
        found = self._duly.recurring_jobs(
            task=task, tenant=self.name, enabled=enabled, after=after, limit=limit, offset=offset
        )
        return [self._held(job) for job in found]

    def _held(self, job: RecurringJob) -> RecurringJob:
        return RecurringJob(self._tenant, job.id, created=job.created, record=job.record)

    # -- functions registered at run time ---------------------------------------------------------------------

    def register(
        self,
        id: str,
        start_at: datetime,
        repeat_every: timedelta | int | float | str,
        fn: Callable[..., Any],
        **options: Any,
    ) -> RecurringJob:
        """Have `fn` run every `repeat_every` from `start_at` on, as job `id` of this tenant: see `Duly.register`."""
        self._refuse_another(options.pop("tenant", self.name))
        job = self._duly.register(self.name, id, start_at, repeat_every, fn, **options)
        return RecurringJob(self._tenant, job.id, created=job.created)

    def unregister(self, id: str) -> None:
        """Remove a registered job everywhere."""
        self._duly.unregister(self.name, id)

    # -- what tasks and recurring jobs ask of whoever holds them ----------------------------------------------

    def make_recurring(self, new: NewRecurring, connection: object | None) -> RecurringJob:
        """Make or enable a recurring job, which must be this tenant's."""
        self._refuse_another(new.tenant)
        standing = self.change_recurring(self._duly.making(new), connection)
        return RecurringJob(self._tenant, standing.id, created=standing.created)

    async def amake_recurring(self, new: NewRecurring, connection: object | None) -> RecurringJob:
        """The same from a coroutine."""
        self._refuse_another(new.tenant)
        standing = await self.achange_recurring(self._duly.making(new), connection)
        return RecurringJob(self._tenant, standing.id, created=standing.created)

    def change_recurring(
        self, op: Callable[[Recurring], Op[R]], connection: object | None, *, actor: Actor | None = None
    ) -> R:
        """Make a change to one of this tenant's recurring jobs; others are not there."""
        return self._duly.change_recurring(op, connection, actor=actor, tenant=self.name)

    async def achange_recurring(
        self, op: Callable[[Recurring], Op[R]], connection: object | None, *, actor: Actor | None = None
    ) -> R:
        """The same from a coroutine."""
        return await self._duly.achange_recurring(op, connection, actor=actor, tenant=self.name)

    def _refuse_another(self, tenant: str) -> None:
        if tenant != self.name:
            whose = f"tenant {tenant!r}" if tenant else "nobody in particular"
            raise InvalidOption(
                f"this is the handle of tenant {self.name!r}, and the recurring job would be of {whose}. "
                "Leave the tenant out, or take that tenant's handle"
            )

    @property
    def _tenant(self) -> Tenant:
        from duly.tenant import Tenant

        assert isinstance(self, Tenant)
        return self
