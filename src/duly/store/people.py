"""What people do with jobs: look, cancel, retry, delete, move. The part of `Store` that no worker needs.

With an `actor`, what was done is kept in the audit as theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from duly.domain.audit import Actor, AuditRow
from duly.domain.records import Counts, Filter, JobRecord, Page, QueueRecord, RunRecord
from duly.domain.states import State
from duly.store import ops_audit, ops_jobs, ops_lists, ops_results, ops_usage
from duly.store.call import Call, Dialect, Rows, rows_of
from duly.store.database import Database, Hint


class ForPeople:
    """Everything here is one operation on the database."""

    database: Database
    dialect: Dialect

    def get(self, job_id: str) -> JobRecord | None:
        """Find one job."""
        return self.database.read(lambda: ops_jobs.get(job_id))

    def find(self, wanted: Filter) -> list[JobRecord]:
        """List jobs, newest first."""
        return self.database.read(lambda: ops_lists.find(self.dialect, wanted))

    def page(self, wanted: Filter) -> Page:
        """One page of a list, newest first, and where the next begins."""
        return self.database.read(lambda: ops_lists.page(self.dialect, wanted))

    def jobs_of(self, ids: Sequence[str]) -> dict[str, JobRecord]:
        """Those of these jobs that there are."""
        records = self.database.read(lambda: ops_lists.jobs_of(self.dialect, list(ids)))
        return {record.id: record for record in records}

    def queue_options(self) -> dict[str, tuple[int | None, bool]]:
        """What was said about queues: how fast each ages (None: as by default), and if tenants take turns in it."""
        rows = self.database.read(lambda: rows_of(Call("queue_options")))
        return {str(name): (None if us is None else int(str(us)), bool(fair)) for name, us, fair in rows}

    def count_parked(self, tenant: str) -> int:
        """How many jobs of a tenant are parked."""
        return int(str(self.database.read(lambda: rows_of(Call("count_parked_jobs_of", {"tenant": tenant})))[0][0]))

    def count_ended(self, wanted: Filter) -> tuple[int, bool]:
        """How many of the jobs that ended last are wanted, and whether that is all. Looks at `wanted.look` at most."""
        return self.database.read(lambda: ops_lists.count_ended(wanted))

    def runs_of(self, job_id: str) -> list[RunRecord]:
        """Every run of a job, first to last."""
        return self.database.read(lambda: ops_jobs.runs_of(job_id))

    def recent_runs(
        self, *, task: str | None = None, tenant: str | None = None, n: int = 100, look: int | None = None
    ) -> list[RunRecord]:
        """The runs that ended last, newest first. With a filter it takes longer the more others have ended since.

        `look`: on SQLite, so many that ended last are looked at and no more. PostgreSQL knows when each task and tenant
        last ran.
        """
        return self.database.read(lambda: ops_jobs.recent_runs(self.dialect, task, tenant, n, look))

    def last_run(self, job_id: str) -> RunRecord | None:
        """The last run of a job."""
        return self.database.read(lambda: ops_results.last_run(job_id))

    def last_runs(self, ids: Sequence[str]) -> dict[str, RunRecord]:
        """The last run of each of these jobs, without traceback, result and log."""
        return self.database.read(lambda: ops_results.last_runs(self.dialect, ids))

    def newest_runs_of(self, job_id: str, *, before_token: int | None = None, n: int = 100) -> list[RunRecord]:
        """The newest runs of a job, newest first; `before_token` is that of the last one of the page before."""
        return self.database.read(lambda: ops_results.newest_runs_of(job_id, before_token=before_token, n=n))

    def ended_among(self, ids: Sequence[str]) -> dict[str, str]:
        """Which of these jobs have ended, and how."""
        return self.database.read(lambda: ops_results.ended_among(self.dialect, ids))

    def counts(self) -> Counts:
        """How many jobs stand where."""
        return self.database.read(ops_jobs.counts)

    def cancel(
        self, job_id: str, reason: str, *, actor: Actor | None = None, action: str = "cancel"
    ) -> tuple[str, str | None]:
        """End a job that has not started, or ask its worker to stop it."""
        answer = self.database.write(lambda: ops_jobs.cancel(self.dialect, job_id, reason, actor=actor, action=action))
        if answer[0] == "asked":
            self.database.poke(Hint("cancel", job_id=job_id))
        return answer

    def retry(self, job_id: str, *, actor: Actor | None = None, action: str = "retry") -> tuple[str, str | None]:
        """Put a job that does not run back into its lane, due now, its attempts at 0."""
        answer = self.database.write(lambda: ops_jobs.retry(self.dialect, job_id, actor=actor, action=action))
        if answer[0] == "queued":
            self.database.poke(Hint("look"))
        return answer

    def cancel_many(
        self, job_ids: Sequence[str], reason: str, *, actor: Actor | None = None
    ) -> dict[str, tuple[str, str | None]]:
        """The same as `cancel` for each of some jobs, in one transaction."""
        answers = self.database.write(
            lambda: ops_jobs.each_of(
                self.dialect, job_ids, lambda each: ops_jobs.cancel(self.dialect, each, reason, actor=actor)
            )
        )
        self.poke_cancelled(answers)
        return answers

    def poke_cancelled(self, answers: Mapping[str, tuple[str, str | None]]) -> None:
        """Tell workers which of their jobs were asked to stop."""
        for job_id, (answer, _) in answers.items():
            if answer == "asked":
                self.database.poke(Hint("cancel", job_id=job_id))

    def retry_many(self, job_ids: Sequence[str], *, actor: Actor | None = None) -> dict[str, tuple[str, str | None]]:
        """The same as `retry` for each of some jobs, in one transaction."""
        answers = self.database.write(
            lambda: ops_jobs.each_of(
                self.dialect, job_ids, lambda each: ops_jobs.retry(self.dialect, each, actor=actor)
            )
        )
        self.database.poke(Hint("look"))
        return answers

    def delete_many(self, job_ids: Sequence[str], *, actor: Actor | None = None) -> dict[str, str]:
        """The same as `delete` for each of some jobs, in one transaction."""
        return self.database.write(
            lambda: ops_jobs.each_of(
                self.dialect, job_ids, lambda each: ops_jobs.delete(self.dialect, each, actor=actor)
            )
        )

    def end_by_hand(self, job_id: str, state: State, reason: str, *, actor: Actor | None = None) -> str:
        """End a waiting job as a person says."""
        return self.database.write(lambda: ops_jobs.end_by_hand(self.dialect, job_id, state, reason, actor=actor))

    def delete(self, job_id: str, *, actor: Actor | None = None) -> str:
        """Forget a job that does not run."""
        return self.database.write(lambda: ops_jobs.delete(self.dialect, job_id, actor=actor))

    def set_priority(
        self, job_id: str, priority: int, *, actor: Actor | None = None, action: str = "set_priority"
    ) -> bool:
        """Change a job's priority and its place."""
        return self.database.write(lambda: ops_jobs.set_priority(job_id, priority, actor=actor, action=action))

    def reschedule(
        self, job_id: str, *, run_at: int | None = None, delay_us: int = 0, actor: Actor | None = None
    ) -> bool:
        """Give a job that has not started another time."""
        done = self.database.write(
            lambda: ops_jobs.reschedule(self.dialect, job_id, run_at=run_at, delay_us=delay_us, actor=actor)
        )
        self.database.poke(Hint("look"))
        return done

    def queues(self) -> list[QueueRecord]:
        """The queues in which anything waits, or of which something was said, by name."""
        return self.database.read(ops_jobs.queues)

    def set_horizon(self, queue: str, horizon_us: int | None, *, actor: Actor | None = None) -> None:
        """Say how fast a queue ages, for jobs that become due from now on."""
        self.database.write(lambda: ops_audit.set_horizon(queue, horizon_us, actor=actor))

    def audit(
        self,
        *,
        job_id: str | None = None,
        who: str | None = None,
        action: str | None = None,
        tenant: str | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        before_id: int | None = None,
        n: int = 100,
    ) -> list[AuditRow]:
        """What operators did, newest first. `before_id` is the id of the last row of the page before."""
        return self.database.read(
            lambda: ops_audit.find(
                job_id=job_id,
                who=who,
                action=action,
                tenant=tenant,
                since_at=since_us,
                until_at=until_us,
                before_id=before_id,
                n=n,
            )
        )

    def prune_audit(self, keep_us: int) -> None:
        """Forget what operators did longer ago than `keep_us`."""
        self.database.write(lambda: ops_audit.prune(keep_us))

    def usage(self, from_us: int, until_us: int, tenant: str | None = None) -> Rows:
        """What ran between two times, by tenant, queue and task."""
        return self.database.read(
            lambda: rows_of(Call("sum_rollups", {"from_at": from_us, "until_at": until_us, "tenant": tenant}))
        )

    def sum_usage(
        self, bounds: Sequence[int], *, by: Collection[str], tenant: str | None = None, task: str | None = None
    ) -> Rows:
        """What ran in the periods between these bounds, by any of tenant, task and queue."""
        return self.database.read(lambda: ops_usage.sum_usage(self.dialect, bounds, by=by, tenant=tenant, task=task))

    def tenant_names(self, *, after: str = "", n: int = 100) -> list[str]:
        """The next tenants by name: those that have jobs, a weight, or a gate of their own."""
        return self.database.read(lambda: ops_jobs.tenant_names(after, n))
