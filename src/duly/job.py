"""A job as the caller holds it: what it is, how it stands, its result."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from duly.domain.clock import from_us
from duly.domain.errors import JobCancelled, JobFailed, JobNotFound, WaitTimeout
from duly.domain.json import decode
from duly.domain.records import JobRecord, RunRecord
from duly.domain.states import State

if TYPE_CHECKING:
    from duly.app import Duly
    from duly.why.answer import Why

R = TypeVar("R")


class Run:
    """One execution of a job, as it was recorded."""

    __slots__ = ("_record",)

    def __init__(self, record: RunRecord) -> None:
        self._record = record

    @property
    def attempt(self) -> int:
        """Which run it was, from 1."""
        return self._record.attempt

    @property
    def outcome(self) -> str:
        """succeeded, failed, cancelled, snoozed, released, crashed or expired."""
        return self._record.outcome

    @property
    def started_at(self) -> datetime:
        """When the handler started."""
        return from_us(self._record.started_at)

    @property
    def finished_at(self) -> datetime:
        """When it ended."""
        return from_us(self._record.finished_at)

    @property
    def duration(self) -> timedelta:
        """How long it took."""
        return self.finished_at - self.started_at

    @property
    def worker_id(self) -> str:
        """Who ran it."""
        return self._record.worker_id

    @property
    def error(self) -> str | None:
        """The message of what it raised."""
        return self._record.error

    @property
    def error_kind(self) -> str | None:
        """The class of what it raised."""
        return self._record.error_kind

    @property
    def traceback(self) -> str | None:
        """Where it raised."""
        return self._record.traceback

    @property
    def log(self) -> list[str]:
        """What it logged."""
        return self._record.log.split("\n") if self._record.log else []

    @property
    def job_id(self) -> str:
        """Whose run it was."""
        return self._record.job_id

    @property
    def token(self) -> int:
        """The fence it ran under."""
        return self._record.token

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "job_id": self.job_id,
            "attempt": self.attempt,
            "token": self.token,
            "outcome": self.outcome,
            "started_at": self.started_at.isoformat(),
            "finished_at": self.finished_at.isoformat(),
            "duration": self.duration.total_seconds(),
            "worker_id": self.worker_id,
            "error_kind": self.error_kind,
            "error": self.error,
            "traceback": self.traceback,
            "log": self.log,
        }


class Job(Generic[R]):
    """A stored job. What it shows is as of the last `refresh()`; `wait()` and `await` give its result."""

    def __init__(self, app: Duly, job_id: str, *, created: bool = True, record: JobRecord | None = None) -> None:
        self._app = app
        self.id = job_id
        self.created = created
        """False if a unique key led to a job that was there already."""
        self._record = record

    def __repr__(self) -> str:
        known = "" if self._record is None else f" {self._record.task} {self._record.state}"
        return f"<Job {self.id}{known}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def record(self) -> JobRecord:
        """Everything stored about it, as of the last refresh."""
        if self._record is None:
            self.refresh()
        assert self._record is not None
        return self._record

    def refresh(self) -> Job[R]:
        """Read it again."""
        record = self._app.store.get(self.id)
        if record is None:
            raise JobNotFound(f"there is no job {self.id}: it was deleted or pruned, or the id is wrong")
        self._record = record
        return self

    # -- how it stands ----------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """scheduled, queued, running, succeeded, failed or cancelled."""
        return self.record.state

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.record.task

    @property
    def queue(self) -> str:
        """Its queue."""
        return self.record.queue

    @property
    def tenant(self) -> str | None:
        """Whose it is; None if nobody's in particular."""
        return self.record.tenant or None

    @property
    def args(self) -> dict[str, Any]:
        """Its arguments, as stored."""
        return cast(dict[str, Any], decode(self.record.args))

    @property
    def priority(self) -> int:
        """0 to 100, higher first."""
        return self.record.priority

    @property
    def attempts(self) -> int:
        """How many runs it has had that count."""
        return self.record.attempt

    @property
    def max_attempts(self) -> int:
        """How many it may have."""
        return self.record.max_attempts

    @property
    def retries(self) -> int:
        """How many of its runs were repetitions."""
        return max(0, self.record.attempt - 1)

    @property
    def created_at(self) -> datetime:
        """When it was enqueued."""
        return from_us(self.record.created_at)

    @property
    def run_at(self) -> datetime | None:
        """When it is or was due; for a job that waits for a retry, when that is. None once it has ended."""
        return None if self.record.run_at is None else from_us(self.record.run_at)

    @property
    def started_at(self) -> datetime | None:
        """When the run under way, or the last one, started."""
        if self.record.claimed_at is not None:
            return from_us(self.record.claimed_at)
        last = self._app.store.last_run(self.id)
        return None if last is None else from_us(last.started_at)

    @property
    def finished_at(self) -> datetime | None:
        """When it ended."""
        return None if self.record.finished_at is None else from_us(self.record.finished_at)

    @property
    def updated_at(self) -> datetime:
        """When anything last happened to it."""
        known = [self.record.created_at, self.record.claimed_at, self.record.finished_at]
        last = self._app.store.last_run(self.id)
        if last is not None:
            known.append(last.finished_at)
        return from_us(max(value for value in known if value is not None))

    @property
    def enqueued_by(self) -> str | None:
        """Who enqueued it, if they said."""
        return self.record.enqueued_by

    @property
    def tags(self) -> list[str]:
        """Its tags."""
        return list(json.loads(self.record.tags)) if self.record.tags else []

    @property
    def unique_key(self) -> str | None:
        """The key that it is unique by."""
        return self.record.unique_key

    @property
    def progress(self) -> float | None:
        """How far its run has come, if it says."""
        return self.record.progress

    @property
    def progress_text(self) -> str | None:
        """What its run says it is doing."""
        return self.record.progress_text

    @property
    def reason(self) -> str | None:
        """Why it failed for good, was cancelled, or is parked."""
        if self.record.detail:
            return f"{self.record.reason}: {self.record.detail}"
        return self.record.reason

    @property
    def runs(self) -> list[Run]:
        """Every run it has had, first to last."""
        return [Run(record) for record in self._app.store.runs_of(self.id)]

    @property
    def last_error(self) -> str | None:
        """The error of its last run that failed."""
        for run in reversed(self.runs):
            if run.error is not None:
                return run.error
        return None

    @property
    def duration(self) -> timedelta | None:
        """How long its last run took."""
        last = self._app.store.last_run(self.id)
        return None if last is None else Run(last).duration

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        record = self.record
        return {
            "id": self.id,
            "task": self.task,
            "queue": self.queue,
            "tenant": self.tenant,
            "state": str(self.state),
            "args": self.args,
            "priority": self.priority,
            "attempts": self.attempts,
            "max_attempts": self.max_attempts,
            "retries": self.retries,
            "created_at": self.created_at.isoformat(),
            "run_at": None if self.run_at is None else self.run_at.isoformat(),
            "started_at": None if record.claimed_at is None else from_us(record.claimed_at).isoformat(),
            "finished_at": None if self.finished_at is None else self.finished_at.isoformat(),
            "enqueued_by": self.enqueued_by,
            "tags": self.tags,
            "unique_key": self.unique_key,
            "progress": self.progress,
            "progress_text": self.progress_text,
            "reason": self.reason,
            "worker_id": record.worker_id,
        }

    def why(self) -> Why:
        """Say why it does not run, or how it stands: the reason, all that holds it, and what to do next."""
        return self._app.why(self.id)

    # -- its result -------------------------------------------------------------------------------------------

    def wait(self, timeout: float | timedelta | None = None) -> R:
        """Wait for the result. Raises JobFailed, JobCancelled, or WaitTimeout when the time is up."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        self.refresh()
        if not self.state.terminal and self._app.waiters.wait(self.id, seconds) is None:
            raise WaitTimeout(f"job {self.id} has not ended within {seconds} s. It is {self.refresh().state}")
        return self.result()

    def __await__(self) -> Generator[Any, None, R]:
        return self._await().__await__()

    async def _await(self) -> R:
        import asyncio  # here, so that `import duly` stays quick

        loop = asyncio.get_running_loop()
        ended: asyncio.Future[str] = loop.create_future()

        def settle(state: str) -> None:
            if not ended.done():
                ended.set_result(state)

        def tell(state: str) -> None:
            with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(settle, state)

        self._app.waiters.add(self.id, tell)
        try:
            await asyncio.to_thread(self.refresh)
            if not self.state.terminal:
                await ended
        finally:
            self._app.waiters.remove(self.id, tell)
        return await asyncio.to_thread(self.result)

    def result(self) -> R:
        """The result of a job that succeeded, as its task's return type. Raises JobFailed or JobCancelled."""
        state = self.refresh().state
        last = self._app.store.last_run(self.id)
        if state is State.SUCCEEDED:
            value = None if last is None or last.result is None else decode(last.result)
            definition = self._app.registry.tasks.get(self.task)
            return cast(R, value if definition is None else definition.signature.load_result(value))
        if state is State.FAILED:
            error = f"{last.error_kind}: {last.error}" if last is not None and last.error_kind else self.reason or ""
            raise JobFailed(
                f"job {self.id} ({self.task}) failed after {self.attempts} of {self.max_attempts} runs. {error}",
                job_id=self.id,
                kind="" if last is None else last.error_kind or "",
                traceback="" if last is None else last.traceback or "",
            )
        if state is State.CANCELLED:
            raise JobCancelled(
                f"job {self.id} ({self.task}) was cancelled: {self.reason}", job_id=self.id, reason=self.reason or ""
            )
        raise WaitTimeout(f"job {self.id} ({self.task}) has no result yet: it is {state}")

    # -- what can be done with it -----------------------------------------------------------------------------

    def cancel(self, reason: str = "cancelled") -> str:
        """Cancel it. Returns "cancelled" if it had not started, "asked" if its worker was asked to stop it."""
        return self._app.cancel(self.id, reason)

    def retry(self) -> None:
        """Run it again now, its attempts at 0."""
        self._app.retry(self.id)
