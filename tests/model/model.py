"""What the store should do, in memory and in as few words as possible: each method is one sentence of the store.

It knows one queue, jobs with unique keys, keys of limits with slots, pauses, limits on tasks, tenants and the queue,
and recurring jobs. Rates, breakers, mirrors and quotas are not in it: other tests have those. Policy (is this the last
attempt? which tick is next?) is asked of the domain, which is pure; here is only what the store must make of it.
"""

from __future__ import annotations

from collections.abc import Collection

from duly.domain.records import HOLD
from tests.model.facts import Door, Job
from tests.model.work import Work, gates_of


class Model(Work):
    """A store that is a dictionary."""

    # -- upkeep -----------------------------------------------------------------------------------------------

    def prune_jobs(self, state: str, keep_us: int) -> int:
        """Forget finished jobs; not those that a unique key still names."""
        named = {key.holder for key in self.keys.values()}
        old = [job for job in self.jobs.values() if job.place == "ended" and job.state == state]
        old = [job for job in old if (job.finished_at or 0) < self.now - keep_us and job.id not in named]
        self._forget(job.id for job in old)
        return len(old)

    def prune_rest(self) -> None:
        """Forget unique keys whose window is over."""
        self.keys = {name: key for name, key in self.keys.items() if key.until is None or key.until > self.now}

    # -- what people do ---------------------------------------------------------------------------------------

    def cancel(self, job_id: str, reason: str) -> tuple[str, str | None]:
        """End a job that has not started, or ask its worker to stop it."""
        job = self.jobs.get(job_id)
        if job is None:
            return "unknown", None
        if job.place == "running":
            if job.cancel_at is None:
                job.cancel_at, job.cancel_reason = self.now, reason
            return "asked", job.worker_id
        if job.recurs:
            return "recurring", None
        if job.place == "ended":
            return "ended", None
        self._end_unstarted(job, "cancelled", reason)
        return "cancelled", None

    def retry(self, job_id: str) -> tuple[str, str | None]:
        """Put a job that does not run back into its lane, due now, its attempts at 0."""
        job = self.jobs.get(job_id)
        if job is None or job.recurs or job.place == "running":
            return ("unknown" if job is None else "recurring" if job.recurs else "running"), None
        if job.place == "parked" and job.reason == "unique":
            return "held", job.mark
        if job.place == "ended" and job.hold != HOLD["none"]:
            scope = HOLD["queued"] if job.hold == HOLD["queued"] else HOLD["live"]
            key = self._hold_key(job.tenant, job.unique_key or "", job.id, scope)
            if key.holder != job.id:
                return "held", key.holder
            job.hold = key.scope
        job.attempt = job.crashes = 0
        job.finished_at = None
        self._requeue(job)
        return "queued", None

    def end_by_hand(self, job_id: str, state: str, reason: str) -> str:
        """End a job that has not started as a person says."""
        job = self.jobs.get(job_id)
        if job is None or job.recurs or not job.unstarted:
            return "unknown" if job is None else "recurring" if job.recurs else _unless_running(job, "unknown")
        self._end_unstarted(job, state, reason)
        return "ended"

    def delete(self, job_id: str) -> str:
        """Forget a job that does not run."""
        job = self.jobs.get(job_id)
        if job is None or job.recurs or job.place == "running":
            return "unknown" if job is None else "recurring" if job.recurs else "running"
        if job.unstarted:
            self._end_unstarted(job, "cancelled", None)
        self.keys = {name: key for name, key in self.keys.items() if key.holder != job_id}
        self._forget([job_id])
        return "deleted"

    def set_priority(self, job_id: str, priority: int) -> bool:
        """Change where a job that has not started stands."""
        job = self.jobs.get(job_id)
        if job is None or not job.unstarted:
            return False
        job.priority = priority
        if job.waits_for_key:
            job.reason = "arrived"
        return True

    def reschedule(self, job_id: str, delay_us: int) -> bool:
        """Give a job that has not started another time."""
        job = self.jobs.get(job_id)
        if job is None or not job.unstarted or job.recurs or job.reason == "unique":
            return False
        self._move(job, delay_us)
        return True

    def pause(self, scope: str, name: str, for_us: int | None) -> None:
        """Close a gate or a key."""
        door = self.doors.setdefault((scope, name), Door())
        door.paused, door.paused_until = True, None if for_us is None else self.now + for_us
        if scope == "key":
            self._arrange(name)

    def resume(self, scope: str, name: str) -> bool:
        """Open it. Returns whether it was closed."""
        door = self.doors.get((scope, name))
        if door is None or not door.paused:
            return False
        door.paused, door.paused_until = False, None
        return True

    def set_limit(self, scope: str, name: str, slots: int | None) -> None:
        """State how many may run. Runs under way count at once."""
        self.doors.setdefault((scope, name), Door()).slots = slots
        for job in self.jobs.values():
            if slots is not None and job.place == "running" and (scope, name) in gates_of(job):
                job.limited.add(scope)

    def set_key_limit(self, key: str, slots: int | None) -> None:
        """State how many jobs of one key may run."""
        self.doors.setdefault(("key", key), Door()).slots = slots
        self._arrange(key)

    def set_group(self, slots: int | None, keys: Collection[str]) -> None:
        """State how many jobs of each key may run."""
        self.group_slots = slots
        for key in sorted(keys):
            self._arrange(key)


def _unless_running(job: Job, otherwise: str) -> str:
    return "running" if job.place == "running" else otherwise
