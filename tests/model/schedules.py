"""The part of the model that is about recurring jobs: one job that becomes due again, or a job of its own per tick."""

from __future__ import annotations

from collections.abc import Iterable

from duly.domain.records import HOLD, Settled
from duly.domain.recurring import Ending, NewRecurring, Spawning
from duly.schedule.plan import after_run, due_ticks
from duly.store.ops_recurring_runs import id_of_tick
from tests.model.facts import Job, Recurring


class Schedules:
    """Recurring jobs and how they stand. A base of `Model`, which has the jobs."""

    jobs: dict[str, Job]
    recurring: dict[str, Recurring]

    @property
    def now(self) -> int:
        raise NotImplementedError

    def _forget(self, ids: Iterable[str]) -> None:
        raise NotImplementedError

    def recur(self, new: NewRecurring) -> bool:
        """Make a recurring job that runs at once, or enable the one that there is. Returns whether it is new."""
        for job_id, known in self.recurring.items():
            if (known.new.tenant, known.new.task, known.new.key) == (new.tenant, new.task, new.key):
                self.set_enabled(job_id, True, None)
                return False
        hold = HOLD["spawns" if new.overlap == "allow" else "recurs"]
        self.jobs[new.id] = Job(
            new.id, new.task, new.tenant, new.args, new.priority, new.max_attempts or 0, new.retry, new.timeout_us,
            None, new.limit_key or None, hold, "scheduled", self.now,
        )  # fmt: skip
        self.recurring[new.id] = Recurring(new, self.now, self.now, self.now)
        return True

    def set_enabled(self, job_id: str, enabled: bool, reason: str | None) -> bool:
        """Enable: it runs when it would have, or at once if that has passed. Disable: it is nowhere, or runs on."""
        it = self.recurring.get(job_id)
        if it is None:
            return False
        if it.enabled == enabled:
            return True
        job = self.jobs[job_id]
        if not enabled:
            self._take(it, job)
            it.enabled, it.disabled_by, it.disabled_reason = False, "boss", reason
            return True
        it.failures = 0 if it.disabled_by == "duly" else it.failures
        it.enabled, it.disabled_by, it.disabled_reason = True, None, None
        if job.place != "running":
            at = it.next_run_at or self.now
            it.tick_at = at if it.tick_at is None else it.tick_at
            if at <= self.now:
                at = it.tick_at = self.now
            it.next_run_at = at
            self._place(it, job, at)
        return True

    def _take(self, it: Recurring, job: Job) -> None:
        """Out of its place, its fence kept; one that runs goes on."""
        if job.place != "running":
            it.token = max(it.token, job.token)
            job.place, job.attempt, job.crashes, job.reason = "nowhere", 0, 0, None

    def _place(self, it: Recurring, job: Job, at: int) -> None:
        job.place, job.run_at, job.attempt, job.crashes, job.reason = "scheduled", at, 0, 0, None
        job.token = max(it.token, job.token)

    def run_now(self, job_id: str) -> str:
        """Run it beside its schedule."""
        it = self.recurring.get(job_id)
        if it is None:
            return "unknown"
        job = self.jobs[job_id]
        if not it.enabled or it.new.overlap == "allow" or job.place == "running":
            return "conflict"
        self._place(it, job, self.now)
        it.tick_at = None
        return "done"

    def delete_recurring(self, job_id: str) -> bool:
        """Forget it; a run under way has lost its job."""
        if self.recurring.pop(job_id, None) is None:
            return False
        self._forget([job_id])
        return True

    def after_recurring_run(self, job: Job, run: Settled) -> Settled:
        """A run is over: write down what follows by the rule. Returns where the job goes."""
        it = self.recurring[job.id]
        new = it.new
        ending = Ending(
            job.id, job.token, job.attempt, job.claimed_at or 0, job.cancel_at, it.enabled, it.tick_at, it.next_run_at,
            it.failures, new.tenant, new.task, new.key, new.rule, it.anchor_at, new.misfire, new.cap, new.overlap,
            new.failure, new.pause_after, self.now, None, False,
        )  # fmt: skip
        then = after_run(ending, run)
        if not it.enabled:
            then = then._replace(state="idle", enabled=False, reason=None)
        if then.fresh and it.tick_at is not None and then.tick_at != it.tick_at:
            it.ticks_done.append(it.tick_at)
        it.enabled, it.next_run_at, it.tick_at = then.enabled, then.next_run_at, then.tick_at
        it.failures, it.token = then.failures, job.token
        it.last_outcome = it.last_outcome if run.outcome == "released" else run.outcome
        if then.reason is not None:
            it.disabled_by, it.disabled_reason = "duly", then.reason
        uncounted = job.attempt if then.fresh else run.uncounted
        return run._replace(state=then.state, again_at=then.place_at, uncounted=uncounted, reason=None)

    def _give_back_recurring(self, job: Job, back: Settled) -> None:
        """It goes back to its lane, or is nowhere if it was disabled meanwhile."""
        it = self.recurring[job.id]
        job.attempt -= back.uncounted
        job.worker_id = job.claimed_at = job.cancel_at = job.deadline_at = None
        job.place = "waiting"
        self._keep_if_disabled(job)
        it.token = max(it.token, job.token) if job.place == "nowhere" else it.token

    def _keep_if_disabled(self, job: Job) -> None:
        it = self.recurring[job.id]
        if not it.enabled:
            self._take(it, job)

    def _spawn(self) -> None:
        """Make the jobs of ticks that are due."""
        due = [job for job in self.jobs.values() if job.place == "scheduled" and job.hold == HOLD["spawns"]]
        for job in sorted((job for job in due if job.run_at <= self.now), key=lambda job: (job.run_at, job.id)):
            it = self.recurring[job.id]
            new = it.new
            ticks, following = due_ticks(
                Spawning(
                    job.id, job.run_at, it.tick_at, it.last_tick_at, new.tenant, new.task, new.key, new.rule,
                    it.anchor_at, new.misfire, new.grace_us, new.cap, self.now,
                )
            )  # fmt: skip
            for tick in ticks:
                made = Job(
                    id_of_tick(job.id, tick), job.task, job.tenant, job.args, job.priority, job.max_attempts, job.retry,
                    job.timeout_us, None, job.limit_key, HOLD["none"], "waiting", tick,
                )  # fmt: skip
                if made.limit_key is not None:
                    made.place, made.reason, made.mark = "parked", "arrived", made.limit_key
                self.jobs[made.id] = made
                it.ticks_done.append(tick)
            assert following is not None, "an @every rule has no end"
            job.run_at = it.next_run_at = it.tick_at = following
            if ticks:
                it.last_tick_at, it.last_outcome = max(ticks), "enqueued"
