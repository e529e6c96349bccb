"""What operators do, once: the CLI, the HTTP API and the dashboard call these and nothing else."""

from __future__ import annotations

import builtins
import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from duly.domain.audit import current_actor
from duly.domain.clock import to_us
from duly.domain.durations import micros, to_timedelta
from duly.domain.errors import InvalidOption
from duly.domain.names import check_queue_name, check_tenant, check_text
from duly.domain.rank import DEFAULT_HORIZON_US, STRICT_HORIZON_US
from duly.domain.records import Counts, Pause, WorkerRecord
from duly.domain.states import State
from duly.domain.text import clean_text
from duly.job import Job, Run
from duly.job_verbs import MOST_LISTED, MOST_REASON, Bulk, JobVerbs, checked_id, unknown_job
from duly.limiting import gate_named
from duly.maintenance.prune import Retention, prune_some
from duly.worker.identity import is_alive

if TYPE_CHECKING:
    from duly.app import Duly
    from duly.config import Settings
    from duly.doctor.finding import Finding
    from duly.store.ops_pages import InHand
    from duly.store.store import Store
    from duly.tenant import Tenant
    from duly.why.answer import Group, Why

__all__ = ["MOST_LISTED", "Admin", "Bulk"]


class Queue(NamedTuple):
    """How a queue is shared: after `horizon` a waiting job of priority 0 is level with a new one of priority 100."""

    name: str
    horizon: timedelta
    strict: bool
    """Strict priority: nothing ages."""
    fair: bool
    """Whether tenants take turns."""


class Admin(JobVerbs):
    """The operator's verbs. Mixed into `Duly`."""

    store: Store
    settings: Settings

    @property
    def retention(self) -> Retention:
        """How long finished jobs are kept."""
        settings = self.settings
        return Retention(
            succeeded=settings.retention_succeeded,
            failed=settings.retention_failed,
            cancelled=settings.retention_cancelled,
            rollups=settings.retention_rollups,
            audit=settings.retention_audit,
        )

    # -- look -------------------------------------------------------------------------------------------------

    def list(
        self,
        *,
        state: State | str | None = None,
        task: str | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        tag: str | None = None,
        text: str | None = None,
        before: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> builtins.list[Job[Any]]:
        """List jobs, newest first. `before` is the id of the last job of the page before.

        Finished ones go by when they finished; those of one tenant by when they were enqueued.
        """
        return self._find(
            state=state,
            task=task,
            queue=queue,
            tenant=tenant,
            tag=tag,
            text=text,
            before=before,
            limit=limit,
            offset=offset,
        )

    def runs(self, *, task: str | None = None, tenant: str | None = None, limit: int = 100) -> builtins.list[Run]:
        """The runs that ended last, newest first."""
        return [Run(record) for record in self.store.recent_runs(task=task, tenant=tenant, n=limit)]

    def workers(self) -> builtins.list[WorkerRecord]:
        """Every worker on record."""
        return self.store.workers()

    def in_hand(self, *, most: int = 1_000) -> InHand:
        """What workers run now: how many jobs each, and so many of the jobs themselves at most."""
        from duly.store import ops_pages

        return self.store.database.read(lambda: ops_pages.in_hand(most))

    def live_workers(self, *, task: str | None = None, queue: str | None = None) -> builtins.list[WorkerRecord]:
        """Workers that live as far as can be told from here; only those that know a task, or take from a queue."""
        return [
            worker
            for worker in self.store.workers()
            if is_alive(worker)
            and (task is None or task in json.loads(worker.tasks))
            and (queue is None or queue in json.loads(worker.queues))
        ]

    def why(self, job_id: str, *, tenant: str | None = None) -> Why:
        """Say why a job does not run, or how it stands: the reason, all that holds it, and what to do next.

        For a `tenant`: only of its own jobs, and nothing in the answer of what others do.
        """
        from duly.why.ask import why

        found = why(self._app, checked_id(job_id), tenant=tenant)
        if found is None:
            raise unknown_job(job_id)
        return found

    def why_waiting(self, *, queue: str | None = None, tenant: str | None = None) -> builtins.list[Group]:
        """Say what holds all that waits, in a queue or in all of them, grouped by reason. By lanes, so never slow."""
        from duly.why.ask import why_waiting

        return why_waiting(self._app, queue=None if queue is None else check_queue_name(queue), tenant=tenant)

    def unknown_tasks(self, counts: Counts | None = None) -> builtins.list[tuple[str, str]]:
        """The (queue, task) of jobs that wait or are scheduled while no live worker could run them."""
        counts = counts or self.counts()
        pairs = {(queue, task) for queue, _, task, _, _ in (*counts.waiting, *counts.scheduled)}
        workers = [(set(json.loads(each.queues)), set(json.loads(each.tasks))) for each in self.live_workers()]
        return sorted(
            pair for pair in pairs if not any(pair[0] in queues and pair[1] in tasks for queues, tasks in workers)
        )

    def doctor(self, *, fix: bool = False, deep: bool = False) -> builtins.list[Finding]:
        """Check the whole installation. `fix`: mend what can be mended, each in one transaction, beside workers.

        `deep`: look at every job and read all of an SQLite file, however long it takes.
        """
        from duly.doctor.examine import examine, repair

        found = examine(self._app, deep=deep)
        return [repair(self._app, finding) for finding in found] if fix else found

    # -- act --------------------------------------------------------------------------------------------------

    def set_aging(self, queue: str, horizon: timedelta | float | str | None, *, strict: bool = False) -> None:
        """Say how fast a queue ages: after `horizon` a waiting priority-0 job is level with a new priority-100 one.

        None: the default (1 h 50 min). `strict`: never. Applies to jobs that become due from now on.
        """
        check_queue_name(queue)
        us = STRICT_HORIZON_US if strict else None if horizon is None else micros(to_timedelta(horizon, "horizon"))
        self.store.set_horizon(queue, us, actor=current_actor())

    def pause(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        reason: str = "",
        by: str | None = None,
        until: datetime | None = None,
        duration: timedelta | float | str | None = None,
    ) -> None:
        """Pause a queue, a task, a tenant or a key: nothing of it starts any more, however much waits; what runs ends.

        `until` a time, or for a `duration`; else until `resume`.
        """
        scope, name = gate_named(queue=queue, task=task, tenant=tenant, key=key)
        if until is not None and duration is not None:
            raise InvalidOption("give until or duration, not both")
        until_us = None if until is None else to_us(until, "until")
        if until_us is not None and until_us <= self.store.now_us():
            raise InvalidOption(f"until {until} has passed. Give a time to come")
        for_us = None if duration is None else micros(to_timedelta(duration, "duration"))
        if for_us == 0:
            raise InvalidOption("duration must be longer than nothing")
        who = None if by is None else check_text(by, "by", 255)
        text = clean_text(reason, MOST_REASON) or None
        actor = current_actor().or_by(who)
        self.store.gates.pause(scope, name, by=actor.who, reason=text, until=until_us, for_us=for_us, actor=actor)

    def resume(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
        key: str | None = None,
    ) -> bool:
        """Let a queue, a task, a tenant or a key go on. Returns whether it was held.

        It ends a pause; where there is none, the rest that `RateLimited` asked for, or that a breaker gave a key.
        """
        gate = gate_named(queue=queue, task=task, tenant=tenant, key=key)
        return self.store.gates.resume(*gate, actor=current_actor())

    def set_weight(self, tenant: str, weight: float) -> None:
        """Say how much of a shared queue a tenant may have beside others: with 3 thrice as much as one with 1.

        Every tenant has 1 unless told otherwise. What a tenant has no use for goes to the others.
        """
        if tenant == "":
            raise InvalidOption("tenant must not be empty")
        if type(weight) not in (int, float) or not 0.001 <= weight <= 1_000:
            raise InvalidOption(f"weight must be a number from 0.001 to 1000, not {weight!r}")
        self.store.gates.set_weight(check_tenant(tenant), float(weight), actor=current_actor())

    def set_fair(self, queue: str, fair: bool) -> None:
        """Say whether tenants take turns in a queue, as they do unless told otherwise; else all go by rank alone."""
        self.store.gates.set_fair(check_queue_name(queue), bool(fair), actor=current_actor())

    def queues(self) -> builtins.list[Queue]:
        """The queues in which anything waits or of which something was said, by name."""
        return [
            Queue(each.name, timedelta(microseconds=us), us >= STRICT_HORIZON_US, each.fair)
            for each in self.store.queues()
            for us in [DEFAULT_HORIZON_US if each.horizon_us is None else each.horizon_us]
        ]

    def weights(self) -> dict[str, float]:
        """The tenants whose weight is not 1."""
        return self.store.gates.weights()

    def tenant(self, name: str) -> Tenant:
        """A handle that sees, counts, enqueues and manages what is one tenant's, and nothing else."""
        from duly.tenant import Tenant

        return Tenant(self._app, name)

    def tenants(self, *, after: str = "", limit: int = 100) -> builtins.list[Tenant]:
        """The tenants that have jobs, a weight, a limit or a pause, by name. `after`: the last of the page before."""
        from duly.tenant import Tenant

        if not 0 < limit <= MOST_LISTED:
            raise InvalidOption(f"limit must be 1 to {MOST_LISTED}, not {limit}")
        return [Tenant(self._app, name) for name in self.store.tenant_names(after=after, n=limit)]

    def paused(self) -> builtins.list[Pause]:
        """What is paused, since when, until when, by whom and why."""
        return self.store.gates.paused()

    def copy(self, job_id: str) -> Job[Any]:
        """Store a job again as a new one: its task, arguments, queue, priority and tags, but not its unique key."""
        from duly.copying import copy_of

        return copy_of(self._app, self.get(job_id).record)

    def prune(self, *, most: int | None = None) -> int:
        """Forget what is older than the retention says, now. Returns how much went: jobs, runs of recurring ones.

        `most`: stop after about so many, for callers who cannot wait; there is more if at least as many went.
        """
        gone = 0
        while most is None or gone < most:
            steps, whole = (10, True) if most is None else (1, False)
            n = prune_some(self.store, self.retention, steps=steps, whole=whole, actor=current_actor())
            gone += n
            if n == 0:
                break
        return gone

    @property
    def _app(self) -> Duly:
        from duly.app import Duly

        assert isinstance(self, Duly)
        return self

    @property
    def _scope(self) -> Duly:
        return self._app
