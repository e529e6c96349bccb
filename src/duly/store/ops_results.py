"""What callers wait for: which jobs have ended, and with what."""

from __future__ import annotations

import json
from collections.abc import Sequence

from duly.domain.records import RunRecord
from duly.store.call import Call, Dialect, Op


def ended_among(dialect: Dialect, ids: Sequence[str]) -> Op[dict[str, str]]:
    """Which of these jobs have ended, and how."""
    if dialect is Dialect.POSTGRES:
        rows = yield Call("ended_among", {"ids": list(ids)})
    else:
        rows = yield Call("ended_among", {"batch": json.dumps(list(ids))})
    return {str(row[0]): str(row[1]) for row in rows}


def last_run(job_id: str) -> Op[RunRecord | None]:
    """The last run of a job."""
    rows = yield Call("last_run", {"id": job_id})
    return RunRecord._make(rows[0]) if rows else None
