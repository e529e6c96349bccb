"""duly: a job queue and scheduler that lives in the database you already have.

Declare a task, enqueue a job, start a worker:

    from duly import Duly

    jobs = Duly()                      # sqlite:///duly.db, or $DULY_URL

    @jobs.task
    def send_welcome(user_id: int) -> None: ...

    send_welcome.enqueue(user_id=42)   # then: duly worker app:jobs
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duly.__about__ import __version__

if TYPE_CHECKING:
    from duly.alerting import AlertRecord
    from duly.alerts.deliver import AlertEvent
    from duly.app import Duly
    from duly.audit import AuditRecord
    from duly.domain.errors import (
        AlertNotFound,
        AlreadyRegistered,
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
        InvalidSchedule,
        JobCancelled,
        JobFailed,
        JobNotFound,
        JobNotRetryable,
        MirrorFailed,
        MirrorHookMissing,
        NotCommitted,
        NotRegistered,
        PayloadTooLarge,
        QueueFull,
        QuotaExceeded,
        RateLimited,
        RecurringJobNotFound,
        Retry,
        SchemaInUse,
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
    from duly.domain.limits import Breaker, Limit, Rate
    from duly.domain.recurring import Change
    from duly.domain.retry import Backoff
    from duly.domain.states import State
    from duly.domain.unique import Unique, dedupe_key
    from duly.domain.usage import UsageRecord
    from duly.job import Job, Run
    from duly.recurring import RecurringJob
    from duly.schedule.schedule import Schedule
    from duly.task import Task
    from duly.tenant import Tenant
    from duly.usage import Usage
    from duly.why.answer import Why
    from duly.worker.context import current_job
else:
    from duly._lazy import importer

    __getattr__ = importer(
        __name__,
        {
            "duly.alerting": ("AlertRecord",),
            "duly.alerts.deliver": ("AlertEvent",),
            "duly.app": ("Duly",),
            "duly.audit": ("AuditRecord",),
            "duly.domain.errors": (
                "AlertNotFound",
                "AlreadyRegistered",
                "ArgumentError",
                "ArgumentsDoNotFit",
                "Cancel",
                "ConfigurationError",
                "Conflict",
                "DatabaseError",
                "DatabaseUnavailable",
                "DulyError",
                "DuplicateTask",
                "InvalidOption",
                "InvalidSchedule",
                "JobCancelled",
                "JobFailed",
                "JobNotFound",
                "JobNotRetryable",
                "MirrorFailed",
                "MirrorHookMissing",
                "NotCommitted",
                "NotRegistered",
                "PayloadTooLarge",
                "QueueFull",
                "QuotaExceeded",
                "RateLimited",
                "RecurringJobNotFound",
                "Retry",
                "SchemaInUse",
                "SchemaMissing",
                "SchemaTooNew",
                "SchemaTooOld",
                "Snooze",
                "UniqueKeyHeld",
                "UnknownTask",
                "UnsupportedDatabase",
                "WaitTimeout",
                "WorkerError",
            ),
            "duly.domain.limits": ("Breaker", "Limit", "Rate"),
            "duly.domain.retry": ("Backoff",),
            "duly.domain.states": ("State",),
            "duly.domain.unique": ("Unique", "dedupe_key"),
            "duly.domain.recurring": ("Change",),
            "duly.domain.usage": ("UsageRecord",),
            "duly.job": ("Job", "Run"),
            "duly.recurring": ("RecurringJob",),
            "duly.schedule.schedule": ("Schedule",),
            "duly.task": ("Task",),
            "duly.tenant": ("Tenant",),
            "duly.usage": ("Usage",),
            "duly.why.answer": ("Why",),
            "duly.worker.context": ("current_job",),
        },
    )

__all__ = [
    "AlertEvent",
    "AlertNotFound",
    "AlertRecord",
    "AlreadyRegistered",
    "ArgumentError",
    "ArgumentsDoNotFit",
    "AuditRecord",
    "Backoff",
    "Breaker",
    "Cancel",
    "Change",
    "ConfigurationError",
    "Conflict",
    "DatabaseError",
    "DatabaseUnavailable",
    "Duly",
    "DulyError",
    "DuplicateTask",
    "InvalidOption",
    "InvalidSchedule",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "JobNotRetryable",
    "Limit",
    "MirrorFailed",
    "MirrorHookMissing",
    "NotCommitted",
    "NotRegistered",
    "PayloadTooLarge",
    "QueueFull",
    "QuotaExceeded",
    "Rate",
    "RateLimited",
    "RecurringJob",
    "RecurringJobNotFound",
    "Retry",
    "Run",
    "Schedule",
    "SchemaInUse",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaTooOld",
    "Snooze",
    "State",
    "Task",
    "Tenant",
    "Unique",
    "UniqueKeyHeld",
    "UnknownTask",
    "UnsupportedDatabase",
    "Usage",
    "UsageRecord",
    "WaitTimeout",
    "Why",
    "WorkerError",
    "__version__",
    "current_job",
    "dedupe_key",
]


def __dir__() -> list[str]:
    return __all__
