"""What operators do, once: the CLI, the HTTP API and the dashboard call these and nothing else."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from duly.domain.audit import current_actor
from duly.domain.clock import from_us, to_us
from duly.domain.durations import micros, to_timedelta
from duly.domain.errors import Conflict, InvalidOption, JobNotFound, JobNotRetryable, UniqueKeyHeld
from duly.domain.ids import is_job_id
from duly.domain.names import check_queue_name, check_tenant, check_text
from duly.domain.rank import STRICT_HORIZON_US, check_priority
from duly.domain.records import Counts, Filter, Pause, WorkerRecord
from duly.domain.states import State
from duly.domain.text import clean_text
from duly.job import Job, Run
from duly.limiting import gate_named
from duly.maintenance.prune import Retention, prune_some
from duly.store import ops_jobs
from duly.store.call import Op
from duly.store.database import Hint
from duly.worker.identity import is_alive

if TYPE_CHECKING:
    from duly.app import Duly
    from duly.config import Settings
    from duly.doctor.finding import Finding
    from duly.store.store import Store
    from duly.why.answer import Group, Why

R = TypeVar("R")
MOST_LISTED = 10_000
MOST_REASON = 1_000
BATCH = 100


class Bulk(NamedTuple):
    """What became of many jobs: those that a verb was done to, and why it was not done to the others."""

    done: list[str]
    refused: list[tuple[str, str]]


class Admin:
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

    def get(self, job_id: str) -> Job[Any]:
        """Find one job, or raise JobNotFound."""
        record = self.store.get(_checked(job_id))
        if record is None:
            raise _unknown(job_id)
        return Job(self._app, job_id, record=record)

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
        """List jobs, newest first. `before` is the id of the last job of the page before."""
        if not 0 < limit <= MOST_LISTED:
            raise InvalidOption(f"limit must be 1 to {MOST_LISTED}, not {limit}")
        if offset < 0:
            raise InvalidOption(f"offset must not be negative, and {offset} is")
        if before is not None and not is_job_id(before):
            raise InvalidOption(f"before must be the id of a job, not {before!r}")
        wanted = Filter(
            state=None if state is None else State.parse(state),
            task=task,
            queue=queue,
            tenant=tenant,
            tag=tag,
            text=text,
            before_id=before,
            limit=limit,
            offset=offset,
        )
        return [Job(self._app, record.id, record=record) for record in self.store.find(wanted)]

    def runs(self, *, task: str | None = None, tenant: str | None = None, limit: int = 100) -> builtins.list[Run]:
        """The runs that ended last, newest first."""
        return [Run(record) for record in self.store.recent_runs(task=task, tenant=tenant, n=limit)]

    def workers(self) -> builtins.list[WorkerRecord]:
        """Every worker on record."""
        return self.store.workers()

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

        found = why(self._app, _checked(job_id), tenant=tenant)
        if found is None:
            raise _unknown(job_id)
        return found

    def why_waiting(self, *, queue: str | None = None, tenant: str | None = None) -> builtins.list[Group]:
        """Say what holds all that waits, in a queue or in all of them, grouped by reason. By lanes, so never slow."""
        from duly.why.ask import why_waiting

        return why_waiting(self._app, queue=None if queue is None else check_queue_name(queue), tenant=tenant)

    def counts(self) -> Counts:
        """How many jobs stand where."""
        return self.store.counts()

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

    def cancel(self, job_id: str, reason: str = "cancelled") -> str:
        """Cancel a job. Returns "cancelled" if it had not started, "asked" if its worker was asked to stop it."""
        return self._cancel(job_id, reason, "cancel")

    def _cancel(self, job_id: str, reason: str, action: str) -> str:
        answer, _ = self.store.cancel(
            _checked(job_id), clean_text(reason, MOST_REASON), actor=current_actor(), action=action
        )
        if answer == "unknown":
            raise _unknown(job_id)
        if answer == "ended":
            raise Conflict(f"job {job_id} has already ended: it is {self.get(job_id).state}")
        if answer == "recurring":
            raise Conflict(f"job {job_id} recurs and does not run now. Disable it, or delete it")
        return answer

    def retry(self, job_id: str) -> None:
        """Run a job again now, its attempts at 0: one that ended, waits for a later time, is parked, or recurs."""
        self._retry(job_id, "retry")

    def _retry(self, job_id: str, action: str) -> None:
        answer, holder = self.store.retry(_checked(job_id), actor=current_actor(), action=action)
        if answer == "recurring":
            self._app.recurring_by_id(job_id).run_now()
        if answer == "unknown":
            raise _unknown(job_id)
        if answer == "running":
            raise JobNotRetryable(f"job {job_id} is running. Cancel it first, or wait for it to end")
        if answer == "held":
            raise UniqueKeyHeld(
                f"job {job_id} cannot run again: job {holder} has the same unique key. Wait for it, or cancel it"
            )

    def delete(self, job_id: str) -> None:
        """Forget a job and its history. One that runs is refused."""
        answer = self.store.delete(_checked(job_id), actor=current_actor())
        if answer == "recurring":
            self._app.recurring_by_id(job_id).delete()
        if answer == "unknown":
            raise _unknown(job_id)
        if answer == "running":
            raise Conflict(f"job {job_id} is running. Cancel it first")

    def retry_many(self, job_ids: Iterable[str]) -> Bulk:
        """Run many jobs again now, as `retry` does each."""
        actor = current_actor()
        answers = self._each(job_ids, lambda job_id: ops_jobs.retry(self.store.dialect, job_id, actor=actor))
        self.store.poke(Hint("look"))
        return told_of_many({job_id: answer for job_id, (answer, _) in answers.items()}, ("queued",))

    def cancel_many(self, job_ids: Iterable[str], reason: str = "cancelled") -> Bulk:
        """Cancel many jobs, as `cancel` does each: those that run are asked to stop."""
        reason, actor = clean_text(reason, MOST_REASON), current_actor()
        answers = self._each(job_ids, lambda job_id: ops_jobs.cancel(self.store.dialect, job_id, reason, actor=actor))
        for job_id, (answer, _) in answers.items():
            if answer == "asked":
                self.store.poke(Hint("cancel", job_id=job_id))
        return told_of_many({job_id: answer for job_id, (answer, _) in answers.items()}, ("cancelled", "asked"))

    def delete_many(self, job_ids: Iterable[str]) -> Bulk:
        """Forget many jobs, as `delete` does each."""
        actor = current_actor()
        answers = self._each(job_ids, lambda job_id: ops_jobs.delete(self.store.dialect, job_id, actor=actor))
        return told_of_many(answers, ("deleted",))

    def _each(self, job_ids: Iterable[str], do: Callable[[str], Op[R]]) -> dict[str, R]:
        """Do something to each of many jobs, a batch in a transaction."""
        ids = [_checked(job_id) for job_id in job_ids]
        answers: dict[str, R] = {}
        for start in range(0, len(ids), BATCH):
            batch = sorted(ids[start : start + BATCH])  # in one order, so that two of these do not wait for each other
            answers |= self.store.run(partial(_one_after_another, batch, do))
        return answers

    def set_state(self, job_id: str, state: State | str) -> None:
        """Set a job's state by hand: queued runs it again; succeeded, failed or cancelled ends one that waits."""
        wanted = State.parse(state)
        match wanted:
            case State.QUEUED:
                self._retry(job_id, "set_state")
            case State.CANCELLED:
                self._cancel(job_id, "cancelled", "set_state")
            case State.SUCCEEDED | State.FAILED:
                answer = self.store.end_by_hand(_checked(job_id), wanted, "ended by hand", actor=current_actor())
                if answer == "running":
                    raise Conflict(f"job {job_id} is running. Cancel it first")
                if answer == "recurring":
                    raise Conflict(f"job {job_id} recurs and has no end. Disable it, or delete it")
                if answer == "unknown":
                    raise Conflict(f"job {job_id} has already ended: it is {self.get(job_id).state}")
            case State.RUNNING | State.SCHEDULED | State.DISABLED:
                raise Conflict(f"a job cannot be set to {wanted} by hand: only a worker or a time does that")

    def set_priority(self, job_id: str, priority: int) -> None:
        """Change the priority of a job that has not started."""
        self._set_priority(job_id, priority, "set_priority")

    def _set_priority(self, job_id: str, priority: int, action: str) -> None:
        if not self.store.set_priority(
            _checked(job_id), check_priority(priority), actor=current_actor(), action=action
        ):
            raise Conflict(f"job {job_id} no longer waits: it is {self.get(job_id).state}")

    def boost(self, job_id: str, by: int = 10) -> int:
        """Raise a job's priority, to 100 at most. Returns what it is now."""
        priority = min(100, self.get(job_id).priority + by)
        self._set_priority(job_id, priority, "boost")
        return priority

    def reschedule(self, job_id: str, *, delay: timedelta | float | str = 0) -> None:
        """Give a job that has not started another time, counted from now."""
        delay_us = micros(to_timedelta(delay, "delay"))
        if not self.store.reschedule(_checked(job_id), delay_us=delay_us, actor=current_actor()):
            if self.store.is_recurring(job_id):
                self._app.recurring_by_id(job_id).reschedule(from_us(self.store.now_us() + delay_us))
                return
            raise Conflict(f"job {job_id} no longer waits: it is {self.get(job_id).state}")

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
        """Let a queue, a task, a tenant or a key go on. Returns whether it was paused."""
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

    def weights(self) -> dict[str, float]:
        """The tenants whose weight is not 1."""
        return self.store.gates.weights()

    def paused(self) -> builtins.list[Pause]:
        """What is paused, since when, until when, by whom and why."""
        return self.store.gates.paused()

    def prune(self) -> int:
        """Forget what is older than the retention says, now. Returns how much went: jobs, runs of recurring ones."""
        gone = 0
        while True:
            n = prune_some(self.store, self.retention, whole=True, actor=current_actor())
            gone += n
            if n == 0:
                return gone

    @property
    def _app(self) -> Duly:
        from duly.app import Duly

        assert isinstance(self, Duly)
        return self


def _checked(job_id: str) -> str:
    if not is_job_id(job_id):
        raise JobNotFound(f"{job_id!r} is not the id of a job. Ids look like 0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12")
    return job_id


def _unknown(job_id: str) -> JobNotFound:
    return JobNotFound(f"there is no job {job_id}: it was deleted or pruned, or the id is wrong")


def _one_after_another(batch: Sequence[str], do: Callable[[str], Op[R]]) -> Op[dict[str, R]]:
    answers: dict[str, R] = {}
    for job_id in batch:
        answers[job_id] = yield from do(job_id)
    return answers


_REFUSALS = {
    "unknown": "it is gone",
    "ended": "it has already ended",
    "running": "it is running",
    "held": "another job has its unique key",
    "recurring": "it recurs: disable or delete it, or run it now",
}


def told_of_many(answers: dict[str, str], accepted: tuple[str, ...], words: Mapping[str, str] = _REFUSALS) -> Bulk:
    """Tell what became of many jobs by what the store answered about each."""
    why = _REFUSALS | dict(words)
    return Bulk(
        [job_id for job_id, answer in answers.items() if answer in accepted],
        [(job_id, why.get(answer, answer)) for job_id, answer in answers.items() if answer not in accepted],
    )
