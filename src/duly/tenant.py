"""One tenant's handle: `jobs.tenant("acme")` sees, counts, enqueues and manages what is acme's, and nothing else.

A job of another tenant is not there: every verb answers as for an id that never was. What the handle gives out (jobs,
tasks, recurring jobs) keeps to the tenant too. Not here: the scope of the statements (`store/tenant.py`), recurring
jobs (`tenant_recurring.py`).
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from duly.domain.audit import Via
from duly.domain.errors import ConfigurationError, InvalidOption
from duly.domain.limits import Limit
from duly.domain.names import check_tenant
from duly.domain.records import Enqueued, NewJob, Pause, Standing
from duly.domain.states import State
from duly.job import Job, Run
from duly.job_verbs import JobVerbs
from duly.store.fresh import Fresh
from duly.task import AsyncTask, Task
from duly.tenant_recurring import TenantRecurring

if TYPE_CHECKING:
    from duly.app import Duly
    from duly.audit import AuditRecord
    from duly.config import Settings
    from duly.domain.periods import Period
    from duly.results import Waiters
    from duly.store.tenant import TenantStore
    from duly.usage import Usage
    from duly.why.answer import Group, Why
    from duly.worker.registry import Registry

P = ParamSpec("P")
R = TypeVar("R")
MOST_COUNTED = 10_000


class Tenant(JobVerbs, TenantRecurring):
    """What is one tenant's. Made by `jobs.tenant(name)`; holds nothing open, and may be made as often as is handy.

    acme = jobs.tenant("acme")
    acme[send_welcome].enqueue(user_id=42)
    acme.list(state="failed")
    """

    store: TenantStore

    def __init__(self, app: Duly, name: str) -> None:
        if name == "":
            raise InvalidOption("a tenant's name must not be empty: jobs of nobody in particular have no handle")
        self._duly = app
        self.name = check_tenant(name)
        self.store = app.store.of_tenant(self.name)

    def __repr__(self) -> str:
        return f"<Tenant {self.name!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tenant) and (other._duly, other.name) == (self._duly, self.name)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def _scope(self) -> Tenant:
        return self

    # -- enqueue ----------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, task: AsyncTask[P, R]) -> AsyncTask[P, R]: ...

    @overload
    def __getitem__(self, task: Task[P, R]) -> Task[P, R]: ...

    @overload
    def __getitem__(self, task: str) -> Task[..., Any]: ...

    def __getitem__(self, task: Task[..., Any] | str) -> Task[..., Any]:
        """A task, or the task of that name, for this tenant: what is enqueued through it is this tenant's."""
        found = self._duly[task] if isinstance(task, str) else task
        if found.app is not self._duly:
            raise ConfigurationError(f"{found!r} belongs to another Duly: take the tenant's handle there")
        return found.held_by(self)

    def enqueue(self, task: Task[..., Any] | str, args: Mapping[str, Any] | None = None, **options: Any) -> Job[Any]:
        """Store a job of this tenant. Options as in `Task.using`."""
        return self[task].using(**options).enqueue(**(args or {}))

    async def aenqueue(
        self, task: Task[..., Any] | str, args: Mapping[str, Any] | None = None, **options: Any
    ) -> Job[Any]:
        """The same from a coroutine."""
        return await self[task].using(**options).aenqueue(**(args or {}))

    def enqueue_many(
        self, task: Task[..., Any] | str, calls: Iterable[Mapping[str, Any]], **options: Any
    ) -> builtins.list[Job[Any]]:
        """Store many jobs of this tenant at once, all or none: one mapping of arguments each."""
        return self[task].using(**options).enqueue_many(calls)

    async def aenqueue_many(
        self, task: Task[..., Any] | str, calls: Iterable[Mapping[str, Any]], **options: Any
    ) -> builtins.list[Job[Any]]:
        """The same from a coroutine."""
        return await self[task].using(**options).aenqueue_many(calls)

    def submit(self, job: NewJob, connection: object | None) -> Enqueued:
        """Store one job, which must be this tenant's."""
        self._check(job)
        return self._duly.submit(job, connection)

    async def asubmit(self, job: NewJob, connection: object) -> Enqueued:
        """The same on the caller's async connection."""
        self._check(job)
        return await self._duly.asubmit(job, connection)

    def submit_many(self, model: NewJob, rows: Sequence[Fresh], connection: object | None) -> builtins.list[Enqueued]:
        """Store many jobs, which must be this tenant's."""
        self._check(model)
        return self._duly.submit_many(model, rows, connection)

    async def asubmit_many(self, model: NewJob, rows: Sequence[Fresh], connection: object) -> builtins.list[Enqueued]:
        """The same on the caller's async connection."""
        self._check(model)
        return await self._duly.asubmit_many(model, rows, connection)

    def _check(self, job: NewJob) -> None:
        if job.tenant != self.name:
            whose = f"tenant {job.tenant!r}" if job.tenant else "nobody in particular"
            raise InvalidOption(
                f"this is the handle of tenant {self.name!r}, and the job of task {job.task} would be of {whose}. "
                "Leave the tenant out, or take that tenant's handle"
            )

    # -- look -------------------------------------------------------------------------------------------------

    def list(
        self,
        *,
        state: State | str | None = None,
        task: str | None = None,
        queue: str | None = None,
        tag: str | None = None,
        text: str | None = None,
        before: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> builtins.list[Job[Any]]:
        """List jobs, the last to be enqueued first. `before` is the id of the last job of the page before."""
        return self._find(
            state=state, task=task, queue=queue, tag=tag, text=text, before=before, limit=limit, offset=offset
        )

    def runs(self, *, task: str | None = None, limit: int = 100) -> builtins.list[Run]:
        """The runs that ended last, newest first."""
        return [Run(record) for record in self.store.recent_runs(task=task, n=limit)]

    def why(self, job_id: str) -> Why:
        """Say why one of its jobs does not run, or how it stands; nothing of what others do is in the answer."""
        return self._duly.why(job_id, tenant=self.name)

    def why_waiting(self, *, queue: str | None = None) -> builtins.list[Group]:
        """Say what holds all of its jobs that wait, grouped by reason."""
        return self._duly.why_waiting(queue=queue, tenant=self.name)

    def standing(self) -> Standing:
        """Its weight, whether it is paused, and how many jobs wait, run and are parked: of each, 10,000 are counted."""
        return self.store.standing(MOST_COUNTED)

    def usage(
        self,
        *,
        since: datetime | timedelta | str = "30d",
        until: datetime | None = None,
        by: str | Iterable[str] = ("task",),
        period: Period | None = None,
        task: str | None = None,
        timezone: str = "UTC",
    ) -> builtins.list[Usage]:
        """What ran between two times, added up as `Duly.usage` does."""
        return self._duly.usage(
            since=since, until=until, by=by, period=period, tenant=self.name, task=task, timezone=timezone
        )

    def audit(
        self,
        *,
        job: str | None = None,
        by: str | None = None,
        action: str | None = None,
        since: datetime | timedelta | str | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> builtins.list[AuditRecord]:
        """What operators did to this tenant and its jobs, newest first."""
        return self._duly.audit(
            job=job, by=by, action=action, tenant=self.name, since=since, until=until, before=before, limit=limit
        )

    # -- its share --------------------------------------------------------------------------------------------

    def pause(
        self,
        *,
        reason: str = "",
        by: str | None = None,
        until: datetime | None = None,
        duration: timedelta | float | str | None = None,
    ) -> None:
        """Pause this tenant: none of its jobs is claimed any more; what runs ends."""
        self._duly.pause(tenant=self.name, reason=reason, by=by, until=until, duration=duration)

    def resume(self) -> bool:
        """Let this tenant's jobs go on. Returns whether it was paused."""
        return self._duly.resume(tenant=self.name)

    def paused(self) -> Pause | None:
        """Since when, until when, by whom and why this tenant is paused; None if it is not."""
        return self.store.paused()

    def weight(self) -> float:
        """How much of a shared queue this tenant may have beside others; 1 unless told otherwise."""
        return self.store.weight()

    def limits(self) -> builtins.list[Limit]:
        """What limits this tenant: how many of its jobs may run, start and wait."""
        return self.store.limits()

    # -- what jobs and tasks ask of whoever holds them --------------------------------------------------------

    def acting_as(self, who: str, via: Via = "python") -> AbstractContextManager[None]:
        """Say who acts in this block, as `Duly.acting_as` does."""
        return self._duly.acting_as(who, via)

    @property
    def settings(self) -> Settings:
        """The application's settings."""
        return self._duly.settings

    @property
    def registry(self) -> Registry:
        """The application's tasks."""
        return self._duly.registry

    @property
    def waiters(self) -> Waiters:
        """Who waits for jobs to end."""
        return self._duly.waiters

    @property
    def default_retry_data(self) -> str:
        """The retry policy that need not be stored."""
        return self._duly.default_retry_data
