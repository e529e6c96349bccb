"""The repository of one tenant: what can be done with its jobs. There is no operation here that reaches another's.

Every operation gives the tenant to its statements. A job of another tenant is not there: it gets the answer of an id
that never was. Not here: what the application does for all tenants (`Store`), and what workers do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from duly.domain.audit import Actor
from duly.domain.limits import Limit
from duly.domain.records import Counts, Filter, JobRecord, Pause, RunRecord, Standing
from duly.domain.states import State
from duly.store import ops_jobs, ops_limits, ops_results
from duly.store.call import Call, Op, Rows
from duly.store.database import Hint

if TYPE_CHECKING:
    from duly.domain.recurring import RecurringRecord
    from duly.store.store import Store

R = TypeVar("R")
UNKNOWN = ("unknown", None)


class TenantStore:
    """What can be done with one tenant's jobs. Safe to use from any thread."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._store = store
        self._database = store.database
        self._dialect = store.dialect
        self.tenant = tenant

    # -- look -------------------------------------------------------------------------------------------------

    def get(self, job_id: str) -> JobRecord | None:
        """Find one job."""
        return self._database.read(lambda: ops_jobs.get(job_id, self.tenant))

    def find(self, wanted: Filter) -> list[JobRecord]:
        """List jobs, newest first."""
        own = replace(wanted, tenant=self.tenant)
        return self._database.read(lambda: ops_jobs.find_of(self._dialect, own))

    def runs_of(self, job_id: str) -> list[RunRecord]:
        """Every run of a job, first to last."""
        return self._database.read(lambda: self._within(job_id, lambda: ops_jobs.runs_of(job_id), []))

    def last_run(self, job_id: str) -> RunRecord | None:
        """The last run of a job."""
        return self._database.read(lambda: self._within(job_id, lambda: ops_results.last_run(job_id), None))

    def recent_runs(self, *, task: str | None = None, n: int = 100) -> list[RunRecord]:
        """The runs that ended last, newest first."""
        return self._database.read(lambda: ops_jobs.recent_runs(self._dialect, task, self.tenant, n))

    def counts(self) -> Counts:
        """How many jobs stand where."""
        return self._database.read(lambda: ops_jobs.counts(self.tenant))

    def is_recurring(self, job_id: str) -> bool:
        """Whether a job recurs."""
        return bool(self._rows(Call("is_recurring_of", {"id": job_id, "tenant": self.tenant})))

    def count_recurring(self) -> tuple[int, int, int]:
        """How many recurring jobs are enabled, how many disabled, and how many of the enabled fail."""
        [row] = self._rows(Call("count_recurring_of", {"tenant": self.tenant}))
        return int(str(row[0])), int(str(row[1])), int(str(row[2]))

    def recurring_job(self, job_id: str) -> RecurringRecord | None:
        """One recurring job by its id."""
        ops = self._store.recurring_by(None, tenant=self.tenant)
        return self._database.read(lambda: ops.get(job_id))

    def now_us(self) -> int:
        """What time the database says it is."""
        return self._store.now_us()

    # -- act --------------------------------------------------------------------------------------------------

    def cancel(
        self, job_id: str, reason: str, *, actor: Actor | None = None, action: str = "cancel"
    ) -> tuple[str, str | None]:
        """End a job that has not started, or ask its worker to stop it."""
        answer = self._database.write(lambda: self._cancelling(job_id, reason, actor, action))
        self._store.poke_cancelled({job_id: answer})
        return answer

    def cancel_many(
        self, job_ids: Sequence[str], reason: str, *, actor: Actor | None = None
    ) -> dict[str, tuple[str, str | None]]:
        """The same for each of some jobs, in one transaction."""
        answers = self._database.write(
            lambda: ops_jobs.each_of(
                self._dialect, job_ids, lambda each: self._cancelling(each, reason, actor, "cancel")
            )
        )
        self._store.poke_cancelled(answers)
        return answers

    def _cancelling(self, job_id: str, reason: str, actor: Actor | None, action: str) -> Op[tuple[str, str | None]]:
        return self._within(
            job_id, lambda: ops_jobs.cancel(self._dialect, job_id, reason, actor=actor, action=action), UNKNOWN
        )

    def retry(self, job_id: str, *, actor: Actor | None = None, action: str = "retry") -> tuple[str, str | None]:
        """Put a job that does not run back into its lane, due now, its attempts at 0."""
        answer = self._database.write(lambda: self._retrying(job_id, actor, action))
        if answer[0] == "queued":
            self._store.poke(Hint("look"))
        return answer

    def retry_many(self, job_ids: Sequence[str], *, actor: Actor | None = None) -> dict[str, tuple[str, str | None]]:
        """The same for each of some jobs, in one transaction."""
        answers = self._database.write(
            lambda: ops_jobs.each_of(self._dialect, job_ids, lambda each: self._retrying(each, actor, "retry"))
        )
        self._store.poke(Hint("look"))
        return answers

    def _retrying(self, job_id: str, actor: Actor | None, action: str) -> Op[tuple[str, str | None]]:
        return self._within(job_id, lambda: ops_jobs.retry(self._dialect, job_id, actor=actor, action=action), UNKNOWN)

    def delete(self, job_id: str, *, actor: Actor | None = None) -> str:
        """Forget a job that does not run."""
        return self._database.write(lambda: self._deleting(job_id, actor))

    def delete_many(self, job_ids: Sequence[str], *, actor: Actor | None = None) -> dict[str, str]:
        """The same for each of some jobs, in one transaction."""
        return self._database.write(
            lambda: ops_jobs.each_of(self._dialect, job_ids, lambda each: self._deleting(each, actor))
        )

    def _deleting(self, job_id: str, actor: Actor | None) -> Op[str]:
        return self._within(job_id, lambda: ops_jobs.delete(self._dialect, job_id, actor=actor), "unknown")

    def end_by_hand(self, job_id: str, state: State, reason: str, *, actor: Actor | None = None) -> str:
        """End a waiting job as a person says."""
        return self._database.write(
            lambda: self._within(
                job_id, lambda: ops_jobs.end_by_hand(self._dialect, job_id, state, reason, actor=actor), "unknown"
            )
        )

    def set_priority(
        self, job_id: str, priority: int, *, actor: Actor | None = None, action: str = "set_priority"
    ) -> bool:
        """Change a job's priority and its place."""
        return self._database.write(
            lambda: self._within(
                job_id, lambda: ops_jobs.set_priority(job_id, priority, actor=actor, action=action), False
            )
        )

    def reschedule(
        self, job_id: str, *, run_at: int | None = None, delay_us: int = 0, actor: Actor | None = None
    ) -> bool:
        """Give a job that has not started another time."""
        done = self._database.write(
            lambda: self._within(
                job_id,
                lambda: ops_jobs.reschedule(self._dialect, job_id, run_at=run_at, delay_us=delay_us, actor=actor),
                False,
            )
        )
        self._store.poke(Hint("look"))
        return done

    # -- its gates --------------------------------------------------------------------------------------------

    def paused(self) -> Pause | None:
        """Whether the tenant is paused."""
        rows = self._rows(Call("pause_of", {"tenant": self.tenant}))
        return Pause._make(rows[0]) if rows else None

    def weight(self) -> float:
        """How much of a shared queue the tenant may have."""
        rows = self._rows(Call("weight_of", {"tenant": self.tenant}))
        return float(str(rows[0][0])) if rows else 1.0

    def limits(self) -> list[Limit]:
        """What limits the tenant."""
        return [ops_limits.limit_of(row) for row in self._rows(Call("limits_of_tenant", {"tenant": self.tenant}))]

    def standing(self, most: int) -> Standing:
        """How the tenant stands; of each kind of job at most so many are counted."""
        return self._database.read(lambda: ops_jobs.standing(self.tenant, most))

    # -- how --------------------------------------------------------------------------------------------------

    def _within(self, job_id: str, do: Callable[[], Op[R]], otherwise: R) -> Op[R]:
        return ops_jobs.within(self.tenant, job_id, do, otherwise)

    def _rows(self, call: Call) -> Rows:
        return self._database.read(lambda: _one(call))


def _one(call: Call) -> Op[Rows]:
    return (yield call)
