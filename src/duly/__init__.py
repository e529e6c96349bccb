"""duly: a job queue and scheduler that lives in the database you already have.

    from duly import Duly

    jobs = Duly()                      # sqlite:///duly.db, or $DULY_URL

    @jobs.task
    def send_welcome(user_id: int) -> None: ...

    send_welcome.enqueue(user_id=42)   # then: duly worker app:jobs
"""

from __future__ import annotations

from duly.__about__ import __version__
from duly.app import Duly
from duly.domain.errors import (
    ArgumentError,
    ArgumentsDoNotFit,
    Cancel,
    ConfigurationError,
    Conflict,
    DatabaseError,
    DatabaseUnavailable,
    DulyError,
    DuplicateTask,
    InvalidOption,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobNotRetryable,
    PayloadTooLarge,
    Retry,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
    Snooze,
    UniqueKeyHeld,
    UnknownTask,
    UnsupportedDatabase,
    WaitTimeout,
    WorkerError,
)
from duly.domain.retry import Backoff
from duly.domain.states import State
from duly.domain.unique import Unique, dedupe_key
from duly.job import Job, Run
from duly.task import Task
from duly.worker.context import current_job

__all__ = [
    "ArgumentError",
    "ArgumentsDoNotFit",
    "Backoff",
    "Cancel",
    "ConfigurationError",
    "Conflict",
    "DatabaseError",
    "DatabaseUnavailable",
    "Duly",
    "DulyError",
    "DuplicateTask",
    "InvalidOption",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "JobNotRetryable",
    "PayloadTooLarge",
    "Retry",
    "Run",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaTooOld",
    "Snooze",
    "State",
    "Task",
    "Unique",
    "UniqueKeyHeld",
    "UnknownTask",
    "UnsupportedDatabase",
    "WaitTimeout",
    "WorkerError",
    "__version__",
    "current_job",
    "dedupe_key",
]
