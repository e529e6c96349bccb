"""Every error that duly raises, and the signals by which a handler steers its own job.

    DulyError
    ├── ArgumentError (ValueError)         what you enqueue is refused; .path says where
    │   └── PayloadTooLarge
    ├── ArgumentsDoNotFit                  what was stored no longer fits the code; .path, .reason
    ├── InvalidOption (ValueError)         priority, delay, run_at, name, ...; .option says which, if known
    │   └── InvalidSchedule                .text is what was refused, .position where in it
    ├── ConfigurationError                 settings, task declarations, type hints
    │   └── DuplicateTask
    ├── UnknownTask (LookupError)
    ├── DatabaseError
    │   ├── DatabaseUnavailable
    │   ├── UnsupportedDatabase
    │   ├── SchemaMissing
    │   ├── SchemaTooOld
    │   ├── SchemaTooNew
    │   └── SchemaInUse
    ├── JobNotFound (LookupError)
    │   └── RecurringJobNotFound
    ├── AlertNotFound (LookupError)
    ├── Conflict                           a verb that the job's state does not allow
    │   ├── JobNotRetryable
    │   ├── UniqueKeyHeld
    │   ├── AlreadyRegistered              register() twice in one process
    │   ├── NotRegistered                  unregister() of what this process never registered
    │   └── MirrorHookMissing
    ├── QueueFull                          as many jobs wait in a queue as may
    ├── QuotaExceeded                      a tenant has had what it may
    ├── MirrorFailed                       what must happen beside a change failed; the change was not made
    ├── StaleRun                           a run that no longer owns its job
    ├── NotCommitted                       a run completed in a transaction that was then not committed
    ├── JobFailed, JobCancelled            raised by waiting for a result
    ├── WaitTimeout (TimeoutError)
    └── WorkerError

    Steer                                  raised by handlers; not errors
    ├── Snooze                             later, not counted as an attempt
    │   └── RateLimited                    the same, and nothing else of its key or task starts meanwhile
    ├── Retry                              later, counted
    └── Cancel                             never

The docstring of a class is its message where the raiser gives none. All of them survive being copied between
processes: what they carry is in `args` and in plain attributes.
"""

from __future__ import annotations

import inspect
from datetime import timedelta


class DulyError(Exception):
    """Something in duly went wrong."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or inspect.getdoc(type(self)))


class ArgumentError(DulyError, ValueError):
    """An argument cannot be stored: pass a value of the parameter's type that JSON can hold."""

    def __init__(self, message: str = "", *, path: str = "args") -> None:
        super().__init__(message)
        self.path = path


class PayloadTooLarge(ArgumentError):
    """The arguments are too large: store the data elsewhere and pass its key, or raise the limit."""

    def __init__(self, message: str = "", *, path: str = "args", size: int = 0, limit: int = 0) -> None:
        super().__init__(message, path=path)
        self.size = size
        self.limit = limit


class ArgumentsDoNotFit(DulyError):
    """The stored arguments no longer fit the task: deploy code that accepts them, or cancel the job."""

    def __init__(self, message: str = "", *, path: str = "args", reason: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.reason = reason


class InvalidOption(DulyError, ValueError):
    """An option has a value that is not allowed."""

    def __init__(self, message: str = "", *, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


class InvalidSchedule(InvalidOption):
    """A schedule cannot be read: write for instance '@hourly', '@every 1h30m' or '0 9 * * mon-fri'."""

    def __init__(
        self, message: str = "", *, text: str = "", position: int | None = None, option: str | None = None
    ) -> None:
        super().__init__(message, option=option)
        self.text = text
        self.position = position


class ConfigurationError(DulyError):
    """The configuration is not valid."""


class DuplicateTask(ConfigurationError):
    """Two tasks have one name: give one of them another with @jobs.task(name=...)."""


class UnknownTask(DulyError, LookupError):
    """No task has this name: import the module that declares it, or check the spelling."""


class DatabaseError(DulyError):
    """The database refused an operation."""


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached: check its address, and whether it is running."""


class UnsupportedDatabase(DatabaseError):
    """This database is not supported: use SQLite (3.35 or newer) or PostgreSQL."""


class SchemaMissing(DatabaseError):
    """The database has no tables of duly: run `duly migrate`."""


class SchemaTooOld(DatabaseError):
    """The tables are older than this version of duly: run `duly migrate`."""


class SchemaTooNew(DatabaseError):
    """The tables are newer than this version of duly: upgrade with `pip install --upgrade duly`."""


class SchemaInUse(DatabaseError):
    """Workers live that could not work on the tables any more: upgrade or stop them, then run `duly migrate`."""


class AlertNotFound(DulyError, LookupError):
    """There is no such alert. See: duly alerts --all"""


class JobNotFound(DulyError, LookupError):
    """There is no such job: it was deleted or pruned, or its id is wrong."""


class Conflict(DulyError):
    """The state of the job does not allow this."""


class JobNotRetryable(Conflict):
    """The job cannot be retried: it is running or has succeeded."""


class UniqueKeyHeld(Conflict):
    """Another job holds this unique key: wait for it to end, or cancel it."""


class RecurringJobNotFound(JobNotFound):
    """There is no such recurring job: make it with task.recur(key=...), or check the task and the key."""


class AlreadyRegistered(Conflict):
    """This process has registered this id already: unregister it first."""


class NotRegistered(Conflict, LookupError):
    """This process has not registered this id."""


class MirrorHookMissing(Conflict):
    """A Python hook must see this change, and this process has not loaded it: make the change where the task is."""


class QueueFull(DulyError):
    """As many jobs wait in this queue as may: enqueue later, or raise the limit."""


class QuotaExceeded(DulyError):
    """The tenant has had what it may: enqueue later, or raise its quota. `retry_after` says when, if a time helps."""

    def __init__(self, message: str = "", *, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class MirrorFailed(DulyError):
    """What must happen beside a change of a recurring job failed, so the change was not made."""


class StaleRun(DulyError):
    """This run no longer owns its job: its lease lapsed and the job was given to another worker."""


class NotCommitted(DulyError):
    """The handler returned, but the transaction in which it completed its job was not committed: commit it there."""


class JobFailed(DulyError):
    """The job failed."""

    def __init__(self, message: str = "", *, job_id: str = "", kind: str = "", traceback: str = "") -> None:
        super().__init__(message)
        self.job_id = job_id
        self.kind = kind
        self.traceback = traceback


class JobCancelled(DulyError):
    """The job was cancelled."""

    def __init__(self, message: str = "", *, job_id: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.job_id = job_id
        self.reason = reason


class WaitTimeout(DulyError, TimeoutError):
    """The job had not ended when the wait was over: it is still there, wait again or look at its state."""


class WorkerError(DulyError):
    """The worker cannot go on."""


class Steer(Exception):
    """What a handler raises to say how its job goes on."""


class Snooze(Steer):
    """Run the job again after `delay`; this attempt does not count."""

    def __init__(self, delay: timedelta) -> None:
        self.delay = _not_negative("Snooze(delay)", delay)
        super().__init__(delay)

    def __str__(self) -> str:
        return f"snoozed for {self.delay}"


class RateLimited(Snooze):
    """What the job calls wants to be left alone for `retry_after`: so long nothing of its key, or task, starts.

    This attempt does not count. `retry_after` is a timedelta, a number of seconds, or text such as "1m30s".
    """

    def __init__(self, retry_after: timedelta | float | str, reason: str = "") -> None:
        from duly.domain.durations import to_timedelta  # here, as that module needs this one

        super().__init__(to_timedelta(retry_after, "RateLimited(retry_after)"))
        self.reason = reason
        self.args = (retry_after, reason)

    def __str__(self) -> str:
        return f"rate limited for {self.delay}" + (f": {self.reason}" if self.reason else "")


class Cancel(Steer):
    """End the job as cancelled; it is not retried."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return f"cancelled: {self.reason}" if self.reason else "cancelled"


class Retry(Steer):
    """Run the job again, `after` this delay or what its policy says; this attempt counts."""

    def __init__(self, after: timedelta | None = None, reason: str = "") -> None:
        self.after = None if after is None else _not_negative("Retry(after)", after)
        self.reason = reason
        super().__init__(after, reason)

    def __str__(self) -> str:
        when = "" if self.after is None else f" after {self.after}"
        return f"retry{when}: {self.reason}" if self.reason else f"retry{when}"


def _not_negative(what: str, delay: timedelta) -> timedelta:
    if not isinstance(delay, timedelta):
        raise InvalidOption(f"{what} must be a timedelta, e.g. timedelta(seconds=30), not {delay!r}.")
    if delay < timedelta(0):
        raise InvalidOption(f"{what} must not be negative, and {delay} is.")
    return delay
