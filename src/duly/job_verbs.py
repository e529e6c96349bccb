"""The verbs for jobs, once: `Duly` has them for every job, `Tenant` for its own. Which those are, its store says."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from duly.domain.audit import current_actor
from duly.domain.clock import from_us
from duly.domain.durations import micros, to_timedelta
from duly.domain.errors import Conflict, InvalidOption, JobNotFound, JobNotRetryable, UniqueKeyHeld
from duly.domain.ids import is_job_id
from duly.domain.rank import check_priority
from duly.domain.records import Counts, Filter
from duly.domain.states import State
from duly.domain.text import clean_text
from duly.job import Job

if TYPE_CHECKING:
    from duly.app import Duly
    from duly.store.store import Store
    from duly.store.tenant import TenantStore
    from duly.tenant import Tenant

R = TypeVar("R")
MOST_LISTED = 10_000
MOST_REASON = 1_000
BATCH = 100


class Bulk(NamedTuple):
    """What became of many jobs: those that a verb was done to, and why it was not done to the others."""

    done: list[str]
    refused: list[tuple[str, str]]


class JobVerbs:
    """What can be done with jobs, by their ids. Mixed into `Duly` and `Tenant`."""

    store: Store | TenantStore

    @property
    def _scope(self) -> Duly | Tenant:
        """What the jobs that are handed out hold."""
        raise NotImplementedError

    def get(self, job_id: str) -> Job[Any]:
        """Find one job, or raise JobNotFound."""
        record = self.store.get(checked_id(job_id))
        if record is None:
            raise unknown_job(job_id)
        return Job(self._scope, job_id, record=record)

    def counts(self) -> Counts:
        """How many jobs stand where."""
        return self.store.counts()

    def _find(
        self,
        *,
        state: State | str | None,
        task: str | None,
        queue: str | None,
        tenant: str | None = None,
        tag: str | None,
        text: str | None,
        before: str | None,
        limit: int,
        offset: int,
    ) -> builtins.list[Job[Any]]:
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
        return [Job(self._scope, record.id, record=record) for record in self.store.find(wanted)]

    # -- act --------------------------------------------------------------------------------------------------

    def cancel(self, job_id: str, reason: str = "cancelled") -> str:
        """Cancel a job. Returns "cancelled" if it had not started, "asked" if its worker was asked to stop it."""
        return self._cancel(job_id, reason, "cancel")

    def _cancel(self, job_id: str, reason: str, action: str) -> str:
        answer, _ = self.store.cancel(
            checked_id(job_id), clean_text(reason, MOST_REASON), actor=current_actor(), action=action
        )
        if answer == "unknown":
            raise unknown_job(job_id)
        if answer == "ended":
            raise Conflict(f"job {job_id} has already ended: it is {self.get(job_id).state}")
        if answer == "recurring":
            raise Conflict(f"job {job_id} recurs and does not run now. Disable it, or delete it")
        return answer

    def retry(self, job_id: str) -> None:
        """Run a job again now, its attempts at 0: one that ended, waits for a later time, is parked, or recurs."""
        self._retry(job_id, "retry")

    def _retry(self, job_id: str, action: str) -> None:
        answer, holder = self.store.retry(checked_id(job_id), actor=current_actor(), action=action)
        if answer == "recurring":
            self._scope.recurring_by_id(job_id).run_now()
        if answer == "unknown":
            raise unknown_job(job_id)
        if answer == "running":
            raise JobNotRetryable(f"job {job_id} is running. Cancel it first, or wait for it to end")
        if answer == "held":
            raise UniqueKeyHeld(
                f"job {job_id} cannot run again: job {holder} has the same unique key. Wait for it, or cancel it"
            )

    def delete(self, job_id: str) -> None:
        """Forget a job and its history. One that runs is refused."""
        answer = self.store.delete(checked_id(job_id), actor=current_actor())
        if answer == "recurring":
            self._scope.recurring_by_id(job_id).delete()
        if answer == "unknown":
            raise unknown_job(job_id)
        if answer == "running":
            raise Conflict(f"job {job_id} is running. Cancel it first")

    def retry_many(self, job_ids: Iterable[str]) -> Bulk:
        """Run many jobs again now, as `retry` does each."""
        actor = current_actor()
        answers = in_batches(job_ids, lambda batch: self.store.retry_many(batch, actor=actor))
        return told_of_many({job_id: answer for job_id, (answer, _) in answers.items()}, ("queued",))

    def cancel_many(self, job_ids: Iterable[str], reason: str = "cancelled") -> Bulk:
        """Cancel many jobs, as `cancel` does each: those that run are asked to stop."""
        reason, actor = clean_text(reason, MOST_REASON), current_actor()
        answers = in_batches(job_ids, lambda batch: self.store.cancel_many(batch, reason, actor=actor))
        return told_of_many({job_id: answer for job_id, (answer, _) in answers.items()}, ("cancelled", "asked"))

    def delete_many(self, job_ids: Iterable[str]) -> Bulk:
        """Forget many jobs, as `delete` does each."""
        actor = current_actor()
        return told_of_many(in_batches(job_ids, lambda batch: self.store.delete_many(batch, actor=actor)), ("deleted",))

    def set_state(self, job_id: str, state: State | str) -> None:
        """Set a job's state by hand: queued runs it again; succeeded, failed or cancelled ends one that waits."""
        wanted = State.parse(state)
        match wanted:
            case State.QUEUED:
                self._retry(job_id, "set_state")
            case State.CANCELLED:
                self._cancel(job_id, "cancelled", "set_state")
            case State.SUCCEEDED | State.FAILED:
                answer = self.store.end_by_hand(checked_id(job_id), wanted, "ended by hand", actor=current_actor())
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
            checked_id(job_id), check_priority(priority), actor=current_actor(), action=action
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
        if not self.store.reschedule(checked_id(job_id), delay_us=delay_us, actor=current_actor()):
            if self.store.is_recurring(job_id):
                self._scope.recurring_by_id(job_id).reschedule(from_us(self.store.now_us() + delay_us))
                return
            raise Conflict(f"job {job_id} no longer waits: it is {self.get(job_id).state}")


def checked_id(job_id: str) -> str:
    """Return `job_id` if it is one."""
    if not is_job_id(job_id):
        raise JobNotFound(f"{job_id!r} is not the id of a job. Ids look like 0190f3c4-7b1e-7c3a-9f00-2a4b6c8d0e12")
    return job_id


def unknown_job(job_id: str) -> JobNotFound:
    """There is no such job."""
    return JobNotFound(f"there is no job {job_id}: it was deleted or pruned, or the id is wrong")


def in_batches(job_ids: Iterable[str], do: Callable[[list[str]], dict[str, R]]) -> dict[str, R]:
    """Do something to each of many jobs, a batch in a transaction."""
    ids = [checked_id(job_id) for job_id in job_ids]
    answers: dict[str, R] = {}
    for start in range(0, len(ids), BATCH):  # in one order, so that two of these do not wait for each other
        answers |= do(sorted(ids[start : start + BATCH]))
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
