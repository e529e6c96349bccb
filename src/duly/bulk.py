"""Verbs on many jobs at once that have no single form of their own in a batch: end by hand, set the priority."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from duly.admin import Admin
from duly.domain.audit import current_actor
from duly.domain.errors import Conflict
from duly.domain.rank import check_priority
from duly.domain.states import State
from duly.job_verbs import Bulk, in_batches, told_of_many
from duly.store import ops_jobs
from duly.store.call import Op
from duly.store.database import Hint

if TYPE_CHECKING:
    from duly.domain.audit import Actor

R = TypeVar("R")


class BulkAdmin(Admin):
    """What is done to many jobs alike. Mixed into `Duly`."""

    def set_state_many(self, job_ids: Iterable[str], state: State | str) -> Bulk:
        """Set the state of many jobs by hand, as `set_state` does each."""
        wanted = State.parse(state)
        match wanted:
            case State.QUEUED:
                return self.retry_many(job_ids)
            case State.CANCELLED:
                return self.cancel_many(job_ids)
            case State.SUCCEEDED | State.FAILED:
                answers = self._each(job_ids, self._ending(wanted, current_actor()))
                return told_of_many(answers, ("ended",), {"unknown": "it has already ended, or is gone"})
            case State.RUNNING | State.SCHEDULED | State.DISABLED:
                raise Conflict(f"a job cannot be set to {wanted} by hand: only a worker or a time does that")

    def _each(self, job_ids: Iterable[str], do: Callable[[str], Op[R]]) -> dict[str, R]:
        """Do something to each of many jobs, a batch in a transaction."""
        return in_batches(
            job_ids, lambda batch: self.store.run(lambda: ops_jobs.each_of(self.store.dialect, batch, do))
        )

    def _ending(self, state: State, actor: Actor) -> Callable[[str], Op[str]]:
        return lambda job_id: ops_jobs.end_by_hand(self.store.dialect, job_id, state, "ended by hand", actor=actor)

    def set_priority_many(self, job_ids: Iterable[str], priority: int) -> Bulk:
        """Set the priority of many jobs, as `set_priority` does each."""
        number, actor = check_priority(priority), current_actor()
        answers = self._each(job_ids, lambda job_id: ops_jobs.set_priority(job_id, number, actor=actor))
        self.store.poke(Hint("look"))
        words = {job_id: "set" if done else "late" for job_id, done in answers.items()}
        return told_of_many(words, ("set",), {"late": "it no longer waits"})
