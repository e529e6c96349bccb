"""What one run used, as it is handed to those who meter."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple


class UsageRecord(NamedTuple):
    """One run that was settled. (`job_id`, `token`) is of this run alone: attempts begin anew when a job is retried."""

    tenant: str
    task: str
    queue: str
    job_id: str
    token: int
    attempt: int
    outcome: str
    started_at: datetime
    duration: timedelta
